/* SPDX-License-Identifier: Apache-2.0 */
/* Each type of value has functions that parse text, write JSON, and free. JSON is read as text, so that a parameter and
 * a field of volume.json get the same checks. Values are the same if their JSON is. */
#include "keys.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/glob.h"
#include "util/x509.h"
#include <assert.h>
#include <ctype.h>
#include <stdio.h>

struct type {
    int (*parse)(const struct spec_key *key, void *field, struct str text, struct err *err);
    void (*write)(const struct spec_key *key, const void *field, json *j, const char *path);
    void (*free)(void *field); /* NULL: it owns nothing */
    /* Of a new value, where a record may have more; NULL: parse() */
    int (*parse_new)(const struct spec_key *key, void *field, struct str text, struct err *err);
};

static int refuse(const struct spec_key *key, struct str text, struct err *err, const char *why, ...) printf_like(4, 5);
static int refuse(const struct spec_key *key, struct str text, struct err *err, const char *why, ...)
{
    char reason[ERR_ADVICE_MAX];
    va_list args;
    va_start(args, why);
    vsnprintf(reason, sizeof reason, why, args);
    va_end(args);
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID, "'%s': invalid value '%.*s': %s", key->name,
                    (int)min_u64(text.len, 100), text.len ? text.ptr : "", reason);
}

/* ---- text, paths, payers ----------------------------------------------------------------------------------------- */

static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f)
            return false;
    return s.len <= SPEC_TEXT_MAX && str_is_utf8(s);
}

static bool is_of(struct str s, const char *marks)
{
    for (size_t i = 0; i < s.len; i++)
        if (!isascii(s.ptr[i]) || (!isalnum((unsigned char)s.ptr[i]) && !strchr(marks, s.ptr[i])))
            return false;
    return true;
}

static int text_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    if (!is_plain(text))
        return refuse(key, STR("..."), err, "expected UTF-8 of at most %d bytes, without control characters",
                      SPEC_TEXT_MAX);
    if (key->alphabet && !is_of(text, key->alphabet))
        return refuse(key, STR("..."), err, "expected letters, digits and any of %s", key->alphabet);
    text_set(field, text);
    return 0;
}

/* Checked here, because libcurl would only report that it does not trust the server. */
static int pem_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    struct err why;
    if (text.len > SPEC_PEM_MAX)
        return refuse(key, STR("..."), err, "at most %d bytes of certificates are allowed", SPEC_PEM_MAX);
    if (text.len && x509_check_bundle(text, &why) < 0)
        return refuse(key, STR("..."), err, "%.150s", why.text);
    text_set(field, text);
    return 0;
}

static int path_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    struct err why;
    if (text.len && path_check(text, &why) < 0)
        return refuse(key, text, err, "%.150s", why.text);
    return text_parse(key, field, text, err);
}

static int payer_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    return text_parse(key, field, str_eq(text, STR("false")) ? STR_NULL : text, err);
}

static void text_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    const char *text = *(char *const *)field;
    if (text)
        json_set_str(j, path, str_of(text));
}

static void text_free(void *field)
{
    text_set(field, STR_NULL);
}

/* ---- URIs -------------------------------------------------------------------------------------------------------- */

static int uri_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    struct spec_uri *u = field;
    if (text.len < key->least) /* an empty export.uri would be a policy that exports nothing */
        return refuse(key, text, err, "it is empty");
    int r = text_parse(key, &u->text, text, err);
    if (r == 0)
        u->view = uri_split(str_of(u->text));
    return r;
}

static int check_uri(const struct spec_key *key, struct str text, struct err *err)
{
    struct err why;
    if (text.len == 0 || uri_check(text, &why) == 0)
        return 0;
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID, "'%s': %s: " SPEC_URI_FORMS, key->name, why.text);
}

static int uri_parse_new(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    int r = check_uri(key, text, err);
    return r < 0 ? r : uri_parse(key, field, text, err);
}

static void uri_write(const struct spec_key *key, const void *field, json *j, const char *path)
{
    text_write(key, &((const struct spec_uri *)field)->text, j, path);
}

static void uri_free(void *field)
{
    struct spec_uri *u = field;
    free(u->text);
    *u = (struct spec_uri){0};
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void number_store(void *field, uint64_t n)
{
    *(uint64_t *)field = n;
}

static uint64_t number_load(const void *field)
{
    return *(const uint64_t *)field;
}

static void number_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    json_set_u64(j, path, number_load(field));
}

