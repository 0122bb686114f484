/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver.h"
#include "metrics.h"
#include "util/clock.h"
#include "util/metric.h"
#include "util/uri.h"

/* The counts of one volume when it was last read. */
struct transfer_state {
    struct volume_id id;
    enum hydrate_phase phase;
    int64_t hydration_ns, fault_ns, export_ns; /* wall clock: start of each run, and the last fault that was counted */
    uint64_t bytes, objects, objects_failed;
    uint64_t sent_bytes, sent_objects, sent_failed;
};

struct transfer_round {
    struct transfer_state *items; /* owned; by id */
    size_t count;
};

struct transfer_metrics {
    char *node; /* owned */
    int64_t began_ns;
    struct transfer_round before[DRIVER_POOLS_MAX];
    struct transfer_round now;
    size_t pool;
    struct metric *bytes, *objects, *seconds, *sent_bytes, *sent_objects, *verify_failures;
};

struct transfer_metrics *transfer_metrics_new(const char *node)
{
    struct transfer_metrics *t = xcalloc(1, sizeof *t);
    t->node = str_dup(str_of(node));
    t->began_ns = clock_wall_ns();
    t->bytes = metric_new(METRIC_COUNTER, "cistern_hydration_bytes_total", "Hydrated bytes that are complete on disk.",
                          "node,scheme,result", NULL);
    t->objects = metric_new(METRIC_COUNTER, "cistern_hydration_objects_total", "Hydrated objects: ok or failed.",
                            "node,scheme,result", NULL);
    t->seconds = metric_new(METRIC_HISTOGRAM, "cistern_hydration_seconds",
                            "Duration of a hydration, from the first listing to the end.", "scheme,mode,result",
                            metric_buckets_job);
    t->sent_bytes = metric_new(METRIC_COUNTER, "cistern_export_bytes_total",
                               "Exported bytes that the bucket confirmed.", "node,scheme,result", NULL);
    t->sent_objects = metric_new(METRIC_COUNTER, "cistern_export_objects_total", "Exported objects: ok or failed.",
                                 "node,scheme,result", NULL);
    t->verify_failures = metric_new(METRIC_COUNTER, "cistern_verify_failures_total",
                                    "Objects whose bytes do not match the bucket's checksum.", "node,cause", NULL);
    return t;
}

void transfer_metrics_free(struct transfer_metrics *own_t)
{
    if (!own_t)
        return;
    for (size_t i = 0; i < DRIVER_POOLS_MAX; i++)
        free(own_t->before[i].items);
    free(own_t->now.items);
    free(own_t->node);
    free(own_t);
}

void transfer_metrics_begin(struct transfer_metrics *t, size_t pool)
{
    t->pool = pool;
    t->now.count = 0;
}

void transfer_metrics_end(struct transfer_metrics *t)
{
    struct transfer_round *before = &t->before[t->pool], was = *before;
    *before = t->now;
    t->now = was; /* its array serves the next round */
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct transfer_state *)a)->id.text, ((const struct transfer_state *)b)->id.text);
}

static const struct transfer_state *find_before(const struct transfer_metrics *t, const struct transfer_state *key)
{
    const struct transfer_round *r = &t->before[t->pool];
    return r->count ? bsearch(key, r->items, r->count, sizeof *r->items, by_id) : NULL;
}

