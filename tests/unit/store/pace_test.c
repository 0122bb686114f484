/* SPDX-License-Identifier: Apache-2.0 */
#include "limited_store.h"
#include "unit.h"

#include "store/pace.h"
#include "util/clock.h"
#include <math.h>

/* Clients of one store, in virtual time. Each has so many requests at once as the store serves in turn, without end.
 * The store serves so many a second, and a tenth of them at once; or it refuses a share of all. */
enum { CLIENTS_MAX = 8, AT_ONCE = 64, STEP_US = 200, LATENCY_US = 20000, UNIT = 1000, SEEDS = 4 };

struct sim {
    unsigned clients, seconds;
    double per_second; /* 0: all are served, except a share */
    double share;
    bool starts; /* by pace_start() */
};

struct request {
    uint64_t sent_us, due_us; /* due: the answer, or the end of the backoff */
    unsigned attempt;
    bool is_sent, refused;
};

struct client {
    struct pace pace;
    struct rate rate;
    struct request requests[AT_ONCE];
};

struct outcome {
    double useful; /* of the limit */
    double refused;
    unsigned served;
};

static struct client clients[CLIENTS_MAX];

static void answer(struct client *c, struct request *r, uint64_t now_us, struct outcome *o)
{
    pace_answered(&c->pace, r->sent_us * 1000, now_us * 1000, r->refused);
    pace_apply(&c->rate, UNIT, (uint64_t)(c->pace.per_second * UNIT), now_us * 1000);
    uint64_t backoff_us = UINT64_C(250000) << min_u64(r->attempt - 1, 7);
    o->served += !r->refused;
    o->refused += r->refused;
    *r = (struct request){.attempt = r->refused ? r->attempt : 0,
                          .due_us = now_us + (r->refused ? (uint64_t)((double)backoff_us * (1 + drawn()) / 2) : 0)};
}

static void step(const struct sim *s, struct client *c, uint64_t now_us, double *tokens, struct outcome *o)
{
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct request *r = &c->requests[i];
        if (r->due_us > now_us)
            continue;
        if (r->is_sent)
            answer(c, r, now_us, o);
        else if (rate_take(&c->rate, UNIT, now_us * 1000) == 0)
            *r = (struct request){.sent_us = now_us,
                                  .due_us = now_us + (uint64_t)(LATENCY_US * (0.9 + 0.3 * drawn())),
                                  .attempt = r->attempt + 1,
                                  .is_sent = true,
                                  .refused = store_refuses(s->per_second, s->share, tokens)};
    }
}

static struct outcome simulate(const struct sim *s, unsigned seed)
{
    struct outcome o = {0};
    double bucket = s->per_second / 10, tokens = bucket;
    memset(clients, 0, sizeof clients);
    dice = DICE_FIRST + 1000003 * seed;
    for (size_t i = 0; i < s->clients; i++) {
        clients[i].rate.slack_ns = 5 * NS_PER_MS;
        if (s->starts)
            pace_start(&clients[i].pace);
        pace_apply(&clients[i].rate, UNIT, (uint64_t)(clients[i].pace.per_second * UNIT), NS_PER_SECOND / 2);
    }
    for (uint64_t us = 0; us < s->seconds * UINT64_C(1000000); us += STEP_US) {
        tokens = fmin(tokens + s->per_second * STEP_US / 1e6, bucket);
        for (size_t i = 0; i < s->clients; i++)
            step(s, &clients[i], NS_PER_SECOND / 1000 + us, &tokens, &o);
    }
    o.refused /= o.refused + o.served;
    o.useful = o.served / s->per_second / s->seconds;
    return o;
}

/* Of one run, chance decides much. */
static struct outcome simulate_seeds(const struct sim *s)
{
    struct outcome mean = {0};
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct outcome o = simulate(s, seed);
        mean.useful += o.useful / SEEDS;
        mean.refused += o.refused / SEEDS;
    }
    print_message("%u clients, %.0f a second: %.2f of it used, %.1f %% refused\n", s->clients, s->per_second,
                  mean.useful, mean.refused * 100);
    return mean;
}

/* Each took the refusals that others caused for random ones, and sent more. At 20 a second, 85 % were refused. */
static void clients_that_share_a_limit_leave_room_for_each_other(void **state)
{
    static const struct {
        double per_second, refused;
    } limits[] = {{20, 0.55}, {100, 0.25}, {500, 0.25}};
    (void)state;
    for (size_t i = 0; i < countof(limits); i++) {
        struct outcome o = simulate_seeds(
            &(struct sim){.clients = 8, .seconds = 10, .per_second = limits[i].per_second, .starts = true});
        assert_true(o.useful >= 0.9);
        assert_true(o.refused <= limits[i].refused);
    }
}

/* Of 64 that went out at once, a store with a limit of 20 a second refused 62. */
static void many_requests_at_once_are_begun_slowly(void **state)
{
    static const struct {
        double per_second, refused;
    } limits[] = {{20, 0.12}, {50, 0.1}, {100, 0.06}, {500, 0.04}};
    (void)state;
    for (size_t i = 0; i < countof(limits); i++) {
        struct outcome o = simulate_seeds(
            &(struct sim){.clients = 1, .seconds = 10, .per_second = limits[i].per_second, .starts = true});
        assert_true(o.useful >= 0.9);
        assert_true(o.refused <= limits[i].refused);
    }
}

/* Of the first second, it takes a tenth. */
static void a_slow_start_costs_little_where_few_are_refused(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        struct sim s = {.clients = 1, .seconds = 1, .share = seed % 2 ? 0.05 : 0};
        unsigned at_once = simulate(&s, seed).served;
        s.starts = true;
        unsigned slowly = simulate(&s, seed).served;
        print_message("%u served, %u without a slow start\n", slowly, at_once);
        assert_true(slowly >= at_once - at_once / 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_that_share_a_limit_leave_room_for_each_other),
        cmocka_unit_test(many_requests_at_once_are_begun_slowly),
        cmocka_unit_test(a_slow_start_costs_little_where_few_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
