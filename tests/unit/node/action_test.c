/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"
#include "unit.h"

#define NOW_NS 1000000000

/* No pool is looked into here: that there is one is all that counts. */
static struct pool *const some_pool = (struct pool *)&(char){0};

static struct api_volume *order_of(const char *node)
{
    struct api_volume *v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->meta.generation = 3;
    v->node = str_dup(str_of(node));
    v->pool = str_dup(STR("default"));
    v->id = (struct volume_id){"v1-0123456789ab-0123456789ab"};
    return v;
}

static void say_provisioned(struct api_volume *v, enum api_truth truth, const char *reason)
{
    (void)!api_condition_set(&v->status.conditions, API_PROVISIONED, truth, reason, 3, NOW_NS, "as it is");
    v->status.observed_generation = 3;
}

static void wish(struct api_volume *v, const char *value)
{
    struct err err;
    assert_int_equal(api_volume_set_parameter(v, STR("onDataLoss"), str_of(value), &err), 0);
}

static void an_order_for_another_node_is_nobodys_business_here(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-2");
    v->release_requested = true;
    struct observed f = {.pool = some_pool, .id_is_of_pool = true, .here = true};
    assert_int_equal(action_of(v, "node-1", &f), ACTION_IGNORE);
    free(v->node);
    v->node = NULL;
    assert_int_equal(action_of(v, "node-1", &f), ACTION_IGNORE);
}

static void a_new_volume_is_created_only_in_the_pool_of_its_id(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct observed f = {.pool = some_pool, .id_is_of_pool = true};
    assert_int_equal(action_of(v, "node-1", &f), ACTION_MAKE);
    f.id_is_of_pool = false;
    assert_int_equal(action_of(v, "node-1", &f), ACTION_REFUSE);
    f = (struct observed){0};
    assert_int_equal(action_of(v, "node-1", &f), ACTION_REFUSE);
    wish(v, "rehydrate"); /* there is nothing yet that could be lost */
    assert_int_equal(action_of(v, "node-1", &f), ACTION_REFUSE);
}

static void a_refusal_stands_until_the_order_changes(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct observed f = {.pool = some_pool, .id_is_of_pool = true};
    say_provisioned(v, API_FALSE, API_REASON_NODE_FULL);
    assert_int_equal(action_of(v, "node-1", &f), ACTION_REFUSED);
    v->meta.generation = 4;
    assert_int_equal(action_of(v, "node-1", &f), ACTION_MAKE);
}

static void a_temporary_failure_is_not_refused(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct observed f = {.pool = some_pool, .id_is_of_pool = true};
    say_provisioned(v, API_UNKNOWN, "Pending");
    assert_int_equal(action_of(v, "node-1", &f), ACTION_MAKE);
}

static void a_missing_volume_is_lost_unless_its_order_recreates_it(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct observed f = {.pool = some_pool, .is_replaced = true};
    say_provisioned(v, API_TRUE, "Provisioned");
    assert_int_equal(action_of(v, "node-1", &f), ACTION_LOST);
    wish(v, "fail");
    assert_int_equal(action_of(v, "node-1", &f), ACTION_LOST);
    wish(v, "rehydrate");
    assert_int_equal(action_of(v, "node-1", &f), ACTION_TAKE_OVER);
    wish(v, "empty");
    assert_int_equal(action_of(v, "node-1", &f), ACTION_TAKE_OVER);
    f = (struct observed){.pool = some_pool,
                          .id_is_of_pool = true,
                          .is_replaced = true}; /* the same pool, but the directory is missing */
    wish(v, "fail");
    assert_int_equal(action_of(v, "node-1", &f), ACTION_LOST);
}

static void a_volume_of_an_absent_pool_is_waited_for(void **state)
{
    (void)state;
    static const char *const wishes[] = {"fail", "rehydrate", "empty"};
    auto_api_volume v = order_of("node-1");
    struct observed nowhere = {0}, another = {.pool = some_pool};
    say_provisioned(v, API_TRUE, "Provisioned");
    for (size_t i = 0; i < countof(wishes); i++) {
        wish(v, wishes[i]);
        assert_int_equal(action_of(v, "node-1", &nowhere), ACTION_ABSENT);
        assert_int_equal(action_of(v, "node-1", &another), ACTION_ABSENT);
    }
}

