/* SPDX-License-Identifier: Apache-2.0 */
#include "api/volume.h"
#include "unit.h"
#include "util/clock.h"
#include <string.h>

static struct api_volume *order(void)
{
    struct err err;
    struct api_volume *v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->id = (struct volume_id){"v1-0123456789ab-ba9876543210"};
    v->node = str_dup(STR("n1"));
    v->pool = str_dup(STR("nvme"));
    v->capacity_bytes = 1 << 30;
    v->claim_namespace = str_dup(STR("train"));
    v->claim_name = str_dup(STR("weights"));
    v->claim_uid = str_dup(STR("u-1"));
    v->claim_label = str_dup(STR("train/weights"));
    v->source_namespace = str_dup(STR("train"));
    v->source_name = str_dup(STR("llama"));
    v->source_generation = 3;
    v->source = str_dup(STR("{\"uri\":\"s3://bucket/p/\",\"serviceAccountName\":\"trainer\"}"));
    assert_int_equal(api_volume_set_parameter(v, STR("pool"), STR("nvme"), &err), 0);
    assert_int_equal(api_volume_set_parameter(v, STR("hydration"), STR("gate"), &err), 0);
    return v;
}

static struct api_volume *again(const json *j)
{
    struct err err;
    struct api_volume *v;
    if (api_volume_read(j, &v, &err) < 0)
        fail_msg("%s", err.text);
    return v;
}

static void order_is_read_as_it_was_written(void **state)
{
    (void)state;
    auto_api_volume v = order();
    auto_json j = api_volume_json(v);
    auto_api_volume read = again(j);
    auto_json second = api_volume_json(read);
    auto_mem char *text = json_text(j, 0), *other = json_text(second, 0);
    assert_string_equal(text, other);
    assert_non_null(strstr(text, "\"finalizers\":[\"cistern.io/release\"]"));
    assert_non_null(strstr(text, "\"labels\":{\"cistern.io/node\":\"n1\",\"cistern.io/pool\":\"nvme\"}"));
    assert_true(read->meta.is_held);
    assert_string_equal(api_volume_parameter(read, "hydration"), "gate");
    assert_null(api_volume_parameter(read, "access"));
    assert_int_equal(api_volume_choice(read, "hydration"), HYDRATION_GATE);
    assert_int_equal(api_volume_choice(read, "access"), ACCESS_AUTO);
    assert_false(read->release_requested);
}

static void order_has_the_spec_of_the_standalone_driver(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec made = NULL;
    auto_spec wanted = spec_new();
    auto_api_volume v = order();
    if (api_volume_spec(v, &made, &err) < 0)
        fail_msg("%s; %s", err.text, err.advice);
    assert_int_equal(spec_set(wanted, STR("pool"), STR("nvme"), &err), 0);
    assert_int_equal(spec_set(wanted, STR("hydration"), STR("gate"), &err), 0);
    assert_int_equal(spec_set(wanted, STR("uri"), STR("s3://bucket/p/"), &err), 0);
    assert_int_equal(spec_set(wanted, STR("serviceAccountName"), STR("trainer"), &err), 0);
    assert_null(spec_difference(made, wanted));
    assert_string_equal(made->id.text, v->id.text);
    assert_string_equal(made->name, "pvc-1");
    assert_int_equal(made->capacity_bytes, 1 << 30);
    assert_int_equal(spec_check_served(made, &err), 0);
    made->in_cluster = false;
    assert_int_equal(spec_check_served(made, &err), -ERR_INVALID);
}

static void field_of_bucket_source_is_refused_as_parameter(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec made = NULL;
    auto_api_volume v = order();
    assert_int_equal(api_volume_set_parameter(v, STR("uri"), STR("s3://bucket/"), &err), 0);
    assert_int_equal(api_volume_spec(v, &made, &err), -ERR_INVALID);
    assert_int_equal(err.id, 2001);
}

static void order_with_an_invalid_volume_id_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    auto_api_volume v = order();
    auto_api_volume read = NULL;
    auto_json j = api_volume_json(v);
    json_set_str(j, "spec.volumeID", STR("v1-0123456789ab-../../../etc"));
    assert_int_equal(api_volume_read(j, &read, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "which is not a volume's id"));
}

static void order_with_a_retired_field_is_still_read(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec made = NULL;
    auto_api_volume v = order();
    free(v->source);
    v->source = str_dup(STR("{\"uri\":\"s3://bucket/p/\",\"layout\":{\"controlDir\":false}}"));
    assert_int_equal(api_volume_spec(v, &made, &err), 0);
    assert_string_equal(made->source.uri.text, "s3://bucket/p/");
}

