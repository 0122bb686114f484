/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - requests to the API server: jobs on a loop, or calls that wait on any other thread.
 * home: the loop, but for what says "any thread". Callbacks run on the loop, never from within kube_submit.
 *
 * Requests share one rate (a token bucket) and are sent in the order in which they came; the queue before it has a
 * ceiling. What is safe to repeat (reads, deletes, applies, merge patches) is repeated with jitter after a broken
 * connection or a 5xx, everything after a Retry-After; all within the request's time.
 *
 * Answers of the server in the alphabet of the house: NotFound of an object is ERR_NOT_FOUND (of a kind that is not
 * served, or a 404 that names no object, ERR_UNSUPPORTED), AlreadyExists ERR_EXISTS, Conflict (and a precondition that
 * does not hold) ERR_CHANGED, Forbidden and Unauthorized ERR_DENIED, Invalid and BadRequest ERR_INVALID, 410 ERR_AGAIN,
 * TooManyRequests and 5xx ERR_AGAIN, Timeout ERR_TIMEOUT, what is not an answer of an API server ERR_CORRUPT. */
#pragma once

#include "io/loop.h"
#include "kube/config.h"
#include "kube/resource.h"
#include "util/json.h"
#include "util/str.h"

struct kube;
struct kube_job;
struct kube_lease;
struct kube_reply;

struct kube_options {
    unsigned qps;              /* requests a second; 0: 20 */
    unsigned burst;            /* sent at once after a rest; 0: 2 * qps */
    unsigned queue_max;        /* waiting for the rate; 0: 4,096. One more is ERR_NO_SPACE */
    size_t body_max;           /* bytes of an answer (of a page, for a list); 0: 32 MiB. More is ERR_NO_SPACE */
    const char *field_manager; /* and User-Agent; NULL: "cistern" */
};

enum kube_verb {
    KUBE_GET,
    KUBE_LIST,
    KUBE_CREATE,
    KUBE_REPLACE, /* fails with ERR_CHANGED unless body's metadata.resourceVersion is the object's */
    KUBE_DELETE,
    KUBE_JSON_PATCH,      /* body: an array of operations. A `test` that fails is ERR_INVALID */
    KUBE_MERGE_PATCH,     /* with metadata.resourceVersion in it: ERR_CHANGED if that is not the object's */
    KUBE_STRATEGIC_PATCH, /* built-in kinds only */
    KUBE_APPLY,           /* server-side apply; with `force`, fields of other managers become ours */
};

enum kube_propagation { KUBE_BACKGROUND, KUBE_FOREGROUND, KUBE_ORPHAN };

struct kube_request {
    enum kube_verb verb;
    const struct kube_resource *resource; /* static */
    struct str ns;                        /* of a namespaced resource; empty with KUBE_LIST: all namespaces */
    struct str name;                      /* not with KUBE_LIST, and KUBE_CREATE unless of a subresource */
    const char *subresource;              /* "status", "token", "eviction"; NULL: the object itself */
    const json *body;                     /* read within kube_submit */
    const char *field_manager;            /* NULL: the client's */
    bool force;                           /* KUBE_APPLY */
    bool dry_run;                         /* the server checks and answers, and changes nothing */

    struct str uid, resource_version;  /* KUBE_DELETE: only if the object has these; else ERR_CHANGED */
    enum kube_propagation propagation; /* KUBE_DELETE */

    /* KUBE_LIST goes through all pages, and begins again if the server forgets the list between two of them. Each page
     * (an array, taken over with take(), or freed behind the callback) goes to on_page, and NULL when it begins again:
     * what was told until then is void. Without on_page all items are gathered in the answer's "items". */
    const char *label_selector, *field_selector;
    unsigned page_size; /* 0: 500 */
    void (*on_page)(void *ctx, json **own_items);

    /* Sent only while we lead, and given up when that ends: ERR_CANCELLED. Borrowed; NULL: always. */
    const struct kube_lease *fence;
    bool exempt;         /* not held back by the rate: what is sent seldom and must not be late */
    uint64_t timeout_ns; /* of all of it: waiting, sending, repeating; of each page for a list; 0: 30 s */

    void *ctx;
    void (*on_done)(void *ctx, struct kube_reply *r); /* exactly once, last; not for kube_call */
};

struct kube_reply {
    int code;     /* 0, or -(enum err_code) with err set */
    int status;   /* HTTP; 0 if none came */
    json *object; /* what the server answered: NULL on failure. Freed behind on_done; take(&r->object) keeps it */
    struct err err;
};

/* Any thread before loop_start, or the loop. `c` is copied. */
must_check int kube_new(struct loop *l, const struct kube_config *c, const struct kube_options *o, struct kube **ret,
                        struct err *err);
void kube_free(struct kube *k); /* requests under way end with ERR_CANCELLED first; NULL is fine */
DEFINE_AUTO(kube, struct kube, kube_free)
#define auto_kube auto_with(auto_clean_kube) struct kube *

/* Any thread: what is under way and all that is asked later ends with ERR_CANCELLED, so that threads which wait in
 * kube_call can be joined. Only the release of leases still goes out. */
void kube_stop(struct kube *k);

/* Never fails by return: what cannot even start is told to on_done. The strings are copied. */
struct kube_job *kube_submit(struct kube *k, const struct kube_request *r);

/* on_done follows with ERR_CANCELLED, after this returns. The server may have done it all the same. */
void kube_cancel(struct kube_job *j);
/* The same, and nothing is told of it any more: what ctx points to may go. */
void kube_abandon(struct kube_job *j);

/* Any thread but the loop's: asks and waits. on_page, if there is one, runs on the loop; on_done is not called.
 * *ret is the caller's; NULL if it is not wanted. */
must_check int kube_call(struct kube *k, const struct kube_request *r, json **ret, struct err *err);

/* Any thread but the loop's: reads the object, has `change` edit it, and replaces it; again from the start, up to ten
 * times, if somebody else wrote between the two. `change` returns 0, KUBE_UNCHANGED (nothing is written: success) or an
 * error, which ends it. `subresource` as in kube_request. *ret is the object as it is then; may be NULL. */
enum { KUBE_UNCHANGED = 1 };
struct kube_change {
    const struct kube_resource *resource;
    struct str ns, name;
    const char *subresource;
    const struct kube_lease *fence;
    void *ctx;
    int (*change)(void *ctx, json *object, struct err *err);
};
must_check int kube_change(struct kube *k, const struct kube_change *c, json **ret, struct err *err);

/* Requests sent since the start, repeated ones too. Any thread. */
uint64_t kube_requests_sent(const struct kube *k);
