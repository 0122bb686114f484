/* SPDX-License-Identifier: Apache-2.0 */
#include "util/json.h"
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>

enum {
    TEXT_MAX = 64 << 20, /* a page of 1,000 objects with every field is a fiftieth of this */
    NAME_MAX_BYTES = 256,
};

static int parse(struct str text, size_t flags, const char *what, json **ret, struct err *err)
{
    json_error_t e;
    if (text.len > TEXT_MAX)
        return err_set(err, ERR_NO_SPACE, "%s is longer than %d bytes", what, TEXT_MAX);
    /* jansson itself refuses more than 2,048 levels, trailing bytes, and bytes that are not UTF-8. */
    json *j = json_loadb(text.ptr ? text.ptr : "", text.len, flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!j)
        return err_set(err, ERR_INVALID, "%s is not JSON: line %d, column %d: %s", what, e.line, e.column, e.text);
    *ret = j;
    return 0;
}

int json_parse(struct str text, const char *what, json **ret, struct err *err)
{
    return parse(text, 0, what, ret, err);
}

int json_parse_any_text(struct str text, const char *what, json **ret, struct err *err)
{
    return parse(text, JSON_ALLOW_NUL, what, ret, err);
}

void json_free(json *own_j)
{
    json_decref(own_j);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const json *child(const json *j, struct str name)
{
    uint64_t index;
    if (json_is_array(j))
        return str_to_u64(name, &index, ERR_IGNORED) == 0 ? json_array_get(j, index) : NULL;
    char key[NAME_MAX_BYTES];
    if (name.len >= sizeof key)
        return NULL;
    if (name.len)
        memcpy(key, name.ptr, name.len);
    key[name.len] = '\0';
    return json_object_get(j, key);
}

const json *json_at(const json *j, const char *path)
{
    struct str rest = str_of(path), name;
    while (j && str_split(&rest, '.', &name))
        j = child(j, name);
    return j;
}

enum wanted { WANT_STRING, WANT_INTEGER, WANT_NATURAL, WANT_BOOL, WANT_NUMBER, WANT_LIST };

static bool is_wanted(const json *j, enum wanted wanted)
{
    switch (wanted) {
    case WANT_STRING:
        return json_is_string(j);
    case WANT_INTEGER:
        return json_is_integer(j);
    case WANT_NATURAL:
        return json_is_integer(j) && json_integer_value(j) >= 0;
    case WANT_BOOL:
        return json_is_boolean(j);
    case WANT_NUMBER:
        return json_is_number(j);
    case WANT_LIST:
        return json_is_array(j);
    }
    return false;
}

/* *ret is NULL if the member is missing or null; another type is an error. */
static int find(const json *j, const char *path, enum wanted wanted, const json **ret, struct err *err)
{
    static const char *const names[] = {"a string",      "a whole number", "a whole number from 0 up",
                                        "true or false", "a number",       "a list"};
    const json *found = json_at(j, path);
    if (json_is_null(found))
        found = NULL;
    if (found && !is_wanted(found, wanted))
        return err_set(err, ERR_INVALID, "'%s' is not %s", path, names[wanted]);
    *ret = found;
    return 0;
}

/* The same; a missing member is an error too. */
static int need(const json *j, const char *path, enum wanted wanted, const json **ret, struct err *err)
{
    const json *found;
    int r = find(j, path, wanted, &found, err);
    if (r < 0)
        return r;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "'%s' is missing", path);
    *ret = found;
    return 0;
}

static struct str str_value(const json *j)
{
    return (struct str){json_string_value(j), json_string_length(j)};
}

/* json_get_<name> and json_opt_<name>: the first fails if the member is missing, the second leaves *ret unchanged. */
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration takes none
#define DEFINE_READ(name, type, wanted, value)                                                                         \
    int json_get_##name(const json *j, const char *path, type *ret, struct err *err)                                   \
    {                                                                                                                  \
        const json *found;                                                                                             \
        int r = need(j, path, wanted, &found, err);                                                                    \
        if (r == 0)                                                                                                    \
            *ret = value(found);                                                                                       \
        return r;                                                                                                      \
    }                                                                                                                  \
    int json_opt_##name(const json *j, const char *path, type *ret, struct err *err)                                   \
    {                                                                                                                  \
        const json *found;                                                                                             \
        int r = find(j, path, wanted, &found, err);                                                                    \
        if (r == 0 && found)                                                                                           \
            *ret = value(found);                                                                                       \
        return r;                                                                                                      \
    }
