/* SPDX-License-Identifier: Apache-2.0 */
/* The populator: its watches, and the work queue that they feed. */
#include "populate/populate.h"
#include "api/source.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"
#include "util/names.h"

enum { THREADS = 4 };

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static void enqueue_all(struct populate *p);

static bool has_synced(const struct populate *p)
{
    const struct kube_informer *all[] = {p->claims, p->o.pvs,     p->classes, p->sources,
                                         p->jobs,   p->o.volumes, p->o.pools, p->o.nodes};
    for (size_t i = 0; i < countof(all); i++)
        if (!kube_informer_has_synced(all[i]))
            return false;
    return true;
}

/* Before every list is complete, an unknown object looks like a deleted one: nothing is decided until then. */
static int reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err)
{
    struct populate *p = ctx;
    struct str name = str_from(key, 2);
    if (!kube_lease_is_held(p->o.lease))
        return 0; /* populate_lead() enqueues all of them again */
    /* At the start this lasts for a second, with too many objects until a person deletes some. */
    if (!has_synced(p)) {
        *again_ns = atomic_load(&p->was_synced) ? RECHECK_NS : 100 * NS_PER_MS;
        return 0;
    }
    atomic_store(&p->was_synced, true);
    switch (key.ptr[0]) {
    case 'c':
        return claim_reconcile(p, name, again_ns, err);
    case 'v':
        return volume_reconcile(p, name, again_ns, err);
    case 'l':
        enqueue_all(p);
        return 0;
    default:
        return source_reconcile(p, name, again_ns, err);
    }
}

/* A lost race and the end of leadership are not failures: the retry reads the objects again. */
static void reconcile_failed(void *, struct str key, const struct err *err, unsigned attempt, uint64_t wait_ns)
{
    bool is_race = err->code == ERR_CHANGED || err->code == ERR_CANCELLED;
    auto_mem char *text = str_dup(key);
    log_err(is_race ? LOG_DEBUG : LOG_WARN, "an object could not be reconciled", err, "key", text, "attempt",
            log_u64(attempt), "retry_ms", log_u64(wait_ns / NS_PER_MS), NULL);
}

/* ---- watches ----------------------------------------------------------------------------------------------------- */

static void index_claim_uid(const json *claim, struct sbuf *ret)
{
    sbuf_add(ret, populate_claim_uid(claim));
}

static void index_claim_source(const json *claim, struct sbuf *ret)
{
    struct claim c;
    if (claim_read(claim, &c, ERR_IGNORED) == 0 && c.source.len)
        sbuf_addf(ret, "%.*s/%.*s", STR_FMT(c.source_namespace), STR_FMT(c.source));
}

static void index_claim_foreign(const json *claim, struct sbuf *ret)
{
    struct claim c;
    if (claim_read(claim, &c, ERR_IGNORED) == 0 && c.source.len && !str_eq(c.source_namespace, c.namespace))
        sbuf_add(ret, c.source_namespace);
}

static struct str pv_claim_of(const json *pv)
{
    struct str uid;
    return claim_target_uid(json_str_at(pv, "spec.claimRef.name"), &uid) ? uid : json_str_at(pv, "spec.claimRef.uid");
}

void populate_index_pv(const json *pv, struct sbuf *ret)
{
    sbuf_add(ret, pv_claim_of(pv));
}

static struct str job_annotation(const json *job, const char *name)
{
    return json_member_str(json_at(job, "metadata.annotations"), name);
}

static struct str job_label(const json *job, const char *name)
{
    return json_member_str(json_at(job, "metadata.labels"), name);
}

void populate_index_source(const json *volume, struct sbuf *ret)
{
    struct str name = json_str_at(volume, "spec.source.name");
    if (name.len)
        sbuf_addf(ret, "%.*s/%.*s", STR_FMT(json_str_at(volume, "spec.source.namespace")), STR_FMT(name));
}

static void claim_changed(void *ctx, struct str, const json *claim)
{
    populate_enqueue(ctx, 'c', populate_claim_uid(claim));
}

void populate_pv_changed(struct populate *p, const json *pv)
{
    struct str uid = pv_claim_of(pv);
    if (p && uid.len)
        populate_enqueue(p, 'c', uid);
    /* A retained volume that was given to another claim may have to be filled for it. */
    if (p && str_eq(json_str_at(pv, "spec.csi.driver"), STR(NAME_DRIVER)))
        populate_enqueue(p, 'v', json_str_at(pv, "metadata.name"));
}

