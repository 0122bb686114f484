/* SPDX-License-Identifier: Apache-2.0 */
/* release.h - Derives the progress of a release, and the leader's next action for a volume. Pure. Private. */
#pragma once

#include "api/volume.h"

/* ---- of a release that was asked for ----------------------------------------------------------------------------- */

/* Has the release that was requested removed everything of the volume? */
bool release_is_over(const struct api_volume *v);
/* Is waiting useless: released, failed, or the node is gone? */
bool release_is_settled(const struct api_volume *v);
/* May an export or a missing node delay the release for hours? */
bool release_is_slow(const struct api_volume *v);
/* Does the release wait for an export? */
bool release_owes_export(const struct api_volume *v);
/* The node is gone for good: no caller waits for it, and the order stays in case the node returns. */
bool release_is_tombstone(const struct api_volume *v);
/* The reason why the volume is not released yet. ERR_PENDING (CIS_EXPORT_DUE): files are left to export.
 * ERR_BUSY: a mount (CIS_VOLUME_IN_USE) or a failed export. ERR_ABSENT (CIS_RELEASE_HELD): its disk is missing on
 * its node. */
must_check int release_describe(const struct api_volume *v, struct err *err);

/* ---- the leader's next step -------------------------------------------------------------------------------------- */

/* Does this PersistentVolume keep its volume: is its reclaim policy not Delete, or is it or may it become bound? */
bool release_is_kept_by(const json *pv);

/* The state of a volume's node, claims and PersistentVolume, as far as it was read. */
struct volume_context {
    bool node_is_there; /* its Node exists, or its Lease is fresh */
    bool is_unclaimed;  /* its claim, the claim that ordered it, and its PersistentVolume are gone */
    bool pv_keeps_it;   /* release_is_kept_by() says so of its PersistentVolume */
    int64_t now_ns;     /* wall clock */
    uint64_t node_gone_grace_ns, tombstone_ns;
};

enum release_action {
    LEADER_NONE,
    LEADER_FINISH,      /* nothing is left of it: remove the finalizer and delete the object */
    LEADER_WITHDRAW,    /* its PersistentVolume stays: withdraw the release, unless the node has committed it */
    LEADER_RELEASE,     /* claims and PersistentVolume are gone: request its release */
    LEADER_HOLD,        /* a user deleted the object: report that this destroys no data */
    LEADER_NODE_ABSENT, /* start to wait for its node: condition NodeGone becomes Unknown */
    LEADER_NODE_BACK,   /* NodeGone becomes False */
    LEADER_LOSE,        /* the node did not return in time: NodeGone becomes True, and the phase Lost */
};

/* May the object be removed, given that the next action is LEADER_FINISH? */
bool release_may_finish(const struct api_volume *v);
/* The next action. *ret_again_ns is set if only time can change the answer (else untouched). */
enum release_action release_next_action(const struct api_volume *v, const struct volume_context *s,
                                        uint64_t *ret_again_ns);
