/* SPDX-License-Identifier: Apache-2.0 */
#include "claim.h"
#include "unit.h"
#include "util/clock.h"

static void a_claim_is_read_from_its_object(void **state)
{
    (void)state;
    struct err err;
    struct claim c;
    struct str text =
        STR("{\"metadata\":{\"namespace\":\"train\",\"name\":\"weights\",\"uid\":\"u1\",\"resourceVersion\":\"7\","
            "\"annotations\":{\"volume.kubernetes.io/selected-node\":\"a\",\"cistern.io/populate-node\":\"b\"},"
            "\"finalizers\":[\"kubernetes.io/pvc-protection\",\"cistern.io/populate-target-protection\"],"
            "\"deletionTimestamp\":\"2026-11-21T09:30:00Z\"},"
            "\"spec\":{\"storageClassName\":\"cistern\",\"dataSourceRef\":{\"apiGroup\":\"cistern.io\","
            "\"kind\":\"BucketSource\",\"name\":\"llama\"}},\"status\":{\"phase\":\"Lost\"}}");
    auto_json j = NULL;
    assert_int_equal(json_parse(text, "claim", &j, &err), 0);
    assert_int_equal(claim_read(j, &c, &err), 0);
    assert_true(str_eq(c.selected_node, STR("a")) && str_eq(c.prime_node, STR("b")));
    assert_true(c.has_finalizer && c.deleting && c.phase == CLAIM_LOST);
    assert_true(str_eq(c.source, STR("llama")) && str_eq(c.source_namespace, STR("train")));

    json_set_str(j, "spec.dataSourceRef.kind", STR("VolumeSnapshot"));
    assert_int_equal(claim_read(j, &c, &err), 0);
    assert_int_equal(c.source.len, 0);
    json_set_u64(j, "spec.volumeName", 7);
    assert_int_equal(claim_read(j, &c, &err), -ERR_INVALID);
}

static void a_prime_name_contains_the_uid_of_its_target(void **state)
{
    (void)state;
    struct str uid;
    assert_true(claim_target_uid(STR("prime-0b4f29e6-37a5-4d8c-9e01-6d2f5a7c8b90"), &uid));
    assert_true(str_eq(uid, STR("0b4f29e6-37a5-4d8c-9e01-6d2f5a7c8b90")));
    assert_false(claim_target_uid(STR("prime-"), &uid));
    assert_false(claim_target_uid(STR("weights"), &uid));
}

static void a_claim_named_prime_by_a_user_is_a_target(void **state)
{
    (void)state;
    struct str uid;
    assert_false(claim_target_uid(STR("prime-weights"), &uid));
    assert_false(claim_target_uid(STR("prime-trainer-0"), &uid));
    assert_false(claim_target_uid(STR("prime-0b4f29e6-37a5-4d8c-9e01-6d2f5a7c8b9"), &uid));
    assert_false(claim_target_uid(STR("prime-0b4f29e6-37a5-4d8c-9e01-6d2f5a7c8b9g"), &uid));
    assert_false(claim_target_uid(STR("prime-0b4f29e6-37a5-4d8c-9e016-d2f5a7c8b90"), &uid));
}

static json *user_of(const char *kind, const char *created, const char *phase)
{
    char text[512];
    json *j = NULL;
    snprintf(text, sizeof text,
             "{'items': [{'metadata': {'name': 'p', 'creationTimestamp': '%s', 'ownerReferences': [{'kind': '%s'}]},"
             " 'spec': {'volumes': [{'persistentVolumeClaim': {'claimName': 'data'}}]}, 'status': {'phase': '%s'}}]}",
             created, kind, phase);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    assert_int_equal(json_parse(str_of(text), "pods", &j, ERR_IGNORED), 0);
    return j;
}

static void pods_of_daemon_sets_and_later_ones_are_not_evicted(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *created, *phase;
        size_t count, evicted;
    } pods[] = {{"ReplicaSet", "2026-01-01T11:00:00Z", "Running", 1, 1},
                {"ReplicaSet", "2026-01-01T13:00:00Z", "Running", 1, 0},
                {"ReplicaSet", "2026-01-01T11:00:00Z", "Failed", 0, 0},
                {"DaemonSet", "2026-01-01T11:00:00Z", "Running", 1, 0}};
    int64_t since_ns;
    assert_int_equal(time_parse(STR("2026-01-01T12:00:00Z"), &since_ns, ERR_IGNORED), 0);
    for (size_t i = 0; i < countof(pods); i++) {
        auto_json list = user_of(pods[i].kind, pods[i].created, pods[i].phase);
        struct claim_users u = claim_users_of(STR("data"), list, since_ns);
        assert_int_equal(u.count, pods[i].count);
        assert_int_equal(u.evicted, pods[i].evicted);
        assert_int_equal(claim_users_of(STR("other"), list, since_ns).count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_is_read_from_its_object),
        cmocka_unit_test(a_prime_name_contains_the_uid_of_its_target),
        cmocka_unit_test(a_claim_named_prime_by_a_user_is_a_target),
        cmocka_unit_test(pods_of_daemon_sets_and_later_ones_are_not_evicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