// NOLINTEND(bugprone-macro-parentheses)

static uint64_t natural_value(const json *j)
{
    return (uint64_t)json_integer_value(j);
}

DEFINE_READ(str, struct str, WANT_STRING, str_value)
DEFINE_READ(u64, uint64_t, WANT_NATURAL, natural_value)
DEFINE_READ(i64, int64_t, WANT_INTEGER, json_integer_value)
DEFINE_READ(bool, bool, WANT_BOOL, json_is_true)

int json_read_strings(const json *j, const struct json_string *strings, size_t count, struct err *err)
{
    int r = 0;
    for (const struct json_string *s = strings; s < strings + count && r == 0; s++)
        r = s->path[0] == '?' ? json_opt_str(j, s->path + 1, s->ret, err) : json_get_str(j, s->path, s->ret, err);
    return r;
}

int json_get_real(const json *j, const char *path, double *ret, struct err *err)
{
    const json *found = NULL;
    int r = need(j, path, WANT_NUMBER, &found, err);
    if (r == 0)
        *ret = json_number_value(found);
    return r;
}

int json_opt_list(const json *j, const char *path, const json **ret, struct err *err)
{
    const json *found;
    int r = find(j, path, WANT_LIST, &found, err);
    if (r == 0 && found)
        *ret = found;
    return r;
}

/* ---- structure --------------------------------------------------------------------------------------------------- */

size_t json_count(const json *j)
{
    return json_is_array(j) ? json_array_size(j) : json_object_size(j);
}

const json *json_item(const json *j, size_t index)
{
    return json_array_get(j, index);
}

bool json_holds(const json *j, struct str text)
{
    struct str s;
    bool found = json_as_str(j, &s) && str_eq(s, text);
    for (size_t i = 0; !found && i < json_count(j); i++)
        found = json_as_str(json_item(j, i), &s) && str_eq(s, text);
    return found;
}

char json_kind_of(const json *j)
{
    static const char kinds[] = {[JSON_OBJECT] = '{', [JSON_ARRAY] = '[', [JSON_STRING] = '"', [JSON_INTEGER] = '0',
                                 [JSON_REAL] = '0',   [JSON_TRUE] = 't',  [JSON_FALSE] = 't',  [JSON_NULL] = 'n'};
    return j ? kinds[json_typeof(j)] : 'n';
}

bool json_as_str(const json *j, struct str *ret)
{
    if (!json_is_string(j))
        return false;
    *ret = str_value(j);
    return true;
}

struct str json_str_at(const json *j, const char *path)
{
    const json *value = json_at(j, path);
    return json_is_string(value) ? str_value(value) : STR_NULL;
}

bool json_bool_at(const json *j, const char *path)
{
    return json_is_true(json_at(j, path));
}

const json *json_member(const json *object, const char *name)
{
    return json_object_get(object, name);
}

struct str json_member_str(const json *object, const char *name)
{
    struct str s = STR_NULL;
    json_as_str(json_member(object, name), &s);
    return s;
}

/* jansson's iterator takes a mutable object, but does not change it. */
void *json_iter(const json *j)
{
    return json_object_iter((json *)j);
}

void *json_iter_next(const json *j, void *iter)
{
    return json_object_iter_next((json *)j, iter);
}

struct str json_iter_key(void *iter)
{
    return str_of(json_object_iter_key(iter));
}

