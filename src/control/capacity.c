/* SPDX-License-Identifier: Apache-2.0 */
/* GetCapacity, from the pools as their nodes last told of them. external-provisioner publishes the answers, so that the
 * scheduler leaves full nodes aside; whether a volume fits is decided on the node. */
#include "contract/caps.h"
#include "private.h"

struct sum {
    struct control *c;
    const char *pool;
    const char *node; /* NULL: all of them */
    bool node_is_known;
    uint64_t available, largest;
};

static int add_pool(void *ctx, struct str key, const json *object)
{
    struct sum *s = ctx;
    struct err ignored;
    auto_api_pool p = NULL;
    (void)key;
    if (api_pool_read(object, &p, &ignored) < 0 || strcmp(p->pool, s->pool) != 0 || !api_pool_is_healthy(p))
        return 0;
    /* A machine that is gone has nothing to give, whatever its pool last said. */
    auto_json node = kube_informer_get(s->c->o.nodes, STR_NULL, str_of(p->node));
    if (!node)
        return 0;
    s->available += min_u64(p->available_bytes, UINT64_MAX - s->available);
    s->largest = max_u64(s->largest, p->largest_volume_bytes);
    return 0;
}

static int keep_known(void *ctx, struct str key, const json *object)
{
    struct sum *s = ctx;
    struct err ignored;
    auto_api_pool p = NULL;
    (void)key;
    s->node_is_known |= api_pool_read(object, &p, &ignored) == 0 && strcmp(p->node, s->node) == 0 && p->health;
    return s->node_is_known ? -1 : 0;
}

/* An answer of 0 stands until external-provisioner's next poll, a minute later; an error is asked again at once. So 0
 * is only for a node that has told of its pools, and an error never for long: external-provisioner queues what failed
 * once more at each poll. */
static int add_node(struct sum *s, struct err *err)
{
    auto_api_pool p = NULL;
    int r = pool_get(s->c, s->node, s->pool, &p, err);
    if (r < 0)
        return r;
    if (p && api_pool_is_healthy(p)) {
        s->available = p->available_bytes;
        s->largest = p->largest_volume_bytes;
    }
    if (p && p->health)
        return 0;
    (void)kube_informer_each(s->c->o.pools, -1, STR_NULL, keep_known, s);
    if (!p && s->node_is_known)
        return 0;
    err_set(err, ERR_AGAIN, "node %s has not reported pool '%s' yet", s->node, s->pool);
    return err_advise(err, 5114, "ask again");
}

HANDLER(control_capacity)
{
    struct control *c = ctx;
    const Csi__V1__GetCapacityRequest *q = (const Csi__V1__GetCapacityRequest *)request;
    struct err unfit;
    auto_spec class = spec_new();
    class->in_cluster = true;
    int r = pairs_apply(class, pairs_of(call, q, parameters), q->n_parameters, spec_set_parameter, err);
    if (r == 0)
        r = spec_check(class, err);
    if (r == 0)
        r = copies_are_whole(c, err);
    if (r < 0)
        return r;
    struct sum s = {.c = c, .pool = class->params.pool};
    s.node = q->accessible_topology ? topology_node(q->accessible_topology) : NULL;
    if (s.node)
        r = add_node(&s, err);
    else if (!q->accessible_topology || q->accessible_topology->n_segments == 0)
        (void)kube_informer_each(c->o.pools, -1, STR_NULL, add_pool, &s);
    bool fits =
        q->n_volume_capabilities == 0 || caps_check_all(q->volume_capabilities, q->n_volume_capabilities, &unfit) == 0;
    if (r == 0)
        capacity_reply(call, class, fits, s.available, s.largest, (Csi__V1__GetCapacityResponse *)reply);
    return r;
}
