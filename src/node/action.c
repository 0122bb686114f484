/* SPDX-License-Identifier: Apache-2.0 */
#include "action.h"

static bool was_made(const struct api_volume *order)
{
    return api_condition_is(&order->status.conditions, API_PROVISIONED, API_TRUE);
}

/* A refusal holds for one generation of the order: the controller withdraws it and tries another node. */
static bool was_refused(const struct api_volume *order)
{
    const struct api_condition *c = api_condition_find(&order->status.conditions, API_PROVISIONED);
    return c && c->status == API_FALSE && order->status.observed_generation == order->meta.generation;
}

static enum volume_action for_absent(const struct api_volume *order, const struct observed *f)
{
    if (was_made(order)) {
        if (!f->pool || !f->is_replaced)
            return ACTION_ABSENT;
        return api_volume_choice(order, "onDataLoss") == DATA_LOSS_FAIL ? ACTION_LOST : ACTION_TAKE_OVER;
    }
    if (was_refused(order))
        return ACTION_REFUSED;
    return f->pool && f->id_is_of_pool ? ACTION_MAKE : ACTION_REFUSE;
}

enum volume_action action_of(const struct api_volume *order, const char *node, const struct observed *f)
{
    if (!order->node || strcmp(order->node, node) != 0)
        return ACTION_IGNORE;
    if (order->release_requested)
        return ACTION_RELEASE;
    if (!f->here)
        return for_absent(order, f);
    if (f->use.release != RELEASE_OPEN)
        return ACTION_REOPEN;
    return f->differs ? ACTION_CHANGE : ACTION_KEEP;
}

const char *action_name(enum volume_action n)
{
    static const char *const names[] = {
        [ACTION_IGNORE] = "ignore",   [ACTION_MAKE] = "make",     [ACTION_TAKE_OVER] = "take over",
        [ACTION_LOST] = "lost",       [ACTION_ABSENT] = "absent", [ACTION_REFUSE] = "refuse",
        [ACTION_REFUSED] = "refused", [ACTION_CHANGE] = "change", [ACTION_RELEASE] = "release",
        [ACTION_REOPEN] = "reopen",   [ACTION_KEEP] = "keep",
    };
    return names[n];
}

const char *refusal_reason(const struct err *failure)
{
    switch (failure->code) {
    case ERR_NO_SPACE:
        return API_REASON_NODE_FULL;
    case ERR_RANGE:
        return API_REASON_OUT_OF_RANGE;
    case ERR_INVALID:
    case ERR_UNSUPPORTED:
        return API_REASON_INVALID;
    case ERR_EXISTS:
        return API_REASON_EXISTS;
    case ERR_CHANGED:
        return API_REASON_POOL_CHANGED;
    default:
        return NULL;
    }
}
