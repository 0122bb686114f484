/* SPDX-License-Identifier: Apache-2.0 */
/* Reconciles a CisternVolume: starts and deletes its Jobs, and sends events about it. */
#include "api/pool.h"
#include "api/source.h"
#include "api/volume.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"
#include "util/names.h"
#include <stdio.h>

enum { PATH_BYTES_MAX = 4096 };
#define DAY_NS (24 * 3600 * NS_PER_SECOND)

/* All objects of one volume. */
struct volume_view {
    struct populate *p;
    struct str name;
    struct api_volume *volume; /* owned; NULL: gone */
    json *job_json[JOB_SLOTS]; /* owned; NULL: none */
    struct volume_job job[JOB_SLOTS];
    bool cancelled;    /* no claim needs its data any more */
    json *source_json; /* owned: its BucketSource; NULL: none, or deleted */
    enum claim_node node;
    struct key_state *state;
    struct err *err;
};

static void volume_view_done(struct volume_view *v)
{
    api_volume_free(v->volume);
    json_free(v->source_json);
    for (size_t i = 0; i < JOB_SLOTS; i++)
        json_free(v->job_json[i]);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int job_seen(void *ctx, struct str, const json *object)
{
    struct volume_view *v = ctx;
    struct volume_job job;
    int r = job_read(object, &job, v->err);
    if (r < 0)
        return r;
    size_t slot = job.kind == JOB_HYDRATE ? SLOT_HYDRATE : job.kind == JOB_HOLD ? SLOT_HOLD : SLOT_EXPORT;
    if (!v->job_json[slot])
        v->job_json[slot] = json_copy_of(object);
    return 0;
}

static int read_jobs(struct volume_view *v)
{
    int r = kube_informer_each(v->p->jobs, INDEX_ORDER, v->name, job_seen, v);
    for (size_t i = 0; i < JOB_SLOTS && r == 0; i++)
        if (v->job_json[i])
            r = job_read(v->job_json[i], &v->job[i], v->err);
    return r;
}

/* A retained PersistentVolume may have been given to another claim. */
static bool has_another_owner(struct volume_view *v)
{
    struct claim_pv pv;
    auto_json object = kube_informer_get(v->p->o.pvs, STR_NULL, v->name);
    return object && claim_pv_read(object, &pv, ERR_IGNORED) == 0 && pv.claim_uid.len &&
           !str_eq(pv.claim_uid, str_of(v->volume->claim_uid)) && !str_eq(pv.claim_namespace, str_of(v->p->o.job.ns));
}

/* Before the handover a volume is filled only while target and prime exist. Afterwards it is filled until its release,
 * even if the claim is being deleted: a pod may still wait for it. */
static int read_claim(struct volume_view *v)
{
    const struct api_volume *volume = v->volume;
    auto_with(claim_pair_done) struct claim_pair pair = {0};
    auto_with(claim_pvs_done) struct claim_pvs pvs = {0};
    if (!volume->claim_uid)
        return 0;
    struct str uid = str_of(volume->claim_uid);
    int r = claim_pair_read(v->p, uid, &pair, v->err);
    if (r == 0)
        r = claim_pvs_read(v->p, uid, &pair.prime, &pvs, v->err);
    if (r < 0)
        return r;
    bool handed_over = pvs.pv_json && str_eq(pvs.pv.claim_uid, uid) && str_eq(pvs.pv.name, v->name);
    bool is_populated = pair.target_json && pair.target.source.len > 0;
    if (!pair.target_json)
        v->cancelled = !has_another_owner(v);
    else if (!handed_over && is_populated)
        v->cancelled =
            pair.target.deleting || !pair.prime_json || pair.prime.deleting || !str_ends(v->name, pair.prime.uid);
    return 0;
}

static bool is_suspended(const struct volume_view *v)
{
    return v->source_json && json_bool_at(v->source_json, "spec.suspend");
}

static int read_volume(struct volume_view *v)
{
    int r = read_jobs(v);
    if (r < 0)
        return r;
    auto_json object = kube_informer_get(v->p->o.volumes, STR_NULL, v->name);
    if (!object)
        return 0;
    r = api_volume_read(object, &v->volume, v->err);
    if (r == 0)
        r = read_claim(v);
    if (r < 0)
        return r;
    const struct api_volume *volume = v->volume;
    if (volume->source_namespace && volume->source_name)
        v->source_json =
            kube_informer_get(v->p->sources, str_of(volume->source_namespace), str_of(volume->source_name));
    v->node = node_state(v->p, str_of(v->volume->node));
    return 0;
}

/* ---- permitted work ---------------------------------------------------------------------------------------------- */

static bool is_true(const struct volume_view *v, const char *type)
{
    return api_condition_is(&v->volume->status.conditions, type, API_TRUE);
}

static bool may_work(const struct volume_view *v)
{
    return v->volume && is_true(v, API_PROVISIONED) && v->node != CLAIM_NODE_GONE && !is_suspended(v) &&
           v->volume->meta.deleted_ns == 0;
}

static bool wants_hydration(const struct volume_view *v)
{
    if (!may_work(v) || v->cancelled || v->volume->release_requested || !v->volume->source)
        return false;
    bool is_none = api_volume_choice(v->volume, "hydration") == HYDRATION_NONE;
    unsigned phase = v->volume->status.phase;
    return !is_none && !is_true(v, API_HYDRATED) && phase != API_PHASE_LOST && phase != API_PHASE_RELEASED;
}

/* The node's status decides: nothing is staged, and an export is pending. */
static bool wants_export(const struct volume_view *v)
{
    if (!v->volume || is_true(v, API_MOUNTED) || v->volume->release_discard)
        return false;
    unsigned phase = v->volume->status.phase;
    bool owed = phase == API_PHASE_EXPORTING || phase == API_PHASE_EXPORT_FAILED;
    return owed && is_true(v, API_PROVISIONED) && v->node != CLAIM_NODE_GONE && !is_suspended(v);
}

/* ---- limits of blocking a drain ---------------------------------------------------------------------------------- */

/* Without it, a tenant's server that answers slowly enough would hold a node without limit. */
static bool outlasts_a_day(const struct volume_view *v)
{
    auto_spec spec = NULL;
    if (api_volume_spec(v->volume, &spec, ERR_IGNORED) < 0)
        return true;
    return !spec->export.deadline_ns || spec->export.deadline_ns > DAY_NS;
}

/* Does the export fail? By the node's status, or because the export is due and is suspended, or may take more than a
 * day. */
static bool is_failing(const struct volume_view *v)
{
    const struct api_condition *c = api_condition_find(&v->volume->status.conditions, API_EXPORTED);
    if (!c || c->status != API_FALSE || is_true(v, API_MOUNTED))
        return false;
    return v->volume->status.phase == API_PHASE_EXPORT_FAILED || strcmp(c->reason, API_REASON_EXPORT_STALLED) == 0 ||
           (v->volume->status.phase == API_PHASE_EXPORTING && (is_suspended(v) || outlasts_a_day(v)));
}

struct earlier {
    const struct api_volume *own;
    uint64_t count;
};

static int count_earlier(void *ctx, struct str name, const json *object)
{
    struct earlier *e = ctx;
    struct str since = json_member_str(json_at(object, "metadata.annotations"), NAME_ANNOTATION_EXPORT_FAILING_SINCE);
    struct str ns = json_str_at(object, "spec.claimRef.namespace");
    int64_t since_ns;
    if (since.len == 0 || !str_eq(ns, str_of(e->own->claim_namespace)) || time_parse(since, &since_ns, ERR_IGNORED) < 0)
        return 0;
    e->count += since_ns < e->own->failing_ns ||
                (since_ns == e->own->failing_ns && str_cmp(name, str_of(e->own->meta.name)) < 0);
    return 0;
}

/* By default a failing export blocks a drain without limit; an administrator can set limits. */
static bool lets_drain(const struct volume_view *v)
{
    const struct populate_options *o = &v->p->o;
    if (!v->volume)
        return false;
    if (drain_users_stay(v->p, v->volume))
        return true;
    if (!v->volume->failing_ns)
        return false;
    if (o->drain_failing_ns && clock_wall_ns() - v->volume->failing_ns >= (int64_t)o->drain_failing_ns)
        return true;
    if (!o->drain_volumes_max)
        return false;
    struct earlier e = {.own = v->volume};
    (void)kube_informer_each(o->volumes, -1, STR_NULL, count_earlier, &e);
    return e.count >= o->drain_volumes_max;
}

/* As long as a pod may write, or an export is owed, files may be nowhere but on this node. */
static bool wants_hold(const struct volume_view *v)
{
    if (lets_drain(v) || !v->volume || v->volume->release_discard || v->node == CLAIM_NODE_GONE ||
        !is_true(v, API_PROVISIONED))
        return false;
    return api_condition_is(&v->volume->status.conditions, API_EXPORTED, API_FALSE) &&
           v->volume->status.phase != API_PHASE_LOST && v->volume->status.phase != API_PHASE_RELEASED;
}

static uint64_t recovered_ns(const struct volume_view *v)
{
    char source[512];
    if (!v->volume || !v->volume->source_name)
        return 0;
    snprintf(source, sizeof source, "%s/%s", v->volume->source_namespace, v->volume->source_name);
    return source_recovered_ns(v->p, str_of(source));
}

static uint64_t ended_for_ns(const struct volume_view *v, size_t slot)
{
    uint64_t now_ns = clock_now_ns();
    if (!v->state)
        return UINT64_MAX; /* without a state the wait would never end */
    uint64_t *seen_ns = &v->state->ended_ns[slot];
    if (!v->job_json[slot] || v->job[slot].end != JOB_ENDED)
        *seen_ns = 0;
    else if (!*seen_ns)
        *seen_ns = now_ns;
    return *seen_ns ? now_ns - *seen_ns : 0;
}

/* After the store recovered, the next try is made at once. */
static uint64_t retry_left_ns(const struct volume_view *v, size_t slot)
{
    const struct key_state *m = v->state;
    uint64_t now_ns = clock_now_ns();
    if (!m || m->failed_ns[slot] < recovered_ns(v) || m->retry_ns[slot] <= now_ns)
        return 0;
    return m->retry_ns[slot] - now_ns;
}

static struct job_facts facts_of(const struct volume_view *v, size_t slot)
{
    bool is_release = v->volume && v->volume->release_requested;
    struct job_facts f = {.job = v->job_json[slot] ? &v->job[slot] : NULL,
                          .ended_for_ns = ended_for_ns(v, slot),
                          .retry_left_ns = retry_left_ns(v, slot)};
    if (slot == SLOT_HYDRATE) {
        f.kind = JOB_HYDRATE;
        f.wanted = wants_hydration(v);
    } else if (slot == SLOT_HOLD) {
        f.kind = JOB_HOLD;
        f.wanted = wants_hold(v);
    } else {
        f.kind = is_release ? JOB_EXPORT_RELEASE : JOB_EXPORT_UNPUBLISH;
        f.wanted = wants_export(v);
        f.lets_drain = lets_drain(v);
    }
    return f;
}

/* ---- acting ------------------------------------------------------------------------------------------------------ */

/* <pool>/volumes/<id>, on the node. */
static int find_directory(struct volume_view *v, char ret[PATH_BYTES_MAX])
{
    char name[API_POOL_NAME_MAX + 1];
    auto_api_pool pool = NULL;
    int r = api_pool_name(v->volume->node, v->volume->pool, name, v->err);
    if (r < 0)
        return r;
    auto_json object = kube_informer_get(v->p->o.pools, STR_NULL, str_of(name));
    if (!object)
        return err_set(v->err, ERR_NOT_FOUND, "CisternPool '%s' does not exist", name);
    r = api_pool_read(object, &pool, v->err);
    if (r < 0)
        return r;
    if (!pool->path)
        return err_set(v->err, ERR_AGAIN, "pool '%s' has not reported its path yet", name);
    if (snprintf(ret, PATH_BYTES_MAX, "%s/volumes/%s", pool->path, v->volume->id.text) >= PATH_BYTES_MAX)
        return err_set(v->err, ERR_INVALID, "the path of pool '%s' is too long", name);
    return 0;
}

static int create_job(struct volume_view *v, enum job_kind kind)
{
    char directory[PATH_BYTES_MAX], claim[1024];
    const struct api_volume *volume = v->volume;
    int r = find_directory(v, directory);
    if (r < 0)
        return r;
    bool has_claim = volume->claim_namespace && volume->claim_name;
    if (has_claim)
        snprintf(claim, sizeof claim, "%s/%s", volume->claim_namespace, volume->claim_name);
    struct job_volume about = {.id = volume->id.text,
                               .order = volume->meta.name,
                               .claim = has_claim ? claim : NULL,
                               .claim_uid = volume->claim_uid,
                               .node = volume->node,
                               .directory = directory,
                               .lets_drain = kind != JOB_HYDRATE && lets_drain(v)};
    struct kube_request q = {.verb = KUBE_CREATE, .resource = &kube_jobs, .ns = str_of(v->p->o.job.ns)};
    r = populate_send(v->p, q, job_json(&v->p->o.job, &about, kind), v->err);
    if (r < 0 && r != -ERR_EXISTS) {
        volume_event_send_refusal(v->p, v->state, volume, v->err);
        return err_wrap(v->err, "job '%s-%s'", job_kind_verb(kind), volume->id.text);
    }
    log_event(LOG_INFO, "Job created", "job", job_kind_verb(kind), "volume", volume->id.text, "node", volume->node,
              NULL);
    return 0;
}

/* Foreground deletion: after the Job is deleted no pod of it writes. */
static int delete_job(struct volume_view *v, size_t slot)
{
    const struct volume_job *job = &v->job[slot];
    struct kube_request q = {.verb = KUBE_DELETE,
                             .resource = &kube_jobs,
                             .ns = str_of(v->p->o.job.ns),
                             .name = job->name,
                             .uid = job->uid,
                             .propagation = KUBE_FOREGROUND};
    int r = populate_send(v->p, q, NULL, v->err);
    return r == -ERR_NOT_FOUND || r == -ERR_CHANGED ? 0 : r;
}

/* After a try that made progress, the next one comes soon. */
static void note_failure(struct volume_view *v, size_t slot, enum job_kind kind)
{
    struct key_state *m = v->state;
    if (!m || !v->volume)
        return;
    const struct api_volume_status *s = &v->volume->status;
    uint64_t done = slot == SLOT_HYDRATE ? s->hydration.bytes_done : s->export.done_bytes;
    m->failures[slot] = done > m->bytes_before[slot] ? 0 : m->failures[slot] + 1;
    m->bytes_before[slot] = done;
    m->failed_ns[slot] = clock_now_ns();
    m->retry_ns[slot] = m->failed_ns[slot] + job_wait_ns(kind, m->failures[slot]);
    log_event(LOG_WARN, "job failed", "job", job_kind_verb(kind), "volume", v->volume->id.text, "failures",
              log_u64(m->failures[slot]), "retry_ms", log_u64(job_wait_ns(kind, m->failures[slot]) / NS_PER_MS), NULL);
}

/* A volume that waits for its next try uses no place of the limit. */
static bool may_run(struct volume_view *v, enum job_slot slot, const struct job_facts *f, const struct job_step *step)
{
    if (v->volume && (f->job || step->action == JOB_CREATE))
        return populate_take_job_place(
            v->p, slot,
            &(struct job_request){.volume = v->volume->meta.name,
                                  .node = v->volume->node,
                                  .ns = v->volume->claim_namespace ? v->volume->claim_namespace : ""},
            f->job != NULL);
    populate_leave_job_place(v->p, slot, v->name);
    return true;
}

/* Keeps the earlier of the two times; 0: none. */
static void recheck_within(uint64_t *again_ns, uint64_t ns)
{
    if (ns && (!*again_ns || ns < *again_ns))
        *again_ns = ns;
}

static int serve(struct volume_view *v, size_t slot, uint64_t *again_ns)
{
    struct job_facts f = facts_of(v, slot);
    struct job_step step = job_next(&f);
    if (!may_run(v, (enum job_slot)slot, &f, &step)) {
        step.action = JOB_LEAVE;
        if (slot == SLOT_HYDRATE)
            volume_event_send_queued(v->p, v->state, v->volume);
    }
    recheck_within(again_ns, f.wanted || f.job ? RECHECK_NS : 0);
    recheck_within(again_ns, step.again_ns);
    if (v->state && !f.wanted)
        v->state->failures[slot] = 0;
    switch (step.action) {
    case JOB_CREATE: {
        int r = create_job(v, f.kind);
        if (r < 0) /* until the next try, the place is another volume's */
            populate_leave_job_place(v->p, (enum job_slot)slot, v->name);
        return r;
    }
    case JOB_DELETE: {
        int r = delete_job(v, slot);
        if (r == 0 && step.failed)
            note_failure(v, slot, f.kind);
        return r;
    }
    case JOB_LEAVE:
        break;
    }
    return 0;
}

/* A failure of one Job does not delay the others. */
static int serve_all(struct volume_view *v, uint64_t *again_ns)
{
    struct err *first = v->err, other;
    int r = 0;
    for (size_t slot = 0; slot < JOB_SLOTS; slot++) {
        v->err = r < 0 ? &other : first;
        int one = serve(v, slot, again_ns);
        r = r < 0 ? r : one;
    }
    return r;
}

/* ---- changes of the BucketSource --------------------------------------------------------------------------------- */

static int wake_node(struct volume_view *v)
{
    return api_pool_wake(v->p->o.kube, v->p->o.lease, v->volume->node, v->volume->pool, v->err);
}

static int patch_volume(struct volume_view *v, const char *path, json *own_value)
{
    json *patch = json_new_object();
    json_set(patch, path, own_value);
    json_set_str(patch, "metadata.uid", str_of(v->volume->meta.uid));
    struct kube_request q = {.verb = KUBE_MERGE_PATCH, .resource = &api_volumes, .name = v->name};
    return populate_send(v->p, q, patch, v->err);
}

static int order_retry(struct volume_view *v, json *own_spec)
{
    int r = patch_volume(v, "spec", own_spec);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    log_event(LOG_INFO, "the retry settings of a volume were updated from its BucketSource", "volume",
              v->volume->id.text, "source", v->volume->source_name, NULL);
    return wake_node(v); /* after the order was written */
}

/* Changes of spec.retry apply to existing volumes; all other fields were copied for good. If a controller died between
 * writing the order and waking the node, the node has not processed the order: wake it again. */
static int follow_source(struct volume_view *v)
{
    const struct api_volume *volume = v->volume;
    auto_api_source source = NULL;
    auto_spec want = NULL;
    auto_spec have = NULL;
    if (!v->source_json || !volume->source || volume->release_requested ||
        api_source_read(v->source_json, &source, ERR_IGNORED) < 0 ||
        source->meta.generation == volume->source_generation || api_source_spec(source, &want, ERR_IGNORED) < 0 ||
        api_volume_spec(volume, &have, ERR_IGNORED) < 0)
        return 0;
    auto_json wanted = spec_retry_json(want);
    auto_json had = spec_retry_json(have);
    if (!json_same(wanted, had))
        return order_retry(v, take(&wanted));
    bool unseen = volume->retry && !api_volume_was_seen(volume);
    return unseen && v->node == CLAIM_NODE_READY ? wake_node(v) : 0;
}

/* `value` NULL: removes the annotation. */
static int annotate(struct volume_view *v, const char *name, const char *value)
{
    json *annotations = json_new_object();
    json_set_member(annotations, name, value ? json_new_str(str_of(value)) : json_new_null());
    int r = patch_volume(v, "metadata.annotations", annotations);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

static int annotate_time(struct volume_view *v, const char *name, int64_t ns)
{
    char text[TIME_TEXT_MAX];
    return annotate(v, name, ns ? time_text(ns, text) : NULL);
}

/* These times must survive restarts. */
static int note_users(struct volume_view *v)
{
    struct api_volume *volume = v->volume;
    int64_t cordoned_ns = volume->cordoned_ns, blocked_ns = volume->blocked_ns;
    drain_users_note(v->p, volume, v->node);
    int r = 0;
    if (volume->cordoned_ns != cordoned_ns)
        r = annotate_time(v, NAME_ANNOTATION_CORDONED_SINCE, volume->cordoned_ns);
    if (r == 0 && volume->blocked_ns != blocked_ns)
        r = annotate_time(v, NAME_ANNOTATION_DRAIN_BLOCKED_SINCE, volume->blocked_ns);
    return r;
}

/* Facts that must survive restarts: the volume may use exportSecret later, and when its export began to fail. */
static int note_export(struct volume_view *v)
{
    if (!v->volume->has_exported && v->volume->status.export.done_objects > 0)
        return annotate(v, NAME_ANNOTATION_HAS_EXPORTED, "true");
    if (!v->volume->failing_ns && is_failing(v))
        return annotate_time(v, NAME_ANNOTATION_EXPORT_FAILING_SINCE, clock_wall_ns());
    if (v->volume->failing_ns && is_true(v, API_EXPORTED))
        return annotate_time(v, NAME_ANNOTATION_EXPORT_FAILING_SINCE, 0);
    return 0;
}

/* ---- metrics and events ------------------------------------------------------------------------------------------ */

static void measure_failure(struct volume_view *v)
{
    struct key_state *m = v->state;
    const char *reason =
        v->volume && v->volume->claim_namespace && v->volume->claim_name ? volume_failure(v->volume) : NULL;
    struct metric_series *now =
        reason ? metric_series(v->p->failing, v->volume->claim_namespace, v->volume->claim_name, reason) : NULL;
    if (!m || m->failing == now)
        return;
    if (m->failing)
        metric_set(m->failing, 0);
    if (now)
        metric_set(now, 1);
    m->failing = now;
}

static void send_events(struct volume_view *v, uint64_t *again_ns)
{
    if (!v->volume)
        return;
    if (v->state) {
        volume_event_send(v->p, v->state, v->volume, v->source_json);
        recheck_within(again_ns, volume_event_send_user_namespace(v->p, v->state, v->volume) ? 0 : RECHECK_NS);
        bool may_be_long = v->volume->status.phase == API_PHASE_LISTING && !v->state->events.listing;
        recheck_within(again_ns, may_be_long ? VOLUME_LISTING_NS : 0);
    }
    for (size_t slot = 0; slot < JOB_SLOTS; slot++)
        job_event_send(v->p, v->state, v->volume, (enum job_slot)slot, v->job_json[slot]);
    for (size_t slot = 0; slot < SLOT_HOLD; slot++) /* one that holds the node concerns its administrator */
        job_pod_event_send(v->p, v->state, v->volume, (enum job_slot)slot, v->job_json[slot]);
    if (v->state && v->state->unlisted_count > 0)
        recheck_within(again_ns, RECHECK_NS);
    if (lets_drain(v)) {
        volume_event_send_drain(v->p, v->volume);
        recheck_within(again_ns, RECHECK_NS); /* no change of the volume shows that it holds the next drain again */
    }
}

int volume_reconcile(struct populate *p, struct str name, uint64_t *again_ns, struct err *err)
{
    struct volume_view v = {.p = p, .name = name, .node = CLAIM_NODE_GONE, .err = err};
    struct err other;
    int r = read_volume(&v);
    if (r == 0) {
        v.state = key_state_get(p, 'v', name, v.volume != NULL);
        measure_failure(&v);
        r = v.volume ? note_users(&v) : 0;
        send_events(&v, again_ns);
        if (r == 0 && v.volume)
            r = note_export(&v);
        if (r == 0 && v.volume)
            r = follow_source(&v);
        v.err = r < 0 ? &other : err; /* a failure above does not delay the Jobs */
        int served = serve_all(&v, again_ns);
        r = r < 0 ? r : served;
        if (!v.volume)
            key_state_remove(p, 'v', name);
    }
    volume_view_done(&v);
    return r;
}
