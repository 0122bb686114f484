/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/health.h"
#include <assert.h>

struct health_item *health_add(struct health *h, Csi__V1__VolumeHealthErrorType status, const char *reason)
{
    assert(h->count < HEALTH_ITEMS_MAX);
    struct health_item *item = &h->items[h->count++];
    item->status = status;
    item->reason = reason;
    return item;
}

Csi__V1__VolumeCondition *health_condition(struct rpc_call *call, const struct health *h)
{
    Csi__V1__VolumeCondition *c = message_new(call, Csi__V1__VolumeCondition, csi__v1__volume_condition__init);
    c->abnormal = h->count > 0;
    const char *message = h->count > 0 ? h->items[0].message : h->progress[0] ? h->progress : "the volume is healthy";
    c->message = rpc_dup(call, str_of(message));
    return c;
}

Csi__V1__VolumeHealth *health_message(struct rpc_call *call, const char *id, const struct health *h)
{
    Csi__V1__VolumeHealth *m = message_new(call, Csi__V1__VolumeHealth, csi__v1__volume_health__init);
    m->volume_id = rpc_dup(call, str_of(id));
    m->health_statuses = rpc_alloc(call, h->count, sizeof *m->health_statuses);
    m->n_health_statuses = h->count;
    for (size_t i = 0; i < h->count; i++) {
        Csi__V1__VolumeHealth__VolumeHealthEntry *e = message_new(call, Csi__V1__VolumeHealth__VolumeHealthEntry,
                                                                  csi__v1__volume_health__volume_health_entry__init);
        e->status = h->items[i].status;
        e->reason = rpc_dup(call, str_of(h->items[i].reason));
        e->message = rpc_dup(call, str_of(h->items[i].message));
        m->health_statuses[i] = e;
    }
    return m;
}
