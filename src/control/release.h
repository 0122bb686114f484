/* SPDX-License-Identifier: Apache-2.0 */
/* release.h - how far a release is, and what is to be done about a volume next. Pure. Private to this folder. */
#pragma once

#include "api/volume.h"

/* ---- of a release that was asked for ----------------------------------------------------------------------------- */

/* Is nothing left of it, as was asked for? */
bool release_is_over(const struct api_volume *v);
/* Is there no use in waiting: released, failed, or its node is gone? */
bool release_is_settled(const struct api_volume *v);
/* Is it held because its disk is not on its node, and may hold what is not exported? */
bool release_is_held(const struct api_volume *v);
/* Is it kept by what may take hours: an export, or a node that is not there? */
bool release_is_slow(const struct api_volume *v);
/* Is an export what it waits for? */
bool release_owes_export(const struct api_volume *v);
/* Its node is gone for good: nobody waits for it any more, and it stays to tell the node if that comes back. */
bool release_is_tombstone(const struct api_volume *v);
/* Why it is not released yet: ERR_PENDING (CIS4030) with what is left, ERR_BUSY with what keeps it: a mount (CIS3013)
 * or the first file that is not exported; ERR_ABSENT (CIS3023): its disk is not on its node. */
must_check int release_describe(const struct api_volume *v, struct err *err);

/* ---- the leader's next step -------------------------------------------------------------------------------------- */

/* Does this PersistentVolume keep its volume? Its reclaim policy is not Delete, or a claim has it or may have it. */
bool release_is_kept_by(const json *pv);

/* What is around a volume, as far as it was looked at. */
struct surroundings {
    bool node_is_there; /* its Node exists, or its Lease is fresh */
    bool nobody_has_it; /* neither its claim, nor the one it was ordered by, nor a PersistentVolume */
    bool pv_keeps_it;   /* release_is_kept_by() says so of its PersistentVolume */
    int64_t now_ns;     /* wall clock */
    uint64_t node_gone_grace_ns, tombstone_ns;
};

enum step {
    STEP_NONE,
    STEP_FINISH,      /* nothing is left of it: take the finalizer off, and delete it */
    STEP_WITHDRAW,    /* its PersistentVolume is to stay: take the request back, while its node has not committed it */
    STEP_RELEASE,     /* nobody will ask for its release: do so */
    STEP_HOLD,        /* deleted by hand: say that this destroys nothing */
    STEP_NODE_ABSENT, /* begin to wait for its node: condition NodeGone becomes Unknown */
    STEP_NODE_BACK,   /* NodeGone becomes False */
    STEP_LOSE,        /* the node does not come back: NodeGone becomes True, and the phase Lost */
};

/* May a volume go of which STEP_FINISH was said? */
bool release_may_finish(const struct api_volume *v);
/* The first thing to do; *ret_again_ns is set if time alone will bring another (else untouched). */
enum step release_next(const struct api_volume *v, const struct surroundings *s, uint64_t *ret_again_ns);