const json *json_iter_value(void *iter)
{
    return json_object_iter_value(iter);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static json *made(json *j)
{
    if (!j)
        out_of_memory();
    return j;
}

json *json_new_object(void)
{
    return made(json_object());
}

json *json_new_array(void)
{
    return made(json_array());
}

json *json_new_str(struct str value)
{
    if (str_is_utf8(value))
        return made(json_stringn_nocheck(value.ptr ? value.ptr : "", value.len));
    auto_sbuf b = SBUF(3 * value.len);
    for (size_t i = 0; i < value.len;) {
        size_t n = str_utf8_char(value, i);
        sbuf_add(&b, n ? str_sub(value, i, n) : STR("\xef\xbf\xbd"));
        i += n ? n : 1;
    }
    return made(json_stringn_nocheck(b.ptr, b.len));
}

json *json_new_bool(bool value)
{
    return made(json_boolean(value));
}

json *json_new_null(void)
{
    return made(json_null());
}

/* Returns the object that holds the last name of `path`; makes it and its parents. *ret_name points into `path`. */
static json *parent_of(json *j, const char *path, const char **ret_name)
{
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        auto_mem char *name = str_dup((struct str){path, (size_t)(dot - path)});
        json *next = json_object_get(j, name);
        if (!json_is_object(next)) {
            next = json_new_object();
            int r = json_object_set_new_nocheck(j, name, next);
            assert(r == 0);
        }
        j = next;
    }
    *ret_name = path;
    return j;
}

void json_set(json *j, const char *path, json *own_value)
{
    const char *name;
    json *parent = parent_of(j, path, &name);
    int r = json_object_set_new_nocheck(parent, name, own_value);
    assert(r == 0);
}

void json_set_member(json *object, const char *name, json *own_value)
{
    int r = json_object_set_new_nocheck(object, name, own_value);
    assert(r == 0);
}

void json_set_str(json *j, const char *path, struct str value)
{
    json_set(j, path, json_new_str(value));
}

void json_write_strings(json *j, const struct json_value *values, size_t count)
{
    for (const struct json_value *v = values; v < values + count; v++) {
        bool is_optional = v->path[0] == '?';
        if (!is_optional || v->value.len)
            json_set_str(j, v->path + is_optional, v->value);
    }
}

void json_set_u64(json *j, const char *path, uint64_t value)
{
    json_set(j, path, made(json_integer((json_int_t)min_u64(value, INT64_MAX))));
}

void json_set_i64(json *j, const char *path, int64_t value)
{
    json_set(j, path, made(json_integer(value)));
}

void json_set_bool(json *j, const char *path, bool value)
{
    json_set(j, path, made(json_boolean(value)));
}

void json_append(json *array, json *own_value)
{
    int r = json_array_append_new(array, own_value);
    assert(r == 0);
}

void json_append_str(json *array, struct str value)
{
    json_append(array, json_new_str(value));
}

void json_extend(json *array, json *own_array)
{
    int r = json_array_extend(array, own_array);
    assert(r == 0);
    json_free(own_array);
}

/* Only an existing path: no object is created. */
json *json_take_at(json *j, const char *path)
{
    const char *dot = strrchr(path, '.');
    auto_mem char *above = dot ? str_dup((struct str){path, (size_t)(dot - path)}) : NULL;
    json *parent = above ? (json *)json_at(j, above) : j;
    const char *name = dot ? dot + 1 : path;
    json *taken = json_incref(json_object_get(parent, name));
    json_object_del(parent, name);
    return taken;
}

void json_remove(json *j, const char *path)
{
    json_free(json_take_at(j, path));
}

bool json_same(const json *a, const json *b)
{
    return json_equal(a, b);
}

json *json_copy_of(const json *j)
{
    return made(json_deep_copy(j));
}

static char *text_of(const json *j, size_t flags)
{
    char *text = json_dumps(j, flags | JSON_ENCODE_ANY);
    assert(text);
    return text;
}

char *json_text(const json *j, unsigned indent)
{
    return text_of(j, JSON_REAL_PRECISION(15) | (indent ? JSON_INDENT(indent) : JSON_COMPACT));
}

char *json_text_exact(const json *j)
{
    return text_of(j, JSON_REAL_PRECISION(17) | JSON_COMPACT);
}
