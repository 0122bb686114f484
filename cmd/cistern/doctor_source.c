/* SPDX-License-Identifier: Apache-2.0 */
/* The network's half of `cistern doctor`: is the store reached, is its clock ours, may we list. */
#include "cistern.h"
#include "doctor.h"
#include "store/store.h"
#include "util/clock.h"
#include "util/env.h"
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>

enum { SKEW_WARN_SECONDS = 60, SKEW_FAIL_SECONDS = 300 }; /* S3 refuses signatures that are 15 min off, STS 5 min */

/* home: the worker's loop between the posting and `over`; main before and after. */
struct visit {
    struct mail mail;
    struct worker worker;
    struct pool *pool;
    struct store *store;
    const char *url; /* what is asked for its clock; NULL: nothing */
    sem_t over;
    bool answered; /* an HTTP answer came, whatever it said */
    bool has_date;
    int64_t date_ns, asked_ns, answered_ns; /* wall clock */
    struct err err;
    int listed; /* 0 or -(enum err_code) */
    uint64_t list_ns;
};

static int on_head(void *ctx, struct web_job *j)
{
    struct visit *v = ctx;
    struct err ignored;
    v->answered_ns = clock_wall_ns();
    v->has_date = time_parse_http(web_reply_header(j, "Date"), &v->date_ns, &ignored) == 0;
    return 0;
}

static void on_answer(void *ctx, const struct web_result *r)
{
    struct visit *v = ctx;
    v->answered = r->code == 0;
    if (!v->answered)
        v->err = r->err;
    sem_post(&v->over);
}

static void ask_for_clock(struct mail *m)
{
    struct visit *v = container_of(m, struct visit, mail);
    struct web_request q = {.method = "HEAD",
                            .url = v->url,
                            .timeout_ns = 20 * NS_PER_SECOND,
                            .ctx = v,
                            .on_head = on_head,
                            .on_done = on_answer};
    v->asked_ns = clock_wall_ns();
    web_submit(v->worker.web, &q);
}

static void on_page(void *ctx, const struct store_reply *r, const struct object *objects, size_t count,
                    struct str next_token)
{
    (void)objects, (void)count, (void)next_token;
    struct visit *v = ctx;
    v->listed = r->code;
    v->list_ns = r->total_ns;
    if (r->code < 0)
        v->err = r->err;
    sem_post(&v->over);
}

static void ask_for_page(struct mail *m)
{
    struct visit *v = container_of(m, struct visit, mail);
    struct store_page p = {.prefix = store_prefix(v->store), .keys_max = 1, .ctx = v, .on_done = on_page};
    store_list_page(v->store, &v->worker, &p);
}

/* The store's own front door: the endpoint that was given, else the vendor's. */
static const char *front_door(const struct store *s, char *buf, size_t size)
{
    const char *given = globals.endpoint;
    if (!given)
        given = env_get(strcmp(store_scheme(s), "s3") == 0 ? "AWS_ENDPOINT_URL" : "STORAGE_EMULATOR_HOST");
    if (strcmp(store_scheme(s), "file") == 0)
        return NULL;
    if (given)
        snprintf(buf, size, "%s%s/", strstr(given, "://") ? "" : "http://", given);
    else if (strcmp(store_scheme(s), "gs") == 0)
        snprintf(buf, size, "https://storage.googleapis.com/");
    else
        snprintf(buf, size, "https://s3.%s.amazonaws.com/", globals.region ? globals.region : "us-east-1");
    return buf;
}

static void tell_clock(const struct visit *v)
{
    /* The Date is of some moment between question and answer, cut to the second. */
    int64_t middle = v->asked_ns + (v->answered_ns - v->asked_ns) / 2;
    int64_t skew = (v->date_ns - middle) / (int64_t)NS_PER_SECOND;
    int64_t far = skew < 0 ? -skew : skew;
    if (!v->has_date) {
        doctor_say(DOCTOR_WARN, "clock", "'%s' does not tell the time", v->url);
        return;
    }
    if (far <= SKEW_WARN_SECONDS) {
        doctor_say(DOCTOR_PASS, "clock", "within %" PRId64 " s of the store's", far + 1);
        return;
    }
    struct err err;
    err_set(&err, ERR_INVALID, "this machine's clock is %" PRId64 " s %s of the store's", far,
            skew < 0 ? "ahead" : "behind");
    err_advise(&err, 1901, "signatures and tokens are refused beyond 5 min; start a time service (chrony, timesyncd)");
    doctor_say_err(far > SKEW_FAIL_SECONDS ? DOCTOR_FAIL : DOCTOR_WARN, "clock", &err);
}

static void visit_store(struct visit *v, const char *uri)
{
    char url[2048];
    v->url = front_door(v->store, url, sizeof url);
    if (v->url) {
        v->mail.deliver = ask_for_clock;
        loop_post(v->worker.loop, &v->mail);
        sem_wait(&v->over);
        if (!v->answered) {
            doctor_say_err(DOCTOR_FAIL, "endpoint", &v->err);
            return;
        }
        doctor_say(DOCTOR_PASS, "endpoint", "'%s' answers", v->url);
        tell_clock(v);
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
    struct visit v = {0};
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
