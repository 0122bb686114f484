/* SPDX-License-Identifier: Apache-2.0 */
/* The network's half of `cistern doctor`: reaches the store, compares clocks, lists. */
#include "cistern.h"
#include "doctor.h"
#include "store/store.h"
#include "util/clock.h"
#include "util/env.h"
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>

enum {
    SKEW_WARN_SECONDS = 60,
    SKEW_FAIL_SECONDS = 300
}; /* S3 refuses signatures with a skew of 15 min, STS of 5 min */

/* home: the worker's loop between the posting and `over`; main before and after. */
struct source_check {
    struct mail mail;
    struct worker worker;
    struct pool *pool;
    struct store *store;
    const char *url; /* of the HEAD that reads the clock; NULL: none */
    sem_t over;
    bool answered; /* any HTTP answer */
    bool has_date;
    int64_t date_ns, asked_ns, answered_ns; /* wall clock */
    struct err err;
    int listed; /* 0 or -(enum err_code) */
    uint64_t list_ns;
};

static int on_head(void *ctx, struct web_job *j)
{
    struct source_check *v = ctx;
    struct err ignored;
    v->answered_ns = clock_wall_ns();
    v->has_date = time_parse_http(web_reply_header(j, "Date"), &v->date_ns, &ignored) == 0;
    return 0;
}

static void on_answer(void *ctx, const struct web_result *r)
{
    struct source_check *v = ctx;
    v->answered = r->code == 0;
    if (!v->answered)
        v->err = r->err;
    sem_post(&v->over);
}

static void ask_for_clock(struct mail *m)
{
    struct source_check *v = container_of(m, struct source_check, mail);
    struct web_request q = {.method = "HEAD",
                            .url = v->url,
                            .timeout_ns = 20 * NS_PER_SECOND,
                            .ctx = v,
                            .on_head = on_head,
                            .on_done = on_answer};
    v->asked_ns = clock_wall_ns();
    web_submit(v->worker.web, &q);
}

static void on_page(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                    struct str next_token)
{
    (void)objects, (void)count, (void)next_token;
    struct source_check *v = ctx;
    v->listed = r->code;
    v->list_ns = r->total_ns;
    if (r->code < 0)
        v->err = r->err;
    sem_post(&v->over);
}

static void ask_for_page(struct mail *m)
{
    struct source_check *v = container_of(m, struct source_check, mail);
    struct store_page p = {.prefix = store_prefix(v->store), .keys_max = 1, .ctx = v, .on_done = on_page};
    store_list_page(v->store, &v->worker, &p);
}

static void report_clock(const struct source_check *v)
{
    /* The Date lies between request and answer, truncated to seconds. */
    int64_t middle = v->asked_ns + (v->answered_ns - v->asked_ns) / 2;
    int64_t skew = (v->date_ns - middle) / (int64_t)NS_PER_SECOND;
    int64_t far = skew < 0 ? -skew : skew;
    if (!v->has_date) {
        doctor_say(DOCTOR_WARN, "clock", "'%s': the answer has no Date header", v->url);
        return;
    }
    if (far <= SKEW_WARN_SECONDS) {
        doctor_say(DOCTOR_PASS, "clock", "within %" PRId64 " s of the store's", far + 1);
        return;
    }
    struct err err;
    err_set(&err, ERR_INVALID, "this machine's clock is %" PRId64 " s %s of the store's", far,
            skew < 0 ? "ahead" : "behind");
    err_advise(&err, CIS_CLOCK_SKEW);
    doctor_say_err(far > SKEW_FAIL_SECONDS ? DOCTOR_FAIL : DOCTOR_WARN, "clock", &err);
}

static void visit_store(struct source_check *v, const char *uri)
{
    char url[2048];
    if (store_endpoint(v->store)) {
        snprintf(url, sizeof url, "%s/", store_endpoint(v->store));
        v->url = url;
        v->mail.deliver = ask_for_clock;
        loop_post(v->worker.loop, &v->mail);
        sem_wait(&v->over);
        if (!v->answered) {
            doctor_say_err(DOCTOR_FAIL, "endpoint", &v->err);
            return;
        }
        doctor_say(DOCTOR_PASS, "endpoint", "'%s' answers", v->url);
        report_clock(v);
    }
    v->mail.deliver = ask_for_page;
    loop_post(v->worker.loop, &v->mail);
    sem_wait(&v->over);
    char took[TIME_TEXT_MAX];
    if (v->listed < 0)
        doctor_say_err(DOCTOR_FAIL, "source", &v->err);
    else
        doctor_say(DOCTOR_PASS, "source", "'%s' can be listed (%s)", uri, duration_text(v->list_ns, took));
}

void doctor_source(const char *uri)
{
    struct err err;
    struct source_check v = {0};
    struct store_options o = store_defaults(uri);
    o.retry = (struct store_retry){.attempts_max = 2, .elapsed_max_ns = 20 * NS_PER_SECOND};
    int r = store_open(&o, &v.store, &err);
    if (r < 0) {
        doctor_say_err(DOCTOR_FAIL, "source", &err);
        return;
    }
    struct web_options web = {.connect_timeout_ns = 10 * NS_PER_SECOND, .stall_timeout_ns = globals.stall_ns};
    store_trust(v.store, &web);
    sem_init(&v.over, 0, 0);
    r = pool_new(2, &v.pool, &err);
    if (r == 0)
        r = worker_init(&v.worker, 0, v.pool, &web, false, &err);
    if (r == 0)
        r = loop_start(v.worker.loop, &err);
    if (r < 0)
        doctor_say_err(DOCTOR_FAIL, "source", &err);
    else
        visit_store(&v, uri);
    pool_free(v.pool);
    worker_done(&v.worker);
    store_free(v.store);
    sem_destroy(&v.over);
}
