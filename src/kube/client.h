/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - requests to the API server: asynchronous on a loop, or blocking on any other thread.
 * home: the loop, except where "any thread" is noted. Callbacks run on the loop, never within kube_submit.
 *
 * Requests share one rate (a token bucket) and are sent in order; the queue has a limit. Idempotent requests (reads,
 * deletes, applies, merge patches) are retried with jitter after a broken connection or a 5xx. All requests are retried
 * after a Retry-After. Retries end with the request's timeout.
 *
 * Error codes: NotFound of an object is ERR_NOT_FOUND; of a kind, or a 404 without an object, ERR_UNSUPPORTED.
 * AlreadyExists is ERR_EXISTS. Conflict and a failed precondition are ERR_CHANGED. Forbidden and Unauthorized are
 * ERR_DENIED. Invalid and BadRequest are ERR_INVALID. 410, TooManyRequests and 5xx are ERR_AGAIN. Timeout is
 * ERR_TIMEOUT. A reply that is not of an API server is ERR_CORRUPT. */
#pragma once

#include "io/loop.h"
#include "kube/config.h"
#include "kube/resource.h"
#include "util/json.h"
#include "util/str.h"

struct kube;
struct kube_exchange; /* a request under way, with its retries and pages; it ends with on_done */
struct kube_lease;
struct kube_reply;

struct kube_options {
    unsigned qps;              /* requests a second; 0: 20 */
    unsigned burst;            /* sent at once after a rest; 0: 2 * qps */
    unsigned queue_max;        /* waiting for the rate; 0: 4,096. One more is ERR_NO_SPACE */
    size_t body_max;           /* limit of a reply (of a page, for a list) in bytes; 0: 32 MiB. More is ERR_NO_SPACE */
    const char *field_manager; /* and User-Agent; NULL: "cistern" */
};

enum kube_verb {
    KUBE_GET,
    KUBE_LIST,
    KUBE_CREATE,
    KUBE_REPLACE, /* fails with ERR_CHANGED unless body's metadata.resourceVersion is the object's */
    KUBE_DELETE,
    KUBE_JSON_PATCH,  /* body: an array of operations. A `test` that fails is ERR_INVALID */
    KUBE_MERGE_PATCH, /* a body with metadata.resourceVersion: ERR_CHANGED if the object has another one */
    KUBE_APPLY,       /* server-side apply; with `force`, fields of other managers are taken over */
};

enum kube_propagation { KUBE_BACKGROUND, KUBE_FOREGROUND };

struct kube_request {
    enum kube_verb verb;
    const struct kube_resource *resource; /* static */
    struct str ns;                        /* namespace of a namespaced resource; empty with KUBE_LIST: all namespaces */
    struct str name;                      /* name; none for KUBE_LIST, and for KUBE_CREATE only with a subresource */
    const char *subresource;              /* "status", "token", "eviction"; NULL: the object itself */
    const json *body;                     /* read within kube_submit */
    const char *field_manager;            /* NULL: the client's */
    bool force;                           /* KUBE_APPLY */

    struct str uid, resource_version;  /* KUBE_DELETE: only if the object has these; else ERR_CHANGED */
    enum kube_propagation propagation; /* KUBE_DELETE */

    /* KUBE_LIST reads all pages, and starts again if the server drops the list between two of them. on_page gets each
     * page (an array; take() it, or it is freed), and NULL for a new start: earlier pages are void then. Without
     * on_page the reply has all "items". */
    const char *label_selector, *field_selector;
    unsigned page_size; /* 0: 500 */
    void (*on_page)(void *ctx, json **own_items);

    /* Sent only while this lease is held, and cancelled when it ends: ERR_CANCELLED. Borrowed; NULL: always. */
    const struct kube_lease *fence;
    bool exempt;         /* from the rate limit: for rare requests that must not be late */
    uint64_t timeout_ns; /* for waiting, sending and retries together; for each page of a list; 0: 30 s */

    void *ctx;
    void (*on_done)(void *ctx, struct kube_reply *r); /* exactly once, last; not for kube_call */
};

struct kube_reply {
    int code;     /* 0, or -(enum err_code) with err set */
    int status;   /* HTTP; 0 if none came */
    json *object; /* NULL on failure. Freed after on_done, unless taken with take(&r->object) */
    struct err err;
};

/* Any thread before loop_start, or the loop. `c` is copied. */
must_check int kube_new(struct loop *l, const struct kube_config *c, const struct kube_options *o, struct kube **ret,
                        struct err *err);
void kube_free(struct kube *k); /* running requests end with ERR_CANCELLED first; NULL is fine */
DEFINE_AUTO(kube, struct kube, kube_free)
#define auto_kube auto_with(auto_clean_kube) struct kube *

/* Any thread: running and later requests end with ERR_CANCELLED, so that threads in kube_call can be joined. Only
 * releases of leases are still sent. */
void kube_stop(struct kube *k);

/* Errors go to on_done. The strings are copied. */
struct kube_exchange *kube_submit(struct kube *k, const struct kube_request *r);

/* Calls on_done with ERR_CANCELLED, after this returns. The server may have processed the request. */
void kube_cancel(struct kube_exchange *x);
/* The same without on_done: ctx may be freed. */
void kube_abandon(struct kube_exchange *x);

/* Sends the request and waits. Any thread but the loop's. on_page, if set, runs on the loop; on_done is not
 * called. *ret is the caller's; `ret` may be NULL. */
must_check int kube_call(struct kube *k, const struct kube_request *r, json **ret, struct err *err);

/* Requests sent since the start, repeated ones too. Any thread. */
uint64_t kube_requests_sent(const struct kube *k);
