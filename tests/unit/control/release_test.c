/* SPDX-License-Identifier: Apache-2.0 */
#include "release.h"
#include "unit.h"
#include "util/clock.h"
#include <string.h>

#define NOW (INT64_C(1763717400) * (int64_t)NS_PER_SECOND)
#define AGO(seconds) (NOW - (seconds) * (int64_t)NS_PER_SECOND)

static struct api_volume *volume(void)
{
    struct api_volume *v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->meta.is_held = true;
    v->id = (struct volume_id){"v1-0123456789ab-ba9876543210"};
    v->node = str_dup(STR("n1"));
    v->pool = str_dup(STR("default"));
    api_condition_set(&v->status.conditions, API_PROVISIONED, API_TRUE, "Provisioned", 1, AGO(99), "there");
    return v;
}

static const struct volume_context quiet = {.node_is_there = true,
                                            .now_ns = NOW,
                                            .node_gone_grace_ns = 600 * NS_PER_SECOND,
                                            .tombstone_ns = 6000 * NS_PER_SECOND};
static const struct volume_context alone = {
    .now_ns = NOW, .node_gone_grace_ns = 600 * NS_PER_SECOND, .tombstone_ns = 6000 * NS_PER_SECOND};

static enum release_action next(const struct api_volume *v, const struct volume_context *s)
{
    uint64_t again = 0;
    return release_next_action(v, s, &again);
}

static void a_volume_in_use_is_left_alone(void **state)
{
    (void)state;
    auto_api_volume v = volume();
    assert_int_equal(next(v, &quiet), LEADER_NONE);
    v->release_requested = true;
    assert_int_equal(next(v, &quiet), LEADER_NONE);
}

static void a_release_is_slow_during_an_export_or_with_an_absent_node(void **state)
{
    (void)state;
    auto_api_volume v = volume();
    v->release_requested = true;
    v->status.phase = API_PHASE_READY;
    api_condition_set(&v->status.conditions, API_MOUNTED, API_TRUE, "Staged", 1, AGO(9), "in use");
    assert_false(release_is_slow(v));
    v->status.phase = API_PHASE_EXPORTING;
    assert_true(release_is_slow(v));
    v->status.phase = API_PHASE_READY;
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_UNKNOWN, "NodeAbsent", 1, AGO(9), "away");
    assert_true(release_is_slow(v));
}

static void a_released_volume_is_finished_only_if_its_release_was_requested(void **state)
{
    (void)state;
    auto_api_volume v = volume();
    v->status.phase = API_PHASE_RELEASED;
    assert_int_equal(next(v, &quiet), LEADER_NONE);
    v->release_requested = true;
    assert_int_equal(next(v, &quiet), LEADER_FINISH);
    assert_int_equal(next(v, &alone), LEADER_FINISH);
}

static void an_order_half_taken_back_goes_and_one_that_lost_its_finalizer_otherwise_stays(void **state)
{
    (void)state;
    auto_api_volume v = volume();
    v->meta.is_held = false;
    assert_int_equal(next(v, &quiet), LEADER_NONE);
    api_condition_set(&v->status.conditions, API_PROVISIONED, API_FALSE, API_REASON_NODE_FULL, 1, NOW, "full");
    assert_int_equal(next(v, &quiet), LEADER_FINISH);
}

static void a_volume_without_a_claim_is_released_once(void **state)
{
    (void)state;
    struct volume_context s = quiet;
    auto_api_volume v = volume();
    s.is_unclaimed = true;
    assert_int_equal(next(v, &s), LEADER_RELEASE);
    v->release_requested = true;
    assert_int_equal(next(v, &s), LEADER_NONE);
}

