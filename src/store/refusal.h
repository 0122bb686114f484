/* SPDX-License-Identifier: Apache-2.0 */
/* refusal.h - a 401 or 403 in the midst of answers that were given: a grant that is not felt everywhere yet, a session
 * that lapsed. It is asked again a few times; one from the start means what it says and is told at once.
 * home: any thread; a struct of atomics, the store's. */
#pragma once

#include "backend.h"
#include <stdatomic.h>

struct refusals {
    _Atomic uint32_t served;  /* bits of enum job_op: what was given at least once */
    _Atomic unsigned lasting; /* requests that were refused to their last attempt */
};

void refusal_served(struct refusals *r, enum job_op op);
void refusal_lasted(struct refusals *r);

/* So many attempts in all for a request that was refused. `renewed`: the next one comes with other credentials. */
unsigned refusal_attempts(const struct refusals *r, enum job_op op, bool renewed);