void populate_node_changed(struct populate *p, struct str node)
{
    if (p)
        kube_informer_each(p->o.volumes, p->o.volumes_by_node, node, populate_enqueue_volume, p);
}

static void job_changed(void *ctx, struct str, const json *job)
{
    struct str order = job_annotation(job, JOB_ANNOTATION_ORDER), uid = job_label(job, JOB_LABEL_CLAIM);
    if (order.len)
        populate_enqueue(ctx, 'v', order);
    if (uid.len)
        populate_enqueue(ctx, 'c', uid);
}

static enum job_slot slot_of_label(const json *job)
{
    struct str label = job_label(job, JOB_LABEL);
    return str_eq(label, STR("export")) ? SLOT_EXPORT : str_eq(label, STR("hydrate")) ? SLOT_HYDRATE : SLOT_HOLD;
}

/* Running Jobs count before anything is decided, which is after the first complete lists; also in a replica that
 * does not lead. */
static void job_added(void *ctx, struct str key, const json *job)
{
    auto_mem char *order = str_dup(job_annotation(job, JOB_ANNOTATION_ORDER));
    auto_mem char *node = str_dup(job_annotation(job, JOB_ANNOTATION_NODE));
    struct str rest = job_annotation(job, JOB_ANNOTATION_CLAIM), ns = STR_NULL;
    (void)str_split(&rest, '/', &ns);
    auto_mem char *ns_text = str_dup(ns);
    (void)populate_take_job_place(ctx, slot_of_label(job),
                                  &(struct job_request){.volume = order, .node = node, .ns = ns_text}, true);
    job_changed(ctx, key, job);
}

static void job_deleted(void *ctx, struct str key, const json *job)
{
    populate_leave_job_place(ctx, slot_of_label(job), job_annotation(job, JOB_ANNOTATION_ORDER));
    job_changed(ctx, key, job);
}

static void source_changed(void *ctx, struct str key, const json *)
{
    struct populate *p = ctx;
    populate_enqueue(p, 's', key);
    source_probe_enqueue(p, key);
    kube_informer_each(p->claims, INDEX_SOURCE, key, populate_enqueue_claim, p); /* that wait for it */
}

void populate_volume_changed(struct populate *p, struct str name, const json *volume)
{
    if (!p)
        return;
    auto_sbuf source = SBUF(KEY_BYTES_MAX);
    populate_index_source(volume, &source);
    struct str uid = json_str_at(volume, "spec.claimRef.uid");
    populate_enqueue(p, 'v', name);
    if (uid.len)
        populate_enqueue(p, 'c', uid);
    if (source.len)
        populate_enqueue(p, 's', sbuf_str(&source));
}

static int enqueue_job(void *ctx, struct str key, const json *job)
{
    job_changed(ctx, key, job);
    return 0;
}

static int enqueue_volume(void *ctx, struct str key, const json *volume)
{
    populate_volume_changed(ctx, key, volume);
    return 0;
}

static int enqueue_source(void *ctx, struct str key, const json *)
{
    populate_enqueue(ctx, 's', key);
    source_probe_enqueue(ctx, key);
    return 0;
}

static void enqueue_all(struct populate *p)
{
    pthread_mutex_lock(&p->lock);
    for (size_t slot = 0; slot < JOB_SLOTS; slot++)
        job_limit_forget_waiting(&p->limits[slot]);
    pthread_mutex_unlock(&p->lock);
    kube_informer_each(p->claims, -1, STR_NULL, populate_enqueue_claim, p);
    kube_informer_each(p->jobs, -1, STR_NULL, enqueue_job, p);
    kube_informer_each(p->o.volumes, -1, STR_NULL, enqueue_volume, p);
    kube_informer_each(p->sources, -1, STR_NULL, enqueue_source, p);
}

static void watch_failed(void *, const struct err *err, uint64_t wait_ns)
{
    log_err(LOG_WARN, "a watch of the API server failed", err, "retry_ms", log_u64(wait_ns / NS_PER_MS), NULL);
}

/* There may be very many claims: unused fields are not kept. */
static void trim_claim(void *, json *claim)
{
    json_remove(claim, "status.conditions");
    json_remove(claim, "status.capacity");
    json_remove(claim, "status.accessModes");
    /* Only a claim that has neither may have lost a data source: api_claim_check(). */
    if (json_at(claim, "spec.dataSourceRef") || json_at(claim, "spec.volumeName"))
        json_remove(claim, "metadata.managedFields");
}

