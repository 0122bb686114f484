/* SPDX-License-Identifier: Apache-2.0 */
#include "gauges.h"
#include "export/verdict.h"
#include "hydrate/status.h"
#include "io/ticker.h"
#include "service.h"
#include "traffic.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"

enum { PAGE = 256, PHASES_MAX = 24, REST_FACTOR = 19 };

struct tally {
    const char *phase; /* static */
    uint64_t count;
};

struct pool_gauges {
    struct space *space; /* borrowed */
    struct metric_series *capacity, *available, *reserved, *healthy;
    struct tally phases[PHASES_MAX]; /* every phase ever seen: one that nobody is in any more must become 0 */
    size_t phase_count;
    bool ailing; /* it was told */
};

struct sums {
    uint64_t hydrations, bytes_per_second, pending_bytes;
    int64_t hydrating_since_ns, pending_since_ns; /* wall clock; 0: none */
};

struct gauges {
    char *node; /* owned */
    uint64_t interval_ns;
    struct hydrate_status *hydration; /* owned: too big for a stack */
    struct pool_gauges pools[DRIVER_POOLS_MAX];
    size_t count;
    struct traffic *traffic; /* owned */
    struct mounts *mounts;   /* owned */
    struct metric *volumes;
    struct metric_series *inflight, *hydrating_seconds, *rate, *pending, *pending_seconds;
    struct ticker *ticker; /* owned */
};

/* ---- one volume -------------------------------------------------------------------------------------------------- */

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

static void add_export(const struct verdict *v, struct sums *sums)
{
    if (v->state != VERDICT_RUNNING && v->state != VERDICT_FAILED)
        return;
    sums->pending_bytes += v->pending_bytes + v->failed_bytes;
    sums->pending_since_ns = earlier(sums->pending_since_ns, v->pending_since_ns);
}

/* The phase, and what the volume adds to the node's sums; an error if one of its files cannot be read. */
static int look_at(struct gauges *g, const struct volume *v, struct sums *sums, const char **ret, struct err *err)
{
    bool wants_data = v->spec->params.hydration != HYDRATION_NONE && spec_source_count(v->spec) > 0;
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
    traffic_add(g->traffic, v, began ? h : NULL, &verdict);
    const char *of_export = verdict_phase(&verdict);
    *ret = of_export ? of_export : began ? hydrate_phase_label(h->phase, alive) : wants_data ? "Provisioning" : "Ready";
    return 0;
}

static void count_in(struct pool_gauges *p, const char *phase)
{
    size_t i = 0;
    while (i < p->phase_count && strcmp(p->phases[i].phase, phase) != 0)
        i++;
    if (i == PHASES_MAX)
        return;
    if (i == p->phase_count)
        p->phases[p->phase_count++] = (struct tally){.phase = phase};
    p->phases[i].count++;
}

static void add_volume(struct gauges *g, struct pool_gauges *p, const char *id, struct sums *sums)
{
    struct err err;
    auto_volume v = NULL;
    const char *phase = "Unreadable";
    int r = space_find(p->space, str_of(id), &v, &err);
    if (r == -ERR_NOT_FOUND)
        return; /* deleted since it was listed */
    if (r == 0 && look_at(g, v, sums, &phase, &err) < 0)
        phase = "Unreadable";
    count_in(p, phase);
}

/* ---- a pool ------------------------------------------------------------------------------------------------------ */

static int add_volumes(struct gauges *g, struct pool_gauges *p, struct sums *sums, struct err *err)
{
    char after[SPEC_ID_LEN + 1] = "";
    size_t count;
    for (size_t i = 0; i < p->phase_count; i++)
        p->phases[i].count = 0;
    traffic_begin(g->traffic, (size_t)(p - g->pools));
    do {
        struct space_entry *entries;
        int r = space_list(p->space, str_of(after), PAGE, &entries, &count, err);
        if (r < 0)
            return r;
        for (size_t i = 0; i < count; i++)
            add_volume(g, p, entries[i].id, sums);
        if (count > 0)
            memcpy(after, entries[count - 1].id, sizeof after);
        space_entries_free(entries, count);
    } while (count == PAGE);
    traffic_end(g->traffic);
    for (size_t i = 0; i < p->phase_count; i++)
        metric_set(metric_series(g->volumes, g->node, space_name(p->space), p->phases[i].phase),
                   (int64_t)p->phases[i].count);
    return 0;
}

static void set_bytes(struct metric_series *s, uint64_t bytes)
{
    metric_set(s, (int64_t)min_u64(bytes, INT64_MAX));
}

