/* SPDX-License-Identifier: Apache-2.0 */
#include "api/pool.h"
#include "unit.h"
#include <string.h>

static const char answer[] =
    "{\"apiVersion\":\"cistern.io/v1alpha1\",\"kind\":\"CisternPool\",\"metadata\":{\"name\":\"n1.default\",\"uid\":"
    "\"u\",\"resourceVersion\":\"7\"},\"spec\":{\"nodeName\":\"n1\",\"pool\":\"default\",\"volumesGeneration\":4},"
    "\"status\":{\"poolUUID\":\"0123456789ab\",\"backend\":\"quota\",\"capacityBytes\":100,\"availableBytes\":60,"
    "\"largestVolumeBytes\":50,\"health\":{\"status\":\"Healthy\"},\"ofTomorrow\":{\"x\":1}}}";

static struct api_pool *read_answer(void)
{
    struct err err;
    auto_json j = NULL;
    struct api_pool *p = NULL;
    assert_int_equal(json_parse(STR(answer), "it", &j, &err), 0);
    assert_int_equal(api_pool_read(j, &p, &err), 0);
    return p;
}

static void object_of_the_server_is_read_without_unknown_fields(void **state)
{
    (void)state;
    auto_api_pool p = read_answer();
    assert_string_equal(p->node, "n1");
    assert_int_equal(p->volumes_generation, 4);
    assert_int_equal(p->available_bytes, 60);
    assert_string_equal(p->pool_uuid, "0123456789ab");
    assert_true(api_pool_is_healthy(p));
}

static void the_status_names_the_object_and_leaves_the_spec_alone(void **state)
{
    (void)state;
    auto_api_pool p = read_answer();
    auto_json status = api_pool_status_json(p);
    auto_mem char *text = json_text(status, 0);
    assert_null(json_at(status, "spec"));
    assert_non_null(strstr(text, "\"metadata\":{\"name\":\"n1.default\",\"uid\":\"u\"}"));
    assert_non_null(strstr(text, "\"free\":\"60 B\""));
    auto_json whole = api_pool_json(p);
    assert_null(json_at(whole, "status"));
    assert_non_null(json_at(whole, "spec.nodeName"));
}

static void names_are_node_and_pool(void **state)
{
    (void)state;
    struct err err;
    char name[API_POOL_NAME_MAX + 1], node[250];
    assert_int_equal(api_pool_name("a.b.c", "nvme-1", name, &err), 0);
    assert_string_equal(name, "a.b.c.nvme-1");
    static const char *const bad[] = {"", "A", "a.b", "-a", "a-", "a/b"};
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(api_pool_name("n", bad[i], name, &err), -ERR_INVALID);
    memset(node, 'n', sizeof node);
    node[sizeof node - 1] = '\0';
    assert_int_equal(api_pool_name(node, "default", name, &err), -ERR_INVALID);
}

static void a_field_of_another_type_is_an_error_that_names_object_and_field(void **state)
{
    (void)state;
    struct err err;
    auto_json j = NULL;
    auto_api_pool p = NULL;
    assert_int_equal(json_parse(STR("{\"metadata\":{\"name\":\"x\"},\"spec\":{\"nodeName\":1}}"), "it", &j, &err), 0);
    assert_int_equal(api_pool_read(j, &p, &err), -ERR_INVALID);
    assert_string_equal(err.text, "CisternPool 'x': 'spec.nodeName' is not a string");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(object_of_the_server_is_read_without_unknown_fields),
        cmocka_unit_test(the_status_names_the_object_and_leaves_the_spec_alone),
        cmocka_unit_test(names_are_node_and_pool),
        cmocka_unit_test(a_field_of_another_type_is_an_error_that_names_object_and_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
