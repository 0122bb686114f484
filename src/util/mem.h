/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - an arena for what dies together, and a fixed budget of aligned buffers for the bytes in flight. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <pthread.h>

/* ---- arena: many small things, one free. home: whoever owns it. ---------------------------------------------------
 */
struct arena;
struct arena *arena_new(size_t block_bytes, size_t ceiling_bytes);
void arena_free(struct arena *a);
DEFINE_AUTO(arena, struct arena, arena_free)
#define auto_arena auto_with(auto_clean_arena) struct arena *
void *arena_alloc(struct arena *a, size_t size);                /* zeroed, 16-aligned; NULL past the ceiling */
bool arena_dup(struct arena *a, struct str s, struct str *ret); /* a copy, NUL behind it; false past the ceiling */
void arena_reset(struct arena *a);                              /* keeps the first block */
size_t arena_used(const struct arena *a);

/* ---- budget: slices of bytes in flight. home: any thread, under its own lock. -------------------------------------
 */

/* 1 MiB: O_DIRECT at full speed from depth 4 on, and 64 small objects in flight stay below 64 MiB. */
enum { SLICE_BYTES = 1 << 20 };

struct budget;

/* Somebody without a slice. It is told, on the thread that gave one back, that it may try again; it then posts to its
 * own loop. It never holds a slice while it waits (else two could wait for each other). */
struct budget_waiter {
    struct budget_waiter *next; /* the budget's */
    bool queued;                /* the budget's */
    void (*wake)(struct budget_waiter *w);
};

/* `bytes` is rounded down to slices, at least one. The memory is mapped when first used and stays mapped. */
struct budget *budget_new(uint64_t bytes);
void budget_free(struct budget *b); /* every slice must be back */

/* A slice of SLICE_BYTES, aligned to 4 KiB, or NULL: then `w` is queued (first come, first served) and woken once.
 * `w` NULL means "only if one is free". */
void *budget_take(struct budget *b, struct budget_waiter *w);
void budget_give(struct budget *b, void *own_slice);
void budget_forget(struct budget *b, struct budget_waiter *w); /* no longer waits; not woken after this returns */
uint64_t budget_bytes_out(const struct budget *b);
