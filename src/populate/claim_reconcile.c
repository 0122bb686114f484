/* SPDX-License-Identifier: Apache-2.0 */
/* Reconciles a claim: finds its objects in the informers and makes the one step that claim.h decides. The change that
 * it makes enqueues the claim again. */
#include "api/node.h"
#include "api/pool.h"
#include "api/source.h"
#include "api/volume.h"
#include "claim_patch.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <stdio.h>

struct pair_search {
    struct populate *p;
    struct str uid;
    struct claim_pair *pair;
    struct err *err;
};

static int pair_found(void *ctx, struct str, const json *claim)
{
    struct pair_search *s = ctx;
    struct claim c;
    struct str uid;
    int r = claim_read(claim, &c, s->err);
    if (r < 0)
        return r;
    bool is_prime =
        str_eq(c.namespace, str_of(s->p->o.job.ns)) && claim_target_uid(c.name, &uid) && str_eq(uid, s->uid);
    if (is_prime)
        s->pair->prime_json = json_copy_of(claim);
    else if (str_eq(c.uid, s->uid))
        s->pair->target_json = json_copy_of(claim);
    return 0;
}

int claim_pair_read(struct populate *p, struct str uid, struct claim_pair *ret, struct err *err)
{
    *ret = (struct claim_pair){0};
    struct pair_search s = {p, uid, ret, err};
    int r = kube_informer_each(p->claims, INDEX_CLAIM, uid, pair_found, &s);
    if (r == 0 && ret->target_json)
        r = claim_read(ret->target_json, &ret->target, err);
    if (r == 0 && ret->prime_json)
        r = claim_read(ret->prime_json, &ret->prime, err);
    if (r < 0)
        claim_pair_done(ret);
    return r;
}

void claim_pair_done(struct claim_pair *c)
{
    json_free(c->target_json);
    json_free(c->prime_json);
    *c = (struct claim_pair){0};
}

/* ---- PersistentVolumes ------------------------------------------------------------------------------------------- */

struct pv_search {
    struct str uid, own_namespace;
    const struct claim *prime;
    json *own, *primes, *orphan; /* owned */
    struct err *err;
};

static void pv_search_done(struct pv_search *s)
{
    json_free(s->own);
    json_free(s->primes);
    json_free(s->orphan);
}

static bool is_orphan(const struct pv_search *s, const struct claim_pv *v)
{
    return str_eq(v->claim_namespace, s->own_namespace) && !str_eq(v->claim_uid, s->prime->uid) && !v->deleting &&
           !str_eq(v->policy, STR("Delete"));
}

static void keep_first(json **kept, const json *pv)
{
    if (!*kept)
        *kept = json_copy_of(pv);
}

static int pv_found(void *ctx, struct str, const json *pv)
{
    struct pv_search *s = ctx;
    struct claim_pv v;
    int r = claim_pv_read(pv, &v, s->err);
    if (r < 0)
        return r;
    if (str_eq(v.claim_uid, s->uid))
        keep_first(&s->own, pv);
    else if (is_orphan(s, &v))
        keep_first(&s->orphan, pv);
    else if (str_eq(v.name, s->prime->volume_name))
        keep_first(&s->primes, pv);
    return 0;
}

int claim_pvs_read(struct populate *p, struct str uid, const struct claim *prime, struct claim_pvs *ret,
                   struct err *err)
{
    auto_with(pv_search_done) struct pv_search s = {
        .uid = uid, .own_namespace = str_of(p->o.job.ns), .prime = prime, .err = err};
    *ret = (struct claim_pvs){0};
    int r = kube_informer_each(p->o.pvs, p->o.pvs_by_claim, uid, pv_found, &s);
    if (r < 0)
        return r;
    ret->pv_json = s.own ? take(&s.own) : take(&s.primes);
    ret->orphan_json = take(&s.orphan);
    if (ret->pv_json)
        r = claim_pv_read(ret->pv_json, &ret->pv, err);
    if (r == 0 && ret->orphan_json)
        r = claim_pv_read(ret->orphan_json, &ret->orphan, err);
    if (r < 0)
        claim_pvs_done(ret);
    return r;
}

void claim_pvs_done(struct claim_pvs *v)
{
    json_free(v->pv_json);
    json_free(v->orphan_json);
    *v = (struct claim_pvs){0};
}

