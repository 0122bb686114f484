/* SPDX-License-Identifier: Apache-2.0 */
/* The populator's parts: what it watches, its queue, and what it remembers. */
#include "populate/populate.h"
#include "api/source.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"
#include "util/names.h"
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, NAME_MAX_BYTES = 512 };

/* ---- what is remembered ------------------------------------------------------------------------------------------ */

static struct memo **memo_place(struct populate *p, const char *key)
{
    struct memo **at = &p->memos[str_hash(str_of(key), 0) % MEMO_SLOTS];
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

static void make_key(char what, struct str name, char ret[NAME_MAX_BYTES])
{
    snprintf(ret, NAME_MAX_BYTES, "%c/%.*s", what, STR_FMT(name));
}

struct memo *memo_of(struct populate *p, char what, struct str name)
{
    char key[NAME_MAX_BYTES];
    make_key(what, name, key);
    pthread_mutex_lock(&p->lock);
    struct memo **at = memo_place(p, key), *m = *at;
    if (!m && p->memo_count < MEMOS_MAX) {
        m = *at = xcalloc(1, sizeof *m);
        m->key = str_dup(str_of(key));
        p->memo_count++;
    }
    pthread_mutex_unlock(&p->lock);
    return m;
}

struct memo *memo_find(struct populate *p, char what, struct str name)
{
    char key[NAME_MAX_BYTES];
    make_key(what, name, key);
    pthread_mutex_lock(&p->lock);
    struct memo *m = *memo_place(p, key);
    pthread_mutex_unlock(&p->lock);
    return m;
}

void memo_forget(struct populate *p, char what, struct str name)
{
    char key[NAME_MAX_BYTES];
    make_key(what, name, key);
    pthread_mutex_lock(&p->lock);
    struct memo **at = memo_place(p, key), *m = *at;
    if (m) {
        *at = m->next;
        p->memo_count--;
    }
    pthread_mutex_unlock(&p->lock);
    if (m)
        free(m->key);
    free(m);
}

void operation_changed(struct populate *p, struct memo *m, int64_t began_ns, const char *result)
{
    int64_t now_ns = clock_wall_ns();
    bool begins = result == NULL;
    if (!m || begins == (m->began_ns != 0))
        return;
    if (!begins)
        metric_observe(metric_series(p->seconds, result),
                       now_ns > m->began_ns ? (double)(now_ns - m->began_ns) / (double)NS_PER_SECOND : 0);
    m->began_ns = begins ? (began_ns ? began_ns : now_ns) : 0;
    pthread_mutex_lock(&p->lock);
    p->in_flight_count += begins ? 1 : (size_t)-1;
    metric_set(p->in_flight, (int64_t)p->in_flight_count);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

void look_at(struct populate *p, char what, struct str name)
{
    look_at_later(p, what, name, 0);
}

void look_at_later(struct populate *p, char what, struct str name, uint64_t delay_ns)
{
    char key[NAME_MAX_BYTES];
    make_key(what, name, key);
    bool taken =
        delay_ns ? kube_queue_add_after(p->queue, str_of(key), delay_ns) : kube_queue_add(p->queue, str_of(key));
    if (name.len && !taken)
        log_event(LOG_WARN, "too much to look at: it waits for the next round", "key", key, NULL);
}

int look_at_volume(void *p, struct str name, const json *volume)
{
    (void)volume;
    look_at(p, 'v', name);
    return 0;
}

static void lead(struct populate *p);

static bool has_synced(const struct populate *p)
{
    const struct kube_informer *all[] = {p->claims, p->o.pvs,     p->classes, p->sources,
                                         p->jobs,   p->o.volumes, p->o.pools, p->o.nodes};
    for (size_t i = 0; i < countof(all); i++)
        if (!kube_informer_has_synced(all[i]))
            return false;
    return true;
}

/* What we do not know looks like what is gone: nothing is decided before every list was seen whole. */
static int look(struct populate *p, struct str key, uint64_t *again_ns, struct err *err)
{
    struct str name = str_from(key, 2);
    if (p->o.lease && !kube_lease_is_held(p->o.lease))
        return 0; /* populate_lead() brings all of them back */
    if (!has_synced(p)) {
        *again_ns = 100 * NS_PER_MS;
        return 0;
    }
    switch (key.ptr[0]) {
    case 'c':
        return claim_reconcile(p, name, again_ns, err);
    case 'v':
        return volume_reconcile(p, name, again_ns, err);
    case 'l':
        lead(p);
        return 0;
    default:
        return source_reconcile(p, name, again_ns, err);
    }
}

bool export_turn_take(struct populate *p, const char *volume, const char *node, bool runs)
{
    pthread_mutex_lock(&p->lock);
    bool may = turns_take(&p->exports, volume, node, runs);
    pthread_mutex_unlock(&p->lock);
    return may;
}

void export_turn_leave(struct populate *p, struct str volume)
{
    auto_mem char *gone = str_dup(volume);
    pthread_mutex_lock(&p->lock);
    turns_leave(&p->exports, gone);
    const char *next = turns_next(&p->exports);
    auto_mem char *name = next ? str_dup(str_of(next)) : NULL;
    pthread_mutex_unlock(&p->lock);
    if (name)
        look_at(p, 'v', str_of(name));
}

bool work_begin(struct populate *p)
{
    pthread_mutex_lock(&p->lock);
    bool begins = !p->stopping;
    p->busy += begins;
    pthread_mutex_unlock(&p->lock);
    return begins;
}

void work_end(struct populate *p)
{
    pthread_mutex_lock(&p->lock);
    if (--p->busy == 0)
        pthread_cond_broadcast(&p->idle);
    pthread_mutex_unlock(&p->lock);
}

static int reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err)
{
    struct populate *p = ctx;
    if (!work_begin(p))
        return 0;
    int r = look(p, key, again_ns, err);
    work_end(p);
    return r;
}

/* Somebody was faster, or we lead no more: the objects as they are now say what follows. */
static void failed(void *ctx, struct str key, const struct err *err, unsigned attempt, uint64_t wait_ns)
{
    (void)ctx;
    bool is_race = err->code == ERR_CHANGED || err->code == ERR_CANCELLED;
    auto_mem char *text = str_dup(key);
    log_err(is_race ? LOG_DEBUG : LOG_WARN, "a look at an object failed", err, "key", text, "attempt", log_u64(attempt),
            "retry_ms", log_u64(wait_ns / NS_PER_MS), NULL);
}

/* ---- what is watched --------------------------------------------------------------------------------------------- */

static struct str text_at(const json *j, const char *path)
{
    struct str text = STR_NULL;
    const json *value = json_at(j, path);
    return value && json_as_str(value, &text) ? text : STR_NULL;
}

/* Target and prime are found under one uid. What only looks like a prime is told apart by its namespace, later. */
static struct str claim_uid_of(const json *claim)
{
    struct str uid;
    bool is_prime = claim_target_uid(text_at(claim, "metadata.name"), &uid) &&
                    json_member(json_at(claim, "metadata.annotations"), NAME_PRIME_TARGET);
    return is_prime ? uid : text_at(claim, "metadata.uid");
}

static void index_claim_uid(const json *claim, struct sbuf *ret)
{
    sbuf_add(ret, claim_uid_of(claim));
}

static void index_claim_source(const json *claim, struct sbuf *ret)
{
    struct claim c;
    struct err ignored;
    if (claim_read(claim, &c, &ignored) == 0 && c.source.len)
        sbuf_addf(ret, "%.*s/%.*s", STR_FMT(c.source_namespace), STR_FMT(c.source));
}

static struct str pv_claim_of(const json *pv)
{
    struct str uid;
    return claim_target_uid(text_at(pv, "spec.claimRef.name"), &uid) ? uid : text_at(pv, "spec.claimRef.uid");
}

void populate_index_pv(const json *pv, struct sbuf *ret)
{
    sbuf_add(ret, pv_claim_of(pv));
}

static struct str job_order_of(const json *job)
{
    return json_member_str(json_at(job, "metadata.annotations"), JOB_ANNOTATION_ORDER);
}

static struct str job_claim_of(const json *job)
{
    return json_member_str(json_at(job, "metadata.labels"), JOB_LABEL_CLAIM);
}

static void index_job_order(const json *job, struct sbuf *ret)
{
    sbuf_add(ret, job_order_of(job));
}

static void index_job_claim(const json *job, struct sbuf *ret)
{
    sbuf_add(ret, job_claim_of(job));
}

void populate_index_claim(const json *volume, struct sbuf *ret)
{
    sbuf_add(ret, text_at(volume, "spec.claimRef.uid"));
}

void populate_index_source(const json *volume, struct sbuf *ret)
{
    struct str name = text_at(volume, "spec.source.name");
    if (name.len)
        sbuf_addf(ret, "%.*s/%.*s", STR_FMT(text_at(volume, "spec.source.namespace")), STR_FMT(name));
}

static void claim_changed(void *ctx, struct str key, const json *claim)
{
    (void)key;
    look_at(ctx, 'c', claim_uid_of(claim));
}

void populate_pv_changed(struct populate *p, const json *pv)
{
    struct str uid = pv_claim_of(pv);
    if (p && uid.len)
        look_at(p, 'c', uid);
    /* Retained, and given to another claim: its volume may have to be filled for that one. */
    if (p && str_eq(text_at(pv, "spec.csi.driver"), STR(NAME_DRIVER)))
        look_at(p, 'v', text_at(pv, "metadata.name"));
}

static void job_changed(void *ctx, struct str key, const json *job)
{
    (void)key;
    struct str order = job_order_of(job), uid = job_claim_of(job);
    if (order.len)
        look_at(ctx, 'v', order);
    if (uid.len)
        look_at(ctx, 'c', uid);
}

static bool is_export(const json *job)
{
    return str_eq(json_member_str(json_at(job, "metadata.labels"), JOB_LABEL), STR("export"));
}

/* Exports that run have their turns, also of a replica that does not lead, before anything is decided: nothing is until
 * every list was seen whole. */
static void job_added(void *ctx, struct str key, const json *job)
{
    auto_mem char *order = str_dup(job_order_of(job));
    auto_mem char *node = str_dup(json_member_str(json_at(job, "metadata.annotations"), JOB_ANNOTATION_NODE));
    if (is_export(job))
        (void)export_turn_take(ctx, order, node, true);
    job_changed(ctx, key, job);
}

static void job_gone(void *ctx, struct str key, const json *job)
{
    if (is_export(job))
        export_turn_leave(ctx, job_order_of(job));
    job_changed(ctx, key, job);
}

static int look_at_claim(void *ctx, struct str key, const json *claim)
{
    (void)key;
    look_at(ctx, 'c', claim_uid_of(claim));
    return 0;
}

static void source_changed(void *ctx, struct str key, const json *source)
{
    struct populate *p = ctx;
    (void)source;
    look_at(p, 's', key);
    probe_soon(p, key);
    kube_informer_each(p->claims, INDEX_SOURCE, key, look_at_claim, p); /* those that waited for it */
}

void populate_volume_changed(struct populate *p, struct str name, const json *volume)
{
    if (!p)
        return;
    auto_sbuf source;
    sbuf_init(&source, NAME_MAX_BYTES);
    populate_index_source(volume, &source);
    struct str uid = text_at(volume, "spec.claimRef.uid");
    look_at(p, 'v', name);
    if (uid.len)
        look_at(p, 'c', uid);
    if (source.len)
        look_at(p, 's', sbuf_str(&source));
}

static int lead_claim(void *ctx, struct str key, const json *claim)
{
    claim_changed(ctx, key, claim);
    return 0;
}

static int lead_job(void *ctx, struct str key, const json *job)
{
    job_changed(ctx, key, job);
    return 0;
}

static int lead_volume(void *ctx, struct str key, const json *volume)
{
    populate_volume_changed(ctx, key, volume);
    return 0;
}

static int lead_source(void *ctx, struct str key, const json *source)
{
    (void)source;
    look_at(ctx, 's', key);
    probe_soon(ctx, key);
    return 0;
}

/* Everything is looked at. */
static void lead(struct populate *p)
{
    pthread_mutex_lock(&p->lock);
    turns_forget_waiting(&p->exports);
    pthread_mutex_unlock(&p->lock);
    kube_informer_each(p->claims, -1, STR_NULL, lead_claim, p);
    kube_informer_each(p->jobs, -1, STR_NULL, lead_job, p);
    kube_informer_each(p->o.volumes, -1, STR_NULL, lead_volume, p);
    kube_informer_each(p->sources, -1, STR_NULL, lead_source, p);
}

static void trouble(void *ctx, const struct err *err, uint64_t wait_ns)
{
    (void)ctx;
    log_err(LOG_WARN, "a watch of the API server failed", err, "retry_ms", log_u64(wait_ns / NS_PER_MS), NULL);
}

/* What nobody looks at is most of a claim, and there may be very many. */
static void keep_of_claim(void *ctx, json *claim)
{
    (void)ctx;
    json_remove(claim, "status.conditions");
    json_remove(claim, "status.capacity");
    json_remove(claim, "status.accessModes");
}

static void keep_of_job(void *ctx, json *job)
{
    (void)ctx;
    json_remove(job, "spec");
}

static void watch(struct populate *p)
{
    struct kube *k = p->o.kube;
    p->claims =
        kube_informer_new(k, &(struct kube_informer_options){.resource = &kube_persistent_volume_claims,
                                                             .indexes = {{index_claim_uid}, {index_claim_source}},
                                                             .transform = keep_of_claim,
                                                             .ctx = p,
                                                             .on_added = claim_changed,
                                                             .on_updated = claim_changed,
                                                             .on_deleted = claim_changed,
                                                             .on_trouble = trouble});
    p->classes = kube_informer_new(
        k, &(struct kube_informer_options){.resource = &kube_storage_classes, .ctx = p, .on_trouble = trouble});
    p->sources = kube_informer_new(k, &(struct kube_informer_options){.resource = &api_sources,
                                                                      .ctx = p,
                                                                      .on_added = source_changed,
                                                                      .on_updated = source_changed,
                                                                      .on_deleted = source_changed,
                                                                      .on_trouble = trouble});
    p->jobs = kube_informer_new(k, &(struct kube_informer_options){.resource = &kube_jobs,
                                                                   .ns = str_of(p->o.job.ns),
                                                                   .label_selector = JOB_LABEL,
                                                                   .indexes = {{index_job_order}, {index_job_claim}},
                                                                   .transform = keep_of_job,
                                                                   .ctx = p,
                                                                   .on_added = job_added,
                                                                   .on_updated = job_changed,
                                                                   .on_deleted = job_gone,
                                                                   .on_trouble = trouble});
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

int populate_new(const struct populate_options *o, struct populate **ret, struct err *err)
{
    struct populate *p = xcalloc(1, sizeof *p);
    p->o = *o;
    p->exports = (struct turns){.most = o->exports_max, .most_a_node = o->exports_a_node_max};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->seconds = metric_new(METRIC_HISTOGRAM, "volume_populator_operation_seconds",
                            "From a prime claim's making to the end of its operation.", "result", metric_buckets_job);
    p->in_flight = metric_series(metric_new(METRIC_GAUGE, "volume_populator_operations_in_flight",
                                            "Claims that are being populated or cleaned up.", "", NULL));
    struct kube_queue_options q = {
        .name = "populate", .threads = THREADS, .ctx = p, .reconcile = reconcile, .on_failure = failed};
    int r = kube_queue_new(&q, &p->queue, err);
    if (r == 0)
        r = probes_open(p, err);
    if (r < 0) {
        populate_free(p);
        return r;
    }
    watch(p);
    *ret = p;
    return 0;
}

void populate_stop(struct populate *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    while (p->busy > 0)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void populate_free(struct populate *p)
{
    if (!p)
        return;
    probes_close(p); /* looks at sources by the other queue */
    kube_queue_free(p->queue);
    kube_informer_free(p->claims);
    kube_informer_free(p->classes);
    kube_informer_free(p->sources);
    kube_informer_free(p->jobs);
    for (size_t i = 0; i < MEMO_SLOTS; i++)
        for (struct memo *m = p->memos[i], *next; m; m = next) {
            next = m->next;
            free(m->key);
            free(m);
        }
    turns_done(&p->exports);
    pthread_cond_destroy(&p->idle);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Not a walk here, on the loop: with very many objects it takes so long that the lease would run out meanwhile. */
void populate_lead(struct populate *p)
{
    look_at(p, 'l', STR("all"));
}
