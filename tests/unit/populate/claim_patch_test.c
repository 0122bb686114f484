/* SPDX-License-Identifier: Apache-2.0 */
#include "claim_patch.h"
#include "unit.h"
#include "util/names.h"

static const char target_text[] =
    "{\"metadata\":{\"namespace\":\"train\",\"name\":\"weights\",\"uid\":\"u1\",\"resourceVersion\":\"7\","
    "\"labels\":{\"team\":\"a\"},"
    "\"annotations\":{\"volume.kubernetes.io/selected-node\":\"n1\",\"cistern.io/hydration\":\"gate\"},"
    "\"finalizers\":[\"kubernetes.io/pvc-protection\"]},"
    "\"spec\":{\"accessModes\":[\"ReadWriteOncePod\"],\"resources\":{\"requests\":{\"storage\":\"1Gi\"}},"
    "\"storageClassName\":\"cistern\",\"volumeMode\":\"Filesystem\",\"volumeAttributesClassName\":\"fast\","
    "\"selector\":{\"matchLabels\":{\"x\":\"y\"}},"
    "\"dataSource\":{\"apiGroup\":\"cistern.io\",\"kind\":\"BucketSource\",\"name\":\"llama\"},"
    "\"dataSourceRef\":{\"apiGroup\":\"cistern.io\",\"kind\":\"BucketSource\",\"name\":\"llama\"}}}";

static json *target_json(void)
{
    struct err err;
    json *j = NULL;
    assert_int_equal(json_parse(str_of(target_text), "claim", &j, &err), 0);
    return j;
}

static void is_text(json *own_j, const char *wanted)
{
    auto_mem char *text = json_text(own_j, 0);
    assert_string_equal(text, wanted);
    json_free(own_j);
}

static void a_prime_asks_for_the_very_volume_that_the_target_would_have_got(void **state)
{
    (void)state;
    auto_json target = target_json();
    is_text(claim_patch_prime(target, STR("cistern-system"), false),
            "{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolumeClaim\","
            "\"metadata\":{\"name\":\"prime-u1\",\"namespace\":\"cistern-system\",\"labels\":{\"team\":\"a\"},"
            "\"annotations\":{\"volume.kubernetes.io/selected-node\":\"n1\",\"cistern.io/populate-node\":\"n1\","
            "\"cistern.io/populate-target\":\"train/weights\"}},"
            "\"spec\":{\"accessModes\":[\"ReadWriteOncePod\"],\"resources\":{\"requests\":{\"storage\":\"1Gi\"}},"
            "\"storageClassName\":\"cistern\","
            "\"volumeMode\":\"Filesystem\",\"selector\":{\"matchLabels\":{\"x\":\"y\"}},"
            "\"volumeAttributesClassName\":\"fast\"}}");
}

static void a_prime_records_whether_its_node_was_already_cordoned(void **state)
{
    (void)state;
    auto_json target = target_json();
    struct claim c;
    struct err err;
    auto_json prime = claim_patch_prime(target, STR("cistern-system"), true);
    assert_int_equal(claim_read(prime, &c, &err), 0);
    assert_true(c.made_cordoned);
    assert_true(str_eq(c.prime_node, STR("n1")));
    assert_int_equal(c.source.len, 0);
}

static void the_guard_is_added_to_the_list_that_was_seen(void **state)
{
    (void)state;
    auto_json target = target_json();
    is_text(
        claim_patch_add_finalizer(target),
        "[{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"u1\"},"
        "{\"op\":\"test\",\"path\":\"/metadata/finalizers\",\"value\":[\"kubernetes.io/pvc-protection\"]},"
        "{\"op\":\"add\",\"path\":\"/metadata/finalizers/-\",\"value\":\"cistern.io/populate-target-protection\"}]");
    json_remove(target, "metadata.finalizers");
    is_text(
        claim_patch_add_finalizer(target),
        "[{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"u1\"},"
        "{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"7\"},"
        "{\"op\":\"add\",\"path\":\"/metadata/finalizers\",\"value\":[\"cistern.io/populate-target-protection\"]}]");
}

