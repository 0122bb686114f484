/* SPDX-License-Identifier: Apache-2.0 */
/* CreateVolume: writes an order, wakes its node and waits for its answer. The order's name derives from the
 * request's: a repeated call finds it, also after a restart or at another replica. The order is the only state
 * that the call leaves. */
#include "api/node.h"
#include "claim.h"
#include "order.h"
#include "private.h"
#include "util/log.h"
#include "util/names.h"

/* ---- where to ---------------------------------------------------------------------------------------------------- */

/* A call that waits for such a node would keep a thread of the provisioner from all other claims. */
static bool is_unreachable(struct control *c, const char *node)
{
    auto_json j = kube_informer_get(c->o.nodes, STR_NULL, str_of(node));
    return j && api_node_taint(j, API_NODE_UNREACHABLE);
}

struct roomiest_pool {
    struct api_pool *best; /* owned; the pool with the most free space */
    const char *pool;
    struct control *c;
};

static int keep_roomiest(void *ctx, struct str, const json *object)
{
    struct roomiest_pool *s = ctx;
    auto_api_pool p = NULL;
    if (api_pool_read(object, &p, ERR_IGNORED) < 0 || strcmp(p->pool, s->pool) != 0)
        return 0;
    auto_json node = kube_informer_get(s->c->o.nodes, STR_NULL, str_of(p->node));
    if (!node || (s->best && s->best->largest_volume_bytes >= p->largest_volume_bytes))
        return 0;
    api_pool_free(s->best);
    s->best = take(&p);
    return 0;
}

/* Without a topology: the pool with the most free space. A provisioner of a cluster always sends a topology. */
static int place_anywhere(struct control *c, const struct order_request *o, struct api_pool **ret, struct err *err)
{
    struct roomiest_pool s = {.pool = o->volume->pool, .c = c};
    (void)kube_informer_each(c->o.pools, -1, STR_NULL, keep_roomiest, &s);
    auto_api_pool best = s.best;
    int r = best ? order_check_pool(best, o->volume->capacity_bytes, err)
                 : err_set(err, ERR_NO_SPACE, "pool '%s': not found on any node", o->volume->pool);
    if (r == 0)
        *ret = take(&best);
    return r;
}

static int place_at(struct control *c, const struct order_request *o, const struct csi_place *at, struct api_pool **ret,
                    struct err *err)
{
    const char *node = at->node;
    if (!node && !at->other_key)
        return place_anywhere(c, o, ret, err);
    if (!node)
        return err_fail(err, ERR_NO_SPACE, CIS_NODE_HAS_NO_POOL,
                        "topology key '%s': unsupported, volumes are placed by " NAME_TOPOLOGY_KEY, at->other_key);
    auto_api_pool p = NULL;
    int r = control_cached_pool(c, node, o->volume->pool, &p, err);
    if (r == 0 && !p)
        r = err_fail(err, ERR_NO_SPACE, CIS_NODE_HAS_NO_POOL, "node %s: pool '%s' not found", node, o->volume->pool);
    if (r == 0 && is_unreachable(c, node))
        r = err_fail(err, ERR_NO_SPACE, CIS_NODE_PENDING, "node %s: does not respond", node);
    if (r == 0)
        r = order_check_pool(p, o->volume->capacity_bytes, err);
    if (r == 0)
        *ret = take(&p);
    return r;
}

/* Preferred places in their order, then the requisite ones, until one has an error other than a lack of space. The
 * error is that one, else that of the first place. */
static int place(struct control *c, const struct order_request *o, struct api_pool **ret, struct err *err)
{
    const struct csi_create *q = o->create;
    struct err other = {0}; /* of the last place that was tried after the first */
    int r = -ERR_NO_SPACE;
    size_t count = q->preferred_count + q->requisite_count;
    if (count == 0)
        return place_anywhere(c, o, ret, err);
    for (size_t i = 0; i < count && r == -ERR_NO_SPACE; i++)
        r = place_at(c, o, i < q->preferred_count ? &q->preferred[i] : &q->requisite[i - q->preferred_count], ret,
                     i == 0 ? err : &other);
    if (r < 0 && r != -ERR_NO_SPACE && other.code)
        err_copy(err, &other);
    return r;
}

