/* SPDX-License-Identifier: Apache-2.0 */
/* action.h - Decides what the node does about an order, from the order and the volume on the disk. Pure. */
#pragma once

#include "observed.h"

enum volume_action {
    ACTION_IGNORE,    /* an order for another node */
    ACTION_MAKE,      /* create the volume */
    ACTION_TAKE_OVER, /* it was lost with its disk: create it again under its id, as onDataLoss says */
    ACTION_LOST,      /* it was lost with its disk: report that, and nothing else */
    ACTION_ABSENT,    /* its pool is not here now: wait for it */
    ACTION_REFUSE,    /* it was never created, and its pool was replaced or does not exist here */
    ACTION_REFUSED,   /* reported already; nothing to do until the order changes */
    ACTION_CHANGE,    /* store its new parameters */
    ACTION_RELEASE,
    ACTION_REOPEN, /* its release was withdrawn */
    ACTION_KEEP,
};

enum volume_action action_of(const struct api_volume *order, const char *node, const struct observed *f);
const char *action_name(enum volume_action a);

struct action_outcome {
    enum volume_action action;
    const struct err *failure; /* NULL: success */
    enum release_step release; /* of ACTION_RELEASE that succeeded */
};

/* The reason of the condition Provisioned for a failure that the controller has to decide on; NULL for a failure that
 * may pass. */
const char *refusal_reason(const struct err *failure);
