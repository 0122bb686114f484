/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/opt.h"
#include "util/glob.h"
#include <inttypes.h>
#include <stdio.h>

/* One flag as it stands in argv: "--name", "--name=value", "--no-name", "-l". */
struct parsed_flag {
    struct str name;
    struct str value; /* ptr NULL: none was attached */
    bool negated;
    const struct opt *opt; /* NULL: not in the table */
};

static const struct opt *find_name(const struct opt *table, struct str name)
{
    for (const struct opt *o = table; o->name; o++)
        if (str_eq(str_of(o->name), name))
            return o;
    return NULL;
}

static const struct opt *find_letter(const struct opt *table, char letter)
{
    for (const struct opt *o = table; o->name; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static struct parsed_flag parse_flag(const struct opt *table, const char *arg)
{
    struct parsed_flag s = {0};
    if (arg[1] != '-') {
        s.name = str_of(arg + 1);
        s.opt = s.name.len == 1 ? find_letter(table, arg[1]) : NULL;
        return s;
    }
    s.name = str_of(arg + 2);
    ssize_t eq = str_find(s.name, '=');
    if (eq >= 0) {
        s.value = str_from(s.name, (size_t)eq + 1);
        s.name = str_sub(s.name, 0, (size_t)eq);
    }
    s.opt = find_name(table, s.name);
    if (!s.opt && str_starts(s.name, STR("no-"))) {
        s.opt = find_name(table, str_from(s.name, 3));
        s.negated = s.opt && s.opt->kind == OPT_FLAG && s.opt->help; /* another name of a flag is not negated */
        if (!s.negated)
            s.opt = NULL;
    }
    return s;
}

/* The length of the character among `these` that `text` begins with; 0: none. */
static size_t begins_with(struct str text, const char *const *these, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (str_starts(text, str_of(these[i])))
            return strlen(these[i]);
    return 0;
}

int opt_check_dash(const char *arg, struct err *err)
{
    static const char *const dashes[] = {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"};
    size_t len = begins_with(str_of(arg), dashes, countof(dashes));
    if (len == 0)
        return 0;
    const char *name = arg + len + strspn(arg + len, "-");
    return err_set(err, ERR_INVALID, "'%s' begins with a typographic dash, as in text copied from a page: write %s%s",
                   arg, strlen(name) > 1 ? "--" : "-", name);
}

static int unknown_flag(const struct opt *table, const struct opt *parsed, const char *arg, struct str name,
                        struct err *err)
{
    const struct opt *nearest = NULL, *tables[] = {table, parsed};
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < countof(tables); i++)
        for (const struct opt *o = tables[i]; o && o->name; o++)
            if (o->help && str_is_nearer(str_of(o->name), name, &least))
                nearest = o;
    if (nearest)
        return err_set(err, ERR_INVALID, "unknown flag '%s'; did you mean --%s?", arg, nearest->name);
    if (arg[1] != '-' && name.len > 1 && find_letter(table, arg[1]))
        return err_set(err, ERR_INVALID, "unknown flag '%s'; write each letter apart: -%c -%c", arg, arg[1], arg[2]);
    return err_set(err, ERR_INVALID, "unknown flag '%s'; --help lists them", arg);
}

/* `parsed` is the result of reading the value. */
static int store_number(const struct opt *o, struct str text, int parsed, uint64_t value, struct err *err)
{
    if (parsed < 0 && o->most == 0 && (o->kind != OPT_U64 || o->least == 0))
        return parsed;
    if (parsed == 0 && value >= o->least && (o->most == 0 || value <= o->most)) {
        *(uint64_t *)o->target = value;
        return 0;
    }
    if (o->most > 0)
        return err_set(err, ERR_INVALID, "'%.*s' is not %" PRIu64 " to %" PRIu64, STR_FMT(text), o->least, o->most);
    if (o->kind == OPT_BYTES && o->least > 1)
        return err_set(err, ERR_INVALID, "'%.*s' is not %" PRIu64 " bytes or more", STR_FMT(text), o->least);
    return err_set(err, ERR_INVALID, "'%.*s' is not %s", STR_FMT(text), o->kind == OPT_U64 ? "1 or more" : "above 0");
}

static int check_pattern(struct str p, struct err *err)
{
    static const char *const quotes[] = {"\u2018", "\u2019", "\u201C", "\u201D"};
    size_t lead = str_starts(p, STR("/")) ? 1 : str_starts(p, STR("./")) ? 2 : 0;
    if (p.len == 0)
        return err_set(err, ERR_INVALID, "its GLOB is empty: give one, or leave the flag out");
    if (begins_with(p, quotes, countof(quotes)))
        return err_set(err, ERR_INVALID,
                       "'%.*s' has typographic quotes, as in text copied from a page: write plain ones (' or \")",
                       STR_FMT(p));
    if (strstr(p.ptr, "://"))
        return err_set(err, ERR_INVALID, "'%.*s' is a URI: give a pattern relative to the command's URI or DIR",
                       STR_FMT(p));
    if (lead)
        return err_set(err, ERR_INVALID, "'%.*s' matches nothing: paths are relative to the URI or DIR: write '%.*s'",
                       STR_FMT(p), STR_FMT(str_from(p, lead)));
    if (str_ends(p, STR("/")))
        return err_set(err, ERR_INVALID, "'%.*s' matches nothing: for all below a directory write '%.*s**'", STR_FMT(p),
                       STR_FMT(p));
    return glob_check(p, err);
}

static int store_in_list(const struct opt *o, struct str value, struct err *err)
{
    struct opt_list *list = o->target;
    if (list->count == OPT_LIST_MAX)
        return err_set(err, ERR_INVALID, "given more than %d times", OPT_LIST_MAX);
    list->items[list->count++] = value.ptr;
    return 0;
}

static int store_value(const struct opt *o, struct str value, struct err *err)
{
    uint64_t number = 0;
    int r = 0;
    switch (o->kind) {
    case OPT_FLAG:
        return err_set(err, ERR_INVALID, "--%s takes no value", o->name);
    case OPT_TEXT:
        if (value.len < o->least)
            return err_set(err, ERR_INVALID, "--%s: its %s is empty: give one, or leave the flag out", o->name,
                           o->value_name);
        *(const char **)o->target = value.ptr;
        break;
    case OPT_U64:
        r = str_to_u64(value, &number, err);
        break;
    case OPT_BYTES:
        /* A Kubernetes quantity, or the same with the B that people write: 10M or 10MB. */
        r = str_to_bytes(str_ends(value, STR("B")) ? str_sub(value, 0, value.len - 1) : value, &number, err);
        break;
    case OPT_DURATION:
        r = str_to_duration(value, &number, err);
        break;
    case OPT_PATTERNS:
        r = check_pattern(value, err);
        if (r == 0)
            r = store_in_list(o, value, err);
        break;
    case OPT_LIST:
        r = store_in_list(o, value, err);
        break;
    }
    if (o->kind == OPT_U64 || o->kind == OPT_BYTES || o->kind == OPT_DURATION)
        r = store_number(o, value, r, number, err);
    return r < 0 ? err_wrap(err, "--%s", o->name) : 0;
}

/* Uses argv[*at], and argv[*at + 1] if that is the value; moves *at past them. */
static int apply_flag(const struct parsed_flag *s, int argc, char **argv, int *at, struct err *err)
{
    const char *arg = argv[(*at)++];
    if (s->opt->kind == OPT_FLAG && !s->value.ptr) {
        *(bool *)s->opt->target = !s->negated;
        return 0;
    }
    if (s->value.ptr || s->opt->kind == OPT_FLAG)
        return store_value(s->opt, s->value, err);
    if (*at == argc)
        return err_set(err, ERR_INVALID, "%s needs a value: %s %s", arg, arg, s->opt->value_name);
    return store_value(s->opt, str_of(argv[(*at)++]), err);
}

int opt_parse(const struct opt *table, const struct opt *parsed, bool others_may_follow, int *argc, char **argv,
              struct err *err)
{
    int kept = 1, at = 1;
    while (at < *argc) {
        char *arg = argv[at];
        if (strcmp(arg, "--") == 0) {
            /* The next parser must still see the end of the flags. */
            at += others_may_follow ? 0 : 1;
            break;
        }
        int r = others_may_follow ? 0 : opt_check_dash(arg, err); /* it may be the value of another flag */
        if (r < 0)
            return r;
        struct parsed_flag s = {0};
        if (arg[0] == '-' && arg[1] != '\0')
            s = parse_flag(table, arg);
        if (s.opt) {
            r = apply_flag(&s, *argc, argv, &at, err);
            if (r < 0)
                return r;
            continue;
        }
        if (s.name.ptr && !others_may_follow)
            return unknown_flag(table, parsed, arg, s.name, err);
        argv[kept++] = argv[at++];
    }
    while (at < *argc)
        argv[kept++] = argv[at++];
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

static bool is_given(const struct opt *o)
{
    switch (o->kind) {
    case OPT_FLAG:
        return *(const bool *)o->target;
    case OPT_TEXT:
        return *(const char *const *)o->target != NULL;
    case OPT_U64:
    case OPT_BYTES:
    case OPT_DURATION:
        return *(const uint64_t *)o->target != 0;
    case OPT_LIST:
    case OPT_PATTERNS:
        return ((const struct opt_list *)o->target)->count > 0;
    }
    return false;
}

int opt_refuse_others(const struct opt *table, const char *const *taken, const char *why, struct err *err)
{
    for (const struct opt *o = table; o->name; o++) {
        size_t i = 0;
        while (taken[i] && strcmp(taken[i], o->name) != 0)
            i++;
        if (!taken[i] && o->help && is_given(o))
            return err_set(err, ERR_INVALID, "--%s %s", o->name, why);
    }
    return 0;
}

void opt_help(const struct opt *table, struct sbuf *b)
{
    for (const struct opt *o = table; o->name; o++) {
        char left[64];
        if (!o->help)
            continue;
        int n = snprintf(left, sizeof left, "--%s%s%s", o->name, o->value_name ? " " : "",
                         o->value_name ? o->value_name : "");
        if (o->letter)
            sbuf_addf(b, "  -%c, ", o->letter);
        else
            sbuf_adds(b, "      ");
        sbuf_addf(b, "%-24s%s%s\n", left, n > 23 ? "\n                              " : "", o->help);
    }
}
