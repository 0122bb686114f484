/* SPDX-License-Identifier: Apache-2.0 */
/* keyspace.h - guesses where to split an unread range of keys, from the keys seen so far. Pure. home: the lock of its
 * owner. A bad guess costs requests only: any key splits a range in two. */
#pragma once

#include "util/str.h"

/* Positions after the prefix whose bytes are distinguished; later ones count as one. */
enum { KEYSPACE_POSITIONS = 64 };

struct keyspace {
    size_t prefix_len;
    unsigned char seen[KEYSPACE_POSITIONS][128]; /* ASCII bytes seen at a position */
    unsigned char anywhere[128];
};

void keyspace_see(struct keyspace *k, struct str key);

enum keyspace_trust {
    KEYSPACE_SEEN, /* bytes seen at this position; if one was a digit, all digits */
    KEYSPACE_GUESS /* bytes seen at any position: finds keys with a new first byte, but often none */
};

/* Guesses a key between `after` and `end` (empty: no end), about the middle one of the keys that the trusted bytes can
 * form. False: no guess. `ret` is overwritten. */
bool keyspace_split(const struct keyspace *k, struct str after, struct str end, enum keyspace_trust trust,
                    struct sbuf *ret);

/* Guesses a key strictly between `from` and `end` (empty: no end), the given number of pages after `from`, at the
 * density of the page from `first` to `last`. False: no guess. `ret` is overwritten. */
bool keyspace_ahead(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end,
                    double pages, struct sbuf *ret);

/* Number of pages between `from` and `end`, if keys are spread as evenly as on the page from `first` to `last`. */
double keyspace_pages(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end);
