/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"
#include "driver/driver.h"
#include "io/ticker.h"
#include "keeper/client.h"
#include "keeper/counts.h"
#include "keeper/mirror.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"

enum { PHASES_MAX = 24, REST_FACTOR = 19 };

/* ---- mounts ------------------------------------------------------------------------------------------------------ */

struct mount_metrics {
    char *node;                /* owned */
    const char *keeper_socket; /* borrowed */
    struct mirror *mirror;     /* borrowed */
    struct counts counted;     /* the metrics have these already */
    uint64_t restarts;         /* of the present mount processes, at the last reading */
    bool has_looked;
    struct metric *ops, *seconds;
    struct metric_series *handovers, *passed, *plain;
};

static struct mount_metrics *mount_metrics_new(const char *node, const char *keeper_socket, struct mirror *mirror)
{
    struct mount_metrics *m = xcalloc(1, sizeof *m);
    m->node = str_dup(str_of(node));
    m->keeper_socket = keeper_socket;
    m->mirror = mirror;
    m->ops = metric_new(METRIC_COUNTER, "cistern_fuse_ops_total",
                        "Requests that mount processes answered: ok (also 'not found') or error. Reads and writes that "
                        "the kernel passes through are not counted.",
                        "op,result", NULL);
    m->seconds =
        metric_new(METRIC_HISTOGRAM, "cistern_fuse_op_seconds",
                   "Duration of each request that mount processes answered.", "op,result", counts_bounds_seconds);
    struct metric *handovers = metric_new(
        METRIC_COUNTER, "cistern_fuse_handover_total",
        "Mount processes that were restarted on a live mount: ok, unnoticed by their pods.", "node,result", NULL);
    m->handovers = metric_series(handovers, m->node, "ok");
    struct metric *opens = metric_new(
        METRIC_COUNTER, "cistern_fuse_passthrough_opens_total",
        "Opened files: ok if the kernel reads and writes the disk itself, plain if each read and write is a request.",
        "node,result", NULL);
    m->passed = metric_series(opens, m->node, "ok");
    m->plain = metric_series(opens, m->node, "plain");
    return m;
}

static void mount_metrics_free(struct mount_metrics *own_m)
{
    if (!own_m)
        return;
    free(own_m->node);
    free(own_m);
}

static void add_restarts(const struct keeper_status *s, void *sum)
{
    *(uint64_t *)sum += s->restarts;
}

/* A mount's count ends with the mount, so the sum may fall. Only its increases are counted. */
static void count_handovers(struct mount_metrics *m)
{
    uint64_t now = 0;
    if (keeper_list(m->keeper_socket, add_restarts, &now, ERR_IGNORED) < 0)
        return;
    if (m->has_looked && now > m->restarts)
        metric_add(m->handovers, now - m->restarts);
    m->restarts = now;
    m->has_looked = true;
}

static void add_cell(const struct mount_metrics *m, enum counts_op op, enum counts_result result,
                     const struct counts_cell *done)
{
    const char *label = result == COUNTS_OK ? "ok" : "error";
    uint64_t count = 0;
    for (size_t i = 0; i <= COUNTS_BOUNDS; i++)
        count += done->within[i];
    if (count == 0)
        return;
    metric_add(metric_series(m->ops, counts_op_name(op), label), count);
    metric_observe_many(metric_series(m->seconds, counts_op_name(op), label), done->within, done->within[COUNTS_BOUNDS],
                        (double)done->ns / (double)NS_PER_SECOND);
}

static void count_requests(struct mount_metrics *m)
{
    struct counts now, done;
    mirror_counts(m->mirror, &now);
    done = now;
    counts_sum(&done, &m->counted, -1);
    for (int op = 0; op < COUNTS_OPS; op++)
        for (int result = 0; result < COUNTS_RESULTS; result++)
            add_cell(m, (enum counts_op)op, (enum counts_result)result, &done.ops[op][result]);
    metric_add(m->passed, done.opens_passed);
    metric_add(m->plain, done.opens_plain);
    m->counted = now;
}

/* ---- pools and volumes ------------------------------------------------------------------------------------------- */

struct phase_count {
    const char *phase; /* static */
    uint64_t count;
};

struct driver_pool_gauges {
    struct pool *pool; /* borrowed */
    struct metric_series *capacity, *available, *reserved, *healthy;
    struct phase_count phases[PHASES_MAX]; /* every phase seen so far: one without volumes must become 0 */
    size_t phase_count;
    bool is_unhealthy; /* logged already */
};

struct node_sums {
    uint64_t hydrations, bytes_per_second, pending_bytes;
    int64_t hydrating_since_ns, pending_since_ns; /* wall clock; 0: none */
};

