/* SPDX-License-Identifier: Apache-2.0 */
/* creds.h - who we are to a store: a chain of sources, tried in the vendor's order, and the refresh.
 * home: any thread, under its own lock. An identity is frozen and counted: requests under way keep the one they were
 * signed with. Secrets never reach a log, an error or a core of text: sentences name the source, not its content.
 *
 * At 80 % of an identity's life one caller fetches the next one, on its own worker; the others go on with the old one
 * while it is valid, and wait for the new one when it is not. A refused fetch is asked again after 20 s at the
 * earliest; one that failed in passing (no answer, 429, 5xx) after 100 ms, and twice as long each time. */
#pragma once

#include "io/worker.h"
#include "store/store.h"

struct identity {
    _Atomic unsigned refs;
    char *access_key_id; /* owned, s3 */
    char *secret;        /* owned, s3 */
    char *session_token; /* owned, s3; NULL where there is none */
    char *bearer;        /* owned, gs: "Bearer ..." */
    int64_t born_ns;     /* wall clock */
    int64_t expires_ns;  /* wall clock; 0: never */
    bool anonymous;
};

struct identity *identity_new(void);
struct identity *identity_ref(struct identity *i);
void identity_unref(struct identity *i); /* NULL is fine; wipes the secrets with the last */

/* Tells identities apart, and nothing else of them: 16 hexadecimal digits of a hash of the secret. */
enum { IDENTITY_PRINT_MAX = 17 };
char *identity_print(const struct identity *i, char *buf); /* returns buf */

DEFINE_AUTO(identity, struct identity, identity_unref)
#define auto_identity auto_with(auto_clean_identity) struct identity *

struct creds;

/* Where identities come from. home: frozen. */
struct creds_source {
    const char *name;   /* static */
    const char *method; /* static: the label of cistern_token_exchanges_total; NULL: not counted */
    void *self;         /* owned */
    void (*free_self)(void *self);
    /* Fetches an identity; ends in creds_fetched(), at once or later. Called on the thread of a creds_get, with its
     * worker. */
    void (*fetch)(struct creds *c, struct worker *w);
};

struct creds *creds_new(const struct creds_source *source, struct identity *own_first);
void *creds_self(const struct creds *c);

/* The end of a fetch: an identity, which is taken, or an error. */
void creds_fetched(struct creds *c, struct identity *own_i, const struct err *err);

/* For a fetch that will fail: no other before so long, nor sooner than any that failed so. */
void creds_pause(struct creds *c, uint64_t pause_ns);

/* Somebody who waits for an identity. `ready` is called once on `home`, with `identity` (the waiter's own) or `err`. */
struct creds_waiter {
    struct mail mail; /* ours, as is next */
    struct creds_waiter *next;
    struct loop *home;
    void (*ready)(struct creds_waiter *w);
    struct identity *identity;
    int code;
    struct err err;
};

/* Chooses the source; reads files of keys, asks no server yet. */
must_check int creds_open_aws(const struct store_options *o, const char *region, struct creds **ret, struct err *err);
must_check int creds_open_gcp(const struct store_options *o, struct creds **ret, struct err *err);

/* A value of the profile in ~/.aws/config; NULL if there is none. The caller frees. */
char *creds_aws_profile_value(const char *profile, const char *name);

void creds_free(struct creds *c); /* nobody waits any more, though a fetch may be under way; NULL is fine */

/* An identity at once, the caller's own, or NULL: then `w` is told later. `worker` makes the request if one is due. */
struct identity *creds_get(struct creds *c, struct worker *worker, struct creds_waiter *w);

/* The same for threads that are no loop's: waits until there is an identity, which is the caller's, or an error. */
must_check int creds_wait(struct creds *c, struct worker *worker, struct identity **ret, struct err *err);

/* The store does not take this one any more: the next creds_get gives another. False: there is no other. */
bool creds_reject(struct creds *c, const struct identity *i);

/* "environment", "instance metadata": for sentences and for doctor. */
const char *creds_source_name(const struct creds *c);
