/* SPDX-License-Identifier: Apache-2.0 */
/* claims.h - who works on what: one call at a time for one volume. home: any thread, under its own lock.
 * A second call is not made to wait (its caller would time out and come again all the same): it gets ERR_PENDING.
 * A claim holds within this process; one that was held fast (claim_hold) also against the other driver of a roll. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <pthread.h>

enum { CLAIMS_MAX = 128, CLAIM_KEY_MAX = 160 }; /* more than there are threads; a CSI name has 128 bytes */

struct claims {
    pthread_mutex_t lock; /* guards keys */
    char keys[CLAIMS_MAX][CLAIM_KEY_MAX];
};

struct claim {
    struct claims *claims; /* borrowed; NULL: holds nothing */
    size_t slot;
    int file; /* owned; the lock in the volume's folder; 0: none */
};

void claims_init(struct claims *c);
void claims_done(struct claims *c);

/* `key` is a volume's id, or its name behind a '/' while it is being made. */
must_check int claim_take(struct claims *c, const char *key, struct claim *ret, struct err *err);
/* Against other processes: a lock in the volume's folder `dir`, which is looked for at `path`. ERR_PENDING;
 * ERR_NOT_FOUND if the folder is not at its place any more. */
must_check int claim_hold(struct claim *c, int dir, const char *path, struct err *err);
void claim_give(struct claim *c); /* may run twice */

#define auto_claim auto_with(claim_give) struct claim
