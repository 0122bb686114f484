/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - the interface between creds.c and the sources of credentials. Private to this room. */
#pragma once

#include "creds/creds.h"
#include "creds/grant.h"
#include "util/json.h"
#include <pthread.h>

struct creds {
    _Atomic unsigned refs; /* of the store, and of a running fetch: its reply may outlive the store */
    struct creds_source source;
    char *skipped; /* owned; NULL: none */
    struct metric *exchanges;
    struct metric_series *expiry;
    pthread_mutex_t lock;                              /* guards the fields below */
    struct creds_identity *now;                        /* owned reference */
    char rejected_fingerprint[CREDS_FINGERPRINT_SIZE]; /* the rejected identity; "" after a new one */
    bool fetching;
    uint64_t retry_after_ns; /* the running fetch writes it, creds_fetched reads it */
    uint64_t refused_ns;     /* when a fetch last failed, 0 if none did */
    uint64_t pause_ns;       /* minimum time from that failure to the next fetch */
    unsigned failures;       /* consecutive temporary failures */
    struct err refused;
    struct list waiters;
};

/* Opens a source for one exchange of a grant; fetches nothing yet. */
must_check int creds_open_gcp_grant(const struct grant *g, struct creds **ret, struct err *err);
must_check int creds_open_aws_grant(const struct grant *g, struct creds **ret, struct err *err);

/* Ends a fetch with an error, which becomes CIS_TOKEN_EXCHANGE_FAILED if it has no id. */
void creds_refused(struct creds *c, const struct err *why);

/* Ends a fetch with the reply to an exchange; `read` parses it into an identity. `err` as in
 * exchange_request.done. */
void creds_replied(struct creds *c,
                   int (*read)(int status, struct str body, struct creds_identity **ret, struct err *err), int status,
                   struct str body, const struct err *err);

/* The fingerprint of the identity that the store rejected, if the running fetch is due to that. */
bool creds_rejected_fingerprint(struct creds *c, char *buf);

/* Keeps the text for creds_skipped(). */
void creds_note_skipped(struct creds *c, struct sbuf *skipped);

/* The functions of this room for one kind of credentials. */
struct creds_kind_row {
    const char *name;                                                                           /* creds_kind_name() */
    must_check int (*open)(const struct creds_options *o, struct creds **ret, struct err *err); /* the vendor's chain */
    must_check int (*read)(const json *j, struct creds_identity **ret, struct err *err); /* a reply of the broker */
    bool (*is_provider)(struct str host);                                                /* a store of the vendor */
};
extern const struct creds_kind_row creds_kinds[CREDS_KINDS];

must_check int creds_open_aws(const struct creds_options *o, struct creds **ret, struct err *err);
must_check int creds_open_gcp(const struct creds_options *o, struct creds **ret, struct err *err);
must_check int reply_read_access_key(const json *j, struct creds_identity **ret, struct err *err);
must_check int reply_read_token(const json *j, struct creds_identity **ret, struct err *err);
bool trust_is_amazon(struct str host);
bool trust_is_google(struct str host);
struct creds *creds_new_anonymous(void);

must_check int creds_open_broker(enum creds_kind kind, struct creds **ret, struct err *err);

/* As creds_wait(), for sources whose fetch must begin on the worker's loop. */
must_check int creds_wait_on_loop(struct creds *c, struct worker *worker, struct creds_identity **ret, struct err *err);