static void a_release_is_withdrawn_while_its_persistent_volume_is_kept_until_its_node_commits_it(void **state)
{
    (void)state;
    struct volume_context s = quiet;
    auto_api_volume v = volume();
    s.pv_keeps_it = true;
    assert_int_equal(next(v, &s), LEADER_NONE);
    v->release_requested = true;
    assert_int_equal(next(v, &s), LEADER_WITHDRAW);
    s.node_is_there = false; /* before its node is given up, and after */
    assert_int_equal(next(v, &s), LEADER_WITHDRAW);
    v->status.release_committed = true;
    s.node_is_there = true;
    assert_int_equal(next(v, &s), LEADER_NONE);
    v->status.phase = API_PHASE_RELEASED;
    assert_int_equal(next(v, &s), LEADER_FINISH);
}

static bool is_kept(const char *text)
{
    struct err err;
    auto_json pv = NULL;
    assert_int_equal(json_parse(str_of(text), "pv", &pv, &err), 0);
    return release_is_kept_by(pv);
}

static void a_persistent_volume_keeps_its_volume_unless_its_claim_was_deleted_and_its_policy_is_delete(void **state)
{
    (void)state;
    assert_false(
        is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"},\"status\":{\"phase\":\"Released\"}}"));
    assert_false(
        is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"},\"status\":{\"phase\":\"Failed\"}}"));
    assert_false(is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"}}"));
    assert_true(
        is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"},\"status\":{\"phase\":\"Released\"}}"));
    assert_true(is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"},\"status\":{\"phase\":\"Bound\"}}"));
    assert_true(
        is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"},\"status\":{\"phase\":\"Available\"}}"));
    assert_true(is_kept("{\"spec\":{\"persistentVolumeReclaimPolicy\":7}}"));
    assert_true(is_kept("{}"));
}

static void a_release_whose_disk_is_absent_is_held_and_says_so_until_it_is_discarded(void **state)
{
    (void)state;
    struct err err;
    auto_api_volume v = volume();
    v->release_requested = true;
    v->status.phase = API_PHASE_LOST;
    assert_false(release_is_settled(v));
    api_condition_set(&v->status.conditions, API_EXPORTED, API_FALSE, API_REASON_POOL_ABSENT, 1, AGO(9), "held");
    assert_true(release_is_settled(v) && !release_is_over(v));
    assert_int_equal(release_describe(v, &err), -ERR_ABSENT);
    assert_int_equal(err.id, 3023);
    v->release_discard = true;
    assert_false(release_is_settled(v));
}

static void a_deleted_order_without_release_is_held_and_reported_once(void **state)
{
    (void)state;
    auto_api_volume v = volume();
    v->meta.deleted_ns = AGO(5);
    assert_int_equal(next(v, &quiet), LEADER_HOLD);
    api_condition_set(&v->status.conditions, API_DELETION_HELD, API_TRUE, "NotReleased", 1, NOW, "held");
    assert_int_equal(next(v, &quiet), LEADER_NONE);
}

static void a_node_gets_its_grace_and_its_volume_is_lost_after_it(void **state)
{
    (void)state;
    uint64_t again = 0;
    auto_api_volume v = volume();
    assert_int_equal(next(v, &alone), LEADER_NODE_ABSENT);
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_UNKNOWN, "NodeAbsent", 1, AGO(590), "away");
    assert_int_equal(release_next_action(v, &alone, &again), LEADER_NONE);
    assert_int_equal(again, 10 * NS_PER_SECOND);
    assert_int_equal(next(v, &quiet), LEADER_NODE_BACK);
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_FALSE, "NodeBack", 1, AGO(580), "there");
    assert_int_equal(next(v, &quiet), LEADER_NONE);
    assert_int_equal(next(v, &alone), LEADER_NODE_ABSENT); /* the grace period begins again */
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_UNKNOWN, "NodeAbsent", 1, AGO(600), "away");
    assert_int_equal(next(v, &alone), LEADER_LOSE);
}