struct driver_metrics {
    char *node; /* owned */
    uint64_t interval_ns;
    struct hydrate_status *hydration; /* owned: too big for a stack */
    struct driver_pool_gauges pools[DRIVER_POOLS_MAX];
    size_t count;
    struct transfer_metrics *traffic; /* owned */
    struct mount_metrics *mounts;     /* owned */
    struct metric *volumes;
    struct metric_series *inflight, *hydrating_seconds, *rate, *pending, *pending_seconds;
    struct ticker *ticker; /* owned */
};

/* ---- one volume -------------------------------------------------------------------------------------------------- */

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

static void add_export(const struct verdict *v, struct node_sums *sums)
{
    if (v->state != VERDICT_RUNNING && v->state != VERDICT_FAILED)
        return;
    sums->pending_bytes += v->pending_bytes + v->failed_bytes;
    sums->pending_since_ns = earlier(sums->pending_since_ns, v->pending_since_ns);
}

/* The phase, and the volume's share of the node's sums; an error if one of its files cannot be read. */
static int read_volume(struct driver_metrics *g, const struct volume *v, struct node_sums *sums, const char **ret,
                       struct err *err)
{
    struct hydrate_status *h = g->hydration;
    auto_with(verdict_done) struct verdict verdict;
    verdict_init(&verdict);
    int r = hydrate_status_read(v->dir, h, err);
    bool began = r == 0, alive = hydrate_is_alive(v->dir);
    if (r == 0 || r == -ERR_NOT_FOUND)
        r = verdict_read(v->dir, &verdict, err);
    if (r < 0)
        return r;
    if (began && alive && h->phase < HYDRATE_DONE) {
        sums->hydrations++;
        sums->bytes_per_second += h->bytes_per_second;
        sums->hydrating_since_ns = earlier(sums->hydrating_since_ns, h->started_ns);
    }
    add_export(&verdict, sums);
    transfer_metrics_add(g->traffic, v, began ? h : NULL, &verdict);
    const char *of_export = verdict_phase(&verdict);
    *ret = of_export                   ? of_export
           : began                     ? hydrate_phase_label(h->phase, alive)
           : spec_is_hydrated(v->spec) ? "Provisioning"
                                       : "Ready";
    return 0;
}

static void count_phase(struct driver_pool_gauges *p, const char *phase)
{
    size_t i = 0;
    while (i < p->phase_count && strcmp(p->phases[i].phase, phase) != 0)
        i++;
    if (i == PHASES_MAX)
        return;
    if (i == p->phase_count)
        p->phases[p->phase_count++] = (struct phase_count){.phase = phase};
    p->phases[i].count++;
}

static void add_volume(struct driver_metrics *g, struct driver_pool_gauges *gauges, const struct volume_id *id,
                       struct node_sums *sums)
{
    struct err err;
    auto_volume v = NULL;
    const char *phase = "Unreadable";
    int r = pool_find_volume(gauges->pool, id, &v, &err);
    if (r == -ERR_NOT_FOUND)
        return; /* deleted since it was listed */
    if (r == 0 && read_volume(g, v, sums, &phase, &err) < 0)
        phase = "Unreadable";
    count_phase(gauges, phase);
}

/* ---- a pool ------------------------------------------------------------------------------------------------------ */

static int add_volumes(struct driver_metrics *g, struct driver_pool_gauges *gauges, struct node_sums *sums,
                       struct err *err)
{
    size_t count;
    struct pool_entry *entries;
    int r = pool_list_volumes(gauges->pool, &(struct volume_id){0}, SIZE_MAX, &entries, &count, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < gauges->phase_count; i++)
        gauges->phases[i].count = 0;
    transfer_metrics_begin(g->traffic, (size_t)(gauges - g->pools));
    for (size_t i = 0; i < count; i++)
        add_volume(g, gauges, &entries[i].volume_id, sums);
    pool_entries_free(entries, count);
    transfer_metrics_end(g->traffic);
    for (size_t i = 0; i < gauges->phase_count; i++)
        metric_set(metric_series(g->volumes, g->node, pool_name(gauges->pool), gauges->phases[i].phase),
                   (int64_t)gauges->phases[i].count);
    return 0;
}

static void set_bytes(struct metric_series *s, uint64_t bytes)
{
    metric_set(s, (int64_t)min_u64(bytes, INT64_MAX));
}

/* A pool that cannot be read keeps its last values; its health shows that they are old. */
static void add_pool(struct driver_metrics *g, struct driver_pool_gauges *gauges, struct node_sums *sums)
{
    struct err err;
    struct pool_usage u;
    int r = pool_is_here(gauges->pool, &err);
    if (r == 0)
        r = pool_usage(gauges->pool, &u, &err);
    if (r == 0) {
        set_bytes(gauges->capacity, u.total_bytes);
        set_bytes(gauges->available, u.available_bytes);
        set_bytes(gauges->reserved, u.allocated_bytes);
        r = add_volumes(g, gauges, sums, &err);
    }
    metric_set(gauges->healthy, r == 0);
    if (r < 0 && !gauges->is_unhealthy)
        log_err(LOG_WARN, "pool is not healthy", &err, "pool", pool_name(gauges->pool), NULL);
    gauges->is_unhealthy = r < 0;
}

