/* SPDX-License-Identifier: Apache-2.0 */
/* The network's half of `cistern doctor`: shows the credentials, reaches the store, compares clocks. */
#include "cistern.h"
#include "creds/creds.h"
#include "doctor.h"
#include "store/store.h"
#include "util/clock.h"
#include "util/env.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

enum {
    SKEW_WARN_SECONDS = 60,
    SKEW_FAIL_SECONDS = 300
}; /* S3 refuses signatures with a skew of 15 min, STS of 5 min */

/* A person waits. */
#define PATIENCE_NS (8 * NS_PER_SECOND)

static uint64_t patience_ns(void)
{
    return globals.timeout_ns ? min_u64(globals.timeout_ns, PATIENCE_NS) : PATIENCE_NS;
}

/* home: the worker's loop until `over` is set; main before and after. */
struct clock_check {
    struct mail mail;
    struct doctor_store *d;
    const char *url; /* of the HEAD that reads the clock */
    bool answered;   /* any HTTP answer */
    bool has_date;
    int64_t date_ns, asked_ns, answered_ns; /* wall clock */
    struct err err;
};

static int on_head(void *ctx, struct web_job *j)
{
    struct clock_check *v = ctx;
    v->answered_ns = clock_wall_ns();
    v->has_date = time_parse_http(web_reply_header(j, "Date"), &v->date_ns);
    return 0;
}

static void on_answer(void *ctx, const struct web_result *r)
{
    struct clock_check *v = ctx;
    v->answered = r->code == 0;
    if (!v->answered)
        v->err = r->err;
    sem_post(&v->d->over);
}

static void ask_for_clock(struct mail *m)
{
    struct clock_check *v = container_of(m, struct clock_check, mail);
    struct web_request q = {.method = "HEAD",
                            .url = v->url,
                            .timeout_ns = patience_ns(),
                            .ctx = v,
                            .on_head = on_head,
                            .on_done = on_answer};
    v->asked_ns = clock_wall_ns();
    web_submit(v->d->worker.web, &q);
}

static void report_clock(const struct clock_check *v)
{
    /* The server made the Date between the request and the answer, and truncated it to seconds. */
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
    err_set(&err, ERR_INVALID, "this machine's clock is %" PRId64 " s %s the store's", far,
            skew < 0 ? "ahead of" : "behind");
    err_advise(&err, CIS_CLOCK_SKEW);
    doctor_say_err(far > SKEW_FAIL_SECONDS ? DOCTOR_FAIL : DOCTOR_WARN, "clock", &err);
}

/* False: the store does not answer. */
static bool reach_store(struct doctor_store *d)
{
    char url[2048];
    if (!store_endpoint(d->store))
        return true;
    snprintf(url, sizeof url, "%s/", store_endpoint(d->store));
    struct clock_check v = {.mail.deliver = ask_for_clock, .d = d, .url = url};
    loop_post(d->worker.loop, &v.mail);
    doctor_wait(d);
    if (!v.answered) {
        doctor_say_err(DOCTOR_FAIL, "endpoint", &v.err);
        return false;
    }
    doctor_say(DOCTOR_PASS, "endpoint", "'%s' answers", v.url);
    report_clock(&v);
    return true;
}

static void show_credentials(const struct doctor_store *d)
{
    const struct creds *creds = store_creds(d->store);
    const char *skipped = creds ? creds_skipped(creds) : "";
    if (creds)
        doctor_say(DOCTOR_PASS, "credentials", "%s%s%s", creds_source_name(creds), *skipped ? "; before it: " : "",
                   skipped);
}

static void visit_store(struct doctor_store *d, const struct doctor_purpose *p)
{
    show_credentials(d);
    if (!reach_store(d))
        return;
    if (p->is_source)
        doctor_try_source(d);
    if (p->is_export)
        doctor_try_export(d);
}

void doctor_uri(const char *uri, const struct doctor_purpose *p)
{
    struct err err;
    struct doctor_store d = {.uri = uri};
    struct store_options o = store_defaults(uri);
    o.retry = (struct store_retry){.attempts_max = 2, .elapsed_max_ns = patience_ns()};
    int r = store_open(&o, &d.store, &err);
    if (r < 0) {
        doctor_say_err(DOCTOR_FAIL, "uri", &err);
        return;
    }
    struct web_options web = {.connect_timeout_ns = PATIENCE_NS / 2, .stall_timeout_ns = request_stall_ns(PATIENCE_NS)};
    store_trust(d.store, &web);
    sem_init(&d.over, 0, 0);
    /* The new threads inherit the mask: only main takes a signal. */
    sigset_t ends = ending_signals(), before;
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    r = thread_pool_new(2, &d.threads, &err);
    if (r == 0)
        r = worker_init(&d.worker, 0, d.threads, &web, false, &err);
    if (r == 0)
        r = loop_start(d.worker.loop, &err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0)
        doctor_say_err(DOCTOR_FAIL, "uri", &err);
    else
        visit_store(&d, p);
    thread_pool_free(d.threads);
    worker_done(&d.worker);
    store_free(d.store);
    sem_destroy(&d.over);
}
