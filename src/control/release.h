/* SPDX-License-Identifier: Apache-2.0 */
/* release.h - Decides how far a release is, and the leader's next action for a volume. Pure. Private. */
#pragma once

#include "api/volume.h"

/* ---- of a release that was asked for ----------------------------------------------------------------------------- */

/* Is nothing left of it, as was asked for? */
bool release_is_over(const struct api_volume *v);
/* Is there no use in waiting: released, failed, or its node is gone? */
bool release_is_settled(const struct api_volume *v);
/* Is it delayed for hours: by an export, or by a missing node? */
bool release_is_slow(const struct api_volume *v);
/* Is an export what it waits for? */
bool release_owes_export(const struct api_volume *v);
/* Its node is gone for good: no caller waits for it, and the order stays in case the node comes back. */
bool release_is_tombstone(const struct api_volume *v);
/* Why it is not released yet. ERR_PENDING (CIS_EXPORT_PENDING): files are left to export. ERR_BUSY: a mount
 * (CIS_VOLUME_IN_USE) or a failed export. ERR_ABSENT (CIS_RELEASE_HELD): its disk is missing on its node. */
must_check int release_describe(const struct api_volume *v, struct err *err);

/* ---- the leader's next step -------------------------------------------------------------------------------------- */

/* Does this PersistentVolume keep its volume? Its reclaim policy is not Delete, or a claim has it or may have it. */
bool release_is_kept_by(const json *pv);

/* The state of a volume's node, claims and PersistentVolume, as far as it was read. */
struct volume_context {
    bool node_is_there; /* its Node exists, or its Lease is fresh */
    bool is_unclaimed;  /* neither its claim, nor the one it was ordered by, nor a PersistentVolume */
    bool pv_keeps_it;   /* release_is_kept_by() says so of its PersistentVolume */
    int64_t now_ns;     /* wall clock */
    uint64_t node_gone_grace_ns, tombstone_ns;
};

enum release_action {
    ACTION_NONE,
    ACTION_FINISH,   /* nothing is left of it: take the finalizer off, and delete it */
    ACTION_WITHDRAW, /* its PersistentVolume is to stay: take the request back, while its node has not committed it */
    ACTION_RELEASE,  /* claims and PersistentVolume are gone: request its release */
    ACTION_HOLD,     /* deleted by hand: say that this destroys nothing */
    ACTION_NODE_ABSENT, /* begin to wait for its node: condition NodeGone becomes Unknown */
    ACTION_NODE_BACK,   /* NodeGone becomes False */
    ACTION_LOSE,        /* the node does not come back: NodeGone becomes True, and the phase Lost */
};

/* May a volume go of which ACTION_FINISH was said? */
bool release_may_finish(const struct api_volume *v);
/* The first thing to do; *ret_again_ns is set if time alone will bring another (else untouched). */
enum release_action release_next_action(const struct api_volume *v, const struct volume_context *s,
                                        uint64_t *ret_again_ns);
