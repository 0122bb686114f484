/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"
#include "unit.h"
#include <string.h>

static struct api_volume *volume_with(const char *reason, enum api_truth provisioned)
{
    struct api_volume *v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->id = (struct volume_id){"v1-0123456789ab-ba9876543210"};
    v->node = str_dup(STR("n1"));
    v->pool = str_dup(STR("default"));
    v->capacity_bytes = 1 << 30;
    if (reason)
        api_condition_set(&v->status.conditions, API_PROVISIONED, provisioned, reason, 1, 1000, "180 GiB free");
    return v;
}

static void order_name_without_dns_syntax_becomes_a_stable_hash(void **state)
{
    (void)state;
    auto_mem char *plain = order_name(STR("pvc-9c1e"));
    auto_mem char *odd = order_name(STR("Sanity/Name"));
    auto_mem char *again = order_name(STR("Sanity/Name"));
    auto_mem char *other = order_name(STR("sanity/name"));
    auto_mem char *dashed = order_name(STR("pvc-"));
    assert_string_equal(plain, "pvc-9c1e");
    assert_true(strncmp(odd, "name-", 5) == 0 && strlen(odd) == 5 + 32);
    assert_string_equal(odd, again);
    assert_string_not_equal(odd, other);
    assert_true(strncmp(dashed, "name-", 5) == 0);
}

static void an_order_matches_what_it_was_made_for_and_says_what_differs(void **state)
{
    (void)state;
    struct err err = {0};
    auto_api_volume have = volume_with(NULL, API_UNKNOWN);
    auto_api_volume asked = volume_with(NULL, API_UNKNOWN);
    auto_spec spec = spec_new();
    struct csi_create create = {.spec = spec};
    struct order_request w = {.create = &create, .volume = asked};
    /* The class says eager, an annotation made gate of it. */
    assert_int_equal(api_volume_set_parameter(have, STR("hydration"), STR("gate"), &err), 0);
    assert_int_equal(order_matches(have, &w, &err), 0);
    asked->capacity_bytes++;
    assert_int_equal(order_matches(have, &w, &err), -ERR_EXISTS);
    assert_non_null(strstr(err.text, "capacity"));
    asked->capacity_bytes = 1 << 20;
    assert_int_equal(order_matches(have, &w, &err), 0);
    create.limit_bytes = 2 << 20;
    assert_int_equal(order_matches(have, &w, &err), -ERR_EXISTS);
    create.limit_bytes = 0;
    assert_int_equal(spec_set(spec, STR("concurrency"), STR("7"), &err), 0);
    assert_int_equal(order_matches(have, &w, &err), -ERR_EXISTS);
    assert_non_null(strstr(err.text, "concurrency"));
}

static void a_pool_is_accepted_only_if_healthy_and_with_free_space(void **state)
{
    (void)state;
    struct err err = {0};
    auto_api_pool p = api_pool_new();
    p->node = str_dup(STR("n1"));
    p->pool = str_dup(STR("nvme"));
    assert_int_equal(order_check_pool(p, 1, &err), -ERR_NO_SPACE); /* the node has not reported the pool yet */
    p->pool_uuid = str_dup(STR("0123456789ab"));
    p->health = str_dup(STR("Healthy"));
    p->largest_volume_bytes = UINT64_C(180) << 30;
    assert_int_equal(order_check_pool(p, UINT64_C(180) << 30, &err), 0);
    assert_int_equal(order_check_pool(p, UINT64_C(200) << 30, &err), -ERR_NO_SPACE);
    assert_string_equal(err.text, "pool nvme on n1: full: 180 GiB free, 200 GiB required");
    assert_int_equal(err.id, 2028);
    p->health[0] = 'u';
    p->health_reason = str_dup(STR("the disk is read-only"));
    assert_int_equal(order_check_pool(p, 1, &err), -ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "read-only"));
}

static void only_a_final_answer_of_the_node_ends_the_wait(void **state)
{
    (void)state;
    auto_api_volume open = volume_with(NULL, API_UNKNOWN);
    auto_api_volume busy = volume_with("Making", API_FALSE);
    auto_api_volume made = volume_with("Provisioned", API_TRUE);
    auto_api_volume full = volume_with(API_REASON_NODE_FULL, API_FALSE);
    assert_int_equal(order_state_of(open), ORDER_OPEN);
    assert_int_equal(order_state_of(busy), ORDER_OPEN);
    assert_int_equal(order_state_of(made), ORDER_MADE);
    assert_int_equal(order_state_of(full), ORDER_REFUSED);
    made->release_requested = true;
    assert_int_equal(order_state_of(made), ORDER_LEAVING);
    full->meta.deleted_ns = 1;
    assert_int_equal(order_state_of(full), ORDER_LEAVING);
}

static void a_refusal_has_the_status_that_sends_the_pod_where_it_can_be(void **state)
{
    (void)state;
    static const struct {
        const char *reason;
        enum err_code code;
    } rows[] = {{API_REASON_NODE_FULL, ERR_NO_SPACE},
                {API_REASON_OUT_OF_RANGE, ERR_RANGE},
                {API_REASON_INVALID, ERR_INVALID},
                {API_REASON_EXISTS, ERR_EXISTS},
                {API_REASON_POOL_CHANGED, ERR_PENDING}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct err err = {0};
        auto_api_volume v = volume_with(rows[i].reason, API_FALSE);
        assert_int_equal(order_refusal(v, &err), -(int)rows[i].code);
        assert_string_equal(err.text, "node n1: 180 GiB free");
        assert_true(err.id != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_name_without_dns_syntax_becomes_a_stable_hash),
        cmocka_unit_test(an_order_matches_what_it_was_made_for_and_says_what_differs),
        cmocka_unit_test(a_pool_is_accepted_only_if_healthy_and_with_free_space),
        cmocka_unit_test(only_a_final_answer_of_the_node_ends_the_wait),
        cmocka_unit_test(a_refusal_has_the_status_that_sends_the_pod_where_it_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