static int count_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    uint64_t n;
    if (str_to_u64(text, &n, ERR_IGNORED) < 0 || n < key->least || n > key->most)
        return refuse(key, text, err, "expected a whole number from %llu to %llu", (unsigned long long)key->least,
                      (unsigned long long)key->most);
    number_store(field, n);
    return 0;
}

static int bytes_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    uint64_t n;
    /* JSON has signed numbers: a larger one could not be read again. */
    if (str_to_bytes(text, &n, ERR_IGNORED) < 0 || n > INT64_MAX)
        return refuse(key, text, err, "expected a quantity of bytes such as 512Mi or 1.5G");
    number_store(field, n);
    return 0;
}

static int duration_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    uint64_t n;
    if (str_to_duration(text, &n, ERR_IGNORED) < 0)
        return refuse(key, text, err, "expected a duration such as 250ms, 30s or 1h30m");
    number_store(field, n - n % NS_PER_MS + (n % NS_PER_MS ? NS_PER_MS : 0));
    return 0;
}

static void duration_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    char text[32];
    snprintf(text, sizeof text, "%llums", (unsigned long long)(number_load(field) / NS_PER_MS));
    json_set_str(j, path, str_of(text));
}

static int mode_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    uint64_t mode = 0;
    bool good = text.len >= 1 && text.len <= 4 && str_is_of(text, "01234567");
    for (size_t i = 0; good && i < text.len; i++)
        mode = mode * 8 + (uint64_t)(text.ptr[i] - '0');
    if (!good || mode > 0777)
        return refuse(key, text, err, "expected octal permission bits up to 0777, as text");
    number_store(field, mode);
    return 0;
}

static void mode_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    char text[16];
    snprintf(text, sizeof text, "%04llo", (unsigned long long)number_load(field));
    json_set_str(j, path, str_of(text));
}

/* ---- bool and choices -------------------------------------------------------------------------------------------- */

static int bool_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    bool yes = str_eq(text, STR("true"));
    if (!yes && !str_eq(text, STR("false")))
        return refuse(key, text, err, "expected true or false");
    *(bool *)field = yes;
    return 0;
}

static void bool_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    json_set_bool(j, path, *(const bool *)field);
}

static bool choice_index(const struct spec_key *key, struct str text, uint64_t *ret)
{
    struct str rest = str_of(key->choices), choice;
    for (uint64_t i = 0; str_split(&rest, ' ', &choice); i++)
        if (str_eq(choice, text)) {
            *ret = i;
            return true;
        }
    return false;
}

uint64_t spec_choice(const char *key, struct str text)
{
    const struct spec_key *k = spec_key_find(str_of(key), ERR_IGNORED);
    uint64_t index;
    assert(k && k->type == TYPE_ENUM);
    return choice_index(k, text, &index) ? index : 0;
}

static struct str choice_name(const struct spec_key *key, uint64_t index)
{
    struct str rest = str_of(key->choices), choice = STR_NULL;
    for (uint64_t i = 0; i <= index; i++)
        if (!str_split(&rest, ' ', &choice))
            return STR_NULL;
    return choice;
}

static int enum_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    uint64_t index;
    if (!choice_index(key, text, &index))
        return refuse(key, text, err, "expected one of %s", key->choices);
    number_store(field, index);
    return 0;
}

static void enum_write(const struct spec_key *key, const void *field, json *j, const char *path)
{
    json_set_str(j, path, choice_name(key, number_load(field)));
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void list_free(void *field)
{
    struct spec_list *l = field;
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct spec_list){0};
}

#define auto_list auto_with(list_free) struct spec_list

static int list_append_text(const struct spec_key *key, struct spec_list *l, struct str item, struct err *err)
{
    if (l->count == SPEC_LIST_MAX)
        return refuse(key, STR("..."), err, "at most %d entries are allowed", SPEC_LIST_MAX);
    if (item.len == 0 || !is_plain(item))
        return refuse(key, item.len ? STR("...") : item, err, "an entry must be UTF-8 of 1 to %d bytes", SPEC_TEXT_MAX);
    l->items = xrealloc(l->items, l->count + 1, sizeof *l->items);
    l->items[l->count++] = str_dup(item);
    return 0;
}

