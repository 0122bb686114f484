/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's clean-up. The next action follows only from the volume and the objects around it (release.c), so a
 * new or restarted leader continues. The lease fences every write. */
#include "private.h"
#include "release.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"
#include "util/names.h"

#define NODE_LEASES "kube-node-lease"
#define GRACE_NS (600 * NS_PER_SECOND)
#define LEASE_LOOK_NS (60 * NS_PER_SECOND)
#define TOMBSTONE_NS (UINT64_C(7) * 24 * 3600 * NS_PER_SECOND)
#define SWEEP_NS (600 * NS_PER_SECOND)
/* A younger volume may not have its PersistentVolume yet: CreateVolume has just returned. Never longer than the
 * interval of sweeps. */
#define YOUNG_NS (300 * NS_PER_SECOND)
#define SWEEP_KEY "/sweep" /* no object has a slash in its name */
#define LEAD_KEY "/lead"

static uint64_t or_default(uint64_t given, uint64_t otherwise)
{
    return given ? given : otherwise;
}

static bool leads(const struct control *c)
{
    return kube_lease_is_held(c->o.lease);
}

/* ---- objects around a volume ------------------------------------------------------------------------------------- */

/* A node without Node object still lives if its kubelet renews its Lease. No event reports that the Lease expires, or
 * was deleted, which takes a while after the Node: *ret_again_ns is the time to look again. */