/* ---- node -------------------------------------------------------------------------------------------------------- */

enum claim_node node_state(struct populate *p, struct str name)
{
    auto_json node = kube_informer_get(p->o.nodes, STR_NULL, name);
    if (!node)
        return CLAIM_NODE_GONE;
    /* The informer's copy has no conditions. */
    if (api_node_taint(node, API_NODE_UNREACHABLE) || api_node_taint(node, API_NODE_NOT_READY))
        return CLAIM_NODE_UNREADY;
    return json_bool_at(node, "spec.unschedulable") ? CLAIM_NODE_CORDONED : CLAIM_NODE_READY;
}

/* All objects of one claim. */
struct claim_view {
    struct populate *p;
    struct str uid;
    struct claim_pair pair;
    struct claim_pvs pvs;
    struct claim_class class;
    struct err source_unusable; /* if a BucketSource does not exist or is not valid */
    struct err source_degraded; /* if its last probe failed */
    struct err pools_full;      /* if no pool has room for the claim */
    struct claim_facts facts;
    struct err *err;
};

static void claim_view_done(struct claim_view *v)
{
    claim_pair_done(&v->pair);
    claim_pvs_done(&v->pvs);
}

/* ---- events: why it waits, or why it is moved to another node ---------------------------------------------------- */

static int describe_source(const struct claim_view *v, enum claim_event event, struct err *err)
{
    const struct claim *t = &v->pair.target;
    switch (event) {
    case CLAIM_EVENT_CLAIM_INVALID:
        err_copy(err, &t->invalid);
        return -(int)err->code;
    case CLAIM_EVENT_POOLS_PENDING:
    case CLAIM_EVENT_POOL_NOT_FOUND:
        return claim_space_describe_pool(v->p, &v->pair, err);
    case CLAIM_EVENT_POD_UNSCHEDULED:
        return err_set(err, ERR_INVALID,
                       "a pod with spec.nodeName is not scheduled: its claim gets no node. Create the pod again with "
                       "nodeSelector kubernetes.io/hostname in place of nodeName");
    case CLAIM_EVENT_CLASS_NOT_FOUND:
        return err_fail(err, ERR_NOT_FOUND, CIS_CLASS_NOT_FOUND, "StorageClass '%.*s': not found",
                        STR_FMT(t->class_name));
    case CLAIM_EVENT_SOURCE_SUSPENDED:
        return err_fail(err, ERR_BUSY, CIS_SOURCE_SUSPENDED,
                        "BucketSource %.*s/%.*s: suspended: the volume is not filled", STR_FMT(t->source_namespace),
                        STR_FMT(t->source));
    case CLAIM_EVENT_CLASS_INVALID:
        err_copy(err, &v->class.invalid);
        return err_wrap(err, "StorageClass %.*s", STR_FMT(t->class_name));
    case CLAIM_EVENT_SOURCE_NOT_FOUND:
    case CLAIM_EVENT_SOURCE_INVALID:
        return err_copy(err, &v->source_unusable);
    case CLAIM_EVENT_SOURCE_DEGRADED:
        err_copy(err, &v->source_degraded);
        return err_wrap(err, "BucketSource %.*s/%.*s", STR_FMT(t->source_namespace), STR_FMT(t->source));
    case CLAIM_EVENT_REFERENCE_INVALID:
        return err_fail(err, ERR_INVALID, CIS_CLAIM_REFERENCE_INVALID,
                        "dataSourceRef names kind '%.*s' of apiGroup '%.*s', which nothing fills", STR_FMT(t->bad_kind),
                        STR_FMT(t->bad_group));
    case CLAIM_EVENT_SOURCE_ELSEWHERE:
        return err_fail(err, ERR_DENIED, CIS_SOURCE_OTHER_NAMESPACE,
                        "BucketSource %.*s/%.*s: access from another namespace denied", STR_FMT(t->source_namespace),
                        STR_FMT(t->source));
    case CLAIM_EVENT_IMMEDIATE:
        return err_fail(err, ERR_INVALID, CIS_CLASS_BINDS_IMMEDIATELY,
                        "StorageClass %.*s: volumeBindingMode Immediate is not supported", STR_FMT(t->class_name));
    case CLAIM_EVENT_FOREIGN_CLASS:
        return err_fail(err, ERR_INVALID, CIS_CLASS_OTHER_DRIVER,
                        "StorageClass %.*s: its provisioner is not " NAME_DRIVER, STR_FMT(t->class_name));
    default:
        return err_set(err, ERR_INTERNAL, "%s has no sentence", claim_event_reason(event));
    }
}

