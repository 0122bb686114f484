/* SPDX-License-Identifier: Apache-2.0 */
/* next.h - what an order and the disk together ask for, and what the node answers. Pure. */
#pragma once

#include "facts.h"

enum next {
    NEXT_IGNORE,    /* an order for somebody else */
    NEXT_MAKE,      /* the volume is to be made */
    NEXT_TAKE_OVER, /* it was made and is gone with its disk: it is made anew under its id, as onDataLoss says */
    NEXT_LOST,      /* the same, but the loss is to be told and nothing else */
    NEXT_ABSENT,    /* it was made, and its pool is not here now: it is waited for */
    NEXT_REFUSE,  /* it never was made and cannot be here: its pool is another one now, or there is none of its name */
    NEXT_REFUSED, /* that was said already, or another refusal: until the order changes, nothing is to be done */
    NEXT_CHANGE,  /* what may change is to be stored */
    NEXT_RELEASE, /* it is to go */
    NEXT_REOPEN,  /* its release was withdrawn */
    NEXT_KEEP,
};

enum next next_of(const struct api_volume *order, const char *node, const struct facts *f);
const char *next_name(enum next n);

/* What became of it. */
struct outcome {
    enum next next;
    const struct err *failure; /* NULL: it was done */
    enum release_step release; /* of NEXT_RELEASE that was done */
};

/* Is this failure a verdict that the controller has to hear, rather than trouble that may pass? NULL, or the reason of
 * the condition Provisioned. */
const char *refusal_reason(const struct err *failure);

/* Makes order->status what is true now. The controller's own conditions are left out: they are not ours to write. */
void status_build(struct api_volume *order, const struct facts *f, const struct outcome *o, int64_t now_ns);

/* The same for a volume whose files on the disk cannot be read: nobody can say more of it than that. */
void status_build_unreadable(struct api_volume *order, const struct err *why, int64_t now_ns);

/* How a status differs from the last that was written. */
enum status_change {
    STATUS_SAME,
    STATUS_USAGE,    /* some bytes more or less in a volume that is in use */
    STATUS_PROGRESS, /* numbers of what travels */
    STATUS_TOLD,     /* what somebody waits for: phase, conditions, capacity, errors */
};
enum status_change status_compare(const struct api_volume *before, const struct api_volume *now);

/* Does something travel, so that the disk is to be looked at again soon? */
bool status_is_active(const struct api_volume *v);