static int node_is_there(struct control *c, const char *node, bool *ret, uint64_t *ret_again_ns, struct err *err)
{
    auto_json j = kube_informer_get(c->o.nodes, STR_NULL, str_of(node));
    struct str renewed = STR_NULL;
    int64_t at_ns = 0;
    *ret = j != NULL;
    if (j)
        return 0;
    int r = object_get(c, &kube_leases, STR(NODE_LEASES), str_of(node), &j, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = json_opt_str(j, "spec.renewTime", &renewed, err);
    if (r == 0 && renewed.len)
        r = time_parse(renewed, &at_ns, err);
    int64_t left_ns = at_ns - clock_wall_ns() + (int64_t)or_default(c->o.node_gone_grace_ns, GRACE_NS);
    *ret = r == 0 && left_ns > 0;
    if (*ret)
        *ret_again_ns = min_u64((uint64_t)left_ns, LEASE_LOOK_NS);
    return r;
}

/* Does the claim with this uid exist, and is it (for `volume`) bound to that volume? */
static int claim_is_there(struct control *c, const char *namespace, const char *name, const char *uid,
                          const char *volume, bool *ret, struct err *err)
{
    auto_json j = NULL;
    struct str bound = STR_NULL;
    *ret = false;
    if (!namespace || !name || !uid)
        return 0;
    int r = object_get(c, &kube_persistent_volume_claims, str_of(namespace), str_of(name), &j, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = json_opt_str(j, "spec.volumeName", &bound, err);
    *ret = r == 0 && str_eq(json_member_str(json_at(j, "metadata"), "uid"), str_of(uid)) &&
           (!volume || str_eq(bound, str_of(volume)));
    return r;
}

struct sweep_pv_search {
    struct str id;
    bool only_keeping; /* only those for which release_is_kept_by() is true */
    bool found;
};

static int match_pv(void *ctx, struct str, const json *pv)
{
    struct sweep_pv_search *s = ctx;
    struct str handle = STR_NULL;
    s->found = json_as_str(json_at(pv, "spec.csi.volumeHandle"), &handle) && str_eq(handle, s->id) &&
               (!s->only_keeping || release_is_kept_by(pv));
    return s->found ? -1 : 0;
}

/* Searched by the handle: a person may have created a PersistentVolume of another name for the volume. */
static bool has_pv(struct control *c, const struct api_volume *v, bool only_keeping)
{
    struct sweep_pv_search s = {.id = str_of(v->id.text), .only_keeping = only_keeping};
    (void)kube_informer_each(c->o.pvs, -1, STR_NULL, match_pv, &s);
    return s.found;
}

/* Reads the server, not the informers: the answer decides whether data is deleted. The claim is read first,
 * because a PersistentVolume may appear as long as the claim exists. */
static int check_unclaimed(struct control *c, const struct api_volume *v, bool *ret, struct err *err)
{
    bool is_there = false;
    auto_json pv = NULL;
    *ret = false;
    uint64_t young = min_u64(YOUNG_NS, or_default(c->o.sweep_ns, SWEEP_NS));
    if (!v->order_uid || clock_wall_ns() - v->meta.created_ns < (int64_t)young)
        return 0;
    int r = claim_is_there(c, v->order_namespace, v->order_name, v->order_uid, NULL, &is_there, err);
    if (r == 0 && !is_there)
        r = claim_is_there(c, v->claim_namespace, v->claim_name, v->claim_uid, v->meta.name, &is_there, err);
    if (r < 0 || is_there)
        return r;
    r = object_get(c, &kube_persistent_volumes, STR_NULL, str_of(v->meta.name), &pv, err);
    *ret = r == -ERR_NOT_FOUND && !has_pv(c, v, false);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int apply_conditions(struct control *c, const struct api_volume *v, struct err *err)
{
    struct kube_request q = {.resource = &api_volumes,
                             .name = str_of(v->meta.name),
                             .field_manager = NAME_EVENTS_CONTROLLER,
                             .fence = c->o.lease};
    return api_apply_status(c->o.kube, q, api_volume_controller_json(v), NULL, err);
}

static void count_loss(const struct api_volume *v)
{
    static struct metric *losses;
    if (!losses)
        losses = metric_new(METRIC_COUNTER, "cistern_data_loss_total", "Lost volumes: disk, or NodeGone with the node.",
                            "node,cause", NULL);
    metric_add(metric_series(losses, v->node, "NodeGone"), 1);
}

static int lose(struct control *c, struct api_volume *v, struct err *err)
{
    struct err what;
    char pending[BYTES_TEXT_MAX];
    uint64_t pending_bytes = v->status.export.pending_bytes;
    err_set(&what, ERR_NOT_FOUND, "volume '%s': lost with node %s; not exported: %s", v->id.text, v->node,
            pending_bytes ? bytes_text(pending_bytes, pending) : "no file that the node reported");
    err_advise(&what, CIS_VOLUME_LOST);
    v->status.phase = API_PHASE_LOST;
    api_condition_set(&v->status.conditions, API_NODE_GONE, API_TRUE, "NodeGone", v->meta.generation, clock_wall_ns(),
                      "%s", what.text);
    int r = apply_conditions(c, v, err);
    if (r < 0)
        return r;
    count_loss(v);
    log_err(LOG_WARN, "volume lost", &what, "volume", v->id.text, "claim", v->claim_label, NULL);
    volume_event(c, v, "VolumeLost", &what);
    return 0;
}

static int set_node(struct control *c, struct api_volume *v, enum api_truth gone, const char *reason,
                    const char *message, struct err *err)
{
    api_condition_set(&v->status.conditions, API_NODE_GONE, gone, reason, v->meta.generation, clock_wall_ns(),
                      "node %s %s", v->node, message);
    v->status.phase = API_PHASE_NONE; /* the node says it */
    return apply_conditions(c, v, err);
}

static int release(struct control *c, const struct api_volume *v, struct err *err)
{
    json *patch = json_new_object();
    json_set_bool(patch, "spec.release.requested", true);
    log_event(LOG_INFO, "neither claim nor PersistentVolume is left: released", "volume", v->id.text, "claim",
              v->claim_label, NULL);
    return volume_patch(c, v, patch, err);
}

/* The server refuses the withdrawal once the node has committed the release: the first of the two wins. */
static int withdraw(struct control *c, const struct api_volume *v, struct err *err)
{
    struct err what;
    json *patch = json_new_object();
    json_set_bool(patch, "spec.release.requested", false);
    json_set_bool(patch, "spec.release.discard", false);
    json_set_str(patch, "metadata.resourceVersion", str_of(v->meta.resource_version));
    int r = volume_patch(c, v, patch, err);
    if (r < 0)
        return r;
    err_set(&what, ERR_CANCELLED, "volume '%s': release withdrawn: its PersistentVolume is kept", v->id.text);
    log_err(LOG_INFO, "release withdrawn", &what, "volume", v->id.text, "claim", v->claim_label, NULL);
    volume_event(c, v, "ReleaseWithdrawn", &what);
    return 0;
}

static int hold(struct control *c, struct api_volume *v, struct err *err)
{
    api_condition_set(&v->status.conditions, API_DELETION_HELD, API_TRUE, "NotReleased", v->meta.generation,
                      clock_wall_ns(),
                      "deleted by hand, which releases nothing: delete the claim to release the volume and its "
                      "PersistentVolume");
    v->status.phase = API_PHASE_NONE;
    return apply_conditions(c, v, err);
}

static int act(struct control *c, struct api_volume *v, enum release_action step, struct err *err)
{
    switch (step) {
    case LEADER_FINISH:
        return volume_delete_order(c, v, release_may_finish, err);
    case LEADER_WITHDRAW:
        return withdraw(c, v, err);
    case LEADER_RELEASE:
        return release(c, v, err);
    case LEADER_HOLD:
        return hold(c, v, err);
    case LEADER_NODE_ABSENT:
        return set_node(c, v, API_UNKNOWN, "NodeAbsent",
                        "does not exist; after cleanup.nodeGoneGrace the volume counts as lost", err);
    case LEADER_NODE_BACK:
        return set_node(c, v, API_FALSE, "NodeBack", "exists again", err);
    case LEADER_LOSE:
        return lose(c, v, err);
    case LEADER_NONE:
        break;
    }
    return 0;
}

/* ---- a node that is to be emptied -------------------------------------------------------------------------------- */

/* The export Job's pod is not evicted, so that a drain waits for it: an event names the export. */
static void report_blocked_drain(struct control *c, const struct api_volume *v)
{
    static const char *const owed[] = {API_REASON_EXPORT_DUE, API_REASON_EXPORTING, API_REASON_EXPORT_STALLED,
                                       API_REASON_EXPORT_FAILED};
    auto_json node = kube_informer_get(c->o.nodes, STR_NULL, str_of(v->node));
    const struct api_condition *exported = api_condition_find(&v->status.conditions, API_EXPORTED);
    bool owes = false;
    char left[BYTES_TEXT_MAX];
    for (size_t i = 0; exported && exported->status == API_FALSE && i < countof(owed); i++)
        owes |= strcmp(exported->reason, owed[i]) == 0;
    if (!owes || !node || !c->o.events || !json_bool_at(node, "spec.unschedulable"))
        return;
    struct kube_ref about = {.resource = &kube_nodes, .name = str_of(v->node), .uid = str_of(v->node)};
    const char *bytes = v->status.export.pending_bytes ? bytes_text(v->status.export.pending_bytes, left) : "its data";
    kube_event(c->o.events, &about, KUBE_WARNING, "ExportBlocksDrain",
               "%s of volume %s (claim %s) is not exported yet: %s; the node waits for the export", bytes, v->id.text,
               v->claim_label ? v->claim_label : "unknown", exported->message);
}

static int sweep_volume(struct control *c, struct str name, bool thoroughly, uint64_t *again_ns, struct err *err)
{
    auto_json j = kube_informer_get_by_key(c->o.volumes, name);
    auto_api_volume v = NULL;
    struct volume_context s = {.now_ns = clock_wall_ns(),
                               .node_gone_grace_ns = or_default(c->o.node_gone_grace_ns, GRACE_NS),
                               .tombstone_ns = or_default(c->o.tombstone_ns, TOMBSTONE_NS)};
    if (!j)
        return 0;
    int r = api_volume_read(j, &v, err);
    if (r == 0)
        r = node_is_there(c, v->node, &s.node_is_there, again_ns, err);
    if (r == 0)
        report_blocked_drain(c, v);
    if (r == 0)
        s.pv_keeps_it = v->release_requested && has_pv(c, v, true);
    if (r == 0 && thoroughly)
        r = check_unclaimed(c, v, &s.is_unclaimed, err);
    if (r == 0 && thoroughly && v->release_requested && !api_volume_was_seen(v))
        r = control_wake_pool(c, v->node, v->pool, err); /* the requester may have died before it woke the node */
    return r < 0 ? r : act(c, v, release_next_action(v, &s, again_ns), err);
}

/* ---- the sweep --------------------------------------------------------------------------------------------------- */

static int remove_pool(struct control *c, struct str name, const json *object, struct err *err)
{
    bool is_there = true;
    uint64_t unused_ns; /* the next sweep asks again anyway */
    auto_api_pool p = NULL;
    int r = api_pool_read(object, &p, err);
    if (r == 0)
        r = node_is_there(c, p->node, &is_there, &unused_ns, err);
    if (r < 0 || is_there)
        return r;
    struct kube_request q = {
        .verb = KUBE_DELETE, .resource = &api_pools, .name = name, .uid = str_of(p->meta.uid), .fence = c->o.lease};
    r = kube_call(c->o.kube, &q, NULL, err);
    return r == -ERR_NOT_FOUND || r == -ERR_CHANGED ? 0 : r;
}

/* No process reports the pool of a gone node. A node that returns creates its object again. */
static int sweep_pool(void *ctx, struct str name, const json *object)
{
    struct control *c = ctx;
    struct err err;
    auto_json node = kube_informer_get(c->o.nodes, STR_NULL, json_member_str(json_at(object, "spec"), "nodeName"));
    if (!node && remove_pool(c, name, object, &err) < 0)
        log_err(LOG_WARN, "the pool of a node that is gone could not be removed", &err, "pool", name.ptr, NULL);
    return leads(c) ? 0 : -ERR_CANCELLED;
}

/* Only volumes without a PersistentVolume are read from the server: usually those that were just created. */
static int sweep_unclaimed(void *ctx, struct str name, const json *)
{
    struct control *c = ctx;
    struct err err;
    uint64_t ignored;
    auto_json pv = kube_informer_get(c->o.pvs, STR_NULL, name);
    if (!pv && sweep_volume(c, name, true, &ignored, &err) < 0)
        log_err(LOG_WARN, "a volume could not be examined", &err, "name", name.ptr, NULL);
    return leads(c) ? 0 : -ERR_CANCELLED;
}

static int add(void *ctx, struct str key, const json *)
{
    kube_queue_add(ctx, key);
    return 0;
}

int sweep_reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err)
{
    struct control *c = ctx;
    if (!leads(c) || !kube_informer_has_synced(c->o.volumes) || !kube_informer_has_synced(c->o.nodes) ||
        !kube_informer_has_synced(c->o.pvs)) {
        *again_ns = leads(c) ? NS_PER_SECOND : 0;
        return 0;
    }
    if (str_eq(key, STR(LEAD_KEY)))
        return kube_informer_each(c->o.volumes, -1, STR_NULL, add, c->queue);
    if (!str_eq(key, STR(SWEEP_KEY)))
        return sweep_volume(c, key, false, again_ns, err);
    *again_ns = or_default(c->o.sweep_ns, SWEEP_NS);
    (void)kube_informer_each(c->o.pools, -1, STR_NULL, sweep_pool, c);
    (void)kube_informer_each(c->o.volumes, -1, STR_NULL, sweep_unclaimed, c);
    return 0;
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

void control_volume_changed(struct control *c, struct str name)
{
    if (c && leads(c))
        kube_queue_add(c->queue, name);
}

void control_pv_changed(struct control *c, const json *pv)
{
    struct str handle;
    if (c && leads(c) && json_as_str(json_at(pv, "spec.csi.volumeHandle"), &handle))
        (void)kube_informer_each(c->o.volumes, CONTROL_BY_ID, handle, add, c->queue);
}

void control_node_changed(struct control *c, struct str name)
{
    if (c && leads(c))
        (void)kube_informer_each(c->o.volumes, CONTROL_BY_NODE, name, add, c->queue);
}

/* Queued, because this is the loop: with very many volumes the lease would expire during the walk. */
void control_lead(struct control *c)
{
    kube_queue_add(c->queue, STR(LEAD_KEY));
    kube_queue_add(c->queue, STR(SWEEP_KEY));
}
