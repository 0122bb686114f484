/* SPDX-License-Identifier: Apache-2.0 */
#include "api/claim.h"
#include "unit.h"

static int check(const char *text, struct err *err)
{
    auto_json claim = NULL;
    if (json_parse(str_of(text), "a claim", &claim, err) < 0)
        fail_msg("%s", err->text);
    return api_claim_check(claim, err);
}

static void assert_refused(const char *text, unsigned id, const char *said)
{
    struct err err;
    assert_int_equal(check(text, &err), -ERR_INVALID);
    assert_int_equal(err.id, id);
    if (!strstr(err.text, said))
        fail_msg("%s", err.text);
}

static void claim_with_known_annotations_is_accepted(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(check("{}", &err), 0);
    assert_int_equal(
        check("{\"metadata\": {\"annotations\": {\"cistern.io/source\": \"a\", \"cistern.io/hydration\": \"gate\","
              "\"cistern.io/on-data-loss\": \"fail\", \"cistern.io/export-policy\": \"b\", \"acme.io/cistern.io\": "
              "\"\"}},"
              "\"spec\": {\"accessModes\": [\"ReadWriteOnce\", \"ReadWriteOncePod\"], \"volumeMode\": \"Filesystem\"}}",
              &err),
        0);
}

static void claim_with_unknown_annotation_is_refused_with_the_nearest(void **state)
{
    (void)state;
    assert_refused("{\"metadata\": {\"annotations\": {\"cistern.io/on-dataloss\": \"fail\"}}}", 5209,
                   "the nearest known one is 'cistern.io/on-data-loss'");
    assert_refused("{\"metadata\": {\"annotations\": {\"cistern.io/\": \"\"}}}", 5209,
                   "unknown annotation 'cistern.io/'");
    struct err err;
    assert_int_equal(check("{\"metadata\": {\"annotations\": {\"cistern.io/team\": \"\"}}}", &err), -ERR_INVALID);
    assert_string_equal(err.text, "unknown annotation 'cistern.io/team'");
}

static void claim_with_a_label_in_place_of_an_annotation_is_refused(void **state)
{
    (void)state;
    struct err err;
    assert_refused("{\"metadata\": {\"labels\": {\"cistern.io/source\": \"a\"}}}", 5209,
                   "'cistern.io/source' is a label, and has no effect");
    assert_int_equal(check("{\"metadata\": {\"labels\": {\"cistern.io/source\": \"a\", \"cistern.io/team\": \"b\"},"
                           "\"annotations\": {\"cistern.io/source\": \"a\"}}}",
                           &err),
                     0);
}

static void claim_of_many_nodes_or_a_block_device_is_refused(void **state)
{
    (void)state;
    assert_refused("{\"spec\": {\"accessModes\": [\"ReadWriteOnce\", \"ReadOnlyMany\"]}}", 5210, "ReadOnlyMany");
    assert_refused("{\"spec\": {\"volumeMode\": \"Block\"}}", 5210, "volumeMode Block");
    assert_refused("{\"spec\": {\"selector\": {}}}", 5210, "selector: unsupported");
}

static void claim_that_copies_a_volume_is_refused(void **state)
{
    (void)state;
    struct err err;
    assert_refused("{\"spec\": {\"dataSourceRef\": {\"kind\": \"PersistentVolumeClaim\"}}}", 5210, "cloned");
    assert_refused("{\"spec\": {\"dataSourceRef\": {\"apiGroup\": \"snapshot.storage.k8s.io\"}}}", 5210, "snapshots");
    assert_int_equal(check("{\"spec\": {\"dataSourceRef\": {\"apiGroup\": \"x.io\", \"kind\": \"X\"}}}", &err), 0);
}

#define SENT(field) "\"metadata\": {\"managedFields\": [{}, {\"fieldsV1\": {\"f:spec\": {\"" field "\": {}}}}]}"

static void claim_whose_data_source_was_dropped_is_refused(void **state)
{
    (void)state;
    struct err err;
    assert_refused("{" SENT("f:dataSource") "}", 5208, "dataSource: the API server dropped it");
    assert_refused("{" SENT("f:dataSourceRef") "}", 5208, "dataSourceRef.namespace: the API server dropped");
    assert_int_equal(check("{" SENT("f:dataSourceRef") ", \"spec\": {\"dataSourceRef\": {}}}", &err), 0);
    assert_int_equal(check("{" SENT("f:dataSource") ", \"spec\": {\"dataSourceRef\": {}}}", &err), 0);
    assert_int_equal(check("{" SENT("f:volumeMode") "}", &err), 0);
    assert_int_equal(check("{\"metadata\": {\"managedFields\": 3}}", &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claim_with_known_annotations_is_accepted),
        cmocka_unit_test(claim_with_unknown_annotation_is_refused_with_the_nearest),
        cmocka_unit_test(claim_with_a_label_in_place_of_an_annotation_is_refused),
        cmocka_unit_test(claim_of_many_nodes_or_a_block_device_is_refused),
        cmocka_unit_test(claim_that_copies_a_volume_is_refused),
        cmocka_unit_test(claim_whose_data_source_was_dropped_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
