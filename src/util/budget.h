/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h - a fixed budget of aligned buffers for the bytes in flight: what finds none waits, so memory is bounded.
 * home: any thread, under its own lock. */
#pragma once

#include "util/err.h"

/* 1 MiB: O_DIRECT at full speed from depth 4 on. What wants less shares a slice with others of its size: a half of it,
 * a quarter ... down to 16 KiB, so that hundreds of small objects in flight fit. */
enum { SLICE_BYTES = 1 << 20 };

struct budget;

/* Somebody without memory. It is told, on the thread that gave some back, that enough is kept for it; it then posts to
 * its own loop, and there takes it or says budget_forget: until then nobody else gets it. `wake` only posts: it takes
 * nothing itself. A waiter holds nothing while it waits (else two could wait for each other). Zeroed before its first
 * use. */
struct budget_waiter {
    struct budget_waiter *next; /* the budget's */
    bool queued;                /* the budget's */
    size_t bytes;               /* the budget's: as much as it wants */
    void *kept;                 /* the budget's: woken, and has not taken yet */
    void (*wake)(struct budget_waiter *w);
};

/* `bytes` is rounded down to slices, at least one. The memory is mapped when first used and stays mapped. ERR_NO_SPACE
 * (CIS1516): so much address space is not to be had. */
must_check int budget_new(uint64_t bytes, struct budget **ret, struct err *err);
void budget_free(struct budget *b); /* everything must be back */

/* Memory for `bytes`, at most SLICE_BYTES, aligned to 4 KiB, or NULL: then `w` is queued (first come, first served) and
 * woken once. A waiter that is woken asks for as much again. `w` NULL means "only if some is free", and that nobody
 * waits for. */
void *budget_take(struct budget *b, size_t bytes, struct budget_waiter *w);
void budget_give(struct budget *b, void *own_memory);
/* No longer waits, nor wants what is kept for it; not woken after this returns. Any waiter, at any time. */
void budget_forget(struct budget *b, struct budget_waiter *w);
uint64_t budget_bytes_out(struct budget *b); /* slices in use now, wholly or in part */
