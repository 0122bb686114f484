/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one attempt at a job: an HTTP exchange or a few, with credentials. Shared by s3:// and gs://. home: the
 * job's loop. The backend builds the request (`build`) and interprets the reply (`answered`).
 * Code: call.c, and status.c for refusals. */
#pragma once

#include "backend.h"
#include "creds/creds.h"

/* A listing page has 1,000 keys of 1,024 bytes, each up to three bytes a character in S3's XML and six in JSON: 6.5 MB
 * with the metadata, for each of 32 readers. Error replies have a lower limit, since hundreds may come at once. */
enum { CALL_HEADERS_MAX = 24, CALL_DOCUMENT_MAX = 8 << 20, CALL_REFUSAL_MAX = 1 << 20 };

struct store_call;

struct call_steps {
    /* Fills in method, url, headers and body; call->identity is valid. A failure sets call->err. */
    void (*build)(struct store_call *c);
    /* The headers are there and the status is a success. Negative ends the exchange with call->err. May be NULL. */
    must_check int (*head)(struct store_call *c);
    /* Bytes of a successful reply; NULL: they are collected in call->got. */
    int (*body)(struct store_call *c, const char *bytes, size_t len);
    /* Called with the complete reply of any status. Ends in call_go() with other steps, or in call_end(). */
    void (*answered)(struct store_call *c, int status);
};

struct store_call {
    struct store_job job;
    const struct call_steps *steps; /* static */
    struct creds_waiter waiter;
    bool waiting;           /* for credentials */
    struct store_job *head; /* a HEAD before the next exchange; NULL: none */
    void (*head_done)(struct store_call *c, const struct store_reply *r);
    struct creds_identity *identity;
    struct web_job *web;

    const char *method; /* static */
    struct sbuf url;
    struct sbuf words; /* the headers' values; views into it are made when it is whole */
    struct {
        const char *name; /* static, lower case */
        size_t at, len;   /* in words */
    } headers[CALL_HEADERS_MAX];
    size_t header_count;
    struct sbuf sent;   /* a document to send; with sends_body the text before the job's body */
    struct sbuf behind; /* the text after the job's body */
    bool sends_body;
    bool after_head;      /* a HEAD goes before each write, so also before one that is repeated */
    uint64_t sent_offset; /* in all of it */

    char kept[1024]; /* what reply.object borrows */
    size_t kept_used;
    struct sbuf got;   /* a document that came */
    uint64_t received; /* bytes given to steps->body */
    bool success;      /* status 2xx */
    struct err err;
};

/* Called by the backend's start with the first steps, and by `answered` for the next exchange. */
void call_init(struct store_call *c);
void call_go(struct store_call *c, const struct call_steps *steps);

/* The next exchange is a HEAD of the object: a job of its own, so that a late one is sent again. `head_done` is called
 * once with its reply, and continues as `answered` does. */
void call_head(struct store_call *c, void (*head_done)(struct store_call *c, const struct store_reply *r));
/* Does the HEAD's reply contain this job's idempotency token? */
bool call_is_ours(const struct store_call *c, const struct store_reply *r);
/* The HEAD's reply becomes the job's: the object, or the failure. */
void call_adopt(struct store_call *c, const struct store_reply *r);
void call_end_as(struct store_call *c, const struct store_reply *r); /* the same, and ends the attempt */

/* The reply is not valid; `err` has the reason. Makes it CIS_REPLY_INVALID and returns -ERR_CORRUPT. */
int call_garbled(struct err *err);

/* Ends the attempt: code 0, or negative with c->err set. */
void call_end(struct store_call *c, int code);

/* The condition of a write failed: another writer replaced or deleted the object. */
void call_end_exists(struct store_call *c);

/* 412 to "only if absent", but no object exists: it was deleted since, or the store mishandles conditions. */
void call_end_contradicted(struct store_call *c);

/* For backend.stop, .resume and .release. */
void call_stop(struct store_job *j);
void call_resume(struct store_job *j);
void call_release(struct store_job *j);

/* For `build`: one header. Any order. */
void call_header(struct store_call *c, const char *name, struct str value);
struct str call_header_value(const struct store_call *c, size_t index);

/* Does this GET ask for less than the whole object? If so, adds its Range header. */
bool call_is_ranged(const struct store_call *c);
void call_header_range(struct store_call *c);

/* A header of the reply; STR_NULL if it is missing. Only while head or answered runs. */
struct str call_answer_header(const struct store_call *c, const char *name);

/* Copies `s` into memory of the job, for reply.object. Empty if it does not fit. */
struct str call_keep(struct store_call *c, struct str s);

/* steps.body of a GET: delivers the bytes to the reader, never more than it asked for. */
int call_give(struct store_call *c, const char *bytes, size_t len);

/* At the end of a GET: fewer bytes than it asked for are an error, and another attempt may receive them. */
int call_check_whole(struct store_call *c);

/* Translates a failed status into an error. `code` and `message` are the store's (may be empty). Sets c->err and the
 * reply's may_retry, slow_down and retry_after_ns; returns the negative code. */
struct status_words {
    int status;
    struct str code;
    struct str message;
};
int call_status(struct store_call *c, const struct status_words *w);

/* The store's error code and, for trusted servers, its message. */
struct status_words call_words(const struct store_call *c, int status, struct str code, struct str message);
bool call_is_redirect(int status);
bool call_status_slows_down(int status); /* the store asks for fewer requests */

/* Limits the retries of a denied request. `renew`: the credentials are the cause, so fetch others. */
void call_refused(struct store_call *c, bool renew);

/* For a 404 that no store sends: sets call->err, and the attempt may be repeated. Returns the code. */
int call_refused_by_proxy(struct store_call *c);
