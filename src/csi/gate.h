/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - a volume is published when its data is there, and not before. home: the call's thread. */
#pragma once

#include "driver.h"

/* Waits for the hydration, up to 100 s or a second less than the caller will; then ERR_AGAIN (CIS3015) with the
 * progress, and the caller asks again. A hydration that failed is told at once (CIS3016) while it is tried again. Only
 * so many calls wait at a time that others still find a thread (rpc_sleep_until); the others are told at once.
 * Nobody waits on for a pod that goes: ERR_AGAIN (CIS3018) when its other volumes are taken away (siblings.h). */
must_check int gate_wait(struct driver *d, struct rpc_call *call, const struct volume *v, const char *target,
                         struct err *err);

/* Sends those who wait for this volume away with ERR_BUSY (CIS4030): it is being released. */
void gate_call_off(const char *id);
/* Sends away, with ERR_AGAIN (CIS3018), who waits to publish at this path: it is unpublished, and what came later would
 * stay. */
void gate_call_off_target(const char *target);