static int64_t seconds_since(int64_t wall_ns)
{
    int64_t now_ns = clock_wall_ns();
    return wall_ns == 0 || now_ns < wall_ns ? 0 : (now_ns - wall_ns) / (int64_t)NS_PER_SECOND;
}

static void update_all(struct driver_metrics *g)
{
    struct node_sums sums = {0};
    count_handovers(g->mounts);
    count_requests(g->mounts);
    for (size_t i = 0; i < g->count; i++)
        add_pool(g, &g->pools[i], &sums);
    metric_set(g->inflight, (int64_t)sums.hydrations);
    set_bytes(g->rate, sums.bytes_per_second);
    set_bytes(g->pending, sums.pending_bytes);
    metric_set(g->hydrating_seconds, seconds_since(sums.hydrating_since_ns));
    metric_set(g->pending_seconds, seconds_since(sums.pending_since_ns));
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static uint64_t update(void *ctx)
{
    struct driver_metrics *g = ctx;
    uint64_t start_ns = clock_now_ns();
    update_all(g);
    return max_u64(g->interval_ns, REST_FACTOR * (clock_now_ns() - start_ns));
}

static struct metric_series *node_gauge(const struct driver_metrics *g, const char *name, const char *help)
{
    return metric_series(metric_new(METRIC_GAUGE, name, help, "node", NULL), g->node);
}

static struct metric_series *gauge_of_pool(const struct driver_metrics *g, const struct pool *p, const char *name,
                                           const char *help)
{
    return metric_series(metric_new(METRIC_GAUGE, name, help, "node,pool", NULL), g->node, pool_name(p));
}

static void add_metrics(struct driver_metrics *g, struct pool *const *pools)
{
    for (size_t i = 0; i < g->count; i++) {
        struct driver_pool_gauges *gauges = &g->pools[i];
        struct pool *p = gauges->pool = pools[i];
        gauges->capacity =
            gauge_of_pool(g, p, "cistern_pool_capacity_bytes", "Size of the pool's disk without the reserve.");
        gauges->available =
            gauge_of_pool(g, p, "cistern_pool_available_bytes", "Bytes that new volumes can still get.");
        gauges->reserved =
            gauge_of_pool(g, p, "cistern_pool_reserved_bytes", "Bytes that existing volumes have reserved.");
        gauges->healthy = gauge_of_pool(g, p, "cistern_pool_healthy",
                                        "0: the pool cannot be read or is missing, and its other values are old.");
    }
    g->volumes = metric_new(METRIC_GAUGE, "cistern_volumes", "Number of volumes.", "node,pool,phase", NULL);
    g->inflight = node_gauge(g, "cistern_hydration_inflight", "Running hydrations.");
    g->hydrating_seconds =
        node_gauge(g, "cistern_hydration_oldest_seconds", "Run time of the oldest running hydration.");
    g->rate = node_gauge(g, "cistern_hydration_rate_bytes_per_second", "Rate of all hydrations together.");
    g->pending =
        node_gauge(g, "cistern_export_pending_bytes", "Bytes of running exports that the bucket has not confirmed.");
    g->pending_seconds = node_gauge(g, "cistern_export_oldest_pending_seconds",
                                    "Age of the oldest running export; successive attempts count as one.");
}

static void driver_metrics_free(struct driver_metrics *own_g)
{
    mount_metrics_free(own_g->mounts);
    transfer_metrics_free(own_g->traffic);
    free(own_g->hydration);
    free(own_g->node);
    free(own_g);
}

int driver_metrics_start(const char *node, struct pool *const *pools, size_t count, const char *keeper_socket,
                         struct mirror *mirror, uint64_t interval_ns, struct driver_metrics **ret, struct err *err)
{
    struct driver_metrics *g = xcalloc(1, sizeof *g);
    g->node = str_dup(str_of(node));
    g->hydration = xcalloc(1, sizeof *g->hydration);
    g->count = count;
    g->mounts = mount_metrics_new(node, keeper_socket, mirror);
    g->interval_ns = interval_ns;
    g->traffic = transfer_metrics_new(node);
    add_metrics(g, pools);
    update_all(g);
    int r = ticker_start("gauges", update, g, &g->ticker, err);
    if (r < 0) {
        driver_metrics_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void driver_metrics_stop(struct driver_metrics *own_g)
{
    if (!own_g)
        return;
    ticker_stop(own_g->ticker);
    driver_metrics_free(own_g);
}
