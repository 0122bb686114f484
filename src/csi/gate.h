/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - a volume is published when its data is there, and not before. home: the call's thread. */
#pragma once

#include "driver.h"

/* A call that publishes a volume, from before it looks until it has mounted or failed: whoever takes the volume or the
 * path back meanwhile calls it off. */
enum gate_word { GATE_GO, GATE_IS_RELEASED, GATE_IS_UNPUBLISHED };
struct waiter {
    const char *id, *target; /* borrowed */
    enum gate_word word;
    bool is_in;
    struct waiter *next;
};
void gate_enter(struct waiter *w, const char *id, const char *target);
void gate_leave(struct waiter *w); /* may run twice */
#define auto_waiter auto_with(gate_leave) struct waiter

/* Was it called off? ERR_BUSY (CIS3022): the volume is being released; ERR_AGAIN (CIS3018): the path is unpublished.
 * Asked once more with the volume's claim held: what comes later finds the mount and takes it away. */
must_check int gate_check(const struct waiter *w, struct err *err);

/* Waits for the hydration, up to 100 s or a second less than the caller will; then ERR_AGAIN (CIS3015) with the
 * progress, and the caller asks again. A hydration that failed is told at once (CIS3016) while it is tried again. Only
 * so many calls wait at a time that others still find a thread (rpc_sleep_until); the others are told at once.
 * Nobody waits on for a pod that goes: gate_check(), and ERR_AGAIN (CIS3018) when its other volumes are taken away
 * (siblings.h). */
must_check int gate_wait(struct driver *d, struct rpc_call *call, const struct volume *v, const struct waiter *w,
                         struct err *err);

void gate_call_off(const char *id);            /* those who publish this volume: it is being released */
void gate_call_off_target(const char *target); /* those who publish at this path: it is unpublished */