static int describe(const struct claim_view *v, enum claim_event event, struct err *err)
{
    const struct claim_pair *c = &v->pair;
    const struct claim *t = &c->target;
    struct str node = c->prime.prime_node.len ? c->prime.prime_node : t->selected_node;
    char space[128] = "no space";
    switch (event) {
    case CLAIM_EVENT_NODE_FULL:
        claim_space_describe(v->p, c, space, sizeof space);
        return err_fail(err, ERR_NO_SPACE, CIS_POOL_FULL, "node %.*s: %s; the pod is rescheduled", STR_FMT(node),
                        space);
    case CLAIM_EVENT_POOLS_FULL:
        return err_copy(err, &v->pools_full);
    case CLAIM_EVENT_NODE_GONE:
        return err_fail(err, ERR_NOT_FOUND, CIS_NODE_GONE, "node %.*s was deleted before the volume was ready",
                        STR_FMT(node));
    case CLAIM_EVENT_NODE_CORDONED:
        return err_fail(err, ERR_BUSY, CIS_NODE_GONE, "node %.*s was cordoned before the volume was ready",
                        STR_FMT(node));
    case CLAIM_EVENT_VOLUME_LOST:
        return err_fail(err, ERR_IO, CIS_VOLUME_LOST_FILLING, "node %.*s lost the disk of the volume during hydration",
                        STR_FMT(node));
    case CLAIM_EVENT_OTHER_VOLUME:
        return err_fail(err, ERR_CHANGED, CIS_CLAIM_BOUND_ELSEWHERE, "the claim was bound to another volume, %.*s",
                        STR_FMT(t->volume_name));
    default:
        return describe_source(v, event, err);
    }
}

/* A source is often created right after its claim: no event then. */
static bool is_awaited(struct key_state *m, enum claim_event event)
{
    uint64_t now_ns = clock_now_ns();
    if (event != CLAIM_EVENT_SOURCE_NOT_FOUND || !m)
        return false;
    if (!m->missing_ns)
        m->missing_ns = now_ns;
    return now_ns - m->missing_ns < SOURCE_WAIT_NS;
}

