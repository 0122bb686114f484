/* SPDX-License-Identifier: Apache-2.0 */
/* A CisternVolume, looked at: the Jobs that it needs now, and what people hear of it. */
#include "api/pool.h"
#include "api/source.h"
#include "api/volume.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <stdio.h>

enum { FOLDER_MAX = 4096 };

/* Everything about one volume, and who owns it. */
struct view {
    struct populate *p;
    struct str name;
    struct api_volume *volume; /* owned; NULL: gone */
    json *job_json[JOB_SLOTS]; /* owned; NULL: none */
    struct job job[JOB_SLOTS];
    bool cancelled;    /* nobody wants its data any more */
    json *source_json; /* owned: its BucketSource; NULL: none, or it is gone */
    enum claim_node node;
    struct memo *memo;
    struct err *err;
};

static void view_done(struct view *v)
{
    api_volume_free(v->volume);
    json_free(v->source_json);
    for (size_t i = 0; i < JOB_SLOTS; i++)
        json_free(v->job_json[i]);
}

static size_t slot_of(enum job_kind kind)
{
    return kind == JOB_HYDRATE ? SLOT_HYDRATE : kind == JOB_HOLD ? SLOT_HOLD : SLOT_EXPORT;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static int job_seen(void *ctx, struct str key, const json *object)
{
    (void)key;
    struct view *v = ctx;
    struct job job;
    int r = job_read(object, &job, v->err);
    if (r < 0)
        return r;
    size_t slot = slot_of(job.kind);
    if (!v->job_json[slot])
        v->job_json[slot] = json_copy_of(object);
    return 0;
}

static int look_at_jobs(struct view *v)
{
    int r = kube_informer_each(v->p->jobs, INDEX_ORDER, v->name, job_seen, v);
    for (size_t i = 0; i < JOB_SLOTS && r == 0; i++)
        if (v->job_json[i])
            r = job_read(v->job_json[i], &v->job[i], v->err);
    return r;
}

/* A PersistentVolume that is retained may be given to another claim than the one that it was made for. */
static bool has_another_owner(struct view *v)
{
    struct err ignored;
    struct claim_pv pv;
    auto_json object = kube_informer_get(v->p->o.pvs, STR_NULL, v->name);
    return object && claim_pv_read(object, &pv, &ignored) == 0 && pv.claim_uid.len &&
           !str_eq(pv.claim_uid, str_of(v->volume->claim_uid)) && !str_eq(pv.claim_namespace, str_of(v->p->o.job.ns));
}

/* A volume that was not handed over is worth its filling only while target and prime want it; one that was, until its
 * release: a pod may still wait for it, whatever is being deleted. */
static int look_at_claim(struct view *v)
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

static bool is_suspended(const struct view *v)
{
    struct err ignored;
    bool suspended = false;
    return v->source_json && json_opt_bool(v->source_json, "spec.suspend", &suspended, &ignored) == 0 && suspended;
}

static int look_at_all(struct view *v)
{
    int r = look_at_jobs(v);
    if (r < 0)
        return r;
    auto_json object = kube_informer_get(v->p->o.volumes, STR_NULL, v->name);
    if (!object)
        return 0;
    r = api_volume_read(object, &v->volume, v->err);
    if (r == 0)
        r = look_at_claim(v);
    if (r < 0)
        return r;
    const struct api_volume *volume = v->volume;
    if (volume->source_namespace && volume->source_name)
        v->source_json =
            kube_informer_get(v->p->sources, str_of(volume->source_namespace), str_of(volume->source_name));
    v->node = node_state(v->p, str_of(v->volume->node));
    return 0;
}

/* ---- what it needs ----------------------------------------------------------------------------------------------- */

static bool is_true(const struct view *v, const char *type)
{
    return api_condition_is(&v->volume->status.conditions, type, API_TRUE);
}

static bool may_work(const struct view *v)
{
    return v->volume && is_true(v, API_PROVISIONED) && v->node != CLAIM_NODE_GONE && !is_suspended(v) &&
           v->volume->meta.deleted_ns == 0;
}

static bool wants_hydration(const struct view *v)
{
    if (!may_work(v) || v->cancelled || v->volume->release_requested || !v->volume->source)
        return false;
    const char *mode = api_volume_parameter(v->volume, "hydration");
    bool is_none = mode && strcmp(mode, "none") == 0;
    unsigned phase = v->volume->status.phase;
    return !is_none && !is_true(v, API_HYDRATED) && phase != API_PHASE_LOST && phase != API_PHASE_RELEASED;
}

/* The node says when: nothing is staged, and something is owed. */
static bool wants_export(const struct view *v)
{
    if (!v->volume || is_true(v, API_MOUNTED) || v->volume->release_discard)
        return false;
    unsigned phase = v->volume->status.phase;
    bool owed = phase == API_PHASE_EXPORTING || phase == API_PHASE_EXPORT_FAILED;
    return owed && is_true(v, API_PROVISIONED) && v->node != CLAIM_NODE_GONE && !is_suspended(v);
}

/* ---- how long it may hold its node ------------------------------------------------------------------------------- */

/* By what the node tells; or by its owner, who need not let it run. */
static bool is_failing(const struct view *v)
{
    const struct api_condition *c = api_condition_find(&v->volume->status.conditions, API_EXPORTED);
    if (!c || c->status != API_FALSE || is_true(v, API_MOUNTED))
        return false;
    return v->volume->status.phase == API_PHASE_EXPORT_FAILED || strcmp(c->reason, "ExportStalled") == 0 ||
           (is_suspended(v) && v->volume->status.phase == API_PHASE_EXPORTING);
}

struct earlier {
    const struct api_volume *own;
    uint64_t count;
};

static int count_earlier(void *ctx, struct str name, const json *object)
{
    struct earlier *e = ctx;
    struct str since = json_member_str(json_at(object, "metadata.annotations"), NAME_ANNOTATION_FAILING), ns = STR_NULL;
    int64_t since_ns;
    struct err ignored;
    if (since.len == 0 || json_opt_str(object, "spec.claimRef.namespace", &ns, &ignored) < 0 ||
        !str_eq(ns, str_of(e->own->claim_namespace)) || time_parse(since, &since_ns, &ignored) < 0)
        return 0;
    e->count += since_ns < e->own->failing_ns ||
                (since_ns == e->own->failing_ns && str_cmp(name, str_of(e->own->meta.name)) < 0);
    return 0;
}

/* Data safety is the default; an administrator may end it for whoever's exports fail for ever. */
static bool lets_drain(const struct view *v)
{
    const struct populate_options *o = &v->p->o;
    if (!v->volume || !v->volume->failing_ns)
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
static bool wants_hold(const struct view *v)
{
    if (lets_drain(v) || !v->volume || v->volume->release_discard || v->node == CLAIM_NODE_GONE ||
        !is_true(v, API_PROVISIONED))
        return false;
    return api_condition_is(&v->volume->status.conditions, API_EXPORTED, API_FALSE) &&
           v->volume->status.phase != API_PHASE_LOST && v->volume->status.phase != API_PHASE_RELEASED;
}

static uint64_t mended_ns(const struct view *v)
{
    char source[512];
    if (!v->volume || !v->volume->source_name)
        return 0;
    snprintf(source, sizeof source, "%s/%s", v->volume->source_namespace, v->volume->source_name);
    return probe_mended_ns(v->p, str_of(source));
}

static uint64_t ended_for_ns(const struct view *v, size_t slot)
{
    uint64_t now_ns = clock_now_ns();
    if (!v->memo)
        return UINT64_MAX; /* nothing is remembered: who waited would wait for ever */
    uint64_t *seen_ns = &v->memo->ended_ns[slot];
    if (!v->job_json[slot] || v->job[slot].end != JOB_ENDED)
        *seen_ns = 0;
    else if (!*seen_ns)
        *seen_ns = now_ns;
    return *seen_ns ? now_ns - *seen_ns : 0;
}

/* A store that has begun to answer since the last try is worth another one now. */
static uint64_t retry_left_ns(const struct view *v, size_t slot)
{
    const struct memo *m = v->memo;
    uint64_t now_ns = clock_now_ns();
    if (!m || m->failed_ns[slot] < mended_ns(v) || m->retry_ns[slot] <= now_ns)
        return 0;
    return m->retry_ns[slot] - now_ns;
}

static struct job_facts facts_of(const struct view *v, size_t slot)
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
static int find_folder(struct view *v, char ret[FOLDER_MAX])
{
    char name[API_POOL_NAME_MAX + 1];
    auto_api_pool pool = NULL;
    int r = api_pool_name(v->volume->node, v->volume->pool, name, v->err);
    if (r < 0)
        return r;
    auto_json object = kube_informer_get(v->p->o.pools, STR_NULL, str_of(name));
    if (!object)
        return err_set(v->err, ERR_NOT_FOUND, "there is no CisternPool '%s'", name);
    r = api_pool_read(object, &pool, v->err);
    if (r < 0)
        return r;
    if (!pool->path)
        return err_set(v->err, ERR_AGAIN, "pool '%s' has not told its path yet", name);
    if (snprintf(ret, FOLDER_MAX, "%s/volumes/%s", pool->path, v->volume->volume_id) >= FOLDER_MAX)
        return err_set(v->err, ERR_INVALID, "the path of pool '%s' is too long", name);
    return 0;
}

static int create_job(struct view *v, enum job_kind kind)
{
    char folder[FOLDER_MAX], claim[1024];
    const struct api_volume *volume = v->volume;
    int r = find_folder(v, folder);
    if (r < 0)
        return r;
    bool has_claim = volume->claim_namespace && volume->claim_name;
    if (has_claim)
        snprintf(claim, sizeof claim, "%s/%s", volume->claim_namespace, volume->claim_name);
    struct job_volume about = {.id = volume->volume_id,
                               .order = volume->meta.name,
                               .claim = has_claim ? claim : NULL,
                               .claim_uid = volume->claim_uid,
                               .node = volume->node,
                               .folder = folder,
                               .lets_drain = kind != JOB_HYDRATE && lets_drain(v)};
    auto_json body = job_json(&v->p->o.job, &about, kind);
    struct kube_request q = {.verb = KUBE_CREATE,
                             .resource = &kube_jobs,
                             .ns = str_of(v->p->o.job.ns),
                             .body = body,
                             .fence = v->p->o.lease};
    r = kube_call(v->p->o.kube, &q, NULL, v->err);
    if (r < 0 && r != -ERR_EXISTS)
        return err_wrap(v->err, "job '%s-%s'", work_verb(kind), volume->volume_id);
    log_event(LOG_INFO, "job made", "job", work_verb(kind), "volume", volume->volume_id, "node", volume->node, NULL);
    return 0;
}

/* In the foreground: a Job that is gone has no pod left that writes. */
static int delete_job(struct view *v, size_t slot)
{
    const struct job *job = &v->job[slot];
    struct kube_request q = {.verb = KUBE_DELETE,
                             .resource = &kube_jobs,
                             .ns = str_of(v->p->o.job.ns),
                             .name = job->name,
                             .uid = job->uid,
                             .propagation = KUBE_FOREGROUND,
                             .fence = v->p->o.lease};
    int r = kube_call(v->p->o.kube, &q, NULL, v->err);
    return r == -ERR_NOT_FOUND || r == -ERR_CHANGED ? 0 : r;
}

/* A try that moved something was worth it: the next one comes soon. */
static void note_failure(struct view *v, size_t slot, enum job_kind kind)
{
    struct memo *m = v->memo;
    if (!m || !v->volume)
        return;
    const struct api_volume_status *s = &v->volume->status;
    uint64_t done = slot == SLOT_HYDRATE ? s->hydration.bytes_done : s->export.done_bytes;
    m->failures[slot] = done > m->bytes_before[slot] ? 0 : m->failures[slot] + 1;
    m->bytes_before[slot] = done;
    m->failed_ns[slot] = clock_now_ns();
    m->retry_ns[slot] = m->failed_ns[slot] + job_wait_ns(kind, m->failures[slot]);
    log_event(LOG_WARN, "job failed", "job", work_verb(kind), "volume", v->volume->volume_id, "failures",
              log_u64(m->failures[slot]), "retry_ms", log_u64(job_wait_ns(kind, m->failures[slot]) / NS_PER_MS), NULL);
}

/* Who waits for its next try holds up nobody else's. */
static bool has_turn(struct view *v, const struct job_facts *f, const struct job_step *step)
{
    if (v->volume && (f->job || step->action == JOB_CREATE))
        return export_turn_take(v->p, v->volume->meta.name, v->volume->node, f->job != NULL);
    export_turn_leave(v->p, v->name);
    return true;
}

/* 0: there is no need to. */
static void look_within(uint64_t *again_ns, uint64_t ns)
{
    if (ns && (!*again_ns || ns < *again_ns))
        *again_ns = ns;
}

static int serve(struct view *v, size_t slot, uint64_t *again_ns)
{
    struct job_facts f = facts_of(v, slot);
    struct job_step step = job_next(&f);
    if (slot == SLOT_EXPORT && !has_turn(v, &f, &step))
        step.action = JOB_LEAVE;
    look_within(again_ns, f.wanted || f.job ? LOOK_AGAIN_NS : 0);
    look_within(again_ns, step.again_ns);
    if (v->memo && !f.wanted)
        v->memo->failures[slot] = 0;
    switch (step.action) {
    case JOB_CREATE:
        return create_job(v, f.kind);
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

/* One that fails does not hold the others up. */
static int serve_all(struct view *v, uint64_t *again_ns)
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

/* ---- following its source ---------------------------------------------------------------------------------------- */

static int wake_node(struct view *v)
{
    char name[API_POOL_NAME_MAX + 1];
    int r = api_pool_name(v->volume->node, v->volume->pool, name, v->err);
    return r < 0 ? r : api_pool_wake(v->p->o.kube, v->p->o.lease, name, v->err);
}

static int order_retry(struct view *v, json *own_patch)
{
    auto_json patch = json_new_object();
    json_set(patch, "spec", own_patch);
    json_set_str(patch, "metadata.uid", str_of(v->volume->meta.uid));
    struct kube_request q = {
        .verb = KUBE_MERGE_PATCH, .resource = &api_volumes, .name = v->name, .body = patch, .fence = v->p->o.lease};
    int r = kube_call(v->p->o.kube, &q, NULL, v->err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    log_event(LOG_INFO, "a volume's source is retried otherwise", "volume", v->volume->volume_id, "source",
              v->volume->source_name, NULL);
    return wake_node(v); /* the order is there before the node is told to look */
}

static bool same_json(const json *a, const json *b)
{
    auto_mem char *one = json_text(a, 0), *other = json_text(b, 0);
    return strcmp(one, other) == 0;
}

/* What the source says of retries holds for its volumes at once; all else was copied for good. One that is no source
 * any more, or never was another than the one that was copied, changes nothing. A controller that died between the
 * order and the waking is seen by a node that did not look. */
static int follow_source(struct view *v)
{
    struct err ignored;
    const struct api_volume *volume = v->volume;
    auto_api_source source = NULL;
    auto_spec want = NULL;
    auto_spec have = NULL;
    if (!v->source_json || !volume->source || volume->release_requested ||
        api_source_read(v->source_json, &source, &ignored) < 0 ||
        source->meta.generation == volume->source_generation || api_source_spec(source, &want, &ignored) < 0 ||
        api_volume_spec(volume, &have, &ignored) < 0)
        return 0;
    json *wanted = spec_retry_json(want);
    auto_json had = spec_retry_json(have);
    if (!same_json(wanted, had))
        return order_retry(v, wanted);
    json_free(wanted);
    bool unseen = volume->retry && !api_volume_was_seen(volume);
    return unseen && v->node == CLAIM_NODE_READY ? wake_node(v) : 0;
}

/* `value` NULL: it is taken off. */
static int annotate(struct view *v, const char *name, const char *value)
{
    auto_json patch = json_new_object();
    json *annotations = json_new_object();
    json_set_member(annotations, name, value ? json_new_str(str_of(value)) : json_new_null());
    json_set(patch, "metadata.annotations", annotations);
    json_set_str(patch, "metadata.uid", str_of(v->volume->meta.uid));
    struct kube_request q = {
        .verb = KUBE_MERGE_PATCH, .resource = &api_volumes, .name = v->name, .body = patch, .fence = v->p->o.lease};
    int r = kube_call(v->p->o.kube, &q, NULL, v->err);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* What must be known after a restart: who may go on with the administrator's key later, also when the node and its disk
 * forget; and since when an export fails. */
static int note_export(struct view *v)
{
    char now[TIME_TEXT_MAX];
    if (!v->volume->has_exported && v->volume->status.export.done_objects > 0)
        return annotate(v, NAME_ANNOTATION_EXPORTED, "true");
    if (!v->volume->failing_ns && is_failing(v))
        return annotate(v, NAME_ANNOTATION_FAILING, time_text(clock_wall_ns(), now));
    if (v->volume->failing_ns && is_true(v, API_EXPORTED))
        return annotate(v, NAME_ANNOTATION_FAILING, NULL);
    return 0;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static void tell_about(struct view *v, const struct kube_ref *about, const struct report *r)
{
    kube_event(v->p->o.events, about, r->warning ? KUBE_WARNING : KUBE_NORMAL, r->reason, "%s", r->text);
}

/* On the claim that the volume was made for, in its namespace, even if it is gone already. False: it has none. */
static bool tell_claim(struct view *v, const struct report *r)
{
    const struct api_volume *volume = v->volume;
    if (!volume->claim_uid || !volume->claim_namespace || !volume->claim_name)
        return false;
    tell_about(v,
               &(struct kube_ref){.resource = &kube_persistent_volume_claims,
                                  .ns = str_of(volume->claim_namespace),
                                  .name = str_of(volume->claim_name),
                                  .uid = str_of(volume->claim_uid)},
               r);
    return true;
}

static void tell(struct view *v)
{
    struct report reports[REPORTS_MAX];
    const struct api_volume *volume = v->volume;
    if (!v->memo || !volume || !volume->claim_uid || !volume->claim_namespace || !volume->claim_name)
        return;
    size_t count = report_volume(volume, &v->memo->report, clock_wall_ns(), reports);
    for (size_t i = 0; i < count; i++)
        (void)tell_claim(v, &reports[i]);
}

/* Once a minute at most, as long as it is so. */
static void tell_drain(struct view *v)
{
    const struct api_volume *volume = v->volume;
    char bytes[BYTES_TEXT_MAX];
    if (!volume || !lets_drain(v))
        return;
    struct kube_ref node = {.resource = &kube_nodes, .name = str_of(volume->node), .uid = str_of(volume->node)};
    kube_event(v->p->o.events, &node, KUBE_WARNING, "DrainNotHeld",
               "the export of volume %s (claim %s) fails beyond export.drainHold: it holds the node no more, and %s in "
               "%llu files are lost with it; kubectl get civ -l cistern.io/node=%s -o wide",
               volume->volume_id, volume->claim_label ? volume->claim_label : "unknown",
               bytes_text(volume->status.export.pending_bytes, bytes),
               (unsigned long long)volume->status.export.pending_objects, volume->node);
}

/* The owner of the data reads it on the claim. Administrators read on the PersistentVolume what needs one of them: its
 * events are in namespace default, as those of all objects without a namespace. */
static void tell_export(struct view *v)
{
    struct report report;
    if (!v->memo || !v->volume || !report_export(v->volume, &v->memo->report, &report))
        return;
    bool is_told = tell_claim(v, &report);
    auto_json pv = kube_informer_get(v->p->o.pvs, STR_NULL, v->name);
    struct kube_ref about = {
        .resource = &kube_persistent_volumes, .name = v->name, .uid = json_member_str(json_at(pv, "metadata"), "uid")};
    if (pv && (report.warning || !is_told))
        tell_about(v, &about, &report);
}

int volume_reconcile(struct populate *p, struct str name, uint64_t *again_ns, struct err *err)
{
    struct view v = {.p = p, .name = name, .node = CLAIM_NODE_GONE, .err = err};
    struct err other;
    int r = look_at_all(&v);
    if (r == 0) {
        v.memo = v.volume ? memo_of(p, 'v', name) : NULL;
        tell(&v);
        tell_export(&v);
        tell_drain(&v);
        r = v.volume ? note_export(&v) : 0;
        if (r == 0 && v.volume)
            r = follow_source(&v);
        v.err = r < 0 ? &other : err; /* one that fails does not hold the other up */
        int served = serve_all(&v, again_ns);
        r = r < 0 ? r : served;
        if (!v.volume)
            memo_forget(p, 'v', name);
    }
    view_done(&v);
    return r;
}
