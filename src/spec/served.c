/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses values that need Kubernetes in a driver without it: the volume would differ from the request. Checked
 * when a volume is created or changed, not when volume.json is read: an existing volume can always be unpublished
 * and deleted. */
#include "keys.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/glob.h"

static bool is_refused(const struct spec_key *key, const struct spec *s, struct str choice)
{
    return !s->in_cluster && str_is_in(choice, str_of(key->cluster_only), ' ');
}

static int refuse_choice(const struct spec_key *key, const struct spec *s, struct str choice, struct err *err)
{
    auto_sbuf supported = SBUF(ERR_TEXT_MAX);
    struct str rest = str_of(key->choices), one;
    while (str_split(&rest, ' ', &one))
        if (!is_refused(key, s, one))
            sbuf_addf(&supported, "%s%.*s", supported.len ? ", " : "", STR_FMT(one));
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_UNSUPPORTED, "'%s: %.*s' is not supported here: expected one of %s",
                    key->name, STR_FMT(choice), supported.ptr);
}

static int check_choices(const struct spec_key *key, const struct spec *s, struct err *err)
{
    uint64_t value = *(const uint64_t *)((const char *)s + key->offset), i = 0;
    struct str rest = str_of(key->choices), choice;
    for (; str_split(&rest, ' ', &choice); i++) {
        bool is_chosen = key->type == TYPE_FLAGS ? value >> i & 1 : value == i;
        if (is_chosen && is_refused(key, s, choice))
            return refuse_choice(key, s, choice, err);
    }
    return 0;
}

static int check_key(const struct spec_key *key, const struct spec *s, struct err *err)
{
    if (key->choices)
        return check_choices(key, s, err);
    if (!key->cluster_only || s->in_cluster)
        return 0;
    auto_spec defaults = spec_new();
    if (spec_value_same(key, s, defaults))
        return 0;
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_UNSUPPORTED, "'%s' is not supported here", key->name);
}

int spec_check_served(const struct spec *s, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < spec_key_count && r == 0; i++)
        r = check_key(&spec_keys[i], s, err);
    return r < 0 ? r : spec_check_owed(s, err);
}

/* ---- policies that export nothing -------------------------------------------------------------------------------- */

/* Refuses export policies that would let a volume be deleted without an export. Checked when a volume is created:
 * an existing volume with such a policy can still be read and deleted. */

/* Limit of the work to find a file that the policy exports, in bytes of patterns times bytes of paths. */
static const uint64_t work_max = UINT64_C(1) << 28;
static const uint64_t deadline_least_ns = 60 * NS_PER_SECOND;

static bool is_excluded(const struct spec_list *exclude, struct str path, uint64_t *work)
{
    for (size_t i = 0; i < exclude->count; i++) {
        struct str pattern = str_of(exclude->items[i]);
        *work += pattern.len * path.len;
        if (glob_match(pattern, path))
            return true;
    }
    return false;
}

/* Can a file have a path that this pattern matches, and can such a file pass `exclude`? */
static bool can_match(struct str pattern, const struct spec_list *exclude, uint64_t *work, bool *ret_passes)
{
    bool found = false;
    for (unsigned v = 0; v < GLOB_EXAMPLES && !(found && *ret_passes); v++) {
        auto_sbuf path = SBUF(PATH_MAX);
        if (!glob_example(pattern, v, &path) || path_check(sbuf_str(&path), ERR_IGNORED) < 0)
            continue;
        found |= glob_match(pattern, sbuf_str(&path));
        *ret_passes |= found && (*work > work_max || !is_excluded(exclude, sbuf_str(&path), work));
    }
    return found;
}

static int check_globs(const struct spec_export *e, struct err *err)
{
    bool passes = false;
    uint64_t work = 0;
    for (size_t i = 0; i < e->include.count; i++)
        if (!can_match(str_of(e->include.items[i]), &e->exclude, &work, &passes)) {
            err_set(err, ERR_INVALID,
                    "'export.include: %.200s' can match no file: paths are relative to the volume, without a '/' at "
                    "either end, empty names, '.' and '..'",
                    e->include.items[i]);
            return err_advise(err, CIS_EXPORT_POLICY_EMPTY);
        }
    if (e->include.count == 0)
        (void)can_match(STR("**"), &e->exclude, &work, &passes);
    if (passes)
        return 0;
    return err_fail(err, ERR_INVALID, CIS_EXPORT_POLICY_EMPTY,
                    "'export.exclude' excludes every file that would be exported");
}