static void send_event(const struct claim_view *v, struct key_state *m, struct claim_step step)
{
    const struct kube_ref about = claim_ref(&v->pair.target);
    struct populate_event report = {.warning = true, .reason = claim_event_reason(step.event)};
    struct err err;
    char line[ERR_LINE_MAX];
    report.concerns = step.event == CLAIM_EVENT_POD_UNSCHEDULED ? claim_pod_names_node : NULL;
    (void)describe(v, step.event, &err);
    snprintf(report.text, sizeof report.text, "%s", err_line(&err, line, sizeof line));
    if (step.action == CLAIM_NOTHING)
        claim_event_repeat(v->p, m, &about, &report);
    else
        claim_event_send(v->p, m, &about, &report);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_filled(const struct api_volume *volume)
{
    bool waits = volume->source && api_volume_choice(volume, "hydration") == HYDRATION_EAGER;
    return api_condition_is(&volume->status.conditions, waits ? API_HYDRATED : API_PROVISIONED, API_TRUE);
}

/* The CisternVolume has the name of the later PersistentVolume. */
static bool is_of_prime(const struct claim_view *v, const struct api_volume *volume)
{
    struct str name = str_of(volume->meta.name);
    if (v->pair.prime.volume_name.len)
        return str_eq(name, v->pair.prime.volume_name);
    return v->pair.prime_json && str_ends(name, v->pair.prime.uid);
}

static bool is_handed_over(const struct claim_view *v)
{
    return v->pvs.pv_json && str_eq(v->pvs.pv.claim_uid, v->uid);
}

static int volume_seen(void *ctx, struct str, const json *object)
{
    struct claim_view *v = ctx;
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
    bool unreachable = node == CLAIM_NODE_GONE || node == CLAIM_NODE_UNREADY;
    f->volume_unreachable = unreachable && (!f->volume_left || f->volume_unreachable);
    f->volume_left = true;
    return 0;
}

static int read_class(struct claim_view *v)
{
    auto_json class = kube_informer_get(v->p->classes, STR_NULL, v->pair.target.class_name);
    if (!class)
        return 0;
    v->facts.class = &v->class;
    int r = claim_class_read(class, &v->class, v->err);
    v->class.awaits_pools = claim_space_awaits_pools(v->p);
    v->class.has_pool = claim_space_has_pool(v->p, class);
    if (r == 0 && v->class.ours && !v->facts.prime && claim_is_pending(&v->facts) && !v->pair.target.selected_node.len)
        v->facts.is_too_large = claim_space_check(v->p, &v->pair, &v->pools_full) < 0;
    return r;
}

static int read_claims(struct claim_view *v)
{
    int r = claim_pair_read(v->p, v->uid, &v->pair, v->err);
    if (r == 0)
        r = claim_pvs_read(v->p, v->uid, &v->pair.prime, &v->pvs, v->err);
    v->facts.target = v->pair.target_json ? &v->pair.target : NULL;
    v->facts.prime = v->pair.prime_json ? &v->pair.prime : NULL;
    v->facts.pv = v->pvs.pv_json ? &v->pvs.pv : NULL;
    v->facts.orphan = v->pvs.orphan_json ? &v->pvs.orphan : NULL;
    return r;
}

/* A BucketSource that the claim names. */
static int find_source(struct claim_view *v, struct str ns, struct str name, struct api_source **ret,
                       struct spec **spec)
{
    struct err *err = &v->source_unusable;
    auto_json object = kube_informer_get(v->p->sources, ns, name);
    int r = object ? api_source_read(object, ret, err)
                   : err_fail(err, ERR_NOT_FOUND, CIS_CLAIM_SOURCE_NOT_FOUND, "not found");
    if (r == 0)
        r = api_source_spec(*ret, spec, err);
    return r < 0 ? err_wrap(err, "BucketSource %.*s/%.*s", STR_FMT(ns), STR_FMT(name)) : 0;
}

/* Then nothing is fetched: the source of its annotation is not used, and that of dataSourceRef only for its export. */
static bool is_blank(const struct claim_view *v)
{
    struct str own = v->pair.target.hydration;
    return own.len ? spec_choice("hydration", own) == HYDRATION_NONE : v->class.is_blank;
}

/* The BucketSources of the claim's annotations. */
static int find_annotated(struct claim_view *v)
{
    const struct claim *t = v->facts.target;
    struct err *err = &v->source_unusable;
    auto_api_source source = NULL;
    auto_api_source policy = NULL;
    auto_spec filled_by = NULL;
    auto_spec exported_by = NULL;
    if (t->annotated_source.len && !is_blank(v) &&
        find_source(v, t->namespace, t->annotated_source, &source, &filled_by) < 0)
        return err_wrap(err, "annotation " NAME_ANNOTATION_SOURCE);
    if (!t->export_policy.len)
        return 0;
    int r = find_source(v, t->namespace, t->export_policy, &policy, &exported_by);
    if (r == 0 && !exported_by->export.uri.text)
        r = err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID,
                     "BucketSource %.*s/%.*s has no export: add spec.export to it, or name another BucketSource",
                     STR_FMT(t->namespace), STR_FMT(t->export_policy));
    return r < 0 ? err_wrap(err, "annotation " NAME_ANNOTATION_EXPORT_POLICY) : 0;
}

/* Only the probe's own error: those of other claims' volumes in the status of the source are not of this claim. */
static void read_probe(struct claim_view *v, const struct api_source *s)
{
    struct source_probe probe;
    char key[KEY_BYTES_MAX];
    snprintf(key, sizeof key, "%s/%s", s->meta.namespace, s->meta.name);
    v->facts.is_degraded = source_probe_find(v->p, str_of(key), s->meta.generation, &probe) && probe.was_ready &&
                           probe.count > 0 && probe.failed;
    v->source_degraded = probe.err;
}

static void read_source(struct claim_view *v)
{
    const struct claim *t = v->facts.target;
    auto_api_source source = NULL;
    auto_spec spec = NULL;
    int r = t->source.len ? find_source(v, t->source_namespace, t->source, &source, &spec) : 0;
    if (r == 0)
        r = find_annotated(v);
    v->facts.has_source = r != -ERR_NOT_FOUND;
    v->facts.is_source_valid = r == 0;
    if (!source)
        return;
    v->facts.is_suspended = source->suspend;
    read_probe(v, source);
}