static int list_of_json(const struct spec_key *key, const json *j, struct spec_list *l, struct err *err)
{
    struct str item;
    for (size_t i = 0; i < json_count(j); i++) {
        if (!json_as_str(json_item(j, i), &item))
            return refuse(key, STR("[...]"), err, "entry %zu is not a string", i);
        int r = list_append_text(key, l, item, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Writes `a,b`, or a JSON array if an entry contains a comma or begins with '['. */
static int list_parse(const struct spec_key *key, struct str text, struct spec_list *l, struct err *err)
{
    struct str rest = str_trim(text), item;
    if (str_starts(rest, STR("["))) {
        auto_json j = NULL;
        if (json_parse(rest, key->name, &j, err) < 0)
            return refuse(key, text, err, "a value that begins with '[' must be a JSON array of strings");
        return list_of_json(key, j, l, err);
    }
    while (text.len > 0 && str_split(&rest, ',', &item)) {
        int r = list_append_text(key, l, str_trim(item), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_patterns(const struct spec_key *key, const struct spec_list *l, struct err *err)
{
    struct err why;
    for (size_t i = 0; i < l->count; i++)
        if (glob_check(str_of(l->items[i]), &why) < 0)
            return refuse(key, str_of(l->items[i]), err, "%.150s", why.text);
    return 0;
}

static int patterns_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    auto_list l = {0};
    int r = list_parse(key, text, &l, err);
    if (r == 0)
        r = check_patterns(key, &l, err);
    if (r < 0)
        return r;
    list_free(field);
    *(struct spec_list *)field = take(&l);
    return 0;
}

static void patterns_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    const struct spec_list *l = field;
    if (l->count == 0)
        return;
    json *array = json_new_array();
    for (size_t i = 0; i < l->count; i++)
        json_append_str(array, str_of(l->items[i]));
    json_set(j, path, array);
}

static int flags_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    auto_list l = {0};
    uint64_t flags = 0, index;
    int r = list_parse(key, text, &l, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < l.count; i++) {
        if (!choice_index(key, str_of(l.items[i]), &index))
            return refuse(key, str_of(l.items[i]), err, "expected any of %s", key->choices);
        flags |= UINT64_C(1) << index;
    }
    number_store(field, flags);
    return 0;
}

static void flags_write(const struct spec_key *key, const void *field, json *j, const char *path)
{
    json *array = json_new_array();
    struct str name;
    for (uint64_t i = 0; (name = choice_name(key, i)).len > 0; i++)
        if (number_load(field) & UINT64_C(1) << i)
            json_append_str(array, name);
    json_set(j, path, array);
}

/* ---- the sources of a volume that has several -------------------------------------------------------------------- */

static void parts_free(void *field)
{
    struct spec_parts *p = field;
    for (size_t i = 0; i < p->count; i++) {
        uri_free(&p->items[i].uri);
        free(p->items[i].sub_path);
        list_free(&p->items[i].include);
        list_free(&p->items[i].exclude);
    }
    free(p->items);
    *p = (struct spec_parts){0};
}

static const struct spec_key part_uri = {"sources.uri"};

/* Uses the functions of a top-level field for a field of one entry; only the name in the sentence differs. */
static int part_field(struct spec_part *part, struct str name, const json *value, struct err *err)
{
    static const struct spec_key sub_path = {"sources.subPath"}, include = {"sources.include"},
                                 exclude = {"sources.exclude"};
    struct str text;
    auto_mem char *written = json_text(value, 0);
    bool is_text = json_as_str(value, &text);
    if (str_eq(name, STR("uri")) && is_text)
        return uri_parse(&part_uri, &part->uri, text, err);
    if (str_eq(name, STR("subPath")) && is_text)
        return path_parse(&sub_path, &part->sub_path, text, err);
    if (str_eq(name, STR("include")) && json_kind_of(value) == '[')
        return patterns_parse(&include, &part->include, str_of(written), err);
    if (str_eq(name, STR("exclude")) && json_kind_of(value) == '[')
        return patterns_parse(&exclude, &part->exclude, str_of(written), err);
    err_set(err, ERR_INVALID,
            "'sources': unknown or wrong field '%.*s': an entry has uri and subPath (strings), include and exclude "
            "(arrays)",
            (int)min_u64(name.len, 60), name.ptr);
    return err_advise(err, CIS_PARAMETER_INVALID);
}

static int read_parts(const struct spec_key *key, struct str text, struct spec_parts *p, struct err *err)
{
    auto_json j = NULL;
    if (text.len == 0)
        return 0;
    if (json_parse(text, key->name, &j, err) < 0 || text.ptr[0] != '[')
        return refuse(key, text, err, "expected a JSON array of {\"uri\": ..., \"subPath\": ...}");
    if (json_count(j) > SPEC_SOURCES_MAX)
        return refuse(key, STR("[...]"), err, "at most %d entries are allowed", SPEC_SOURCES_MAX);
    p->items = xcalloc(json_count(j) + 1, sizeof *p->items);
    for (size_t i = 0; i < json_count(j); i++) {
        const json *entry = json_item(j, i);
        struct spec_part *part = &p->items[p->count++];
        for (void *f = json_iter(entry); f; f = json_iter_next(entry, f)) {
            int r = part_field(part, json_iter_key(f), json_iter_value(f), err);
            if (r < 0)
                return r;
        }
        if (!part->uri.text)
            return refuse(key, STR("[...]"), err, "entry %zu has no 'uri'", i);
    }
    return 0;
}

static int set_parts(const struct spec_key *key, void *field, struct str text, bool is_new, struct err *err)
{
    auto_with(parts_free) struct spec_parts p = {0};
    int r = read_parts(key, text, &p, err);
    for (size_t i = 0; is_new && r == 0 && i < p.count; i++)
        r = check_uri(&part_uri, str_of(p.items[i].uri.text), err);
    if (r < 0)
        return r;
    parts_free(field);
    *(struct spec_parts *)field = take(&p);
    return 0;
}

static int parts_parse(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    return set_parts(key, field, text, false, err);
}

static int parts_parse_new(const struct spec_key *key, void *field, struct str text, struct err *err)
{
    return set_parts(key, field, text, true, err);
}

static void parts_write(const struct spec_key *, const void *field, json *j, const char *path)
{
    const struct spec_parts *p = field;
    if (p->count == 0)
        return;
    json *array = json_new_array();
    for (size_t i = 0; i < p->count; i++) {
        json *entry = json_new_object();
        uri_write(NULL, &p->items[i].uri, entry, "uri");
        text_write(NULL, &p->items[i].sub_path, entry, "subPath");
        patterns_write(NULL, &p->items[i].include, entry, "include");
        patterns_write(NULL, &p->items[i].exclude, entry, "exclude");
        json_append(array, entry);
    }
    json_set(j, path, array);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct type types[] = {
    [TYPE_TEXT] = {text_parse, text_write, text_free},
    [TYPE_URI] = {uri_parse, uri_write, uri_free, uri_parse_new},
    [TYPE_PATH] = {path_parse, text_write, text_free},
    [TYPE_PEM] = {pem_parse, text_write, text_free},
    [TYPE_PAYER] = {payer_parse, text_write, text_free},
    [TYPE_BOOL] = {bool_parse, bool_write},
    [TYPE_ENUM] = {enum_parse, enum_write},
    [TYPE_FLAGS] = {flags_parse, flags_write},
    [TYPE_COUNT] = {count_parse, number_write},
    [TYPE_MODE] = {mode_parse, mode_write},
    [TYPE_BYTES] = {bytes_parse, number_write},
    [TYPE_DURATION] = {duration_parse, duration_write},
    [TYPE_PATTERNS] = {patterns_parse, patterns_write, list_free},
    [TYPE_SOURCES] = {parts_parse, parts_write, parts_free, parts_parse_new},
};

static void *field_of(const struct spec_key *key, const struct spec *s)
{
    return (char *)s + key->offset;
}

int spec_value_parse(const struct spec_key *key, struct spec *s, struct str text, struct err *err)
{
    const struct type *t = &types[key->type];
    return (t->parse_new ? t->parse_new : t->parse)(key, field_of(key, s), text, err);
}

int spec_value_read(const struct spec_key *key, struct spec *s, struct str text, struct err *err)
{
    return types[key->type].parse(key, field_of(key, s), text, err);
}

void spec_value_write(const struct spec_key *key, const struct spec *s, json *j, const char *path)
{
    types[key->type].write(key, field_of(key, s), j, path);
}

bool spec_value_same(const struct spec_key *key, const struct spec *a, const struct spec *b)
{
    auto_json of_a = json_new_object();
    auto_json of_b = json_new_object();
    spec_value_write(key, a, of_a, key->name);
    spec_value_write(key, b, of_b, key->name);
    return json_same(of_a, of_b);
}

void spec_value_free(const struct spec_key *key, struct spec *s)
{
    if (types[key->type].free)
        types[key->type].free(field_of(key, s));
}
