/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - an arena for what dies together, and a fixed budget of aligned buffers for the bytes in flight. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* ---- arena: many small things, one free. home: whoever owns it. -------------------------------------------------- */
struct arena;
struct arena *arena_new(size_t block_bytes, size_t ceiling_bytes);
void arena_free(struct arena *a);
DEFINE_AUTO(arena, struct arena, arena_free)
#define auto_arena auto_with(auto_clean_arena) struct arena *
void *arena_alloc(struct arena *a, size_t size);                /* zeroed, 16-aligned; NULL past the ceiling */
bool arena_dup(struct arena *a, struct str s, struct str *ret); /* a copy, NUL behind it; false past the ceiling */
void arena_reset(struct arena *a);                              /* keeps the first block */
size_t arena_used(const struct arena *a);

/* ---- budget: slices of bytes in flight. home: any thread, under its own lock. ------------------------------------ */

/* 1 MiB: O_DIRECT at full speed from depth 4 on, and 64 small objects in flight stay below 64 MiB. */
enum { SLICE_BYTES = 1 << 20 };

struct budget;

/* Somebody without a slice. It is told, on the thread that gave one back, that a slice is kept for it; it then posts to
 * its own loop, and there takes the slice or says budget_forget: until then nobody else gets that one. `wake` only
 * posts: it takes no slice itself. A waiter never holds a slice while it waits (else two could wait for each other).
 * Zeroed before its first use. */
struct budget_waiter {
    struct budget_waiter *next; /* the budget's */
    bool queued;                /* the budget's */
    bool granted;               /* the budget's: woken, and has not taken yet */
    void (*wake)(struct budget_waiter *w);
};

/* `bytes` is rounded down to slices, at least one. The memory is mapped when first used and stays mapped. */
struct budget *budget_new(uint64_t bytes);
void budget_free(struct budget *b); /* every slice must be back */

/* A slice of SLICE_BYTES, aligned to 4 KiB, or NULL: then `w` is queued (first come, first served) and woken once.
 * `w` NULL means "only if one is free", and that nobody waits for. */
void *budget_take(struct budget *b, struct budget_waiter *w);
void budget_give(struct budget *b, void *own_slice);
/* No longer waits, nor wants what is kept for it; not woken after this returns. Any waiter, at any time. */
void budget_forget(struct budget *b, struct budget_waiter *w);
uint64_t budget_bytes_out(struct budget *b); /* in use now, without what is kept for a waiter */

/* ---- a copy for the disk ----------------------------------------------------------------------------------------- */

/* memcpy() for bytes that no CPU reads again soon: they go past the caches where the machine can do that. */
void mem_copy_out(void *to, const void *from, size_t len);
