/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/release_state.h"
#include "unit.h"

/* A volume with a policy that was written once, in a cluster, whose release is asked for. */
static const struct release_facts written = {
    .place = RELEASE_HERE, .in_cluster = true, .has_policy = true, .writes = 1, .stage = RELEASE_CLOSED};

#define after(...) release_next_step(&(struct release_facts){__VA_ARGS__})

static enum release_step step_of(struct release_facts f)
{
    return release_next_step(&f);
}

static void a_release_goes_from_open_to_gone_in_this_order(void **state)
{
    (void)state;
    struct release_facts f = written;
    f.stage = RELEASE_OPEN;
    assert_int_equal(step_of(f), RELEASE_CLOSE);
    f.stage = RELEASE_CLOSED;
    f.in_use = true;
    assert_int_equal(step_of(f), RELEASE_IN_USE);
    f.in_use = false;
    assert_int_equal(step_of(f), RELEASE_SEAL);
    f.stage = RELEASE_SEALED;
    assert_int_equal(step_of(f), RELEASE_EXPORT_DUE);
    f.at_work = true;
    assert_int_equal(step_of(f), RELEASE_AT_WORK);
    f.at_work = false;
    f.verdict = RELEASE_CONFIRMED;
    f.verdict_writes = 1;
    assert_int_equal(step_of(f), RELEASE_COMMIT);
    f.is_committed = true;
    assert_int_equal(step_of(f), RELEASE_TRASH);
    f.place = RELEASE_MISSING;
    assert_int_equal(step_of(f), RELEASE_GONE);
}

static void a_verdict_counts_only_with_the_number_of_writes_that_the_record_has(void **state)
{
    (void)state;
    struct release_facts f = written;
    f.stage = RELEASE_SEALED;
    f.verdict = RELEASE_CONFIRMED;
    f.writes = 2;
    f.verdict_writes = 1;
    assert_int_equal(step_of(f), RELEASE_EXPORT_DUE);
    f.verdict_writes = 0; /* of an older version, or of a run that started before the volume was sealed */
    assert_int_equal(step_of(f), RELEASE_EXPORT_DUE);
    f.verdict = RELEASE_FAILED;
    f.discards_failed = true;
    assert_int_equal(step_of(f), RELEASE_EXPORT_DUE);
    f.verdict_writes = 2;
    assert_int_equal(step_of(f), RELEASE_COMMIT);
    f.discards_failed = false;
    assert_int_equal(step_of(f), RELEASE_EXPORT_FAILED);
    assert_int_equal(release_verdict_writes(RELEASE_OPEN, 7), 0);
    assert_int_equal(release_verdict_writes(RELEASE_CLOSED, 7), 0);
    assert_int_equal(release_verdict_writes(RELEASE_SEALED, 7), 7);
}

static void volume_without_a_due_export_is_released_at_once(void **state)
{
    (void)state;
    struct release_facts f = written;
    f.may_discard = true;
    assert_int_equal(step_of(f), RELEASE_COMMIT);
    f = written;
    f.has_policy = false;
    assert_int_equal(step_of(f), RELEASE_COMMIT);
    f = written;
    f.writes = 0;
    assert_int_equal(step_of(f), RELEASE_COMMIT);
    assert_int_equal(after(.place = RELEASE_HERE, .is_committed = true), RELEASE_TRASH);
}

static void a_pool_that_is_not_here_holds_what_may_be_unexported(void **state)
{
    (void)state;
    assert_int_equal(after(.place = RELEASE_ABSENT, .has_policy = true, .writes = 1), RELEASE_HELD);
    assert_int_equal(after(.place = RELEASE_ABSENT, .has_policy = true, .writes = 1, .is_committed = true),
                     RELEASE_HELD);
    assert_int_equal(after(.place = RELEASE_ABSENT, .has_policy = true, .writes = 1, .may_discard = true),
                     RELEASE_COMMIT);
    assert_int_equal(after(.place = RELEASE_ABSENT, .has_policy = true), RELEASE_COMMIT);
    assert_int_equal(after(.place = RELEASE_ABSENT, .is_committed = true), RELEASE_GONE);
    assert_int_equal(after(.place = RELEASE_MISSING, .is_committed = true), RELEASE_GONE);
}

static void a_withdrawn_release_opens_the_volume_and_takes_no_other_step(void **state)
{
    (void)state;
    for (unsigned stage = 0; stage <= RELEASE_SEALED; stage++)
        for (unsigned place = RELEASE_HERE; place <= RELEASE_ABSENT; place++)
            for (unsigned bits = 0; bits < 64; bits++) {
                struct release_facts f = {.place = place,
                                          .stage = stage,
                                          .is_withdrawn = true,
                                          .in_cluster = bits & 1,
                                          .may_discard = bits & 2,
                                          .has_policy = bits & 4,
                                          .in_use = bits & 8,
                                          .at_work = bits & 16,
                                          .is_committed = bits & 32};
                bool opens = place == RELEASE_HERE && stage != RELEASE_OPEN;
                assert_int_equal(step_of(f), opens ? RELEASE_REOPEN : RELEASE_WITHDRAWN);
            }
}

static void unreadable_volume_is_deleted_only_with_discard(void **state)
{
    (void)state;
    assert_int_equal(after(.place = RELEASE_UNREADABLE, .in_cluster = true), RELEASE_DAMAGED);
    assert_int_equal(after(.place = RELEASE_UNREADABLE, .in_cluster = true, .may_discard = true, .in_use = true),
                     RELEASE_IN_USE);
    assert_int_equal(after(.place = RELEASE_UNREADABLE, .in_cluster = true, .may_discard = true), RELEASE_COMMIT);
}

static void volume_being_released_is_mounted_only_if_the_mount_withdraws(void **state)
{
    (void)state;
    assert_int_equal(release_admit(RELEASE_OPEN, true, true), RELEASE_ADMIT);
    assert_int_equal(release_admit(RELEASE_CLOSED, true, false), RELEASE_REFUSE);
    assert_int_equal(release_admit(RELEASE_SEALED, true, false), RELEASE_REFUSE);
    assert_int_equal(release_admit(RELEASE_SEALED, false, true), RELEASE_REFUSE_NOW);
    assert_int_equal(release_admit(RELEASE_SEALED, false, false), RELEASE_ADMIT_BY_WITHDRAWING);
    assert_true(release_may_withdraw(true, false));
    assert_false(release_may_withdraw(true, true));
    assert_false(release_may_withdraw(false, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_goes_from_open_to_gone_in_this_order),
        cmocka_unit_test(a_verdict_counts_only_with_the_number_of_writes_that_the_record_has),
        cmocka_unit_test(volume_without_a_due_export_is_released_at_once),
        cmocka_unit_test(a_pool_that_is_not_here_holds_what_may_be_unexported),
        cmocka_unit_test(a_withdrawn_release_opens_the_volume_and_takes_no_other_step),
        cmocka_unit_test(unreadable_volume_is_deleted_only_with_discard),
        cmocka_unit_test(volume_being_released_is_mounted_only_if_the_mount_withdraws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
