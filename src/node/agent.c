/* SPDX-License-Identifier: Apache-2.0 */
#include "node/agent.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"
#include "util/names.h"
#include <stdio.h>

#define RESYNC_NS (1800 * NS_PER_SECOND)

/* A page is parsed as a whole, some 40 KiB an order; longer pages would enlarge the heap for good. */
enum { THREADS = 4, QPS = 50, PAGE = 256, ORDERS_PAGE = 64 };

/* ---- the list ---------------------------------------------------------------------------------------------------- */

struct orders_listing {
    struct agent *agent;
    bool all; /* reconcile unchanged orders too */
    int code;
    struct err err;
};

static void on_order(void *ctx, const char *name, const struct err *why)
{
    struct agent *a = ctx;
    if (why)
        log_err(LOG_ERROR, "an order cannot be read", why, "volume", name, NULL);
    else
        kube_queue_add(a->queue, str_of(name));
}

static void on_page(void *ctx, json **own_items)
{
    struct orders_listing *l = ctx;
    if (!own_items) {
        orders_list_begin(l->agent->orders);
        l->code = 0;
    } else if (l->code == 0) {
        l->code = orders_list_page(l->agent->orders, *own_items, l->all, on_order, l->agent, &l->err);
    }
}

/* Volumes without an order are kept: the API server may have been restored from a backup. */
static uint64_t count_unknown(struct agent *a, struct pool *p, bool log)
{
    struct volume_id after = {0};
    size_t count = 0;
    uint64_t unknown = 0;
    do {
        struct pool_entry *entries;
        if (pool_list_volumes(p, &after, PAGE, &entries, &count, ERR_IGNORED) < 0)
            return unknown;
        for (size_t i = 0; i < count; i++) {
            if (orders_has(a->orders, entries[i].name))
                continue;
            unknown++;
            if (!log)
                continue;
            log_event(LOG_WARN, "a volume on the disk has no CisternVolume: it is kept", "volume",
                      entries[i].volume_id.text, "name", entries[i].name, "pool", pool_name(p), NULL);
        }
        if (count > 0)
            after = entries[count - 1].volume_id;
        pool_entries_free(entries, count);
    } while (count == PAGE);
    return unknown;
}

static void note_listed(struct agent_pool *p, uint64_t generation)
{
    uint64_t unknown = count_unknown(p->agent, p->pool, false);
    pthread_mutex_lock(&p->lock);
    bool changed = unknown != p->quarantined;
    p->listed = generation;
    p->quarantined = unknown;
    pthread_mutex_unlock(&p->lock);
    if (changed) /* this runs for every order of the node */
        (void)count_unknown(p->agent, p->pool, true);
    agent_wake_pool(p);
}

/* Not from the server's cache, which may be older than the generation that started this list. Reconciles changed orders
 * only, and all of them once every resync_ns: else N orders in a row would cost N*N steps. */
static int reconcile_list(struct agent *a, uint64_t *again_ns, struct err *err)
{
    uint64_t now_ns = clock_now_ns(), generations[DRIVER_POOLS_MAX];
    struct orders_listing l = {.agent = a, .all = now_ns - a->looked_ns >= a->resync_ns};
    char selector[128];
    snprintf(selector, sizeof selector, NAME_LABEL_NODE "=%s", a->node);
    for (size_t i = 0; i < a->pool_count; i++) {
        pthread_mutex_lock(&a->pools[i].lock);
        generations[i] = a->pools[i].ordered;
        pthread_mutex_unlock(&a->pools[i].lock);
    }
    struct kube_request q = {.verb = KUBE_LIST,
                             .resource = &api_volumes,
                             .label_selector = selector,
                             .page_size = ORDERS_PAGE,
                             .ctx = &l,
                             .on_page = on_page};
    orders_list_begin(a->orders);
    int r = kube_call(a->kube, &q, NULL, err);
    if (r == 0 && l.code < 0)
        r = err_copy(err, &l.err);
    if (r < 0)
        return err_wrap(err, "listing the CisternVolumes of node '%s'", a->node);
    orders_list_end(a->orders);
    if (l.all)
        a->looked_ns = now_ns;
    for (size_t i = 0; i < a->pool_count; i++)
        note_listed(&a->pools[i], generations[i]);
    *again_ns = a->resync_ns;
    return 0;
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static int reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err)
{
    struct agent *a = ctx;
    auto_mem char *name = str_dup(key);
    if (str_eq(key, STR(LIST_KEY)))
        return reconcile_list(a, again_ns, err);
    if (str_starts(key, STR(POOL_KEY))) {
        uint64_t index;
        int r = str_to_u64(str_sub(key, strlen(POOL_KEY), key.len), &index, err);
        return r < 0 ? r : agent_reconcile_pool(&a->pools[index], again_ns, err);
    }
    return agent_reconcile_volume(a, name, again_ns, err);
}