static void a_lost_volume_is_removed_after_its_retention_unless_it_has_a_claim(void **state)
{
    (void)state;
    uint64_t again = 0;
    auto_api_volume v = volume();
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 1, AGO(5990), "gone");
    v->release_requested = true;
    assert_true(release_is_tombstone(v));
    assert_int_equal(release_next_action(v, &alone, &again), LEADER_NONE);
    assert_int_equal(again, 10 * NS_PER_SECOND);
    auto_api_volume old = volume();
    api_condition_set(&old->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 1, AGO(6001), "gone");
    assert_int_equal(next(old, &alone), LEADER_NONE);
    old->release_requested = true;
    assert_int_equal(next(old, &alone), LEADER_FINISH);
    assert_int_equal(next(old, &quiet), LEADER_NODE_BACK);
}

static void a_release_says_what_it_waits_for(void **state)
{
    (void)state;
    struct err err = {0};
    auto_api_volume v = volume();
    assert_false(release_is_settled(v));
    assert_int_equal(release_describe(v, &err), -ERR_PENDING);
    assert_int_equal(err.id, 4030);
    v->status.export.pending_objects = 3;
    v->status.export.pending_bytes = 2048;
    assert_int_equal(release_describe(v, &err), -ERR_PENDING);
    assert_int_equal(err.id, 4032);
    assert_non_null(strstr(err.text, "3 files, 2.00 KiB, are still to be exported"));
    assert_non_null(strstr(err.advice, "wait, or discard them: kubectl annotate pv pvc-1 "
                                       "cistern.io/discard-unexported=v1-0123456789ab-ba9876543210"));
    api_condition_set(&v->status.conditions, API_MOUNTED, API_TRUE, "Staged", 1, NOW, "x");
    assert_int_equal(release_describe(v, &err), -ERR_BUSY);
    assert_int_equal(err.id, 3013);
    v->status.phase = API_PHASE_EXPORT_FAILED;
    v->status.export.failed_objects = 16;
    v->status.export.pending_objects = 975;
    v->status.export.done_objects = 9;
    api_faults_add(&v->status.export_failed, "ckpt/step-900.pt", "CIS1503", "AGAIN", "503", 1, 0);
    assert_true(release_is_settled(v));
    assert_int_equal(release_describe(v, &err), -ERR_BUSY);
    assert_string_equal(err.text, "volume 'v1-0123456789ab-ba9876543210': 991 of 1000 files not exported, first "
                                  "ckpt/step-900.pt: 503");
    assert_int_equal(err.id, 1503);
    assert_non_null(strstr(err.advice, "cistern.io/discard-unexported=v1-0123456789ab-ba9876543210"));
    v->release_discard = true; /* the node has still to act on that */
    assert_false(release_is_settled(v));
    assert_int_equal(release_describe(v, &err), -ERR_BUSY);
    assert_int_equal(err.id, 3013);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volume_in_use_is_left_alone),
        cmocka_unit_test(a_release_is_slow_during_an_export_or_with_an_absent_node),
        cmocka_unit_test(a_released_volume_is_finished_only_if_its_release_was_requested),
        cmocka_unit_test(an_order_half_taken_back_goes_and_one_that_lost_its_finalizer_otherwise_stays),
        cmocka_unit_test(a_volume_without_a_claim_is_released_once),
        cmocka_unit_test(a_release_is_withdrawn_while_its_persistent_volume_is_kept_until_its_node_commits_it),
        cmocka_unit_test(a_persistent_volume_keeps_its_volume_unless_its_claim_was_deleted_and_its_policy_is_delete),
        cmocka_unit_test(a_release_whose_disk_is_absent_is_held_and_says_so_until_it_is_discarded),
        cmocka_unit_test(a_deleted_order_without_release_is_held_and_reported_once),
        cmocka_unit_test(a_node_gets_its_grace_and_its_volume_is_lost_after_it),
        cmocka_unit_test(a_lost_volume_is_removed_after_its_retention_unless_it_has_a_claim),
        cmocka_unit_test(a_release_says_what_it_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
