/* SPDX-License-Identifier: Apache-2.0 */
/* Why a claim waits: the event of each step. How often its pods may be listed. */
#include "claim_world.h"
#include "private.h"

static void a_source_that_was_ready_and_fails_is_reported_while_its_claim_waits_or_is_filled(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->target.selected_node = STR_NULL;
    w->f.is_degraded = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_DEGRADED);
    w = untouched();
    w->f.is_degraded = true; /* its store may answer again until the Job runs */
    next_is(w, CLAIM_ADD_FINALIZER, CLAIM_EVENT_NONE);
    w = filling();
    w->f.is_degraded = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_DEGRADED);
    w->f.is_suspended = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_SUSPENDED);
    w->f.is_suspended = false;
    w->f.filled = true;
    next_is(w, CLAIM_HAND_OVER, CLAIM_EVENT_NONE);
}

static void a_waiting_claim_has_an_event_with_the_cause(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->f.has_source = false;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_NOT_FOUND);
    w->f.is_too_large = true;
    w->f.has_source = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_POOLS_FULL);
    w->f.has_source = false;
    w->target.selected_node = STR_NULL; /* reported before a pod uses the claim, too */
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_NOT_FOUND);

    w = untouched();
    w->f.is_source_valid = false;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_INVALID);

    const struct claim_class invalid = {.ours = true, .waits = true, .is_invalid = true};
    w = untouched();
    w->f.class = &invalid;
    w->target.selected_node = STR_NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_CLASS_INVALID);
    w->target.source = STR_NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_CLASS_INVALID);
    w->target.is_invalid = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_CLAIM_INVALID);
    w->target.bad_kind = STR("BucketSorce");
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_REFERENCE_INVALID);
    w->target.phase = CLAIM_BOUND;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);

    const struct claim_class immediate = {.ours = true}, foreign = {.waits = true};
    w = untouched();
    w->f.class = &immediate;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_IMMEDIATE);
    w->f.class = &foreign;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_FOREIGN_CLASS);
    w->f.class = &(struct claim_class){.ours = true, .waits = true};
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_POOL_NOT_FOUND);
    w->f.class = &(struct claim_class){.ours = true, .waits = true, .awaits_pools = true};
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_POOLS_PENDING);
    w->f.class = NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_CLASS_NOT_FOUND);
}

static unsigned lists_allowed(struct populate *p, struct str ns, unsigned attempts)
{
    unsigned allowed = 0;
    for (unsigned i = 0; i < attempts; i++)
        allowed += populate_may_list(p, ns);
    return allowed;
}

/* No order of the two limits may cost the one that has a token left. */
static void a_list_takes_a_token_of_its_namespace_and_of_all_or_none(void **state)
{
    (void)state;
    static struct populate p;
    claim_events_open(&p);
    rate_init(&p.lists, 1, 25); /* slow: only the burst counts in the time of a test */
    assert_in_range(lists_allowed(&p, STR("a"), 100), 20, 21);
    assert_in_range(lists_allowed(&p, STR("b"), 100), 4, 6); /* those that `a` was refused did not count */
    rate_init(&p.lists, 1, 25);
    assert_in_range(lists_allowed(&p, STR("b"), 100), 14,
                    17); /* nor did those for which the common limit was used up */
    claim_events_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_that_was_ready_and_fails_is_reported_while_its_claim_waits_or_is_filled),
        cmocka_unit_test(a_waiting_claim_has_an_event_with_the_cause),
        cmocka_unit_test(a_list_takes_a_token_of_its_namespace_and_of_all_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
