/* SPDX-License-Identifier: Apache-2.0 */
/* creds_private.h - what creds.c and the sources of credentials share. */
#pragma once

#include "creds.h"
#include "grant.h"
#include <pthread.h>

struct creds {
    _Atomic unsigned refs; /* the store's, and a fetch's under way: its answer may come after the store has gone */
    struct creds_source source;
    struct metric *exchanges;
    struct metric_series *expiry;
    pthread_mutex_t lock;                   /* guards what follows */
    struct identity *now;                   /* owned reference */
    char refused_print[IDENTITY_PRINT_MAX]; /* of the one that creds_reject was called for; "" after another came */
    bool fetching;
    uint64_t retry_after_ns; /* the fetch under way writes it, creds_fetched reads it */
    uint64_t refused_ns;     /* when a fetch last failed, 0 if none did */
    uint64_t pause_ns;       /* no other is made for so long after it */
    unsigned failures;       /* in a row that may pass by themselves */
    struct err refused;
    struct creds_waiter *waiters;
};

/* One grant's exchange, to be made once. Opens only. */
must_check int creds_open_gcp_grant(const struct grant *g, struct creds **ret, struct err *err);
must_check int creds_open_aws_grant(const struct grant *g, struct creds **ret, struct err *err);

/* The identity that the store refused, if the fetch that is due is because of that. */
bool creds_refused_print(struct creds *c, char *buf);

/* What no store has a way of its own for: an identity that was given, none at all (anonymous), the broker's
 * (CISTERN_BROKER_URL). `scheme` is what the store speaks. *ret NULL: the store's own ways follow. */
must_check int creds_open_common(const struct store_options *o, const char *scheme, struct creds **ret,
                                 struct err *err);
struct creds *creds_new_anonymous(void);

/* Who sent us here gives our credentials: CISTERN_BROKER_URL. */
bool creds_has_broker(void);
must_check int creds_open_broker(const char *scheme, struct creds **ret, struct err *err);
