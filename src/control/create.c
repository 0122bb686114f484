/* SPDX-License-Identifier: Apache-2.0 */
/* CreateVolume: an order is written down, its node is told, and its answer is waited for. The order's name is made of
 * the call's, so that a repeated call, after a restart or at another replica, finds it; the call itself leaves nothing
 * else behind. */
#include "claim.h"
#include "order.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"

/* ---- where to ---------------------------------------------------------------------------------------------------- */

struct search {
    struct api_pool *best; /* owned; the one with most to give */
    const char *pool;
    struct control *c;
};

static int look_at_pool(void *ctx, struct str key, const json *object)
{
    struct search *s = ctx;
    struct err ignored;
    auto_api_pool p = NULL;
    (void)key;
    if (api_pool_read(object, &p, &ignored) < 0 || strcmp(p->pool, s->pool) != 0)
        return 0;
    auto_json node = kube_informer_get(s->c->o.nodes, STR_NULL, str_of(p->node));
    if (!node || (s->best && s->best->largest_volume_bytes >= p->largest_volume_bytes))
        return 0;
    api_pool_free(s->best);
    s->best = take(&p);
    return 0;
}

/* Nobody says where: the roomiest. A provisioner of a cluster always says. */
static int place_anywhere(struct control *c, const struct wish *w, struct api_pool **ret, struct err *err)
{
    struct search s = {.pool = w->volume->pool, .c = c};
    (void)kube_informer_each(c->o.pools, -1, STR_NULL, look_at_pool, &s);
    auto_api_pool best = s.best;
    int r = best ? pool_takes(best, w->volume->capacity_bytes, err)
                 : err_set(err, ERR_NO_SPACE, "no node has a pool '%s'", w->volume->pool);
    if (r == 0)
        *ret = take(&best);
    return r;
}

static int place_at(struct control *c, const struct wish *w, const Csi__V1__Topology *t, struct api_pool **ret,
                    struct err *err)
{
    const char *node = topology_node(t);
    if (!node && t->n_segments == 0)
        return place_anywhere(c, w, ret, err);
    if (!node) {
        err_set(err, ERR_NO_SPACE, "a place is asked for by '%s', and volumes are placed by the node",
                t->segments[0]->key);
        return err_advise(err, 5107, "the topology key is " NAME_TOPOLOGY_KEY);
    }
    auto_api_pool p = NULL;
    int r = pool_get(c, node, w->volume->pool, &p, err);
    if (r == 0 && !p) {
        err_set(err, ERR_NO_SPACE, "node %s has no pool '%s'", node, w->volume->pool);
        r = err_advise(err, 5107, "the scheduler will try another node");
    }
    if (r == 0)
        r = pool_takes(p, w->volume->capacity_bytes, err);
    if (r == 0)
        *ret = take(&p);
    return r;
}

/* Preferred places in their order, then what else would do; the sentence is about the first. */
static int place(struct control *c, const struct wish *w, const Csi__V1__TopologyRequirement *t, struct api_pool **ret,
                 struct err *err)
{
    struct err other;
    int r = -ERR_NO_SPACE;
    if (!t || t->n_preferred + t->n_requisite == 0)
        return place_anywhere(c, w, ret, err);
    for (size_t i = 0; i < t->n_preferred + t->n_requisite && r == -ERR_NO_SPACE; i++) {
        const Csi__V1__Topology *at = i < t->n_preferred ? t->preferred[i] : t->requisite[i - t->n_preferred];
        r = place_at(c, w, at, ret, i == 0 ? err : &other);
    }
    if (r < 0 && r != -ERR_NO_SPACE)
        err_copy(err, &other);
    return r;
}

