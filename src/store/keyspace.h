/* SPDX-License-Identifier: Apache-2.0 */
/* keyspace.h - where to cut a range of keys that nobody has read yet, guessed from the keys that were seen. Pure.
 * home: whoever holds the lock that guards it. A guess may be bad, never wrong: any key cuts a range in two. */
#pragma once

#include "util/str.h"

/* Positions behind the prefix whose bytes are told apart; what lies behind them counts as one position. */
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

/* A key strictly between `after` and `end` (empty: no end), near the middle as far as that can be known; valid UTF-8 if
 * they are. False: none comes to mind. `ret` is written from its beginning. */
bool keyspace_split(const struct keyspace *k, struct str after, struct str end, enum keyspace_trust trust,
                    struct sbuf *ret);

/* A key strictly between `from` and `end` (empty: no end), so many pages behind `from`, were keys spread there as on
 * the page that went from `first` to `last`. False: it cannot be told. `ret` is written from its beginning. */
bool keyspace_ahead(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end,
                    double pages, struct sbuf *ret);

/* How many pages like the one that went from `first` to `last` lie between `from` and `end`, were the keys spread
 * evenly. */
double keyspace_pages(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end);
