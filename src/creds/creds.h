/* SPDX-License-Identifier: Apache-2.0 */
/* creds.h - gets credentials for an object store from a chain of sources in the vendor's order, and refreshes them.
 * home: any thread, under its own lock. An identity is frozen and counted: requests in progress keep theirs. Secrets
 * never reach a log, an error or a core dump's text. At 80 % of an identity's life one caller fetches the next one on
 * its own worker. The others use the old one while it is valid, and then wait. A refused fetch is repeated after 20 s
 * at the earliest; a temporary failure (no reply, 429, 5xx) after 100 ms, doubled each time.
 * Code: creds.c, open.c (kinds, opening) and aws.c for creds_aws_profile_value(). */
#pragma once

#include "io/worker.h"

/* Kinds of credentials. To add one: write a file beside aws.c, list it in CMakeLists.txt, and add its row to
 * creds_kinds in open.c. The broker needs a row for each kind. */
enum creds_kind { CREDS_NONE, CREDS_AWS, CREDS_GOOGLE, CREDS_KINDS };

/* The broker's protocol names a kind by the URI scheme of its stores: "s3", "gs". NULL for CREDS_NONE. */
const char *creds_kind_name(enum creds_kind kind);
enum creds_kind creds_kind_of(struct str name); /* CREDS_NONE: unknown */

struct creds_identity {
    _Atomic unsigned refs;
    char *access_key_id; /* owned, s3 */
    char *secret;        /* owned, s3 */
    char *session_token; /* owned, s3; NULL: not used */
    char *bearer;        /* owned, gs: "Bearer ..." */
    int64_t born_ns;     /* wall clock */
    int64_t expires_ns;  /* wall clock; 0: never */
    bool anonymous;
};

struct creds_identity *creds_identity_new(void);
struct creds_identity *creds_identity_ref(struct creds_identity *i);
void creds_identity_unref(struct creds_identity *i); /* NULL is fine; wipes the secrets with the last */

/* Identifies an identity in logs: 16 hexadecimal digits of a hash of its secret. */
enum { CREDS_FINGERPRINT_SIZE = 17 };
char *creds_identity_fingerprint(const struct creds_identity *i, char *buf); /* returns buf */

DEFINE_AUTO(creds_identity, struct creds_identity, creds_identity_unref)
#define auto_creds_identity auto_with(auto_clean_creds_identity) struct creds_identity *

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

struct creds *creds_new(const struct creds_source *source, struct creds_identity *own_first);
void *creds_self(const struct creds *c);

/* Ends a fetch with an identity, which is consumed, or an error. */
void creds_fetched(struct creds *c, struct creds_identity *own_i, const struct err *err);

/* Called before a fetch reports its failure: no other fetch starts within pause_ns, nor within the pause of an earlier
 * failure. */
void creds_pause(struct creds *c, uint64_t pause_ns);

/* A caller that waits for an identity. `ready` is called once on `home`, with `identity` (owned by the waiter) or
 * `err`. */
struct creds_waiter {
    struct mail mail; /* private, like the next */
    struct list_node in_waiters;
    struct loop *home;
    void (*ready)(struct creds_waiter *w);
    struct creds_identity *identity;
    int code;
    struct err err;
};

struct creds_options {
    enum creds_kind kind;
    bool anonymous;
    struct creds_identity *identity; /* given by the caller, and used instead of any source; a reference. NULL: none */
    const char *profile;             /* profile in ~/.aws/config and credentials; NULL: AWS_PROFILE, else "default" */
    const char *region;              /* AWS: whose STS is asked */
};

/* Chooses the source: the given identity, anonymous, the broker, or the vendor's chain. Reads key files; sends no
 * request. */
must_check int creds_open(const struct creds_options *o, struct creds **ret, struct err *err);

/* Reads a value of the profile in ~/.aws/config; NULL: not set. The caller frees it. */
char *creds_aws_profile_value(const char *profile, const char *name);

void creds_free(struct creds *c); /* no waiter may be left; a fetch may still run; NULL is fine */

/* Returns a valid identity (owned by the caller), or NULL: then `w` is called later. `worker` makes the request if one
 * is due. */
struct creds_identity *creds_get(struct creds *c, struct worker *worker, struct creds_waiter *w);

/* Waits for an identity (owned by the caller) or an error. Not for loop threads. */
must_check int creds_wait(struct creds *c, struct worker *worker, struct creds_identity **ret, struct err *err);

/* Reports that the store rejected this identity: the next creds_get fetches another one. False: the source has
 * only this one. */
bool creds_reject(struct creds *c, const struct creds_identity *i);

/* "environment", "instance metadata": for messages and for doctor. */
const char *creds_source_name(const struct creds *c);

/* The sources before the one in use, and why each was skipped: "environment (AWS_ACCESS_KEY_ID is not set), ...".
 * Empty: it is the first, or the caller gave it. */
const char *creds_skipped(const struct creds *c);