static void a_release_comes_before_all_else(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct observed f = {.pool = some_pool, .id_is_of_pool = true, .here = true, .differs = true};
    assert_int_equal(action_of(v, "node-1", &f), ACTION_CHANGE);
    f.differs = false;
    assert_int_equal(action_of(v, "node-1", &f), ACTION_KEEP);
    v->release_requested = true;
    assert_int_equal(action_of(v, "node-1", &f), ACTION_RELEASE);
    f = (struct observed){0};
    assert_int_equal(action_of(v, "node-1", &f), ACTION_RELEASE);
}

static void only_what_cannot_pass_is_a_refusal(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        const char *reason;
    } rows[] = {{ERR_NO_SPACE, "NodeFull"},
                {ERR_RANGE, "OutOfRange"},
                {ERR_INVALID, "Invalid"},
                {ERR_EXISTS, "AlreadyExists"},
                {ERR_CHANGED, "PoolChanged"},
                {ERR_UNSUPPORTED, "Invalid"},
                {ERR_IO, NULL},
                {ERR_PENDING, NULL},
                {ERR_AGAIN, NULL},
                {ERR_BUSY, NULL},
                {ERR_INTERNAL, NULL}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct err err = {.code = rows[i].code};
        const char *reason = refusal_reason(&err);
        if (rows[i].reason)
            assert_string_equal(reason, rows[i].reason);
        else
            assert_null(reason);
    }
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static void a_refusal_is_reported_with_its_sentence_id_and_advice(void **state)
{
    (void)state;
    struct err full;
    auto_api_volume v = order_of("node-1");
    struct observed f = {.pool = some_pool, .id_is_of_pool = true};
    err_set(&full, ERR_NO_SPACE, "pool 'default': 1 GiB free, 2 GiB asked");
    (void)!err_advise_text(&full, 2028, "ask for less");
    struct action_outcome o = {.action = ACTION_MAKE, .failure = &full};
    status_build(v, &f, &o, NOW_NS);
    assert_true(api_condition_says(&v->status.conditions, API_PROVISIONED, API_FALSE, API_REASON_NODE_FULL));
    const char *message = api_condition_find(&v->status.conditions, API_PROVISIONED)->message;
    assert_non_null(strstr(message, "1 GiB free"));
    assert_non_null(strstr(message, "CIS2028"));
    assert_non_null(strstr(message, "ask for less"));
    assert_int_equal(v->status.phase, API_PHASE_FAILED);
    assert_int_equal(v->status.observed_generation, 3);
    assert_int_equal(action_of(v, "node-1", &f), ACTION_REFUSED);

    full.code = ERR_IO;
    status_build(v, &f, &o, NOW_NS);
    assert_true(api_condition_says(&v->status.conditions, API_PROVISIONED, API_UNKNOWN, "Pending"));
    assert_int_equal(action_of(v, "node-1", &f), ACTION_MAKE);
}

static void a_finished_release_is_reported(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct observed f = {0};
    struct action_outcome o = {.action = ACTION_RELEASE, .release = RELEASE_GONE};
    status_build(v, &f, &o, NOW_NS);
    assert_int_equal(v->status.phase, API_PHASE_RELEASED);
    assert_true(api_condition_is(&v->status.conditions, API_MOUNTED, API_FALSE));
}

static void an_unreadable_volume_is_reported(void **state)
{
    (void)state;
    struct err why;
    auto_api_volume v = order_of("node-1");
    err_set(&why, ERR_CORRUPT, "'volume.json' is corrupt");
    say_provisioned(v, API_TRUE, "Provisioned");
    status_build_unreadable(v, &why, NOW_NS);
    assert_true(api_condition_says(&v->status.conditions, API_HEALTHY, API_FALSE, "Unreadable"));
    assert_non_null(strstr(api_condition_find(&v->status.conditions, API_HEALTHY)->message, "volume.json"));
    assert_true(api_condition_is(&v->status.conditions, API_PROVISIONED, API_TRUE)); /* its bytes are still there */
    assert_int_equal(v->status.phase, API_PHASE_FAILED);
}

static const struct api_condition *condition_of(const struct api_volume *v, const char *type)
{
    const struct api_condition *found = NULL;
    for (size_t i = 0; i < v->status.conditions.count; i++) {
        const struct api_condition *c = &v->status.conditions.items[i];
        if (strcmp(c->type, type) != 0)
            continue;
        assert_null(found); /* one condition of a type */
        found = c;
    }
    assert_non_null(found);
    return found;
}

