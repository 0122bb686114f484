/* SPDX-License-Identifier: Apache-2.0 */
#include "claim_world.h"

/* ---- before the prime -------------------------------------------------------------------------------------------- */

static void claims_without_a_bucket_source_are_ignored(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->target.source = STR_NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w = untouched();
    w->target.namespace = STR(NAME_NAMESPACE);
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w = untouched();
    w->target.volume_name = STR("made-by-hand");
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w = untouched();
    w->target.deleting = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void a_claim_in_the_namespace_of_cistern_has_events_unless_it_is_a_prime(void **state)
{
    (void)state;
    static const struct claim_class poolless = {.ours = true, .waits = true};
    struct world *w = untouched();
    w->target.source = STR_NULL;
    w->target.namespace = STR(NAME_NAMESPACE);
    w->target.name = STR("cistern-test");
    w->f.class = &poolless;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_POOL_NOT_FOUND);
    w->target.name = STR(NAME_PRIME_PREFIX "01234567-89ab-cdef-0123-456789abcdef");
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void a_claim_without_a_pod_is_not_written(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->target.selected_node = STR_NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_POD_UNSCHEDULED);
    w->target.source = STR_NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_POD_UNSCHEDULED);
    w->target.phase = CLAIM_BOUND;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void a_source_of_another_namespace_needs_a_grant(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->target.source_namespace = STR("data");
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_SOURCE_ELSEWHERE);
    w->f.cross_namespace = true;
    next_is(w, CLAIM_ADD_FINALIZER, CLAIM_EVENT_NONE);
}

static void the_guard_comes_before_the_prime_and_after_the_word_of_the_clusters_controller(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->target.provisioner = STR_NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->target.provisioner = STR(NAME_DRIVER);
    next_is(w, CLAIM_ADD_FINALIZER, CLAIM_EVENT_NONE);
    w->target.has_finalizer = true;
    next_is(w, CLAIM_MAKE_PRIME, CLAIM_EVENT_NONE);
}

static void a_target_of_a_node_that_is_gone_is_freed_before_a_prime_is_made(void **state)
{
    (void)state;
    struct world *w = untouched();
    w->f.node = CLAIM_NODE_GONE;
    next_is(w, CLAIM_UNSELECT, CLAIM_EVENT_NODE_GONE);
}

/* ---- with it ----------------------------------------------------------------------------------------------------- */

static void the_way_to_the_hand_over(void **state)
{
    (void)state;
    struct world *w = filling();
    w->prime.phase = CLAIM_PENDING;
    w->prime.volume_name = STR_NULL;
    w->f.pv = NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w = filling();
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.filled = true;
    next_is(w, CLAIM_HAND_OVER, CLAIM_EVENT_NONE);
    w = handed_over();
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->prime.phase = CLAIM_LOST;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->target.volume_name = STR("pvc-p1");
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE); /* not Bound yet: what is taken away now would be lost */
    w->target.phase = CLAIM_BOUND;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w->prime.deleting = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.prime = NULL;
    next_is(w, CLAIM_REMOVE_FINALIZER, CLAIM_EVENT_NONE);
    w->target.has_finalizer = false;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void the_volume_of_a_prime_is_never_retained(void **state)
{
    (void)state;
    struct world *w = filling();
    w->pv.policy = STR("Retain");
    next_is(w, CLAIM_SAVE_POLICY, CLAIM_EVENT_NONE);
    w->f.filled = true;
    next_is(w, CLAIM_SAVE_POLICY, CLAIM_EVENT_NONE);
}

static void the_volume_of_a_prime_that_is_gone_is_not_retained_either(void **state)
{
    (void)state;
    const struct claim_pv orphan = {.name = S("pvc-p0"), .claim_uid = S("p0"), .policy = S("Retain")};
    struct world *w = filling();
    w->f.prime = NULL;
    w->f.pv = NULL;
    w->f.orphan = &orphan;
    w->target.deleting = true;
    next_is(w, CLAIM_SAVE_POLICY, CLAIM_EVENT_NONE); /* or the volume stays, and the target with it */
    w->f.target = NULL;
    next_is(w, CLAIM_SAVE_POLICY, CLAIM_EVENT_NONE);
}

