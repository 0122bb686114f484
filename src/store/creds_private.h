/* SPDX-License-Identifier: Apache-2.0 */
/* creds_private.h - what a source of credentials gives to creds.c. */
#pragma once

#include "creds.h"
#include <pthread.h>

/* home: frozen. */
struct creds_source {
    const char *name;   /* static */
    const char *method; /* static: the label of cistern_token_exchanges_total */
    void *self;         /* owned */
    void (*free_self)(void *self);
    /* Fetches an identity on the worker's loop; ends in creds_fetched(), at once or later. */
    void (*fetch)(struct creds *c, struct worker *w);
};

struct creds {
    _Atomic unsigned
        refs; /* the store's, and that of a fetch under way: its answer may come after the store has gone */
    struct creds_source source;
    struct metric *exchanges;
    struct metric_series *expiry;
    pthread_mutex_t lock; /* guards what follows */
    struct identity *now; /* owned reference */
    bool fetching;
    uint64_t refused_ns; /* when a fetch last failed, 0 if none did */
    struct err refused;
    struct creds_waiter *waiters;
};

struct creds *creds_new(const struct creds_source *source, struct identity *own_first);

/* The end of a fetch: an identity, which is taken, or an error. */
void creds_fetched(struct creds *c, struct identity *own_i, const struct err *err);
