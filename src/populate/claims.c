/* SPDX-License-Identifier: Apache-2.0 */
/* A claim, looked at: what claim.h decides is asked of the API server, one step a time. The change that a step makes
 * brings the claim back. */
#include "api/volume.h"
#include "prime.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"

/* Everything about one claim, and who owns it. */
struct view {
    struct populate *p;
    struct str uid;
    struct claim_pair pair;
    struct claim_pvs pvs;
    struct claim_class class;
    struct claim_facts facts;
    struct err *err;
};

static void view_done(struct view *v)
{
    claim_pair_done(&v->pair);
    claim_pvs_done(&v->pvs);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static bool is_filled(const struct api_volume *volume)
{
    const char *mode = api_volume_parameter(volume, "hydration");
    bool waits = volume->source && (!mode || strcmp(mode, "eager") == 0);
    return api_condition_is(&volume->status.conditions, waits ? API_HYDRATED : API_PROVISIONED, API_TRUE);
}

/* The volume is named as the PersistentVolume will be. */
static bool is_of_prime(const struct view *v, const struct api_volume *volume)
{
    struct str name = str_of(volume->meta.name);
    if (v->pair.prime.volume_name.len)
        return str_eq(name, v->pair.prime.volume_name);
    return v->pair.prime_json && str_ends(name, v->pair.prime.uid);
}

static bool is_handed_over(const struct view *v)
{
    return v->pvs.pv_json && str_eq(v->pvs.pv.claim_uid, v->uid);
}

static int volume_seen(void *ctx, struct str key, const json *object)
{
    (void)key;
    struct view *v = ctx;
    struct claim_facts *f = &v->facts;
    auto_api_volume volume = NULL;
    int r = api_volume_read(object, &volume, v->err);
    if (r < 0)
        return r;
    if (is_of_prime(v, volume)) {
        f->filled = is_filled(volume);
        f->lost = volume->status.phase == API_PHASE_LOST;
    }
    if (is_handed_over(v) && str_eq(v->pvs.pv.name, str_of(volume->meta.name)))
        return 0;
    enum claim_node node = node_state(v->p, str_of(volume->node));
    bool stranded = node == CLAIM_NODE_GONE || node == CLAIM_NODE_UNREADY;
    f->volume_stranded = stranded && (!f->volume_left || f->volume_stranded);
    f->volume_left = true;
    return 0;
}

static int look_at_class(struct view *v)
{
    auto_json class = kube_informer_get(v->p->classes, STR_NULL, v->pair.target.class_name);
    if (!class)
        return 0;
    v->facts.class = &v->class;
    return claim_class_read(class, &v->class, v->err);
}

static int look_at_claims(struct view *v)
{
    int r = claim_pair_read(v->p, v->uid, &v->pair, v->err);
    if (r == 0)
        r = claim_pvs_read(v->p, v->uid, &v->pair.prime, &v->pvs, v->err);
    v->facts.target = v->pair.target_json ? &v->pair.target : NULL;
    v->facts.prime = v->pair.prime_json ? &v->pair.prime : NULL;
    v->facts.pv = v->pvs.pv_json ? &v->pvs.pv : NULL;
    v->facts.stray = v->pvs.stray_json ? &v->pvs.stray : NULL;
    return r;
}

static int look_at_all(struct view *v)
{
    struct populate *p = v->p;
    struct claim_facts *f = &v->facts;
    f->own_namespace = str_of(p->o.job.ns);
    int r = look_at_claims(v);
    if (r < 0 || !f->target)
        return r;
    r = look_at_class(v);
    /* Asked of the server, so only while it still matters. */
    if (r == 0 && f->target->source.len && !f->prime && !f->target->volume_name.len && !f->target->deleting)
        r = source_is_granted(p, f->target, &f->cross_namespace, v->err);
    if (r < 0)
        return r;
    auto_json source = kube_informer_get(p->sources, f->target->source_namespace, f->target->source);
    f->has_source = source != NULL;
    struct str node = f->prime ? f->prime->prime_node : f->target->selected_node;
    f->node = node.len ? node_state(p, node) : CLAIM_NODE_READY;
    f->job_left = !is_handed_over(v) && kube_informer_count_by(p->jobs, INDEX_JOB_CLAIM, v->uid) > 0;
    return kube_informer_each(p->o.volumes, p->o.volumes_by_claim, v->uid, volume_seen, v);
}

/* ---- acting ------------------------------------------------------------------------------------------------------ */

static struct kube_request on_target(struct view *v, enum kube_verb verb, const json *body)
{
    return (struct kube_request){.verb = verb,
                                 .resource = &kube_persistent_volume_claims,
                                 .ns = v->pair.target.namespace,
                                 .name = v->pair.target.name,
                                 .body = body,
                                 .fence = v->p->o.lease};
}

/* A `test` that fails is a race lost, not a mistake: what the watch brings decides anew. */
static int patch_target(struct view *v, json *own_patch)
{
    auto_json patch = own_patch;
    if (!patch)
        return 0;
    struct kube_request q = on_target(v, KUBE_JSON_PATCH, patch);
    int r = kube_call(v->p->o.kube, &q, NULL, v->err);
    if (r == -ERR_INVALID)
        return err_set(v->err, ERR_CHANGED, "the claim changed meanwhile");
    return r == -ERR_NOT_FOUND ? 0 : r;
}

static int patch_pv(struct view *v, const struct claim_pv *pv, json *own_patch)
{
    auto_json patch = own_patch;
    struct kube_request q = {.verb = KUBE_MERGE_PATCH,
                             .resource = &kube_persistent_volumes,
                             .name = pv->name,
                             .body = patch,
                             .fence = v->p->o.lease};
    return kube_call(v->p->o.kube, &q, NULL, v->err);
}

static int keep_policy(struct view *v, const struct claim_pv *pv)
{
    int r = patch_pv(v, pv, pv_keep_patch(pv));
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* Our copy may be old, most of all just after we began to lead: a prime for a target that has its volume already would
 * order another one for nothing. So the server itself is asked. */
static int make_prime(struct view *v)
{
    auto_json target = NULL;
    struct claim c;
    struct kube_request get = on_target(v, KUBE_GET, NULL);
    int r = kube_call(v->p->o.kube, &get, &target, v->err);
    if (r == 0)
        r = claim_read(target, &c, v->err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    if (!str_eq(c.uid, v->uid) || c.deleting || !c.guarded || c.volume_name.len ||
        !str_eq(c.selected_node, v->pair.target.selected_node))
        return err_set(v->err, ERR_CHANGED, "the claim changed meanwhile");
    auto_json prime = prime_json(target, str_of(v->p->o.job.ns), v->facts.node == CLAIM_NODE_CORDONED);
    struct kube_request create = {.verb = KUBE_CREATE,
                                  .resource = &kube_persistent_volume_claims,
                                  .ns = str_of(v->p->o.job.ns),
                                  .body = prime,
                                  .fence = v->p->o.lease};
    r = kube_call(v->p->o.kube, &create, NULL, v->err);
    return r == -ERR_EXISTS ? 0 : r;
}

static int delete_prime(struct view *v)
{
    const struct claim *prime = &v->pair.prime;
    struct kube_request q = {.verb = KUBE_DELETE,
                             .resource = &kube_persistent_volume_claims,
                             .ns = prime->namespace,
                             .name = prime->name,
                             .uid = prime->uid,
                             .propagation = KUBE_BACKGROUND,
                             .fence = v->p->o.lease};
    int r = kube_call(v->p->o.kube, &q, NULL, v->err);
    return r == -ERR_NOT_FOUND || r == -ERR_CHANGED ? 0 : r;
}

/* A node that our copy does not know may have joined a moment ago: only the server's word frees a claim of it. */
static int unselect(struct view *v, enum claim_notice notice)
{
    if (notice == NOTICE_NODE_GONE) {
        struct kube_request q = {.verb = KUBE_GET, .resource = &kube_nodes, .name = v->pair.target.selected_node};
        int r = kube_call(v->p->o.kube, &q, NULL, v->err);
        if (r != -ERR_NOT_FOUND)
            return r == 0 ? err_set(v->err, ERR_CHANGED, "the node is there after all") : r;
    }
    return patch_target(v, target_unselect_patch(&v->pair.target));
}

static int carry_out(struct view *v, struct claim_step step)
{
    switch (step.action) {
    case CLAIM_GUARD:
        return patch_target(v, target_guard_patch(v->pair.target_json));
    case CLAIM_MAKE_PRIME:
        return make_prime(v);
    case CLAIM_KEEP_POLICY:
        return keep_policy(v, v->facts.stray ? v->facts.stray : v->facts.pv);
    case CLAIM_HAND_OVER:
        return patch_pv(v, &v->pvs.pv, pv_hand_over_patch(&v->pvs.pv, &v->pair.target));
    case CLAIM_SELECT:
        return patch_target(v, target_select_patch(v->pair.target_json, v->pair.prime.prime_node));
    case CLAIM_UNSELECT:
        return unselect(v, step.notice);
    case CLAIM_DELETE_PRIME:
        return delete_prime(v);
    case CLAIM_UNGUARD:
        return patch_target(v, target_unguard_patch(v->pair.target_json));
    case CLAIM_NOTHING:
        break;
    }
    return 0;
}

/* The time since its prime was made: the one beginning that outlives us. */
static void measure(struct view *v, struct memo *m)
{
    struct err ignored;
    int64_t began_ns = 0;
    const struct claim_facts *f = &v->facts;
    if (claim_in_flight(f)) {
        if (!f->prime || time_parse(f->prime->created, &began_ns, &ignored) < 0)
            began_ns = 0;
        operation_changed(v->p, m, began_ns, NULL);
        return;
    }
    bool bound = f->target && f->target->phase == CLAIM_BOUND && !f->target->deleting;
    operation_changed(v->p, m, 0, bound ? "success" : "cancelled");
}

static void log_step(struct view *v, struct claim_step step)
{
    auto_mem char *uid = str_dup(v->uid), *ns = str_dup(v->pair.target.namespace), *name = str_dup(v->pair.target.name);
    log_event(step.action == CLAIM_NOTHING ? LOG_DEBUG : LOG_INFO, "claim", "namespace", ns, "claim", name, "uid", uid,
              "next", claim_action_name(step.action), "why", step.why, NULL);
}

int claim_reconcile(struct populate *p, struct str uid, uint64_t *again_ns, struct err *err)
{
    struct view v = {.p = p, .uid = uid, .err = err};
    int r = look_at_all(&v);
    if (r == 0) {
        struct claim_step step = claim_next(&v.facts);
        bool in_flight = claim_in_flight(&v.facts);
        bool is_ours = in_flight || (v.facts.target && v.facts.target->source.len);
        /* What is gone from one look to the next has an end too, or the count of what is in flight would only grow. */
        struct memo *m = is_ours ? memo_of(p, 'c', uid) : memo_find(p, 'c', uid);
        measure(&v, m);
        log_step(&v, step);
        if (step.notice != NOTICE_NONE)
            claim_notice_tell(p, &v.pair, step.notice);
        r = carry_out(&v, step);
        bool waits = in_flight || (is_ours && v.facts.target->phase == CLAIM_PENDING);
        *again_ns = waits ? LOOK_AGAIN_NS : 0;
        if (!in_flight)
            memo_forget(p, 'c', uid);
    }
    view_done(&v);
    return r;
}
