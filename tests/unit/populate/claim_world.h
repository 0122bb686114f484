/* SPDX-License-Identifier: Apache-2.0 */
/* claim_world.h - a claim with its objects, for tests of claim_next(). */
#pragma once

#include "claim.h"
#include "unit.h"
#include "util/names.h"

#define S(text)                                                                                                        \
    {                                                                                                                  \
        (text), sizeof(text) - 1                                                                                       \
    }

static const struct claim_class our_class = {.ours = true, .waits = true, .has_pool = true};

/* A claim whose pod was given node a: as the scheduler leaves it to us. */
static const struct claim fresh = {
    .namespace = S("train"),
    .name = S("weights"),
    .uid = S("u1"),
    .class_name = S("cistern"),
    .selected_node = S("a"),
    .provisioner = S(NAME_DRIVER),
    .source = S("llama"),
    .source_namespace = S("train"),
};
/* The prime claim that Cistern created, bound to its volume. */
static const struct claim made = {
    .namespace = S(NAME_NAMESPACE),
    .name = S("prime-u1"),
    .uid = S("p1"),
    .class_name = S("cistern"),
    .selected_node = S("a"),
    .prime_node = S("a"),
    .volume_name = S("pvc-p1"),
    .phase = CLAIM_BOUND,
};
static const struct claim_pv fresh_pv = {.name = S("pvc-p1"), .claim_uid = S("p1"), .policy = S("Delete")};

/* A world to change: everything as it is while the volume is being filled. */
struct world {
    struct claim target, prime;
    struct claim_pv pv;
    struct claim_facts f;
};

static inline struct world *filling(void)
{
    static struct world w;
    w = (struct world){.target = fresh, .prime = made, .pv = fresh_pv};
    w.target.has_finalizer = true;
    w.f = (struct claim_facts){.own_namespace = S(NAME_NAMESPACE),
                               .target = &w.target,
                               .prime = &w.prime,
                               .pv = &w.pv,
                               .class = &our_class,
                               .has_source = true,
                               .is_source_valid = true,
                               .node = CLAIM_NODE_READY,
                               .job_left = true,
                               .volume_left = true};
    return &w;
}

/* Before Cistern has created an object. */
static inline struct world *untouched(void)
{
    struct world *w = filling();
    w->target.has_finalizer = false;
    w->f.prime = NULL;
    w->f.pv = NULL;
    w->f.job_left = w->f.volume_left = false;
    return w;
}

/* The volume was turned to the target, which does not know it yet. */
static inline struct world *handed_over(void)
{
    struct world *w = filling();
    w->pv.claim_uid = w->target.uid;
    w->f.job_left = w->f.volume_left = false;
    w->f.filled = true;
    return w;
}

static inline void next_is(struct world *w, enum claim_action action, enum claim_event event)
{
    struct claim_step s = claim_next(&w->f);
    if (s.action != action)
        fail_msg("next is '%s' (%s), not '%s'", claim_action_name(s.action), s.why, claim_action_name(action));
    assert_int_equal(s.event, event);
    assert_non_null(s.why);
}
