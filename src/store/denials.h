/* SPDX-License-Identifier: Apache-2.0 */
/* denials.h - limits the retries of 401 and 403. After successful requests a denial may be temporary (a delayed grant,
 * an expired session) and is retried; at the start it is final. home: any thread; a struct of atomics, the store's. */
#pragma once

#include "backend.h"
#include <stdatomic.h>

struct store_denials {
    _Atomic uint32_t served;  /* bits of enum store_op: operations that succeeded at least once */
    _Atomic unsigned lasting; /* requests that were denied at their last attempt */
};

void denials_note_success(struct store_denials *r, enum store_op op);
void denials_note_final(struct store_denials *r);

/* The maximum number of attempts for a denied request. `renewed`: the next attempt has other credentials. */
unsigned denials_attempts_max(const struct store_denials *r, enum store_op op, bool renewed);