static int read_facts(struct claim_view *v)
{
    struct populate *p = v->p;
    struct claim_facts *f = &v->facts;
    f->own_namespace = str_of(p->o.job.ns);
    int r = read_claims(v);
    if (r < 0 || !f->target)
        return r;
    r = read_class(v);
    /* Unknown grants are an error: a claim that needs none must not wait for them. */
    if (r == 0 && f->target->source.len && !f->prime && !f->target->volume_name.len && !f->target->deleting)
        r = source_is_granted(p, f->target, &f->cross_namespace, v->err);
    if (r < 0)
        return r;
    read_source(v);
    struct str node = f->prime ? f->prime->prime_node : f->target->selected_node;
    f->node = node.len ? node_state(p, node) : CLAIM_NODE_READY;
    f->job_left = !is_handed_over(v) && kube_informer_count_by(p->jobs, INDEX_JOB_CLAIM, v->uid) > 0;
    return kube_informer_each(p->o.volumes, p->o.volumes_by_claim, v->uid, volume_seen, v);
}

/* ---- acting ------------------------------------------------------------------------------------------------------ */

static struct kube_request on_claim(enum kube_verb verb, const struct claim *c)
{
    return (struct kube_request){
        .verb = verb, .resource = &kube_persistent_volume_claims, .ns = c->namespace, .name = c->name};
}

/* A failed `test` is a lost race: the watch brings the new object, and the claim is reconciled again. */
static int patch_target(struct claim_view *v, json *own_patch)
{
    if (!own_patch)
        return 0;
    int r = populate_send(v->p, on_claim(KUBE_JSON_PATCH, &v->pair.target), own_patch, v->err);
    if (r == -ERR_INVALID)
        return err_set(v->err, ERR_CHANGED, "the claim has changed");
    return r == -ERR_NOT_FOUND ? 0 : r;
}

static int patch_pv(struct claim_view *v, const struct claim_pv *pv, json *own_patch)
{
    struct kube_request q = {.verb = KUBE_MERGE_PATCH, .resource = &kube_persistent_volumes, .name = pv->name};
    return populate_send(v->p, q, own_patch, v->err);
}

