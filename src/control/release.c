/* SPDX-License-Identifier: Apache-2.0 */
#include "release.h"
#include "spec/release_state.h"
#include <inttypes.h>

/* ---- of a release that was asked for ----------------------------------------------------------------------------- */

bool release_is_tombstone(const struct api_volume *v)
{
    return v->release_requested && api_condition_is(&v->status.conditions, API_NODE_GONE, API_TRUE);
}

/* The release has stopped: files are not exported. With release_discard it goes on. */
static bool is_kept(const struct api_volume *v)
{
    return v->status.phase == API_PHASE_EXPORT_FAILED && !v->release_discard;
}

bool release_is_over(const struct api_volume *v)
{
    return v->release_requested && v->status.phase == API_PHASE_RELEASED;
}

/* The volume's disk is missing on its node, and may have files that are not exported. */
static bool is_held(const struct api_volume *v)
{
    return v->release_requested && !v->release_discard &&
           api_condition_says(&v->status.conditions, API_EXPORTED, API_FALSE, API_REASON_POOL_ABSENT);
}

bool release_is_settled(const struct api_volume *v)
{
    return v->status.phase == API_PHASE_RELEASED || is_kept(v) || is_held(v) || release_is_tombstone(v);
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
    /* An export that ended early left files as pending. */
    uint64_t id = CIS_FILE_NOT_EXPORTED, missing = e->failed_objects + e->pending_objects;
    if (first && first->id)
        (void)!str_to_u64(str_from(str_of(first->id), 3), &id, ERR_IGNORED);
    err_set(err, ERR_BUSY, "volume '%s': %" PRIu64 " of %" PRIu64 " files not exported, first %.100s: %.160s",
            v->id.text, missing, missing + e->done_objects, first && first->object ? first->object : "?",
            first && first->message ? first->message : "unknown cause");
    /* The PersistentVolume has the name of the CisternVolume. */
    return err_advise_text(err, (enum err_id)id,
                           "fix the cause, or discard them: kubectl annotate pv %s " NAME_ANNOTATION_DISCARD_UNEXPORTED
                           "=%s",
                           v->meta.name, v->id.text);
}

int release_describe(const struct api_volume *v, struct err *err)
{
    char left[BYTES_TEXT_MAX];
    const struct api_condition *mounted = api_condition_find(&v->status.conditions, API_MOUNTED);
    const struct api_condition *gone = api_condition_find(&v->status.conditions, API_NODE_GONE);
    if (is_kept(v))
        return not_exported(v, err);
    if (is_held(v)) {
        err_set(err, ERR_ABSENT,
                "volume '%s': its disk is missing on node %s, and may hold files that are not exported", v->id.text,
                v->node);
        return err_advise(err, CIS_RELEASE_HELD, v->meta.name, v->id.text);
    }
    if (gone && gone->status == API_UNKNOWN)
        return err_fail(err, ERR_PENDING, CIS_NODE_AWAY, "volume '%s': its node %s is missing", v->id.text, v->node);
    if (mounted && mounted->status == API_TRUE)
        return err_fail(err, ERR_BUSY, CIS_VOLUME_IN_USE, "volume '%s': still mounted on node %s", v->id.text, v->node);
    if (!v->status.export.pending_objects)
        return err_fail(err, ERR_PENDING, CIS_EXPORT_PENDING, "volume '%s': node %s is releasing it", v->id.text,
                        v->node);
    err_set(err, ERR_PENDING, "volume '%s': %" PRIu64 " files, %s, are still to be exported", v->id.text,
            v->status.export.pending_objects, bytes_text(v->status.export.pending_bytes, left));
    return err_advise(err, CIS_EXPORT_DUE, v->meta.name, v->id.text);
}

/* ---- the leader's next step -------------------------------------------------------------------------------------- */

/* Bound: a claim has the volume. Available: a claim may get it. In every other phase it may be deleted. */
bool release_is_kept_by(const json *pv)
{
    struct str policy = STR_NULL, phase = STR_NULL;
    if (json_strings(pv, ERR_IGNORED, {"?spec.persistentVolumeReclaimPolicy", &policy}, {"?status.phase", &phase}) < 0)
        return true;
    return !str_eq(policy, STR("Delete")) || str_eq(phase, STR("Bound")) || str_eq(phase, STR("Available"));
}

static enum release_action node_next(const struct api_volume *v, const struct volume_context *s, uint64_t *ret_again_ns)
{
    const struct api_condition *gone = api_condition_find(&v->status.conditions, API_NODE_GONE);
    if (s->node_is_there)
        return gone && gone->status != API_FALSE ? LEADER_NODE_BACK : LEADER_NONE;
    if (!gone || gone->status == API_FALSE)
        return LEADER_NODE_ABSENT;
    uint64_t age = s->now_ns > gone->since_ns ? (uint64_t)(s->now_ns - gone->since_ns) : 0;
    uint64_t limit = gone->status == API_TRUE ? s->tombstone_ns : s->node_gone_grace_ns;
    if (age < limit) {
        *ret_again_ns = limit - age;
        return LEADER_NONE;
    }
    if (gone->status != API_TRUE)
        return LEADER_LOSE;
    /* No caller waits for it, and the node's grace period has ended. */
    return release_is_tombstone(v) ? LEADER_FINISH : LEADER_NONE;
}

/* A withdrawn order loses its finalizer before it is deleted. An order that lost the finalizer in another way
 * stays. */
static bool is_withdrawn(const struct api_volume *v)
{
    return !v->meta.is_held && api_condition_is(&v->status.conditions, API_PROVISIONED, API_FALSE);
}

bool release_may_finish(const struct api_volume *v)
{
    return release_is_over(v) || is_withdrawn(v) || release_is_tombstone(v);
}

enum release_action release_next_action(const struct api_volume *v, const struct volume_context *s,
                                        uint64_t *ret_again_ns)
{
    if (release_is_over(v) || is_withdrawn(v))
        return LEADER_FINISH;
    if (s->pv_keeps_it && release_may_withdraw(v->release_requested, v->status.release_committed))
        return LEADER_WITHDRAW;
    enum release_action step = node_next(v, s, ret_again_ns);
    if (step != LEADER_NONE)
        return step;
    if (s->is_unclaimed && !v->release_requested)
        return LEADER_RELEASE;
    if (v->meta.deleted_ns && !api_condition_is(&v->status.conditions, API_DELETION_HELD, API_TRUE))
        return LEADER_HOLD;
    return LEADER_NONE;
}
