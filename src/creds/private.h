/* SPDX-License-Identifier: Apache-2.0 */
/* creds_private.h - what creds.c and the sources of credentials share. */
#pragma once

#include "creds/creds.h"
#include "creds/grant.h"
#include <pthread.h>

struct creds {
    _Atomic unsigned refs; /* the store's, and a fetch's under way: its answer may come after the store has gone */
    struct creds_source source;
    char *skipped; /* owned; NULL: none */
    struct metric *exchanges;
    struct metric_series *expiry;
    pthread_mutex_t lock;                              /* guards what follows */
    struct creds_identity *now;                        /* owned reference */
    char rejected_fingerprint[CREDS_FINGERPRINT_SIZE]; /* of the one that creds_reject was called for; "" after another
                                                          came */
    bool fetching;
    uint64_t retry_after_ns; /* the fetch under way writes it, creds_fetched reads it */
    uint64_t refused_ns;     /* when a fetch last failed, 0 if none did */
    uint64_t pause_ns;       /* no other is made for so long after it */
    unsigned failures;       /* in a row that may pass by themselves */
    struct err refused;
    struct list waiters;
};

/* One grant's exchange, to be made once. Opens only. */
must_check int creds_open_gcp_grant(const struct grant *g, struct creds **ret, struct err *err);
must_check int creds_open_aws_grant(const struct grant *g, struct creds **ret, struct err *err);

/* Ends a fetch with an error, which becomes CIS_TOKEN_EXCHANGE_FAILED if it has no id. */
void creds_refused(struct creds *c, const struct err *why);

/* Ends a fetch with the reply to an exchange: `read` makes the identity of it. `err` as in exchange_request.done. */
void creds_replied(struct creds *c,
                   int (*read)(int status, struct str body, struct creds_identity **ret, struct err *err), int status,
                   struct str body, const struct err *err);

/* The identity that the store refused, if the fetch that is due is because of that. */
bool creds_rejected_fingerprint(struct creds *c, char *buf);

/* Keeps the text for creds_skipped(). */
void creds_note_skipped(struct creds *c, struct sbuf *skipped);

/* The vendors' chains. */
must_check int creds_open_aws(const struct creds_options *o, struct creds **ret, struct err *err);
must_check int creds_open_gcp(const struct creds_options *o, struct creds **ret, struct err *err);
struct creds *creds_new_anonymous(void);

/* Is the credential broker configured (CISTERN_BROKER_URL)? */
bool creds_has_broker(void);
must_check int creds_open_broker(enum creds_kind kind, struct creds **ret, struct err *err);

/* As creds_wait(), for sources whose fetch has to begin on the worker's loop. */
must_check int creds_wait_on_loop(struct creds *c, struct worker *worker, struct creds_identity **ret, struct err *err);