/* A pool that cannot be asked keeps its last values, and says by its health that they are old. */
static void add_pool(struct gauges *g, struct pool_gauges *p, struct sums *sums)
{
    struct err err;
    struct space_usage u;
    int r = space_is_here(p->space, &err);
    if (r == 0)
        r = space_usage(p->space, &u, &err);
    if (r == 0) {
        set_bytes(p->capacity, u.total_bytes);
        set_bytes(p->available, u.available_bytes);
        set_bytes(p->reserved, u.allocated_bytes);
        r = add_volumes(g, p, sums, &err);
    }
    metric_set(p->healthy, r == 0);
    if (r < 0 && !p->ailing)
        log_err(LOG_WARN, "pool is not healthy", &err, "pool", space_name(p->space), NULL);
    p->ailing = r < 0;
}

static int64_t seconds_since(int64_t wall_ns)
{
    int64_t now_ns = clock_wall_ns();
    return wall_ns == 0 || now_ns < wall_ns ? 0 : (now_ns - wall_ns) / (int64_t)NS_PER_SECOND;
}

static void look_at_all(struct gauges *g)
{
    struct sums sums = {0};
    mounts_look(g->mounts);
    for (size_t i = 0; i < g->count; i++)
        add_pool(g, &g->pools[i], &sums);
    metric_set(g->inflight, (int64_t)sums.hydrations);
    set_bytes(g->rate, sums.bytes_per_second);
    set_bytes(g->pending, sums.pending_bytes);
    metric_set(g->hydrating_seconds, seconds_since(sums.hydrating_since_ns));
    metric_set(g->pending_seconds, seconds_since(sums.pending_since_ns));
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static uint64_t tick(void *ctx)
{
    struct gauges *g = ctx;
    uint64_t start_ns = clock_now_ns();
    look_at_all(g);
    return max_u64(g->interval_ns, REST_FACTOR * (clock_now_ns() - start_ns));
}

static struct metric_series *node_gauge(const struct gauges *g, const char *name, const char *help)
{
    return metric_series(metric_new(METRIC_GAUGE, name, help, "node", NULL), g->node);
}

static struct metric_series *pool_gauge(const struct gauges *g, const struct space *s, const char *name,
                                        const char *help)
{
    return metric_series(metric_new(METRIC_GAUGE, name, help, "node,pool", NULL), g->node, space_name(s));
}

static void add_metrics(struct gauges *g, struct space *const *spaces)
{
    for (size_t i = 0; i < g->count; i++) {
        struct pool_gauges *p = &g->pools[i];
        struct space *s = p->space = spaces[i];
        p->capacity = pool_gauge(g, s, "cistern_pool_capacity_bytes", "Of the pool's disk, less the reserve.");
        p->available = pool_gauge(g, s, "cistern_pool_available_bytes", "That can still be promised to volumes.");
        p->reserved = pool_gauge(g, s, "cistern_pool_reserved_bytes", "Promised to volumes.");
        p->healthy =
            pool_gauge(g, s, "cistern_pool_healthy", "0: it cannot be read or is not there: its values are old.");
    }
    g->volumes = metric_new(METRIC_GAUGE, "cistern_volumes", "By phase.", "node,pool,phase", NULL);
    g->inflight = node_gauge(g, "cistern_hydration_inflight", "Hydrations at work.");
    g->hydrating_seconds = node_gauge(g, "cistern_hydration_oldest_seconds", "Age of the oldest at work.");
    g->rate = node_gauge(g, "cistern_hydration_rate_bytes_per_second", "Of all at work.");
    g->pending = node_gauge(g, "cistern_export_pending_bytes", "Of exports begun, not yet confirmed by a bucket.");
    g->pending_seconds = node_gauge(g, "cistern_export_oldest_pending_seconds", "Since the oldest of them began.");
}

static void gauges_free(struct gauges *own_g)
{
    mounts_free(own_g->mounts);
    traffic_free(own_g->traffic);
    free(own_g->hydration);
    free(own_g->node);
    free(own_g);
}

int gauges_start(const char *node, struct space *const *spaces, size_t count, struct mounts *own_mounts,
                 uint64_t interval_ns, struct gauges **ret, struct err *err)
{
    struct gauges *g = xcalloc(1, sizeof *g);
    g->node = str_dup(str_of(node));
    g->hydration = xcalloc(1, sizeof *g->hydration);
    g->count = count;
    g->mounts = own_mounts;
    g->interval_ns = interval_ns;
    g->traffic = traffic_new(node);
    add_metrics(g, spaces);
    look_at_all(g);
    int r = ticker_start("gauges", tick, g, &g->ticker, err);
    if (r < 0) {
        gauges_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void gauges_stop(struct gauges *own_g)
{
    if (!own_g)
        return;
    ticker_stop(own_g->ticker);
    gauges_free(own_g);
}