/* Version 0.1 wrote the reason Trying where this version writes Pending. */
static void condition_of_previous_version_is_replaced_by_next_write(void **state)
{
    (void)state;
    struct err trouble;
    auto_json old = NULL;
    auto_api_volume v = NULL;
    struct observed f = {.pool = some_pool, .id_is_of_pool = true};
    assert_int_equal(
        json_parse(STR("{\"metadata\":{\"name\":\"pvc-1\",\"generation\":3},\"spec\":{\"nodeName\":\"node-1\","
                       "\"pool\":\"default\",\"volumeID\":\"v1-0123456789ab-0123456789ab\","
                       "\"capacityBytes\":1},\"status\":{\"conditions\":["
                       "{\"type\":\"Provisioned\",\"status\":\"Unknown\",\"reason\":\"Trying\","
                       "\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"},"
                       "{\"type\":\"Healthy\",\"status\":\"True\",\"reason\":\"Well\","
                       "\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}]}}"),
                   "order", &old, &trouble),
        0);
    assert_int_equal(api_volume_read(old, &v, &trouble), 0);
    int64_t since_ns = condition_of(v, API_PROVISIONED)->since_ns;
    err_set(&trouble, ERR_IO, "cannot write");
    struct action_outcome o = {.action = ACTION_MAKE, .failure = &trouble};
    status_build(v, &f, &o, NOW_NS);
    assert_string_equal(condition_of(v, API_PROVISIONED)->reason, "Pending");
    assert_int_equal(condition_of(v, API_PROVISIONED)->since_ns, since_ns);
    status_build_unreadable(v, &trouble, NOW_NS);
    assert_string_equal(condition_of(v, API_HEALTHY)->reason, API_REASON_UNREADABLE);
    assert_int_equal(v->status.conditions.count, 2);
}

static void the_controllers_conditions_are_left_to_it(void **state)
{
    (void)state;
    auto_api_volume before = order_of("node-1");
    auto_api_volume now = order_of("node-1");
    struct observed f = {0};
    struct action_outcome o = {.action = ACTION_RELEASE, .release = RELEASE_GONE};
    (void)!api_condition_set(&before->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 3, NOW_NS, "it was");
    (void)!api_condition_set(&now->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 3, NOW_NS, "it was");
    status_build(now, &f, &o, NOW_NS);
    assert_null(api_condition_find(&now->status.conditions, API_NODE_GONE));
    assert_int_equal(status_compare(before, now), STATUS_CHANGED);
    /* A change of the controller's conditions causes no write of the node's. */
    status_build(before, &f, &o, NOW_NS);
    (void)!api_condition_set(&before->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 3, NOW_NS, "it was");
    assert_int_equal(status_compare(before, now), STATUS_SAME);
}

static void progress_and_usage_differ_from_changes_of_phase(void **state)
{
    (void)state;
    auto_api_volume before = order_of("node-1");
    auto_api_volume now = order_of("node-1");
    assert_int_equal(status_compare(before, now), STATUS_SAME);
    now->status.used_bytes = 4096;
    assert_int_equal(status_compare(before, now), STATUS_USAGE);
    now->status.hydration.bytes_done = 1;
    assert_int_equal(status_compare(before, now), STATUS_PROGRESS);
    now->status.hydration.bytes_per_second = 1;
    now->status.phase = API_PHASE_HYDRATING;
    assert_int_equal(status_compare(before, now), STATUS_CHANGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_for_another_node_is_nobodys_business_here),
        cmocka_unit_test(a_new_volume_is_created_only_in_the_pool_of_its_id),
        cmocka_unit_test(a_refusal_stands_until_the_order_changes),
        cmocka_unit_test(a_temporary_failure_is_not_refused),
        cmocka_unit_test(a_missing_volume_is_lost_unless_its_order_recreates_it),
        cmocka_unit_test(a_volume_of_an_absent_pool_is_waited_for),
        cmocka_unit_test(a_release_comes_before_all_else),
        cmocka_unit_test(only_what_cannot_pass_is_a_refusal),
        cmocka_unit_test(a_refusal_is_reported_with_its_sentence_id_and_advice),
        cmocka_unit_test(a_finished_release_is_reported),
        cmocka_unit_test(an_unreadable_volume_is_reported),
        cmocka_unit_test(condition_of_previous_version_is_replaced_by_next_write),
        cmocka_unit_test(the_controllers_conditions_are_left_to_it),
        cmocka_unit_test(progress_and_usage_differ_from_changes_of_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
