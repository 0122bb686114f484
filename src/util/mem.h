/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - an arena for what dies together, and a copy that leaves the caches alone. */
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
size_t arena_used(const struct arena *a);

/* ---- a copy for the disk ----------------------------------------------------------------------------------------- */

/* memcpy() for bytes that no CPU reads again soon: they go past the caches where the machine can do that. */
void mem_copy_out(void *to, const void *from, size_t len);
