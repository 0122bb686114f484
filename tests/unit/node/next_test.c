/* SPDX-License-Identifier: Apache-2.0 */
#include "next.h"
#include "unit.h"

#define NOW_NS 1000000000

/* No pool is looked into here: that there is one is all that counts. */
static struct space *const some_space = (struct space *)&(char){0};

static struct api_volume *order_of(const char *node)
{
    struct api_volume *v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->meta.generation = 3;
    v->node = str_dup(str_of(node));
    v->pool = str_dup(STR("default"));
    v->volume_id = str_dup(STR("v1-0123456789ab-0123456789ab"));
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
    struct facts f = {.space = some_space, .id_is_of_pool = true, .here = true};
    assert_int_equal(next_of(v, "node-1", &f), NEXT_IGNORE);
    free(v->node);
    v->node = NULL;
    assert_int_equal(next_of(v, "node-1", &f), NEXT_IGNORE);
}

static void what_was_never_made_is_made_only_in_the_pool_of_its_id(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct facts f = {.space = some_space, .id_is_of_pool = true};
    assert_int_equal(next_of(v, "node-1", &f), NEXT_MAKE);
    f.id_is_of_pool = false;
    assert_int_equal(next_of(v, "node-1", &f), NEXT_REFUSE);
    f = (struct facts){0};
    assert_int_equal(next_of(v, "node-1", &f), NEXT_REFUSE);
    wish(v, "rehydrate"); /* there is nothing yet that could be lost */
    assert_int_equal(next_of(v, "node-1", &f), NEXT_REFUSE);
}

static void a_refusal_stands_until_the_order_changes(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct facts f = {.space = some_space, .id_is_of_pool = true};
    say_provisioned(v, API_FALSE, API_REASON_NODE_FULL);
    assert_int_equal(next_of(v, "node-1", &f), NEXT_REFUSED);
    v->meta.generation = 4;
    assert_int_equal(next_of(v, "node-1", &f), NEXT_MAKE);
}

static void trouble_is_no_refusal(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct facts f = {.space = some_space, .id_is_of_pool = true};
    say_provisioned(v, API_UNKNOWN, "Trying");
    assert_int_equal(next_of(v, "node-1", &f), NEXT_MAKE);
}

static void what_was_made_and_is_gone_is_lost_unless_the_order_says_otherwise(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct facts f = {.space = some_space, .is_replaced = true};
    say_provisioned(v, API_TRUE, "Made");
    assert_int_equal(next_of(v, "node-1", &f), NEXT_LOST);
    wish(v, "fail");
    assert_int_equal(next_of(v, "node-1", &f), NEXT_LOST);
    wish(v, "rehydrate");
    assert_int_equal(next_of(v, "node-1", &f), NEXT_TAKE_OVER);
    wish(v, "empty");
    assert_int_equal(next_of(v, "node-1", &f), NEXT_TAKE_OVER);
    f = (struct facts){
        .space = some_space, .id_is_of_pool = true, .is_replaced = true}; /* the pool is the same, the folder went */
    wish(v, "fail");
    assert_int_equal(next_of(v, "node-1", &f), NEXT_LOST);
}

static void what_was_made_in_a_pool_that_is_not_here_is_waited_for(void **state)
{
    (void)state;
    static const char *const wishes[] = {"fail", "rehydrate", "empty"};
    auto_api_volume v = order_of("node-1");
    struct facts nowhere = {0}, another = {.space = some_space};
    say_provisioned(v, API_TRUE, "Made");
    for (size_t i = 0; i < countof(wishes); i++) {
        wish(v, wishes[i]);
        assert_int_equal(next_of(v, "node-1", &nowhere), NEXT_ABSENT);
        assert_int_equal(next_of(v, "node-1", &another), NEXT_ABSENT);
    }
}