int spec_check_owed(const struct spec *s, struct err *err)
{
    const struct spec_export *e = &s->export;
    if (!e->uri.text)
        return 0;
    if (!(e->triggers & (TRIGGER_ON_UNPUBLISH | TRIGGER_ON_RELEASE)))
        return err_fail(err, ERR_INVALID, CIS_EXPORT_POLICY_EMPTY,
                        "'export.trigger' has neither OnUnpublish nor OnRelease: nothing would be exported");
    if (e->on_failure == ON_FAILURE_DISCARD && e->deadline_ns > 0 && e->deadline_ns < deadline_least_ns)
        return err_fail(err, ERR_INVALID, CIS_EXPORT_POLICY_EMPTY,
                        "'export.onFailure: Discard' with a deadline below one minute exports nothing");
    if (e->marker && strchr(e->marker, '/'))
        return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID,
                        "'export.marker: %.200s' is a path: each checkpoint directory has a marker of this name, such "
                        "as _SUCCESS",
                        e->marker);
    return check_globs(e, err);
}

/* ---- exports into the source ------------------------------------------------------------------------------------- */

static bool is_selected(const struct spec_part *part, struct str path)
{
    uint64_t work = 0;
    bool is_included = part->include.count == 0;
    for (size_t i = 0; i < part->include.count && !is_included; i++)
        is_included = glob_match(str_of(part->include.items[i]), path);
    return is_included && !is_excluded(&part->exclude, path, &work);
}

/* Whether `part` selects files that are exported to the directory `to` of the source. */
static bool selects_exported(const struct spec_part *part, struct str to, const struct spec_list *include)
{
    size_t i = 0;
    do {
        auto_sbuf path = SBUF(2 * PATH_MAX);
        sbuf_add(&path, to);
        if (glob_example(str_of(include->count ? include->items[i] : "**"), 0, &path) &&
            is_selected(part, sbuf_str(&path)))
            return true;
    } while (++i < include->count);
    return false;
}

static bool is_directory(struct str prefix)
{
    return prefix.len == 0 || str_ends(prefix, STR("/"));
}

const char *spec_exports_into(const struct spec *s)
{
    struct uri out = s->export.uri.view;
    const char *endpoint = spec_export_server(s).endpoint;
    bool is_same_server = text_same(endpoint, s->source.endpoint);
    auto_sbuf to = SBUF(PATH_MAX);
    sbuf_addf(&to, "%.*s%s", STR_FMT(out.prefix), is_directory(out.prefix) ? "" : "/");
    for (size_t i = 0; s->export.uri.text && is_same_server && i < spec_source_count(s); i++) {
        struct spec_part part = spec_source_at(s, i);
        struct uri in = part.uri.view;
        if (in.scheme == out.scheme && str_eq(in.bucket, out.bucket) && is_directory(in.prefix) &&
            str_starts(sbuf_str(&to), in.prefix) &&
            selects_exported(&part, str_from(sbuf_str(&to), in.prefix.len), &s->export.include))
            return part.uri.text;
    }
    return NULL;
}

int spec_modify(struct spec *s, struct str key, struct str value, struct err *err)
{
    const struct spec_key *k = spec_key_find(key, err);
    if (!k)
        return -(int)err->code;
    auto_spec wanted = spec_new();
    wanted->in_cluster = s->in_cluster;
    int r = spec_value_parse(k, wanted, value, err);
    if (r < 0)
        return r;
    if (spec_value_same(k, s, wanted))
        return 0;
    r = check_key(k, wanted, err);
    if (r < 0)
        return r;
    if (k->change != CHANGE_FREELY)
        return err_fail(err, ERR_INVALID, CIS_PARAMETER_IMMUTABLE,
                        "'%s' of an existing volume cannot be changed to '%.*s'", k->name, (int)min_u64(value.len, 100),
                        value.len ? value.ptr : "");
    return spec_value_parse(k, s, value, err);
}