static void order_with_a_uri_that_is_now_refused_is_still_read(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec made = NULL;
    auto_api_volume v = order();
    free(v->source);
    v->source = str_dup(STR("{\"sources\":[{\"uri\":\"s3://My_Bucket/p/\"}],\"export\":{\"uri\":\"gs://b/\"}}"));
    if (api_volume_spec(v, &made, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(spec_source_count(made), 1);
}

static void the_nodes_status_is_read_as_it_was_written(void **state)
{
    (void)state;
    auto_api_volume v = order();
    struct api_volume_status *s = &v->status;
    s->phase = API_PHASE_HYDRATING;
    s->hydration.attempt = 1;
    s->hydration.bytes_total = UINT64_C(140) << 30;
    s->hydration.bytes_done = UINT64_C(86) << 30;
    s->hydration.bytes_per_second = UINT64_C(7) << 30;
    s->hydration.eta_seconds = 8;
    s->hydration.started_ns = INT64_C(1763717400) * (int64_t)NS_PER_SECOND;
    s->export.failed_objects = 1;
    s->pool_uuid = str_dup(STR("0123456789ab"));
    api_faults_add(&s->errors, "a/b", "CIS1403", "DENIED", "no", 2, INT64_C(1763717400) * (int64_t)NS_PER_SECOND);
    api_faults_add(&s->export_failed, "ckpt/1", NULL, "IO", "503", 0, 0);
    api_condition_set(&s->conditions, API_PROVISIONED, API_TRUE, "Provisioned", 1, s->hydration.started_ns,
                      "it is there");
    auto_json j = api_volume_status_json(v);
    auto_mem char *text = json_text(j, 0);
    assert_non_null(strstr(text,
                           "\"summary\":{\"progress\":\"61%\",\"done\":\"86.0 GiB\",\"total\":\"140 GiB\",\"rate\":"
                           "\"7.00 GiB/s\",\"eta\":\"8"));
    assert_non_null(strstr(text, "\"failed\":[{\"path\":\"ckpt/1\",\"code\":\"IO\""));
    auto_json whole = api_volume_json(v);
    json_set(whole, "status", json_copy_of(json_at(j, "status")));
    auto_api_volume read = again(whole);
    auto_json second = api_volume_status_json(read);
    auto_mem char *other = json_text(second, 0);
    assert_string_equal(text, other);
    assert_int_equal(read->status.phase, API_PHASE_HYDRATING);
    assert_string_equal(read->status.errors.items[0].id, "CIS1403");
    assert_true(api_condition_is(&read->status.conditions, API_PROVISIONED, API_TRUE));
}

static void assert_shown(const char *node, const char *shown)
{
    auto_api_volume v = order();
    free(v->node);
    v->node = str_dup(str_of(node));
    auto_json j = api_volume_status_json(v);
    auto_mem char *text = str_dup(json_str_at(j, "status.summary.node"));
    assert_string_equal(text, shown);
}

static void a_long_name_of_a_node_is_shown_up_to_its_first_dot(void **state)
{
    (void)state;
    assert_shown("ip-192-168-123-145.eu-central-1.compute.internal", "ip-192-168-123-145");
    assert_shown("gke-main-a3-high-3f2b1c9d-x7kq", "gke-main-a3-high-3f2b1c9d-x7kq");
    assert_shown("10.20.30.40", "10.20.30.40");
    assert_shown("n1.example.com", "n1.example.com");
}

static void verdict_has_the_node_and_only_the_conditions_of_the_controller(void **state)
{
    (void)state;
    auto_api_volume v = order();
    api_condition_set(&v->status.conditions, API_MOUNTED, API_TRUE, "Staged", 1, 1, "x");
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 1, 1, "y");
    v->status.phase = API_PHASE_LOST;
    auto_json j = api_volume_controller_json(v);
    assert_int_equal(json_count(json_at(j, "status.conditions")), 1);
    auto_mem char *text = json_text(j, 0);
    assert_non_null(strstr(text, "\"phase\":\"Lost\""));
    assert_non_null(strstr(text, "NodeGone"));
    assert_true(str_eq(json_str_at(j, "status.summary.node"), str_of(v->node)));
}

static void phases_have_the_names_of_the_schema(void **state)
{
    (void)state;
    for (unsigned p = API_PHASE_PROVISIONING; p <= API_PHASE_RELEASED; p++) {
        auto_api_volume v = order();
        v->status.phase = p;
        auto_json whole = api_volume_json(v);
        json_set_str(whole, "status.phase", str_of(api_phase_name((enum api_phase)p)));
        auto_api_volume read = again(whole);
        assert_int_equal(read->status.phase, p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_read_as_it_was_written),
        cmocka_unit_test(order_has_the_spec_of_the_standalone_driver),
        cmocka_unit_test(field_of_bucket_source_is_refused_as_parameter),
        cmocka_unit_test(order_with_an_invalid_volume_id_is_refused),
        cmocka_unit_test(order_with_a_retired_field_is_still_read),
        cmocka_unit_test(order_with_a_uri_that_is_now_refused_is_still_read),
        cmocka_unit_test(the_nodes_status_is_read_as_it_was_written),
        cmocka_unit_test(a_long_name_of_a_node_is_shown_up_to_its_first_dot),
        cmocka_unit_test(verdict_has_the_node_and_only_the_conditions_of_the_controller),
        cmocka_unit_test(phases_have_the_names_of_the_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
