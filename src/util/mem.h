/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - an arena, whose allocations are freed together, and a copy that bypasses the caches. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* ---- arena: many small things, one free. home: the owner's thread. ----------------------------------------------- */
struct arena;
struct arena *arena_new(size_t block_bytes, size_t ceiling_bytes);
void arena_free(struct arena *a);
DEFINE_AUTO(arena, struct arena, arena_free)
#define auto_arena auto_with(auto_clean_arena) struct arena *
void *arena_alloc(struct arena *a, size_t size);                /* zeroed, 16-aligned; NULL past the ceiling */
bool arena_dup(struct arena *a, struct str s, struct str *ret); /* a copy, NUL behind it; false past the ceiling */

/* ---- a copy for the disk ----------------------------------------------------------------------------------------- */

/* memcpy() for bytes that no CPU reads again soon: it bypasses the caches if the processor supports it. */
void mem_copy_out(void *to, const void *from, size_t len);
