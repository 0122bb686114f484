/* SPDX-License-Identifier: Apache-2.0 */
/* Probes the stores of BucketSources: soon after a source was created or changed, every half hour while the probe
 * succeeds. While it fails, again after 5 s, 10 s and so on, up to a minute: what is missing is often created next.
 * Probes run on threads of their own queue, so that a store that does not answer delays no claim. The number of threads
 * and the spacing of first probes bound the load of thousands of sources. A namespace gets at most two threads, and the
 * second one only while half of all are free. So stores that never answer delay only the sources of their own
 * namespace. A dozen such namespaces are needed to hold all threads. */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"

#define HEALTHY_NS (1800 * NS_PER_SECOND)
#define FAILING_NS (5 * NS_PER_SECOND) /* after the first failure; doubled by each one, up to FAILING_MAX_NS */
#define FAILING_MAX_NS (60 * NS_PER_SECOND)
#define SPACE_NS (100 * NS_PER_MS) /* between the first probes of two sources of a namespace */
#define BUSY_NS (500 * NS_PER_MS)  /* until a thread of the namespace may be free */

enum { THREADS = PROBE_THREADS, NAMESPACE_THREADS_MAX = 2, PROBES_MAX = 100000 };

/* ---- results; under the lock ------------------------------------------------------------------------------------- */

static struct source_probe *find_probe(const struct populate *p, struct str source)
{
    struct source_probe *x;
    map_foreach_hash (&p->probes, str_hash(source, 0), x, node)
        if (str_eq(str_of(x->key), source))
            return x;
    return NULL;
}

static void probe_free(struct source_probe *own_x)
{
    free(own_x->key);
    free(own_x);
}

static void forget(struct populate *p, struct str source)
{
    auto_lock(&p->lock);
    struct source_probe *x = find_probe(p, source);
    if (!x)
        return;
    map_remove(&p->probes, &x->node);
    probe_free(x);
}

static struct source_probe *find_or_add(struct populate *p, struct str source)
{
    struct source_probe *x = find_probe(p, source);
    if (x || p->probes.count >= PROBES_MAX)
        return x;
    x = xcalloc(1, sizeof *x);
    x->key = str_dup(source);
    map_add(&p->probes, &x->node, str_hash(source, 0));
    return x;
}

/* Time until the next probe of this source; 0: now. A new or changed source is probed after those of its namespace that
 * came before: the many sources of one namespace, or their many changes, delay no other. */
static uint64_t wait_ns(struct populate *p, struct str source, uint64_t generation, uint64_t now_ns)
{
    struct str rest = source, ns = STR_NULL;
    (void)str_split(&rest, '/', &ns);
    auto_lock(&p->lock);
    uint64_t *slot_ns = &p->probe_slot_ns[str_hash(ns, 0) % PROBE_SLOTS];
    struct source_probe *known = find_or_add(p, source);
    if (!known)
        return FAILING_MAX_NS;
    if (known->generation != generation) {
        known->generation = generation;
        known->count = known->failures = 0;
        known->due_ns = *slot_ns = max_u64(*slot_ns, now_ns);
        *slot_ns += SPACE_NS;
    }
    return known->due_ns > now_ns ? known->due_ns - now_ns : 0;
}

static bool export_failed(const struct api_probe *a)
{
    return a->tried_export && a->export_err.code;
}

/* Records a probe. True if its volumes are concerned: a store recovered, or an export of theirs would fail. */
static bool note(struct populate *p, struct str source, const struct api_source *s, const struct source_probe *got)
{
    auto_lock(&p->lock);
    struct source_probe *known = find_probe(p, source);
    if (!known || known->generation != s->meta.generation)
        return false;
    bool fails = got->failed || export_failed(&got->answer);
    bool has_recovered = (known->failed && !got->failed) ||
                         (export_failed(&known->answer) && got->answer.tried_export && !got->answer.export_err.code);
    /* The status is from before this probe, and outlives the controller. If the source failed already when this
     * controller began to lead, its phase is Degraded, but a listing is kept. */
    known->was_ready |= !got->failed || s->status.phase == API_SOURCE_READY || s->status.listing.known;
    known->count++;
    known->failed = got->failed;
    known->answer = got->answer;
    known->err = got->err;
    known->time_ns = got->time_ns;
    known->failures = fails ? known->failures + 1 : 0;
    known->due_ns =
        clock_now_ns() + (fails ? clock_doubled_ns(known->failures - 1, FAILING_NS, FAILING_MAX_NS) : HEALTHY_NS);
    if (has_recovered)
        known->recovered_ns = clock_now_ns();
    return has_recovered || export_failed(&got->answer);
}