static void only_our_own_finalizer_is_taken_off(void **state)
{
    (void)state;
    auto_json target = target_json();
    assert_null(claim_patch_remove_finalizer(target));
    json *list = json_take_at(target, "metadata.finalizers");
    json_append_str(list, STR(NAME_FINALIZER_POPULATE));
    json_append_str(list, STR("another.io/one"));
    json_set(target, "metadata.finalizers", list);
    is_text(claim_patch_remove_finalizer(target),
            "[{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"u1\"},"
            "{\"op\":\"test\",\"path\":\"/metadata/finalizers/1\",\"value\":\"cistern.io/populate-target-protection\"},"
            "{\"op\":\"remove\",\"path\":\"/metadata/finalizers/1\"}]");
}

static void the_node_is_put_back_on_the_very_claim_that_was_seen(void **state)
{
    (void)state;
    auto_json target = target_json();
    is_text(
        claim_patch_select(target, STR("n2")),
        "[{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"u1\"},"
        "{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"7\"},"
        "{\"op\":\"add\",\"path\":\"/metadata/annotations/volume.kubernetes.io~1selected-node\",\"value\":\"n2\"}]");
    json_remove(target, "metadata.annotations");
    is_text(
        claim_patch_select(target, STR("n2")),
        "[{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"u1\"},"
        "{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"7\"},"
        "{\"op\":\"add\",\"path\":\"/metadata/annotations\",\"value\":{}},"
        "{\"op\":\"add\",\"path\":\"/metadata/annotations/volume.kubernetes.io~1selected-node\",\"value\":\"n2\"}]");
}

static void the_node_is_taken_off_only_if_it_is_still_that_one(void **state)
{
    (void)state;
    auto_json target = target_json();
    struct claim c;
    struct err err;
    assert_int_equal(claim_read(target, &c, &err), 0);
    is_text(claim_patch_unselect(&c),
            "[{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"u1\"},"
            "{\"op\":\"test\",\"path\":\"/metadata/annotations/volume.kubernetes.io~1selected-node\",\"value\":\"n1\"},"
            "{\"op\":\"remove\",\"path\":\"/metadata/annotations/volume.kubernetes.io~1selected-node\"}]");
}

static void the_policy_is_kept_and_given_back_with_the_claim(void **state)
{
    (void)state;
    auto_json target = target_json();
    struct claim c;
    struct err err;
    struct claim_pv pv = {.version = STR("9"), .policy = STR("Retain")};
    assert_int_equal(claim_read(target, &c, &err), 0);
    is_text(claim_patch_save_policy(&pv), "{\"metadata\":{\"resourceVersion\":\"9\","
                                          "\"annotations\":{\"cistern.io/reclaim-policy\":\"Retain\"}},"
                                          "\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"}}");
    pv = (struct claim_pv){.version = STR("10"), .policy = STR("Delete"), .saved_policy = STR("Retain")};
    is_text(claim_patch_hand_over(&pv, &c),
            "{\"metadata\":{\"resourceVersion\":\"10\",\"annotations\":{\"cistern.io/populated-from\":\"train/llama\","
            "\"cistern.io/reclaim-policy\":null}},\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\","
            "\"claimRef\":{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolumeClaim\",\"namespace\":\"train\","
            "\"name\":\"weights\",\"uid\":\"u1\",\"resourceVersion\":\"7\"}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prime_asks_for_the_very_volume_that_the_target_would_have_got),
        cmocka_unit_test(a_prime_records_whether_its_node_was_already_cordoned),
        cmocka_unit_test(the_guard_is_added_to_the_list_that_was_seen),
        cmocka_unit_test(only_our_own_finalizer_is_taken_off),
        cmocka_unit_test(the_node_is_put_back_on_the_very_claim_that_was_seen),
        cmocka_unit_test(the_node_is_taken_off_only_if_it_is_still_that_one),
        cmocka_unit_test(the_policy_is_kept_and_given_back_with_the_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