static void trim_job(void *, json *job)
{
    json_remove(job, "spec");
}

static void watch(struct populate *p)
{
    struct kube *k = p->o.kube;
    const struct kube_informer_options of_claims = {
        .resource = &kube_persistent_volume_claims,
        .indexes = {{.value = index_claim_uid}, {.value = index_claim_source}, {.value = index_claim_foreign}},
        .transform = trim_claim,
        .keep_managed_fields = true,
        .ctx = p,
        .on_added = claim_changed,
        .on_updated = claim_changed,
        .on_deleted = claim_changed,
        .on_error = watch_failed};
    p->claims = kube_informer_new(k, &of_claims);
    p->classes = kube_informer_new(
        k, &(struct kube_informer_options){.resource = &kube_storage_classes, .ctx = p, .on_error = watch_failed});
    p->sources = kube_informer_new(k, &(struct kube_informer_options){.resource = &api_sources,
                                                                      .ctx = p,
                                                                      .on_added = source_changed,
                                                                      .on_updated = source_changed,
                                                                      .on_deleted = source_changed,
                                                                      .on_error = watch_failed});
    p->jobs =
        kube_informer_new(k, &(struct kube_informer_options){.resource = &kube_jobs,
                                                             .ns = str_of(p->o.job.ns),
                                                             .label_selector = JOB_LABEL,
                                                             .indexes = {{"metadata.annotations", JOB_ANNOTATION_ORDER},
                                                                         {"metadata.labels", JOB_LABEL_CLAIM}},
                                                             .transform = trim_job,
                                                             .ctx = p,
                                                             .on_added = job_added,
                                                             .on_updated = job_changed,
                                                             .on_deleted = job_deleted,
                                                             .on_error = watch_failed});
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

int populate_new(const struct populate_options *o, struct populate **ret, struct err *err)
{
    struct populate *p = xcalloc(1, sizeof *p);
    p->o = *o;
    p->limits[SLOT_HYDRATE] = (struct job_limit){.max_per_node = o->hydrations_a_node_max};
    p->limits[SLOT_EXPORT] = (struct job_limit){.max = o->exports_max, .max_per_node = o->exports_a_node_max};
    pthread_mutex_init(&p->lock, NULL);
    claim_events_open(p);
    p->seconds = metric_new(METRIC_HISTOGRAM, "volume_populator_operation_seconds",
                            "Time from the creation of a prime claim to the end of its operation.", "result",
                            metric_buckets_job);
    p->in_flight = metric_series(metric_new(METRIC_GAUGE, "volume_populator_operations_in_flight",
                                            "Claims that are being filled or cleaned up.", "", NULL));
    p->failing = metric_new(
        METRIC_GAUGE, "cistern_claim_failing",
        "1 while the volume of the claim fails: HydrationFailed, CredentialsRefused, ExportFailed or ExportStalled.",
        "namespace,claim,reason", NULL);
    struct kube_queue_options q = {
        .name = "populate", .threads = THREADS, .ctx = p, .reconcile = reconcile, .on_failure = reconcile_failed};
    int r = kube_queue_new(&q, &p->queue, err);
    if (r == 0)
        r = source_probes_open(p, err);
    if (r < 0) {
        populate_free(p);
        return r;
    }
    watch(p);
    grants_open(p);
    foreign_events_open(p);
    *ret = p;
    return 0;
}

void populate_stop(struct populate *p)
{
    kube_queue_stop(p->probe_queue);
    kube_queue_stop(p->queue);
}

void populate_free(struct populate *p)
{
    if (!p)
        return;
    source_probes_close(p); /* before the queue that its results are added to */
    kube_queue_free(p->queue);
    kube_informer_free(p->claims);
    kube_informer_free(p->classes);
    kube_informer_free(p->sources);
    kube_informer_free(p->jobs);
    kube_informer_free(p->grants);
    kube_informer_free(p->prime_events);
    kube_informer_free(p->job_events);
    kube_informer_free(p->job_pods);
    key_states_done(p);
    claim_events_done(p);
    for (size_t slot = 0; slot < JOB_SLOTS; slot++)
        job_limit_done(&p->limits[slot]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* On a thread of the queue: a walk over very many objects on the loop would take longer than the lease lasts. */
void populate_lead(struct populate *p)
{
    populate_enqueue(p, 'l', STR("all"));
}