static int save_policy(struct claim_view *v, const struct claim_pv *pv)
{
    int r = patch_pv(v, pv, claim_patch_save_policy(pv));
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* The informer's copy may be old, above all after a change of leader. A prime for a target that has its volume already
 * would create a second one, so read the target from the server. */
static int make_prime(struct claim_view *v)
{
    auto_json target = NULL;
    struct claim c;
    struct kube_request get = on_claim(KUBE_GET, &v->pair.target);
    get.fence = v->p->o.lease;
    int r = kube_call(v->p->o.kube, &get, &target, v->err);
    if (r == 0)
        r = claim_read(target, &c, v->err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    if (!str_eq(c.uid, v->uid) || c.deleting || !c.has_finalizer || c.volume_name.len ||
        !str_eq(c.selected_node, v->pair.target.selected_node))
        return err_set(v->err, ERR_CHANGED, "the claim has changed");
    struct kube_request create = on_claim(KUBE_CREATE, &(struct claim){.namespace = str_of(v->p->o.job.ns)});
    json *prime = claim_patch_prime(target, create.ns, v->facts.node == CLAIM_NODE_CORDONED);
    r = populate_send(v->p, create, prime, v->err);
    return r == -ERR_EXISTS ? 0 : r;
}

static int delete_prime(struct claim_view *v)
{
    struct kube_request q = on_claim(KUBE_DELETE, &v->pair.prime);
    q.uid = v->pair.prime.uid;
    int r = populate_send(v->p, q, NULL, v->err);
    return r == -ERR_NOT_FOUND || r == -ERR_CHANGED ? 0 : r;
}

/* A node that is not in the informer may have joined just now: ask the server before the claim is freed of it. */
static int unselect(struct claim_view *v, enum claim_event event)
{
    if (event == CLAIM_EVENT_NODE_GONE) {
        struct kube_request q = {.verb = KUBE_GET, .resource = &kube_nodes, .name = v->pair.target.selected_node};
        int r = kube_call(v->p->o.kube, &q, NULL, v->err);
        if (r != -ERR_NOT_FOUND)
            return r == 0 ? err_set(v->err, ERR_CHANGED, "the node exists") : r;
    }
    return patch_target(v, claim_patch_unselect(&v->pair.target));
}

static int carry_out(struct claim_view *v, struct claim_step step)
{
    switch (step.action) {
    case CLAIM_ADD_FINALIZER:
        return patch_target(v, claim_patch_add_finalizer(v->pair.target_json));
    case CLAIM_MAKE_PRIME:
        return make_prime(v);
    case CLAIM_SAVE_POLICY:
        return save_policy(v, v->facts.orphan ? v->facts.orphan : v->facts.pv);
    case CLAIM_HAND_OVER:
        return patch_pv(v, &v->pvs.pv, claim_patch_hand_over(&v->pvs.pv, &v->pair.target));
    case CLAIM_SELECT:
        return patch_target(v, claim_patch_select(v->pair.target_json, v->pair.prime.prime_node));
    case CLAIM_UNSELECT:
        return unselect(v, step.event);
    case CLAIM_DELETE_PRIME:
        return delete_prime(v);
    case CLAIM_REMOVE_FINALIZER:
        return patch_target(v, claim_patch_remove_finalizer(v->pair.target_json));
    case CLAIM_NOTHING:
        break;
    }
    return 0;
}

/* An operation begins with the creation of its prime: the one time that survives a restart. */
static void measure(struct claim_view *v, struct key_state *m)
{
    int64_t began_ns = 0;
    const struct claim_facts *f = &v->facts;
    if (claim_in_flight(f)) {
        if (!f->prime || time_parse(f->prime->created, &began_ns, ERR_IGNORED) < 0)
            began_ns = 0;
        operation_changed(v->p, m, began_ns, NULL);
        return;
    }
    bool bound = f->target && f->target->phase == CLAIM_BOUND && !f->target->deleting;
    operation_changed(v->p, m, 0, bound ? "success" : "cancelled");
}

static void log_step(struct claim_view *v, struct claim_step step)
{
    auto_mem char *uid = str_dup(v->uid), *ns = str_dup(v->pair.target.namespace), *name = str_dup(v->pair.target.name);
    log_event(step.action == CLAIM_NOTHING ? LOG_DEBUG : LOG_INFO, "claim", "namespace", ns, "claim", name, "uid", uid,
              "next", claim_action_name(step.action), "why", step.why, NULL);
}

/* Sooner if no pod was found that could get the last event. */
static uint64_t recheck_ns(const struct key_state *m)
{
    uint64_t now_ns = clock_now_ns();
    return m && m->pods_reason && m->pods_due_ns > now_ns ? min_u64(m->pods_due_ns - now_ns, RECHECK_NS) : RECHECK_NS;
}

int claim_reconcile(struct populate *p, struct str uid, uint64_t *again_ns, struct err *err)
{
    struct claim_view v = {.p = p, .uid = uid, .err = err};
    int r = read_facts(&v);
    if (r == 0) {
        struct claim_step step = claim_next(&v.facts);
        bool in_flight = claim_in_flight(&v.facts);
        bool is_ours = in_flight || step.event != CLAIM_EVENT_NONE || (v.facts.target && v.facts.target->source.len);
        /* A claim that was deleted between two reconciles ends its operation, too. */
        struct key_state *m = key_state_get(p, 'c', uid, is_ours);
        measure(&v, m);
        log_step(&v, step);
        const struct kube_ref about = claim_ref(&v.pair.target);
        if (m && v.pair.target_json)
            claim_events_finish(p, m, &about); /* a claim that waits is reconciled again soon */
        bool is_early = is_awaited(m, step.event);
        if (step.event != CLAIM_EVENT_NONE && !is_early)
            send_event(&v, m, step);
        else
            prime_event_send(p, m, &v.pair);
        r = carry_out(&v, step);
        bool waits = in_flight || (is_ours && v.facts.target && v.facts.target->phase == CLAIM_PENDING);
        *again_ns = !waits ? 0 : is_early ? SOURCE_WAIT_NS : recheck_ns(m);
        if (!waits)
            key_state_remove(p, 'c', uid);
    }
    claim_view_done(&v);
    return r;
}
