/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h - whose turn it is to export, where only so many volumes may at once. Pure: who waits is looked at again by
 * whoever owns the turns, under whose lock they are.
 *
 * First come, first served, but for one whose node is busy: those behind it that go to other nodes pass it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { TURNS_MAX = 4096 }; /* of `most`; more is no limit */

struct turns {
    unsigned most, most_a_node; /* at once; 0: no limit. Set once */
    struct turn *first;         /* owned; in the order in which they came */
};

/* May this volume, on that node, export now? It waits in its place if not, or in vain, until turns_leave(). `runs`: it
 * does already, whatever the limits say. */
bool turns_take(struct turns *t, const char *volume, const char *node, bool runs);

/* It wants nothing any more, or not now; one that never came is fine. */
void turns_leave(struct turns *t, const char *volume);

/* Who waits comes again, or does not: for one who led before, and leads again. */
void turns_forget_waiting(struct turns *t);

/* The volume that waits and could take its turn now; NULL: none. The turns' own text, until they change. */
const char *turns_next(const struct turns *t);

void turns_done(struct turns *t);
