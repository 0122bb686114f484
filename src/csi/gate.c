/* SPDX-License-Identifier: Apache-2.0 */
#include "gate.h"
#include "progress.h"
#include "siblings.h"
#include "util/clock.h"
#include <pthread.h>

/* The kubelet waits two minutes for an answer; one that comes before says how far it is, a timeout says nothing. */
#define WAIT_NS (100 * NS_PER_SECOND)
#define MARGIN_NS NS_PER_SECOND
#define LOOK_FIRST_NS (20 * NS_PER_MS)
#define LOOK_LAST_NS (500 * NS_PER_MS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and what is in the list */
static struct waiter *waiters;

void gate_enter(struct waiter *w, const char *id, const char *target)
{
    pthread_mutex_lock(&lock);
    *w = (struct waiter){.id = id, .target = target, .is_in = true, .next = waiters};
    waiters = w;
    pthread_mutex_unlock(&lock);
}

void gate_leave(struct waiter *w)
{
    if (!w->is_in)
        return;
    pthread_mutex_lock(&lock);
    struct waiter **at = &waiters;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    w->is_in = false;
    pthread_mutex_unlock(&lock);
}

void gate_call_off(const char *id)
{
    pthread_mutex_lock(&lock);
    for (struct waiter *w = waiters; w; w = w->next)
        if (strcmp(w->id, id) == 0)
            w->word = GATE_IS_RELEASED;
    pthread_mutex_unlock(&lock);
}

void gate_call_off_target(const char *target)
{
    pthread_mutex_lock(&lock);
    for (struct waiter *w = waiters; w; w = w->next)
        if (strcmp(w->target, target) == 0)
            w->word = GATE_IS_UNPUBLISHED;
    pthread_mutex_unlock(&lock);
}

static int pod_has_gone(const char *id, struct err *err)
{
    err_set(err, ERR_AGAIN, "volume '%s' is not published: the pod that waited for it is going", id);
    return err_advise(err, 3018, "nothing is mounted for it");
}

int gate_check(const struct waiter *w, struct err *err)
{
    pthread_mutex_lock(&lock);
    enum gate_word word = w->word;
    pthread_mutex_unlock(&lock);
    switch (word) {
    case GATE_GO:
        break;
    case GATE_IS_RELEASED:
        return driver_is_released(w->id, err);
    case GATE_IS_UNPUBLISHED:
        return pod_has_gone(w->id, err);
    }
    return 0;
}

/* What it had beside this volume was there once, and was taken away. */
static int check_pod(const struct waiter *w, bool *had_siblings, struct err *err)
{
    bool has_siblings = siblings_are_there(w->target);
    if (*had_siblings && !has_siblings)
        return pod_has_gone(w->id, err);
    *had_siblings = has_siblings;
    return 0;
}

static int not_yet(const struct volume *v, const char *progress, struct err *err)
{
    err_set(err, ERR_AGAIN, "volume '%s' is not ready: %s", v->spec->id, progress);
    return err_advise(err, 3015, "ask again");
}

static int failed(const struct driver *d, const struct volume *v, const char *why, const struct job_view *job,
                  struct err *err)
{
    char wait[TIME_TEXT_MAX];
    err_set(err, ERR_AGAIN, "volume '%s' is not ready, its hydration failed: %s", v->spec->id, why);
    if (d->is_node)
        return err_advise(err, 3016, "its Job tries it again");
    if (job->state != JOB_FAILED)
        return err_advise(err, 3016, "it is tried again now");
    return err_advise(err, 3016, "it is tried again in %s", duration_text(job->retry_ns, wait));
}

static uint64_t end_of_wait(struct rpc_call *call)
{
    uint64_t deadline_ns = rpc_deadline_ns(call), ours_ns = clock_now_ns() + WAIT_NS;
    return deadline_ns == UINT64_MAX ? ours_ns : min_u64(ours_ns, deadline_ns - min_u64(deadline_ns, MARGIN_NS));
}

int gate_wait(struct driver *d, struct rpc_call *call, const struct volume *v, const struct waiter *w, struct err *err)
{
    char text[HEALTH_TEXT_MAX];
    struct job_view job;
    bool has_failed, had_siblings = false;
    uint64_t end_ns = end_of_wait(call), look_ns = LOOK_FIRST_NS;
    while (!data_is_whole(v, text, &has_failed)) {
        int r = gate_check(w, err);
        if (r == 0)
            r = check_pod(w, &had_siblings, err);
        if (r == 0)
            r = driver_want_job(d, v, JOB_HYDRATE, false, &job, err);
        if (r < 0)
            return r;
        if (has_failed && job.state == JOB_FAILED)
            return failed(d, v, text, &job, err);
        uint64_t now_ns = clock_now_ns();
        if (now_ns >= end_ns || !rpc_sleep_until(call, min_u64(now_ns + look_ns, end_ns)))
            return not_yet(v, text, err);
        look_ns = min_u64(look_ns * 2, LOOK_LAST_NS);
    }
    return 0;
}