static void a_release_comes_before_all_else(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct facts f = {.space = some_space, .id_is_of_pool = true, .here = true, .differs = true};
    assert_int_equal(next_of(v, "node-1", &f), NEXT_CHANGE);
    f.differs = false;
    assert_int_equal(next_of(v, "node-1", &f), NEXT_KEEP);
    v->release_requested = true;
    assert_int_equal(next_of(v, "node-1", &f), NEXT_RELEASE);
    f = (struct facts){0};
    assert_int_equal(next_of(v, "node-1", &f), NEXT_RELEASE);
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

static void a_refusal_is_told_with_its_sentence_id_and_advice(void **state)
{
    (void)state;
    struct err full;
    auto_api_volume v = order_of("node-1");
    struct facts f = {.space = some_space, .id_is_of_pool = true};
    err_set(&full, ERR_NO_SPACE, "pool 'default': 1 GiB free, 2 GiB asked");
    (void)!err_advise(&full, 2028, "ask for less");
    struct outcome o = {.next = NEXT_MAKE, .failure = &full};
    status_build(v, &f, &o, NOW_NS);
    assert_true(api_condition_says(&v->status.conditions, API_PROVISIONED, API_FALSE, API_REASON_NODE_FULL));
    const char *message = api_condition_find(&v->status.conditions, API_PROVISIONED)->message;
    assert_non_null(strstr(message, "1 GiB free"));
    assert_non_null(strstr(message, "CIS2028"));
    assert_non_null(strstr(message, "ask for less"));
    assert_int_equal(v->status.phase, API_PHASE_FAILED);
    assert_int_equal(v->status.observed_generation, 3);
    assert_int_equal(next_of(v, "node-1", &f), NEXT_REFUSED);

    full.code = ERR_IO;
    status_build(v, &f, &o, NOW_NS);
    assert_true(api_condition_says(&v->status.conditions, API_PROVISIONED, API_UNKNOWN, "Trying"));
    assert_int_equal(next_of(v, "node-1", &f), NEXT_MAKE);
}

static void a_release_that_is_done_is_told(void **state)
{
    (void)state;
    auto_api_volume v = order_of("node-1");
    struct facts f = {0};
    struct outcome o = {.next = NEXT_RELEASE, .release = RELEASE_GONE};
    status_build(v, &f, &o, NOW_NS);
    assert_int_equal(v->status.phase, API_PHASE_RELEASED);
    assert_true(api_condition_is(&v->status.conditions, API_MOUNTED, API_FALSE));
}

static void a_volume_that_cannot_be_read_is_told_to_be_so(void **state)
{
    (void)state;
    struct err why;
    auto_api_volume v = order_of("node-1");
    err_set(&why, ERR_CORRUPT, "'volume.json' is corrupt");
    say_provisioned(v, API_TRUE, "Made");
    status_build_unreadable(v, &why, NOW_NS);
    assert_true(api_condition_says(&v->status.conditions, API_HEALTHY, API_FALSE, "Unreadable"));
    assert_non_null(strstr(api_condition_find(&v->status.conditions, API_HEALTHY)->message, "volume.json"));
    assert_true(api_condition_is(&v->status.conditions, API_PROVISIONED, API_TRUE)); /* its bytes are still there */
    assert_int_equal(v->status.phase, API_PHASE_FAILED);
}

static void the_controllers_conditions_are_left_to_it(void **state)
{
    (void)state;
    auto_api_volume before = order_of("node-1");
    auto_api_volume now = order_of("node-1");
    struct facts f = {0};
    struct outcome o = {.next = NEXT_RELEASE, .release = RELEASE_GONE};
    (void)!api_condition_set(&before->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 3, NOW_NS, "it was");
    (void)!api_condition_set(&now->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 3, NOW_NS, "it was");
    status_build(now, &f, &o, NOW_NS);
    assert_null(api_condition_find(&now->status.conditions, API_NODE_GONE));
    assert_int_equal(status_compare(before, now), STATUS_TOLD);
    /* What is there already of ours is not written again for the sake of what is theirs. */
    status_build(before, &f, &o, NOW_NS);
    (void)!api_condition_set(&before->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", 3, NOW_NS, "it was");
    assert_int_equal(status_compare(before, now), STATUS_SAME);
}

static void progress_and_usage_are_told_apart_from_what_somebody_waits_for(void **state)
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
    assert_int_equal(status_compare(before, now), STATUS_TOLD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_for_another_node_is_nobodys_business_here),
        cmocka_unit_test(what_was_never_made_is_made_only_in_the_pool_of_its_id),
        cmocka_unit_test(a_refusal_stands_until_the_order_changes),
        cmocka_unit_test(trouble_is_no_refusal),
        cmocka_unit_test(what_was_made_and_is_gone_is_lost_unless_the_order_says_otherwise),
        cmocka_unit_test(what_was_made_in_a_pool_that_is_not_here_is_waited_for),
        cmocka_unit_test(a_release_comes_before_all_else),
        cmocka_unit_test(only_what_cannot_pass_is_a_refusal),
        cmocka_unit_test(a_refusal_is_told_with_its_sentence_id_and_advice),
        cmocka_unit_test(a_release_that_is_done_is_told),
        cmocka_unit_test(a_volume_that_cannot_be_read_is_told_to_be_so),
        cmocka_unit_test(the_controllers_conditions_are_left_to_it),
        cmocka_unit_test(progress_and_usage_are_told_apart_from_what_somebody_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
