/* SPDX-License-Identifier: Apache-2.0 */
/* keep.h - the credentials in hand, one for each way: fetched once however many ask, and again at 80 % of its life.
 * home: any thread; under its own lock. Bounded: KEEP_MAX ways, the one that was not used for longest is forgotten. */
#pragma once

#include "fetch.h"

struct keep;

enum { KEEP_MAX = 4096 };

struct keep *keep_new(const struct fetcher *f); /* `f` is borrowed */
void keep_free(struct keep *own_k);             /* nobody waits any more */

struct kept {
    struct identity *identity; /* the caller's */
    char method[FETCH_METHOD_MAX];
    char principal[FETCH_PRINCIPAL_MAX];
};

/* The way's credential: that in hand, or one that is fetched now. A failure is remembered for 20 s, or as long as the
 * cloud asks for. `refused`: the print of one that the store did not accept; it is not given again, but at most one is
 * fetched for that reason in 20 s. "": none. */
must_check int keep_get(struct keep *k, const struct route *r, const char *refused, struct kept *ret, struct err *err);
