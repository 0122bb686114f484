/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "unit.h"
#include "util/clock.h"

static unsigned fetches;

static void fetch(struct creds *c, struct worker *w)
{
    (void)c;
    (void)w;
    fetches++; /* the answer comes when the test gives it */
}

static struct creds_identity *lasting(uint64_t age_ns, uint64_t left_ns)
{
    struct creds_identity *i = creds_identity_new();
    i->born_ns -= (int64_t)age_ns;
    i->expires_ns = clock_wall_ns() + (int64_t)left_ns;
    return i;
}

static struct creds *open_creds(struct creds_identity *own_first)
{
    fetches = 0;
    return creds_new(&(struct creds_source){.name = "a test", .method = "test", .fetch = fetch}, own_first);
}

static unsigned told;
static int told_code;

static void ready(struct creds_waiter *w)
{
    told++;
    told_code = w->code;
    creds_identity_unref(w->identity);
}

/* Delivers what was posted: a loop that is freed hands out its mail first. */
static struct loop *new_loop(void)
{
    struct loop *l;
    struct err err;
    assert_int_equal(loop_new("loop/0", &l, &err), 0);
    told = 0;
    return l;
}

static void one_fetch_serves_all_who_wait(void **state)
{
    struct creds *c = open_creds(NULL);
    struct loop *l = new_loop();
    struct creds_waiter w[3] = {{.home = l, .ready = ready}, {.home = l, .ready = ready}, {.home = l, .ready = ready}};
    (void)state;
    for (size_t i = 0; i < countof(w); i++)
        assert_null(creds_get(c, NULL, &w[i]));
    assert_int_equal(fetches, 1);
    creds_fetched(c, lasting(0, 3600 * NS_PER_SECOND), NULL);
    loop_free(l);
    assert_int_equal(told, 3);
    assert_int_equal(told_code, 0);
    creds_free(c);
}

static void an_ageing_identity_is_renewed_while_it_is_used(void **state)
{
    struct creds *c = open_creds(lasting(81 * NS_PER_SECOND, 19 * NS_PER_SECOND));
    struct creds_identity *old = c->now;
    struct creds_waiter w = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        auto_creds_identity now = creds_get(c, NULL, &w);
        assert_ptr_equal(now, old);
    }
    assert_int_equal(fetches, 1);
    creds_fetched(c, lasting(0, 100 * NS_PER_SECOND), NULL);
    auto_creds_identity renewed = creds_get(c, NULL, &w);
    assert_ptr_not_equal(renewed, old);
    assert_int_equal(fetches, 1);
    creds_free(c);
}

static void one_that_is_about_to_end_is_not_used_any_more(void **state)
{
    struct creds *c = open_creds(lasting(100 * NS_PER_SECOND, NS_PER_SECOND));
    struct loop *l = new_loop();
    struct creds_waiter w = {.home = l, .ready = ready};
    (void)state;
    assert_null(creds_get(c, NULL, &w));
    creds_fetched(c, lasting(0, 100 * NS_PER_SECOND), NULL);
    loop_free(l);
    assert_int_equal(told, 1);
    creds_free(c);
}

static void a_given_identity_is_used_however_old_it_is(void **state)
{
    const uint64_t left_ns[] = {19 * NS_PER_SECOND, NS_PER_SECOND};
    (void)state;
    for (size_t n = 0; n < countof(left_ns); n++) {
        struct err err;
        struct creds *c = NULL;
        auto_creds_identity given = lasting(81 * NS_PER_SECOND, left_ns[n]);
        assert_int_equal(creds_open(&(struct creds_options){.identity = given}, &c, &err), 0);
        struct creds_waiter w = {0};
        auto_creds_identity now = creds_get(c, NULL, &w);
        assert_ptr_equal(now, given);
        assert_false(creds_reject(c, now));
        creds_free(c);
    }
}

static void refused_identity_is_not_requested_again_at_once(void **state)
{
    struct creds *c = open_creds(NULL);
    struct loop *l = new_loop();
    struct creds_waiter first = {.home = l, .ready = ready}, second = first;
    struct err err;
    (void)state;
    err_set(&err, ERR_DENIED, "no");
    assert_null(creds_get(c, NULL, &first));
    creds_fetched(c, NULL, &err);
    assert_null(creds_get(c, NULL, &second));
    assert_int_equal(fetches, 1);
    loop_free(l);
    assert_int_equal(told, 2);
    assert_int_equal(told_code, -ERR_DENIED);
    creds_free(c);
}

static void endpoint_without_answer_is_retried_soon_then_later(void **state)
{
    struct creds *c = open_creds(NULL);
    struct loop *l = new_loop();
    struct creds_waiter w[3] = {{.home = l, .ready = ready}, {.home = l, .ready = ready}, {.home = l, .ready = ready}};
    struct err err;
    (void)state;
    err_set(&err, ERR_AGAIN, "503");
    uint64_t before = 0;
    for (unsigned i = 0; i < countof(w); i++) {
        c->refused_ns = 0; /* the pause is over */
        assert_null(creds_get(c, NULL, &w[i]));
        assert_int_equal(fetches, i + 1);
        creds_fetched(c, NULL, &err);
        assert_true(c->pause_ns > before && c->pause_ns < NS_PER_SECOND);
        before = c->pause_ns;
    }
    c->refused_ns = 0;
    assert_null(creds_get(c, NULL, &w[0]));
    c->retry_after_ns = 90 * NS_PER_SECOND; /* as it said */
    creds_fetched(c, NULL, &err);
    assert_int_equal(c->pause_ns, 90 * NS_PER_SECOND);
    loop_free(l);
    creds_free(c);
}

static void a_rejected_identity_is_replaced_but_not_a_newer_one(void **state)
{
    struct creds *c = open_creds(lasting(0, 3600 * NS_PER_SECOND));
    struct loop *l = new_loop();
    struct creds_waiter w = {.home = l, .ready = ready};
    auto_creds_identity old = creds_get(c, NULL, &w);
    (void)state;
    creds_reject(c, old);
    assert_null(creds_get(c, NULL, &w));
    creds_fetched(c, lasting(0, 3600 * NS_PER_SECOND), NULL);
    creds_reject(c, old); /* another request, late, with the old one */
    auto_creds_identity now = creds_get(c, NULL, &w);
    assert_non_null(now);
    assert_int_equal(fetches, 1);
    loop_free(l);
    creds_free(c);
}

static void an_answer_may_come_after_the_store_has_gone(void **state)
{
    struct creds *c = open_creds(lasting(81 * NS_PER_SECOND, 19 * NS_PER_SECOND));
    struct creds_waiter w = {0};
    (void)state;
    creds_identity_unref(creds_get(c, NULL, &w));
    assert_int_equal(fetches, 1);
    creds_free(c);
    creds_fetched(c, lasting(0, NS_PER_SECOND), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fetch_serves_all_who_wait),
        cmocka_unit_test(an_ageing_identity_is_renewed_while_it_is_used),
        cmocka_unit_test(one_that_is_about_to_end_is_not_used_any_more),
        cmocka_unit_test(a_given_identity_is_used_however_old_it_is),
        cmocka_unit_test(refused_identity_is_not_requested_again_at_once),
        cmocka_unit_test(endpoint_without_answer_is_retried_soon_then_later),
        cmocka_unit_test(a_rejected_identity_is_replaced_but_not_a_newer_one),
        cmocka_unit_test(an_answer_may_come_after_the_store_has_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
