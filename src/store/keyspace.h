/* SPDX-License-Identifier: Apache-2.0 */
/* keyspace.h - guesses where to split an unread range of keys, from the keys seen so far. Pure. home: the lock of its
 * owner. A bad guess costs requests only: any key splits a range in two. */
#pragma once

#include "util/str.h"

/* Positions after the prefix whose bytes are distinguished; later ones count as one. */
enum { KEYSPACE_POSITIONS = 64 };

struct keyspace {
    size_t prefix_len;
    unsigned char seen[KEYSPACE_POSITIONS][128]; /* which ASCII bytes stood at a position */
    unsigned char anywhere[128];
};

void keyspace_init(struct keyspace *k, size_t prefix_len);
void keyspace_see(struct keyspace *k, struct str key);

enum keyspace_trust {
    KEYSPACE_SEEN, /* bytes that stood at that very position; where there was a digit, any digit */
    KEYSPACE_GUESS /* bytes that stood anywhere: finds what begins with something new, and often nothing */
};

/* Guesses a key strictly between `from` and `end` (empty: no end), the given number of pages after `from`, at the
 * density of the page from `first` to `last`. False: no guess. `ret` is overwritten. */
bool keyspace_split(const struct keyspace *k, struct str after, struct str end, enum keyspace_trust trust,
                    struct sbuf *ret);

/* Guesses a key strictly between `from` and `end` (empty: no end), the given number of pages after `from`, at the
 * density of the page from `first` to `last`. False: no guess. `ret` is overwritten. */
bool keyspace_ahead(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end,
                    double pages, struct sbuf *ret);

/* How many pages like the one that went from `first` to `last` lie between `from` and `end`, were the keys spread
 * evenly. */
double keyspace_pages(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end);