bool source_probe_find(struct populate *p, struct str source, uint64_t generation, struct source_probe *ret)
{
    *ret = (struct source_probe){0};
    if (!p->probe_queue)
        return false;
    auto_lock(&p->lock);
    const struct source_probe *known = find_probe(p, source);
    if (known && known->generation == generation)
        *ret = *known;
    ret->node = (struct map_node){0};
    ret->key = NULL;
    return true;
}

uint64_t source_recovered_ns(struct populate *p, struct str source)
{
    auto_lock(&p->lock);
    const struct source_probe *known = find_probe(p, source);
    return known ? known->recovered_ns : 0;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* False: no thread is free for the namespace. */
static bool take_thread(struct populate *p, const char *ns)
{
    size_t its = 0, free_count = 0, free_at = 0;
    auto_lock(&p->lock);
    for (size_t i = 0; i < THREADS; i++) {
        if (p->probing[i]) {
            its += strcmp(p->probing[i], ns) == 0;
        } else {
            free_count++;
            free_at = i;
        }
    }
    if (its >= NAMESPACE_THREADS_MAX || free_count <= (its ? THREADS / 2 : 0))
        return false;
    p->probing[free_at] = ns;
    return true;
}

static void release_thread(struct populate *p, const char *ns)
{
    auto_lock(&p->lock);
    for (size_t i = 0; i < THREADS; i++)
        if (p->probing[i] == ns) /* the same pointer: it belongs to one probe */
            p->probing[i] = NULL;
}

/* ---- probing ----------------------------------------------------------------------------------------------------- */

static void run_probe(struct populate *p, struct str source, const struct api_source *s)
{
    struct source_probe got = {0};
    got.failed = p->o.probe(p->o.ctx, s, &got.answer, &got.err) < 0;
    got.time_ns = clock_wall_ns();
    if (got.failed)
        log_err(LOG_DEBUG, "a source's store does not answer", &got.err, "source", s->meta.name, "namespace",
                s->meta.namespace, NULL);
    /* Jobs of its volumes can be retried at once, and their claims get events. */
    if (note(p, source, s, &got))
        kube_informer_each(p->o.volumes, p->o.volumes_by_source, source, populate_enqueue_volume, p);
    populate_enqueue(p, 's', source);
}

static int reconcile(void *ctx, struct str source, uint64_t *again_ns, struct err *err)
{
    struct populate *p = ctx;
    auto_api_source s = NULL;
    if (!kube_lease_is_held(p->o.lease))
        return 0; /* populate_lead() enqueues all of them again */
    auto_json object = kube_informer_get_by_key(p->sources, source);
    if (!object) {
        forget(p, source);
        return 0;
    }
    int r = api_source_read(object, &s, err);
    if (r < 0 || s->suspend)
        return r;
    *again_ns = wait_ns(p, source, s->meta.generation, clock_now_ns());
    if (*again_ns)
        return 0;
    if (!p->o.may_probe(p->o.ctx) || !take_thread(p, s->meta.namespace)) {
        *again_ns = BUSY_NS;
        return 0;
    }
    run_probe(p, source, s);
    release_thread(p, s->meta.namespace);
    *again_ns = wait_ns(p, source, s->meta.generation, clock_now_ns());
    return 0;
}

void source_probe_enqueue(struct populate *p, struct str source)
{
    if (p->probe_queue)
        (void)kube_queue_add(p->probe_queue, source);
}

int source_probes_open(struct populate *p, struct err *err)
{
    const struct kube_queue_options o = {.name = "probe", .threads = THREADS, .ctx = p, .reconcile = reconcile};
    return p->o.probe ? kube_queue_new(&o, &p->probe_queue, err) : 0;
}

void source_probes_close(struct populate *p)
{
    kube_queue_free(p->probe_queue);
    struct source_probe *x;
    map_foreach (&p->probes, x, node)
        probe_free(x);
    map_done(&p->probes);
}