/* Does the request's topology allow this node? */
static bool is_accessible(const struct csi_create *q, const char *node)
{
    for (size_t i = 0; i < q->requisite_count; i++) {
        const struct csi_place *p = &q->requisite[i];
        if (p->node ? strcmp(p->node, node) == 0 : !p->other_key)
            return true;
    }
    return q->requisite_count == 0;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static int submit(struct control *c, struct api_volume *v, const struct api_pool *p, struct api_volume **ret,
                  struct err *err)
{
    v->node = str_dup(str_of(p->node));
    volume_id_derive(p->pool_uuid, str_of(v->meta.name), &v->id);
    auto_json body = api_volume_json(v);
    auto_json made = NULL;
    struct kube_request q = {.verb = KUBE_CREATE, .resource = &api_volumes, .body = body};
    int r = kube_call(c->o.kube, &q, &made, err);
    if (r == -ERR_EXISTS)
        return r;
    if (r < 0) {
        if (err->code != ERR_CANCELLED && err->code != ERR_INVALID)
            err->code = ERR_AGAIN;
        return -(int)err->code;
    }
    log_event(LOG_INFO, "CisternVolume created", "name", v->meta.name, "volume", v->id.text, "node", v->node, "claim",
              v->claim_label, NULL);
    return api_volume_read(made, ret, err);
}

static int order_new(struct control *c, struct order_request *o, struct api_volume **ret, struct err *err)
{
    auto_api_pool pool = NULL;
    int r = claim_resolve(c, o->create, o->volume, err);
    if (r == 0)
        r = place(c, o, &pool, err);
    return r < 0 ? r : submit(c, o->volume, pool, ret, err);
}

/* An order that was withdrawn, or whose volume is being released, blocks its name until it is gone. */
static int check_found(const struct api_volume *v, const struct order_request *o, struct err *err)
{
    if (order_state_of(v) == ORDER_LEAVING)
        return err_fail(err, ERR_PENDING, CIS_VOLUME_STEP_PENDING,
                        "volume '%s': an earlier CisternVolume of this name is still being deleted", v->meta.name);
    int r = order_matches(v, o, err);
    if (r == 0 && !is_accessible(o->create, v->node))
        r = err_fail(err, ERR_EXISTS, CIS_VOLUME_EXISTS,
                     "volume '%s': exists already on node %s, which the topology excludes", v->meta.name, v->node);
    return r;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static bool is_answered(void *, const json *object)
{
    auto_api_volume v = NULL;
    return object && api_volume_read(object, &v, ERR_IGNORED) == 0 && order_state_of(v) != ORDER_OPEN;
}

static int still_open(const struct api_volume *v, struct err *err)
{
    return err_fail(err, ERR_PENDING, CIS_NODE_PENDING, "volume '%s': node %s has not created it yet", v->meta.name,
                    v->node);
}

static bool is_refused(const struct api_volume *v)
{
    return order_state_of(v) == ORDER_REFUSED;
}

/* Withdraws a refused order before the caller gets the error: it may retry on another node with the same name. */
static int refuse(struct control *c, const struct api_volume *v, struct err *err)
{
    struct err withdraw_err;
    int r = order_refusal(v, err);
    if (volume_delete_order(c, v, is_refused, &withdraw_err) < 0)
        return err_copy(err, &withdraw_err);
    log_err(LOG_INFO, "order refused and withdrawn", err, "name", v->meta.name, "node", v->node, NULL);
    return r;
}

static int await_answer(struct control *c, struct rpc_call *call, const struct api_volume *seen,
                        struct api_volume **ret, struct err *err)
{
    auto_api_volume v = NULL;
    /* Wait as long as the caller does: the provisioner shows an earlier answer as a failure, and a node that is
     * busy with many volumes has not failed. */
    int r = volume_wait(c, call, seen->meta.name, UINT64_MAX, is_answered, NULL, &v, err);
    if (r == -ERR_TIMEOUT)
        return still_open(seen, err);
    if (r < 0)
        return r;
    switch (order_state_of(v)) {
    case ORDER_MADE:
        *ret = take(&v);
        return 0;
    case ORDER_REFUSED:
        return refuse(c, v, err);
    case ORDER_OPEN:
    case ORDER_LEAVING:
        break;
    }
    return err_fail(err, ERR_PENDING, CIS_VOLUME_STEP_PENDING,
                    "volume '%s': its CisternVolume was deleted during the call", v->meta.name);
}

/* Finds the order, or creates it. If two calls do so at once, the first order counts. */
static int find_or_order(struct control *c, struct order_request *o, struct api_volume **ret, struct err *err)
{
    int r = volume_get(c, o->volume->meta.name, ret, err);
    if (r != -ERR_NOT_FOUND)
        return r;
    r = order_new(c, o, ret, err);
    return r == -ERR_EXISTS ? volume_get(c, o->volume->meta.name, ret, err) : r;
}

int control_create(void *ctx, struct rpc_call *call, const struct csi_create *q, struct csi_volume *ret,
                   struct err *err)
{
    struct control *c = ctx;
    auto_with(order_request_done) struct order_request o = {0};
    auto_api_volume found = NULL;
    auto_api_volume made = NULL;
    int r = order_request_read(q, &o, err);
    if (r == 0)
        r = informers_have_synced(c, err);
    if (r == 0)
        r = find_or_order(c, &o, &found, err);
    if (r == 0)
        r = check_found(found, &o, err);
    /* A repeated call wakes the node too: the first one may have died before it did. */
    if (r == 0 && order_state_of(found) == ORDER_OPEN)
        r = is_unreachable(c, found->node) ? still_open(found, err)
                                           : control_wake_pool(c, found->node, found->pool, err);
    if (r == 0)
        r = await_answer(c, call, found, &made, err);
    if (r == 0)
        *ret = csi_volume_of(call, made);
    return r;
}