static void a_volume_that_is_another_claims_is_not_handed_over(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.filled = true;
    w->pv.claim_uid = STR("u2");
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void a_prime_whose_guard_was_taken_off_is_guarded_again(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.has_finalizer = false;
    next_is(w, CLAIM_ADD_FINALIZER, CLAIM_EVENT_NONE);
}

static void a_source_or_a_class_that_goes_later_stops_nothing(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.has_source = false;
    w->f.class = NULL;
    w->f.filled = true;
    next_is(w, CLAIM_HAND_OVER, CLAIM_EVENT_NONE);
}

/* ---- again elsewhere --------------------------------------------------------------------------------------------- */

static void unprovisioned(struct world *w)
{
    w->prime.phase = CLAIM_PENDING;
    w->prime.volume_name = STR_NULL;
    w->f.pv = NULL;
}

static void a_full_node_is_replaced_by_another_node(void **state)
{
    (void)state;
    struct world *w = filling();
    unprovisioned(w);
    w->prime.selected_node = STR_NULL; /* so says the provisioner that there is no space */
    next_is(w, CLAIM_UNSELECT, CLAIM_EVENT_NODE_FULL);
    w->target.selected_node = STR_NULL; /* done; a crash here repeats nothing */
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w->target.selected_node = STR("b"); /* and if the scheduler was faster, its word stays */
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w->prime.deleting = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.prime = NULL;
    next_is(w, CLAIM_MAKE_PRIME, CLAIM_EVENT_NONE);
}

static void a_node_that_goes_or_is_cordoned_is_left(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.node = CLAIM_NODE_GONE;
    next_is(w, CLAIM_UNSELECT, CLAIM_EVENT_NODE_GONE);
    w->f.node = CLAIM_NODE_CORDONED;
    next_is(w, CLAIM_UNSELECT, CLAIM_EVENT_NODE_CORDONED);
    w->target.selected_node = STR_NULL;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
}

static void a_pod_that_tolerates_a_cordon_keeps_its_node(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.node = CLAIM_NODE_CORDONED;
    w->prime.made_cordoned = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.filled = true;
    next_is(w, CLAIM_HAND_OVER, CLAIM_EVENT_NONE);
}

static void a_node_that_is_silent_for_a_while_is_waited_for(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.node = CLAIM_NODE_UNREADY;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void a_handed_over_volume_is_kept_when_its_node_is_gone(void **state)
{
    (void)state;
    struct world *w = handed_over();
    w->f.node = CLAIM_NODE_GONE;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.node = CLAIM_NODE_CORDONED;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void a_pod_that_moved_takes_its_claim_along(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.selected_node = STR("b");
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w = filling();
    unprovisioned(w);
    w->target.selected_node = STR_NULL;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
}

static void a_volume_that_is_there_draws_the_pod_back_to_it(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.selected_node = STR_NULL;
    next_is(w, CLAIM_SELECT, CLAIM_EVENT_NONE);
    w->target.selected_node = STR("a");
    w->f.filled = true;
    next_is(w, CLAIM_HAND_OVER, CLAIM_EVENT_NONE);
    w->target.selected_node = STR_NULL; /* but not to a node that cannot serve */
    w->f.node = CLAIM_NODE_CORDONED;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
}

static void a_volume_that_lost_its_data_is_made_again(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.lost = true;
    next_is(w, CLAIM_UNSELECT, CLAIM_EVENT_VOLUME_LOST);
    w = filling();
    w->prime.phase = CLAIM_LOST;
    w->f.pv = NULL;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void a_deletion_needs_neither_source_nor_class_nor_node(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.deleting = true;
    w->target.selected_node = STR_NULL;
    w->f.class = NULL;
    w->f.has_source = false;
    w->f.node = CLAIM_NODE_GONE;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
}

static void the_guard_goes_last(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.deleting = true;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w->prime.deleting = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.prime = NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE); /* the job is there */
    w->f.job_left = false;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE); /* the volume is there */
    w->f.volume_left = false;
    next_is(w, CLAIM_REMOVE_FINALIZER, CLAIM_EVENT_NONE);
}

static void a_node_that_is_away_does_not_hold_a_deleted_claim(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.deleting = true;
    w->f.prime = NULL;
    w->f.job_left = false;
    w->f.volume_unreachable = true;
    next_is(w, CLAIM_REMOVE_FINALIZER, CLAIM_EVENT_NONE);
    w->f.job_left = true; /* its pod hangs on that node */
    next_is(w, CLAIM_REMOVE_FINALIZER, CLAIM_EVENT_NONE);
}

static void a_claim_may_be_deleted_between_hand_over_and_binding(void **state)
{
    (void)state;
    struct world *w = handed_over();
    w->target.deleting = true;
    w->prime.phase = CLAIM_LOST;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w->f.prime = NULL;
    next_is(w, CLAIM_REMOVE_FINALIZER, CLAIM_EVENT_NONE);
}

static void a_target_that_got_another_volume_ends_the_work(void **state)
{
    (void)state;
    struct world *w = filling();
    w->target.volume_name = STR("made-by-hand");
    w->target.phase = CLAIM_BOUND;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_OTHER_VOLUME);
    w->f.prime = NULL;
    w->f.pv = NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.job_left = w->f.volume_left = false;
    next_is(w, CLAIM_REMOVE_FINALIZER, CLAIM_EVENT_NONE);
}

static void a_prime_without_a_target_goes(void **state)
{
    (void)state;
    struct world *w = filling();
    w->f.target = NULL;
    next_is(w, CLAIM_DELETE_PRIME, CLAIM_EVENT_NONE);
    w->prime.deleting = true;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
    w->f.prime = NULL;
    next_is(w, CLAIM_NOTHING, CLAIM_EVENT_NONE);
}

static void an_operation_is_in_flight_from_the_guard_to_its_removal(void **state)
{
    (void)state;
    struct world *w = untouched();
    assert_false(claim_in_flight(&w->f));
    w->target.has_finalizer = true;
    assert_true(claim_in_flight(&w->f));
    w->f.target = NULL;
    assert_false(claim_in_flight(&w->f));
    w->f.prime = &w->prime;
    assert_true(claim_in_flight(&w->f));
}

/* ---- every world ------------------------------------------------------------------------------------------------- */

/* Applies what was asked to the world, as the API server and its controllers would, and lets them answer. */
static void carry_out(struct world *w, struct claim_step s)
{
    switch (s.action) {
    case CLAIM_ADD_FINALIZER:
        w->target.has_finalizer = true;
        break;
    case CLAIM_MAKE_PRIME:
        w->prime = made;
        w->prime.prime_node = w->prime.selected_node = w->target.selected_node;
        w->f.prime = &w->prime;
        w->f.pv = &w->pv;
        w->pv = fresh_pv;
        w->f.node = CLAIM_NODE_READY;
        w->f.lost = false;
        w->f.filled = true;
        break;
    case CLAIM_SAVE_POLICY:
        w->pv.policy = STR("Delete");
        break;
    case CLAIM_HAND_OVER:
        w->pv.claim_uid = w->target.uid;
        w->target.volume_name = w->pv.name;
        w->target.phase = CLAIM_BOUND;
        w->prime.phase = CLAIM_LOST;
        w->f.volume_left = false;
        break;
    case CLAIM_SELECT:
        w->target.selected_node = w->prime.prime_node;
        break;
    case CLAIM_UNSELECT:
        w->target.selected_node = STR_NULL;
        break;
    case CLAIM_DELETE_PRIME:
        w->f.prime = NULL;
        w->f.job_left = w->f.volume_left = false;
        if (w->f.pv && !str_eq(w->pv.claim_uid, w->target.uid))
            w->f.pv = NULL;
        if (w->f.target && !w->target.selected_node.len)
            w->target.selected_node = STR("b");
        break;
    case CLAIM_REMOVE_FINALIZER:
        w->target.has_finalizer = false;
        if (w->target.deleting)
            w->f.target = NULL;
        break;
    case CLAIM_NOTHING:
        break;
    }
}

/* Bits of `seed` choose what the world is like when a controller first looks at it. */
static struct world *world_of(unsigned seed)
{
    struct world *w = filling();
    w->target.has_finalizer = seed & 1;
    w->target.deleting = seed & 2;
    w->f.prime = seed & 4 ? &w->prime : NULL;
    w->f.lost = seed & 8;
    w->f.filled = seed & 16;
    w->f.node = (enum claim_node)(seed >> 5 & 3);
    w->prime.selected_node = seed & 128 ? STR_NULL : STR("a");
    if (seed & 256)
        unprovisioned(w);
    w->target.selected_node = seed & 512 ? STR_NULL : STR("a");
    if (seed & 1024)
        w->pv.claim_uid = w->target.uid;
    w->pv.policy = seed & 2048 ? STR("Retain") : STR("Delete");
    if (!w->f.prime)
        w->f.job_left = w->f.volume_left = false;
    return w;
}

static void from_every_world_the_steps_end_and_leave_nothing_behind(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 4096; seed++) {
        struct world *w = world_of(seed);
        struct claim_step s;
        unsigned steps = 0;
        while ((s = claim_next(&w->f)).action != CLAIM_NOTHING) {
            if (++steps > 12)
                fail_msg("seed %u: '%s' (%s) repeats without end", seed, claim_action_name(s.action), s.why);
            if (s.action == CLAIM_HAND_OVER)
                assert_true(w->f.filled && !w->f.lost && !w->target.deleting && str_eq(w->pv.claim_uid, made.uid));
            if (s.action == CLAIM_REMOVE_FINALIZER)
                assert_true(!w->f.prime && !w->f.job_left);
            carry_out(w, s);
        }
        if (w->target.deleting && w->target.has_finalizer && w->f.target)
            fail_msg("seed %u: the deleted target hangs", seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_without_a_bucket_source_are_ignored),
        cmocka_unit_test(a_claim_in_the_namespace_of_cistern_has_events_unless_it_is_a_prime),
        cmocka_unit_test(a_claim_without_a_pod_is_not_written),
        cmocka_unit_test(a_source_of_another_namespace_needs_a_grant),
        cmocka_unit_test(the_guard_comes_before_the_prime_and_after_the_word_of_the_clusters_controller),
        cmocka_unit_test(a_target_of_a_node_that_is_gone_is_freed_before_a_prime_is_made),
        cmocka_unit_test(the_way_to_the_hand_over),
        cmocka_unit_test(the_volume_of_a_prime_is_never_retained),
        cmocka_unit_test(the_volume_of_a_prime_that_is_gone_is_not_retained_either),
        cmocka_unit_test(a_volume_that_is_another_claims_is_not_handed_over),
        cmocka_unit_test(a_prime_whose_guard_was_taken_off_is_guarded_again),
        cmocka_unit_test(a_source_or_a_class_that_goes_later_stops_nothing),
        cmocka_unit_test(a_full_node_is_replaced_by_another_node),
        cmocka_unit_test(a_node_that_goes_or_is_cordoned_is_left),
        cmocka_unit_test(a_pod_that_tolerates_a_cordon_keeps_its_node),
        cmocka_unit_test(a_node_that_is_silent_for_a_while_is_waited_for),
        cmocka_unit_test(a_handed_over_volume_is_kept_when_its_node_is_gone),
        cmocka_unit_test(a_pod_that_moved_takes_its_claim_along),
        cmocka_unit_test(a_volume_that_is_there_draws_the_pod_back_to_it),
        cmocka_unit_test(a_volume_that_lost_its_data_is_made_again),
        cmocka_unit_test(a_deletion_needs_neither_source_nor_class_nor_node),
        cmocka_unit_test(the_guard_goes_last),
        cmocka_unit_test(a_node_that_is_away_does_not_hold_a_deleted_claim),
        cmocka_unit_test(a_claim_may_be_deleted_between_hand_over_and_binding),
        cmocka_unit_test(a_target_that_got_another_volume_ends_the_work),
        cmocka_unit_test(a_prime_without_a_target_goes),
        cmocka_unit_test(an_operation_is_in_flight_from_the_guard_to_its_removal),
        cmocka_unit_test(from_every_world_the_steps_end_and_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
