/* SPDX-License-Identifier: Apache-2.0 */
#include "release.h"
#include "util/clock.h"
#include "volume/release_state.h"
#include <inttypes.h>

/* ---- of a release that was asked for ----------------------------------------------------------------------------- */

bool release_is_tombstone(const struct api_volume *v)
{
    return v->release_requested && api_condition_is(&v->status.conditions, API_NODE_GONE, API_TRUE);
}

/* Files that could not be sent keep it, unless they may go: then the node is still to act on that. */
static bool is_kept(const struct api_volume *v)
{
    return v->status.phase == API_PHASE_EXPORT_FAILED && !v->release_discard;
}

bool release_is_over(const struct api_volume *v)
{
    return v->release_requested && v->status.phase == API_PHASE_RELEASED;
}

bool release_is_held(const struct api_volume *v)
{
    return v->release_requested && !v->release_discard &&
           api_condition_says(&v->status.conditions, API_EXPORTED, API_FALSE, API_REASON_POOL_ABSENT);
}

bool release_is_settled(const struct api_volume *v)
{
    return v->status.phase == API_PHASE_RELEASED || is_kept(v) || release_is_held(v) || release_is_tombstone(v);
}

bool release_owes_export(const struct api_volume *v)
{
    return v->status.phase == API_PHASE_EXPORTING || v->status.phase == API_PHASE_EXPORT_FAILED;
}

bool release_is_slow(const struct api_volume *v)
{
    return release_owes_export(v) || api_condition_is(&v->status.conditions, API_NODE_GONE, API_UNKNOWN);
}

static int not_exported(const struct api_volume *v, struct err *err)
{
    const struct api_export *e = &v->status.export;
    const struct api_fault *first = v->status.export_failed.count ? &v->status.export_failed.items[0] : NULL;
    uint64_t id = 4012;
    struct err ignored;
    if (first && first->id)
        (void)!str_to_u64(str_from(str_of(first->id), 3), &id, &ignored);
    err_set(err, ERR_BUSY, "volume '%s': %" PRIu64 " of %" PRIu64 " files not exported, first %.100s: %.160s",
            v->volume_id, e->failed_objects, e->failed_objects + e->done_objects,
            first && first->object ? first->object : "?",
            first && first->message ? first->message : "the reason is not known");
    return err_advise(err, (unsigned)id, "kept and tried again; to give them up annotate the PV, see CIS4012");
}

int release_describe(const struct api_volume *v, struct err *err)
{
    char left[BYTES_TEXT_MAX];
    const struct api_condition *mounted = api_condition_find(&v->status.conditions, API_MOUNTED);
    const struct api_condition *gone = api_condition_find(&v->status.conditions, API_NODE_GONE);
    if (is_kept(v))
        return not_exported(v, err);
    if (release_is_held(v)) {
        err_set(err, ERR_ABSENT, "volume '%s': its disk is not on node %s, and may hold files that are not exported",
                v->volume_id, v->node);
        return err_advise(err, 3023, "mount the disk again, or give the files up by annotating the PV");
    }
    if (gone && gone->status == API_UNKNOWN) {
        err_set(err, ERR_PENDING, "volume '%s': its node %s is not there", v->volume_id, v->node);
        return err_advise(err, 5109, "if it does not come back, the volume is given up");
    }
    if (mounted && mounted->status == API_TRUE) {
        err_set(err, ERR_BUSY, "volume '%s' is still mounted on node %s", v->volume_id, v->node);
        return err_advise(err, 3013, "unpublish and unstage it first");
    }
    if (v->status.export.pending_objects)
        err_set(err, ERR_PENDING, "volume '%s': %" PRIu64 " files, %s, are still to be exported", v->volume_id,
                v->status.export.pending_objects, bytes_text(v->status.export.pending_bytes, left));
    else
        err_set(err, ERR_PENDING, "volume '%s' is being released by node %s", v->volume_id, v->node);
    return err_advise(err, 4030, "ask again");
}

/* ---- the leader's next step -------------------------------------------------------------------------------------- */

/* Only the phase Released says that a claim was deleted and no other one took its place. */
bool release_is_kept_by(const json *pv)
{
    struct err ignored;
    struct str policy = STR_NULL, phase = STR_NULL;
    if (json_opt_str(pv, "spec.persistentVolumeReclaimPolicy", &policy, &ignored) < 0 ||
        json_opt_str(pv, "status.phase", &phase, &ignored) < 0)
        return true;
    return !str_eq(policy, STR("Delete")) || str_eq(phase, STR("Bound")) || str_eq(phase, STR("Available"));
}

static uint64_t age_ns(int64_t since_ns, int64_t now_ns)
{
    return now_ns > since_ns ? (uint64_t)(now_ns - since_ns) : 0;
}

static enum step node_next(const struct api_volume *v, const struct surroundings *s, uint64_t *ret_again_ns)
{
    const struct api_condition *gone = api_condition_find(&v->status.conditions, API_NODE_GONE);
    if (s->node_is_there)
        return gone && gone->status != API_FALSE ? STEP_NODE_BACK : STEP_NONE;
    if (!gone || gone->status == API_FALSE)
        return STEP_NODE_ABSENT;
    uint64_t age = age_ns(gone->since_ns, s->now_ns);
    uint64_t limit = gone->status == API_TRUE ? s->tombstone_ns : s->node_gone_grace_ns;
    if (age < limit) {
        *ret_again_ns = limit - age;
        return STEP_NONE;
    }
    if (gone->status != API_TRUE)
        return STEP_LOSE;
    /* Nobody waits for it any more, and the node had its time to come back. */
    return release_is_tombstone(v) ? STEP_FINISH : STEP_NONE;
}

/* An order that was being taken back lost its finalizer first. One that lost it in another way is left alone. */
static bool is_withdrawn(const struct api_volume *v)
{
    return !v->meta.is_held && api_condition_is(&v->status.conditions, API_PROVISIONED, API_FALSE);
}

bool release_may_finish(const struct api_volume *v)
{
    return release_is_over(v) || is_withdrawn(v) || release_is_tombstone(v);
}

enum step release_next(const struct api_volume *v, const struct surroundings *s, uint64_t *ret_again_ns)
{
    if (release_is_over(v) || is_withdrawn(v))
        return STEP_FINISH;
    if (s->pv_keeps_it && release_may_withdraw(v->release_requested, v->status.release_committed))
        return STEP_WITHDRAW;
    enum step step = node_next(v, s, ret_again_ns);
    if (step != STEP_NONE)
        return step;
    if (s->nobody_has_it && !v->release_requested)
        return STEP_RELEASE;
    if (v->meta.deleted_ns && !api_condition_is(&v->status.conditions, API_DELETION_HELD, API_TRUE))
        return STEP_HOLD;
    return STEP_NONE;
}
