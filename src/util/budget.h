/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h - limits the memory of bytes in flight: a fixed number of aligned buffers, and a queue of waiters.
 * home: any thread, under its own lock. */
#pragma once

#include "util/err.h"
#include "util/list.h"

/* 1 MiB: O_DIRECT at full speed from depth 4 on. Smaller requests share a slice with others of their size: a half, a
 * quarter ... down to 16 KiB, so that hundreds of small objects in flight fit. */
enum { SLICE_BYTES = 1 << 20 };

struct budget;

/* A request that waits for memory. When memory is returned, enough of it is reserved for the waiter, and that thread
 * calls `wake`, which only posts to the waiter's loop. The loop calls budget_take again, or budget_cancel. A waiter
 * must own no memory of the budget (else two could wait for each other). Zeroed before its first use. */
struct budget_waiter {
    struct list_node node; /* the budget's */
    bool queued;           /* the budget's */
    size_t bytes;          /* the budget's: the size of the request */
    void *granted;         /* the budget's: reserved memory, not taken yet */
    void (*wake)(struct budget_waiter *w);
};

/* The default of bytes for buffers: a quarter of the control group's `limit`, `most` at most. ERR_NO_SPACE
 * (CIS_BUFFER_MEMORY): the limit is under `limit_min`. */
must_check int budget_default(uint64_t limit, uint64_t limit_min, uint64_t most, uint64_t *ret, struct err *err);

/* `bytes` is rounded down to slices, at least one. The memory is mapped when first used and stays mapped. ERR_NO_SPACE
 * (CIS_BUFFER_MEMORY): not enough address space. */
must_check int budget_new(uint64_t bytes, struct budget **ret, struct err *err);
void budget_free(struct budget *b); /* all memory must be returned */

/* Memory for `bytes`, at most SLICE_BYTES, aligned to 4 KiB, or NULL: then `w` is queued (first come, first served) and
 * woken once. A waiter that was woken asks for the same size. With `w` NULL it succeeds only if memory is free and
 * there is no waiter. */
void *budget_take(struct budget *b, size_t bytes, struct budget_waiter *w);
void budget_return(struct budget *b, void *own_memory);
/* Stops waiting and returns reserved memory; `wake` is not called after this returns. Any waiter, at any time. */
void budget_cancel(struct budget *b, struct budget_waiter *w);
uint64_t budget_bytes_out(struct budget *b); /* slices in use now, wholly or in part */
