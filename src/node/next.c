/* SPDX-License-Identifier: Apache-2.0 */
#include "next.h"

static bool was_made(const struct api_volume *order)
{
    return api_condition_is(&order->status.conditions, API_PROVISIONED, API_TRUE);
}

/* A refusal stands for the order as it was: the controller withdraws it and asks elsewhere. */
static bool was_refused(const struct api_volume *order)
{
    const struct api_condition *c = api_condition_find(&order->status.conditions, API_PROVISIONED);
    return c && c->status == API_FALSE && order->status.observed_generation == order->meta.generation;
}

static enum next for_absent(const struct api_volume *order, const struct facts *f)
{
    const char *wish = api_volume_parameter(order, "onDataLoss");
    if (was_made(order)) {
        bool again = wish && (strcmp(wish, "rehydrate") == 0 || strcmp(wish, "empty") == 0);
        if (!f->space || !f->is_replaced)
            return NEXT_ABSENT;
        return again ? NEXT_TAKE_OVER : NEXT_LOST;
    }
    if (was_refused(order))
        return NEXT_REFUSED;
    return f->space && f->id_is_of_pool ? NEXT_MAKE : NEXT_REFUSE;
}

enum next next_of(const struct api_volume *order, const char *node, const struct facts *f)
{
    if (!order->node || strcmp(order->node, node) != 0)
        return NEXT_IGNORE;
    if (order->release_requested)
        return NEXT_RELEASE;
    if (!f->here)
        return for_absent(order, f);
    if (f->use.release != RELEASE_OPEN)
        return NEXT_REOPEN;
    return f->differs ? NEXT_CHANGE : NEXT_KEEP;
}

const char *next_name(enum next n)
{
    static const char *const names[] = {
        [NEXT_IGNORE] = "ignore",   [NEXT_MAKE] = "make",     [NEXT_TAKE_OVER] = "take over", [NEXT_LOST] = "lost",
        [NEXT_ABSENT] = "absent",   [NEXT_REFUSE] = "refuse", [NEXT_REFUSED] = "refused",     [NEXT_CHANGE] = "change",
        [NEXT_RELEASE] = "release", [NEXT_REOPEN] = "reopen", [NEXT_KEEP] = "keep",
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
