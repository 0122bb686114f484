/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses export policies by which a volume could be deleted without an export. Asked where a volume is made: one that
 * an older version made with such a policy can still be looked at and deleted. */
#include "spec_keys.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/glob.h"

/* The work that is spent on finding a file that the policy exports, in bytes of patterns times bytes of paths. */
static const uint64_t work_max = UINT64_C(1) << 28;
static const uint64_t deadline_least_ns = 60 * NS_PER_SECOND;

static int refuse(struct err *err, const char *advice)
{
    return err_advise(err, 2009, "%s", advice);
}

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

/* Can a file have a path that this pattern matches? And can one of them pass `exclude`? */
static bool can_match(struct str pattern, const struct spec_list *exclude, uint64_t *work, bool *ret_passes)
{
    bool found = false;
    struct err ignored;
    for (unsigned v = 0; v < GLOB_EXAMPLES && !(found && *ret_passes); v++) {
        auto_sbuf path;
        sbuf_init(&path, PATH_MAX);
        if (!glob_example(pattern, v, &path) || path_check(sbuf_str(&path), &ignored) < 0)
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
            err_set(err, ERR_INVALID, "'export.include: %.200s' can match no file", e->include.items[i]);
            return refuse(err, "paths are relative to the volume: no '/' at either end, no empty name, no '.' or '..'");
        }
    if (e->include.count == 0)
        (void)can_match(STR("**"), &e->exclude, &work, &passes);
    if (passes)
        return 0;
    err_set(err, ERR_INVALID, "'export.exclude' leaves out every file that is to be exported");
    return refuse(err, "exclude less, or leave export.uri out if nothing is to be exported");
}

int spec_check_owed(const struct spec *s, struct err *err)
{
    const struct spec_export *e = &s->export;
    if (!e->uri)
        return 0;
    if (!(e->triggers & (TRIGGER_ON_UNPUBLISH | TRIGGER_ON_RELEASE))) {
        err_set(err, ERR_INVALID, "'export.trigger' has neither OnUnpublish nor OnRelease: nothing would be exported");
        return refuse(err, "add OnRelease, or leave export.uri out if nothing is to be exported");
    }
    if (e->on_failure == ON_FAILURE_DISCARD && e->deadline_ns > 0 && e->deadline_ns < deadline_least_ns) {
        err_set(err, ERR_INVALID, "'export.onFailure: Discard' with a deadline below one minute exports nothing");
        return refuse(err, "raise export.deadline to a minute or more, or set export.onFailure: Retain");
    }
    return check_globs(e, err);
}