static void on_failure(void *, struct str key, const struct err *err, unsigned attempt, uint64_t wait_ns)
{
    char wait[TIME_TEXT_MAX];
    auto_mem char *name = str_dup(key);
    log_err(attempt > 5 ? LOG_WARN : LOG_DEBUG, "retrying an order", err, "key", name, "in",
            duration_text(wait_ns, wait), NULL);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int add_pools(struct agent *a, struct err *err)
{
    for (size_t i = 0; i < driver_pool_count(a->driver); i++) {
        struct agent_pool *p = &a->pools[i];
        p->agent = a;
        p->pool = driver_pool_at(a->driver, i);
        pthread_mutex_init(&p->lock, NULL);
        a->pool_count++;
        int r = api_pool_name(a->node, pool_name(p->pool), p->name, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int start(struct agent *a, const struct kube_config *config, struct err *err)
{
    struct kube_options k = {.qps = QPS, .field_manager = FIELD_MANAGER};
    struct kube_queue_options q = {
        .name = "agent", .threads = THREADS, .ctx = a, .reconcile = reconcile, .on_failure = on_failure};
    struct kube_events_options e = {.component = NAME_EVENTS_NODE, .instance = str_of(a->node)};
    int r = add_pools(a, err);
    if (r == 0)
        r = loop_new("loop/kube", &a->loop, err);
    if (r == 0)
        r = kube_new(a->loop, config, &k, &a->kube, err);
    if (r == 0)
        r = dir_watch_new(a->loop, agent_volume_moved, a, &a->dir_watch, err);
    if (r == 0)
        r = kube_queue_new(&q, &a->queue, err);
    if (r < 0)
        return r;
    a->events = kube_events_new(a->kube, &e);
    for (size_t i = 0; i < a->pool_count; i++) {
        agent_watch_pool(&a->pools[i]);
        agent_wake_pool(&a->pools[i]);
    }
    kube_queue_add(a->queue, STR(LIST_KEY));
    return loop_start(a->loop, err);
}

int agent_start(const struct agent_options *o, struct agent **ret, struct err *err)
{
    struct agent *a = xcalloc(1, sizeof *a);
    a->driver = o->driver;
    a->node = str_dup(str_of(o->node));
    a->resync_ns = o->resync_ns ? o->resync_ns : RESYNC_NS;
    a->orders = orders_new();
    struct metric *lost = metric_new(METRIC_COUNTER, "cistern_data_loss_total",
                                     "Lost volumes: disk, or NodeGone with the node.", "node,cause", NULL);
    a->lost = metric_series(lost, a->node, "disk");
    int r = start(a, o->config, err);
    if (r < 0) {
        agent_stop(a);
        return r;
    }
    *ret = a;
    return 0;
}

/* Blocked calls are cancelled first, then the threads end, then their clients are freed. */
void agent_stop(struct agent *own_a)
{
    if (!own_a)
        return;
    if (own_a->kube)
        kube_stop(own_a->kube);
    kube_queue_free(own_a->queue);
    if (own_a->loop)
        loop_stop_and_join(own_a->loop);
    for (size_t i = 0; i < own_a->pool_count; i++) {
        kube_informer_free(own_a->pools[i].informer);
        api_pool_free(own_a->pools[i].written);
        free(own_a->pools[i].uid);
        free(own_a->pools[i].given_up);
        pthread_mutex_destroy(&own_a->pools[i].lock);
    }
    dir_watch_free(own_a->dir_watch);
    kube_events_free(own_a->events);
    kube_free(own_a->kube);
    loop_free(own_a->loop);
    orders_free(own_a->orders);
    free(own_a->node);
    free(own_a);
}

void agent_touch(struct agent *a, const char *volume_name)
{
    kube_queue_add(a->queue, volume_name ? str_of(volume_name) : STR(LIST_KEY));
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

#define RATIO "cistern_volume_hydrated_ratio"

static void write_ratio(const struct api_volume *v, struct sbuf *b)
{
    const struct api_hydration *h = &v->status.hydration;
    double ratio = h->bytes_total ? (double)h->bytes_done / (double)h->bytes_total : 0;
    if (api_condition_is(&v->status.conditions, API_HYDRATED, API_TRUE))
        ratio = 1;
    /* Kubernetes names need no escapes. */
    if (v->claim_name)
        sbuf_addf(b, RATIO "{namespace=\"%s\",claim=\"%s\"} %.4g\n", v->claim_namespace, v->claim_name, ratio);
}

void agent_write_metrics(struct agent *a, struct sbuf *b)
{
    size_t count;
    auto_mem char **names = orders_names(a->orders, &count);
    sbuf_adds(b, "# HELP " RATIO
                 " Share of the bytes of a claim that is on disk; only with metrics.perVolume: true.\n# TYPE " RATIO
                 " gauge\n");
    for (size_t i = 0; i < count; i++) {
        auto_mem char *name = names[i];
        auto_api_volume v = orders_get(a->orders, name);
        if (v)
            write_ratio(v, b);
    }
}
