/* SPDX-License-Identifier: Apache-2.0 */
#include "grant.h"
#include "creds_private.h"
#include <stdio.h>

/* An exchange asked for by a thread that waits: begun on the loop, as every fetch of these sources. */
struct asking {
    struct mail mail;
    struct creds_waiter waiter;
    struct creds *creds;
    struct worker *worker;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t is_told;
    bool told;
};

static void tell(struct asking *a)
{
    pthread_mutex_lock(&a->lock);
    a->told = true;
    pthread_cond_signal(&a->is_told);
    pthread_mutex_unlock(&a->lock);
}

static void ready(struct creds_waiter *w)
{
    tell(container_of(w, struct asking, waiter));
}

static void begin(struct mail *m)
{
    struct asking *a = container_of(m, struct asking, mail);
    struct identity *at_once = creds_get(a->creds, a->worker, &a->waiter);
    if (!at_once)
        return; /* `a` may be gone */
    a->waiter.identity = at_once;
    tell(a);
}

static int open_grant(const struct grant *g, struct creds **ret, struct err *err)
{
    const struct store_options defaults = {0};
    char region[64];
    switch (g->kind) {
    case GRANT_GCP_TOKEN:
    case GRANT_GCP_KEY:
        return creds_open_gcp_grant(g, ret, err);
    case GRANT_GCP_OWN:
        return creds_open_gcp(&defaults, ret, err);
    case GRANT_AWS_TOKEN:
        return creds_open_aws_grant(g, ret, err);
    case GRANT_AWS_OWN:
        snprintf(region, sizeof region, "%.*s", STR_FMT(g->region.len ? g->region : STR("us-east-1")));
        return creds_open_aws(&defaults, region, ret, err);
    }
    return err_set(err, ERR_INTERNAL, "there is no grant of kind %d", (int)g->kind);
}

int grant_exchange(const struct grant *g, struct worker *worker, struct identity **ret, uint64_t *ret_retry_after_ns,
                   struct err *err)
{
    struct creds *creds = NULL;
    int r = open_grant(g, &creds, err);
    if (r < 0)
        return r;
    struct asking a = {.mail.deliver = begin,
                       .waiter = {.home = worker->loop, .ready = ready},
                       .creds = creds,
                       .worker = worker,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .is_told = PTHREAD_COND_INITIALIZER};
    loop_post(worker->loop, &a.mail);
    pthread_mutex_lock(&a.lock);
    while (!a.told)
        pthread_cond_wait(&a.is_told, &a.lock);
    pthread_mutex_unlock(&a.lock);
    if (a.waiter.identity) {
        *ret = a.waiter.identity;
    } else {
        r = err_copy(err, &a.waiter.err);
        *ret_retry_after_ns = creds->pause_ns;
    }
    creds_free(creds);
    return r;
}