/* May it be there, as far as this call says? */
static bool is_accessible(const Csi__V1__TopologyRequirement *t, const char *node)
{
    if (!t || t->n_requisite == 0)
        return true;
    for (size_t i = 0; i < t->n_requisite; i++) {
        const char *named = topology_node(t->requisite[i]);
        if (named ? strcmp(named, node) == 0 : t->requisite[i]->n_segments == 0)
            return true;
    }
    return false;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static int submit(struct control *c, struct api_volume *v, const struct api_pool *p, struct api_volume **ret,
                  struct err *err)
{
    v->node = str_dup(str_of(p->node));
    v->volume_id = xcalloc(1, SPEC_ID_LEN + 1);
    spec_id_derive(p->pool_uuid, str_of(v->meta.name), v->volume_id);
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
    log_event(LOG_INFO, "volume ordered", "name", v->meta.name, "volume", v->volume_id, "node", v->node, "claim",
              v->claim_label, NULL);
    return api_volume_read(made, ret, err);
}

static int order_new(struct control *c, struct wish *w, const Csi__V1__TopologyRequirement *t, struct api_volume **ret,
                     struct err *err)
{
    auto_api_pool pool = NULL;
    int r = claim_resolve(c, w, err);
    if (r == 0)
        r = place(c, w, t, &pool, err);
    return r < 0 ? r : submit(c, w->volume, pool, ret, err);
}

/* An order that is leaving was withdrawn, or its volume is being released: until it is gone the name is taken. */
static int check_found(const struct api_volume *v, const struct wish *w, const Csi__V1__TopologyRequirement *t,
                       struct err *err)
{
    if (order_state_of(v) == ORDER_LEAVING) {
        err_set(err, ERR_PENDING, "volume '%s': what was ordered before is still to go", v->meta.name);
        return err_advise(err, 5105, "ask again");
    }
    int r = order_matches(v, w, err);
    if (r == 0 && !is_accessible(t, v->node)) {
        err_set(err, ERR_EXISTS, "volume '%s' is on node %s already, and is asked for elsewhere", v->meta.name,
                v->node);
        r = err_advise(err, 2006, "delete it first, or ask for another name");
    }
    return r;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static bool is_answered(void *ctx, const json *object)
{
    struct err ignored;
    auto_api_volume v = NULL;
    (void)ctx;
    return object && api_volume_read(object, &v, &ignored) == 0 && order_state_of(v) != ORDER_OPEN;
}

static int still_open(const struct api_volume *v, struct err *err)
{
    err_set(err, ERR_PENDING, "volume '%s': node %s has not made it yet", v->meta.name, v->node);
    return err_advise(err, 5108, "ask again; see whether the driver runs on that node");
}

static bool is_refused(const struct api_volume *v)
{
    return order_state_of(v) == ORDER_REFUSED;
}

/* What the node has refused is taken back before the caller hears of it: it may go elsewhere with the same name. */
static int refuse(struct control *c, const struct api_volume *v, struct err *err)
{
    struct err trouble;
    int r = order_refusal(v, err);
    if (volume_withdraw(c, v, is_refused, &trouble) < 0)
        return err_copy(err, &trouble);
    log_err(LOG_INFO, "order refused and withdrawn", err, "name", v->meta.name, "node", v->node, NULL);
    return r;
}

static int await_answer(struct control *c, struct rpc_call *call, const struct api_volume *seen,
                        struct api_volume **ret, struct err *err)
{
    auto_api_volume v = NULL;
    /* As long as the caller does: what it is told before that it shows as a failure, and a node that makes many volumes
     * at once is none. */
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
    err_set(err, ERR_PENDING, "volume '%s' was given up while it was waited for", v->meta.name);
    return err_advise(err, 5105, "ask again");
}

/* Finds the order, or makes it. Of two calls, or a call whose answer was lost, the first order counts. */
static int find_or_order(struct control *c, struct wish *w, const Csi__V1__TopologyRequirement *t,
                         struct api_volume **ret, struct err *err)
{
    int r = volume_get(c, w->volume->meta.name, ret, err);
    if (r != -ERR_NOT_FOUND)
        return r;
    r = order_new(c, w, t, ret, err);
    return r == -ERR_EXISTS ? volume_get(c, w->volume->meta.name, ret, err) : r;
}

static const char *parameter(const Csi__V1__CreateVolumeRequest *q, const char *key)
{
    for (size_t i = 0; i < q->n_parameters; i++)
        if (strcmp(q->parameters[i]->key, key) == 0)
            return q->parameters[i]->value;
    return NULL;
}

/* Will asking again in a moment not mend it? A node that is full sends the pod elsewhere, and that is told there. */
static bool is_for_a_person(const struct err *err)
{
    switch (err->code) {
    case ERR_INVALID:
    case ERR_RANGE:
    case ERR_DENIED:
    case ERR_EXISTS:
    case ERR_UNSUPPORTED:
        return true;
    default:
        return false;
    }
}

static int tell_failure(struct control *c, const Csi__V1__CreateVolumeRequest *q, const struct err *err)
{
    if (is_for_a_person(err))
        claim_tell(c, parameter(q, "csi.storage.k8s.io/pvc/namespace"), parameter(q, "csi.storage.k8s.io/pvc/name"),
                   err);
    return -(int)err->code;
}

HANDLER(control_create)
{
    struct control *c = ctx;
    const Csi__V1__CreateVolumeRequest *q = (const Csi__V1__CreateVolumeRequest *)request;
    Csi__V1__CreateVolumeResponse *p = (Csi__V1__CreateVolumeResponse *)reply;
    auto_with(wish_done) struct wish w = {0};
    auto_api_volume seen = NULL;
    auto_api_volume made = NULL;
    int r = wish_read(call, q, &w, err);
    if (r == 0)
        r = copies_are_whole(c, err);
    if (r == 0)
        r = find_or_order(c, &w, q->accessibility_requirements, &seen, err);
    if (r == 0)
        r = check_found(seen, &w, q->accessibility_requirements, err);
    /* A repeated call bumps too: the first one may have died before it did. */
    if (r == 0 && order_state_of(seen) == ORDER_OPEN)
        r = pool_bump(c, seen->node, seen->pool, err);
    if (r == 0)
        r = await_answer(c, call, seen, &made, err);
    if (r < 0)
        return tell_failure(c, q, err);
    p->volume = volume_on_node(call, made->volume_id, made->capacity_bytes, made->node);
    return 0;
}