static struct transfer_state *append_state(struct transfer_metrics *t, const struct volume_id *id)
{
    struct transfer_round *r = &t->now;
    if ((r->count & (r->count - 1)) == 0)
        r->items = xrealloc(r->items, r->count ? 2 * r->count : 1, sizeof *r->items);
    struct transfer_state *s = &r->items[r->count++];
    *s = (struct transfer_state){.id = *id};
    return s;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static const char *scheme_label(const char *uri)
{
    const struct scheme *scheme = uri_split(str_of(uri)).scheme;
    return scheme ? scheme->name : "other"; /* a status file that another version wrote */
}

/* Counts the part above the mark `before`, and sets *ret to the new mark. A run that starts again counts only beyond
 * the last mark. */
static void count_delta(struct transfer_metrics *t, struct metric *m, const char *scheme, const char *result,
                        uint64_t before, uint64_t now, uint64_t *ret)
{
    if (now > before)
        metric_add(metric_series(m, t->node, scheme, result), now - before);
    *ret = max_u64(before, now);
}

static void count_faults(struct transfer_metrics *t, struct transfer_state *s, const struct hydrate_status *h)
{
    int64_t newest_ns = s->fault_ns;
    for (size_t i = 0; i < h->error_count; i++) {
        const struct hydrate_fault *f = &h->errors[i];
        if (f->time_ns <= s->fault_ns)
            continue;
        newest_ns = f->time_ns > newest_ns ? f->time_ns : newest_ns;
        if (err_kind_of(f->id) == ERR_KIND_MISMATCH)
            metric_add(metric_series(t->verify_failures, t->node, "checksum"), 1);
    }
    s->fault_ns = newest_ns;
}

static void add_hydration(struct transfer_metrics *t, const struct volume *v, struct transfer_state *s,
                          const struct transfer_state *was, const struct hydrate_status *h)
{
    static const char *const modes[] = {
        [HYDRATION_EAGER] = "eager", [HYDRATION_GATE] = "gate", [HYDRATION_NONE] = "none"};
    const char *scheme = scheme_label(h->source);
    s->phase = h->phase;
    s->hydration_ns = h->began_ns;
    bool known = was && was->hydration_ns == h->began_ns;
    const struct transfer_state first = {.fault_ns = t->began_ns,
                                         .phase = h->phase,
                                         .bytes = h->bytes_done,
                                         .objects = h->objects_done,
                                         .objects_failed = h->objects_failed};
    const struct transfer_state fresh = {.phase = HYDRATE_STARTING};
    if (!known)
        was = h->began_ns < t->began_ns ? &first : &fresh;
    s->fault_ns = was->fault_ns;
    count_faults(t, s, h);
    count_delta(t, t->bytes, scheme, "ok", was->bytes, h->bytes_done, &s->bytes);
    count_delta(t, t->objects, scheme, "ok", was->objects, h->objects_done, &s->objects);
    count_delta(t, t->objects, scheme, "failed", was->objects_failed, h->objects_failed, &s->objects_failed);
    bool ended = (h->phase == HYDRATE_DONE || h->phase == HYDRATE_FAILED) && h->finished_ns > h->began_ns;
    if (ended && was->phase != h->phase)
        metric_observe(metric_series(t->seconds, scheme, modes[v->spec->params.hydration],
                                     h->phase == HYDRATE_DONE ? "ok" : "failed"),
                       (double)(h->finished_ns - h->began_ns) / (double)NS_PER_SECOND);
}

static void add_export(struct transfer_metrics *t, struct transfer_state *s, const struct transfer_state *was,
                       const struct verdict *e)
{
    const char *scheme = scheme_label(e->uri);
    const struct transfer_state first = {
        .sent_bytes = e->done_bytes, .sent_objects = e->done_files, .sent_failed = e->failed_files};
    bool known = was && was->export_ns != 0;
    const struct transfer_state fresh = {0};
    if (!known)
        was = e->started_ns < t->began_ns ? &first : &fresh;
    s->export_ns = e->started_ns;
    count_delta(t, t->sent_bytes, scheme, "ok", was->sent_bytes, e->done_bytes, &s->sent_bytes);
    count_delta(t, t->sent_objects, scheme, "ok", was->sent_objects, e->done_files, &s->sent_objects);
    /* Each run counts its failures again. */
    count_delta(t, t->sent_objects, scheme, "failed", was->export_ns == e->started_ns || !known ? was->sent_failed : 0,
                e->failed_files, &s->sent_failed);
}

void transfer_metrics_add(struct transfer_metrics *t, const struct volume *v, const struct hydrate_status *h,
                          const struct verdict *e)
{
    struct transfer_state *s = append_state(t, &v->spec->id);
    const struct transfer_state *was = find_before(t, s);
    if (h)
        add_hydration(t, v, s, was, h);
    if (e->state != VERDICT_NONE)
        add_export(t, s, was, e);
}
