/* SPDX-License-Identifier: Apache-2.0 */
/* trash.h - frees deleted volumes behind everybody's back, on a thread of its own: a million files take a while.
 * home: any thread, under its own lock. */
#pragma once

#include "volume/space.h"

struct trash;

/* `spaces` outlive it. Begins with what an earlier run left. */
must_check int trash_start(struct space *const *spaces, size_t count, struct trash **ret, struct err *err);
void trash_stop(struct trash *t); /* after the pass in hand; NULL is fine */
void trash_wake(struct trash *t); /* something was deleted */
