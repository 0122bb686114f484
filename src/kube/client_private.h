/* SPDX-License-Identifier: Apache-2.0 */
/* client_private.h - a request's life, as client.c (the queue, the rate, the end), job.c (one attempt and what its
 * answer means) and informer.c (a watch is a request whose answer does not end) share it. home: the client's loop. */
#pragma once

#include "bucket.h"
#include "io/web.h"
#include "kube/client.h"
#include "request.h"
#include "status.h"
#include "token.h"
#include <stdatomic.h>

enum kube_job_state {
    JOB_QUEUED,  /* waits for the rate, in its turn */
    JOB_SENT,    /* libcurl has it */
    JOB_WAITING, /* until its timer brings it back into the queue */
    JOB_ENDING,  /* its timer tells the end, with `outcome` */
};

/* A watch: the answer is a stream. */
struct kube_stream {
    struct str resource_version;
    uint64_t lasts_ns;                                       /* how long the server is asked to keep it open */
    int (*on_bytes)(void *ctx, const char *bytes, size_t n); /* negative ends it */
};

struct kube_job {
    struct kube *kube;            /* borrowed: it outlives us */
    struct kube_job *next, *prev; /* all jobs */
    struct kube_job *next_queued;
    enum kube_job_state state;
    struct kube_request request; /* its strings are not kept */
    struct kube_stream stream;   /* of a watch */
    bool is_watch;
    bool cancelled;
    struct wire wire;
    struct web_job *web; /* while SENT */
    struct timer timer;
    uint64_t deadline_ns; /* of this page */
    unsigned attempt;     /* of this page; 1 is the first */
    unsigned token_turn;  /* whose token was sent */
    struct sbuf got;      /* the answer */
    bool fenced;          /* given up since we lead no longer */

    /* A list. */
    char *next_page;   /* owned; NULL: the first */
    unsigned restarts; /* since the server forgot it */
    json *gathered;    /* owned; NULL: on_page takes the items */

    struct kube_reply reply;
};

/* The mail of kube_stop. It may be under way when the client ends:
 * then it outlives it, and is freed by its delivery. */
struct kube_stop {
    struct mail mail;
    struct kube *kube; /* NULL: gone */
};

struct kube {
    struct loop *loop;  /* borrowed */
    struct web *web;    /* owned */
    char *server;       /* owned */
    char *manager;      /* owned */
    char *user_agent;   /* owned */
    struct token token; /* ours */
    unsigned queue_max;
    size_t body_max;
    struct bucket bucket;
    struct timer pump; /* the rate lets the next one go */
    struct kube_job *jobs;
    struct kube_job *first, **last; /* the queue */
    unsigned queued, sent;          /* `sent` without watches */
    struct kube_stop *stop;         /* NULL: delivered */
    atomic_bool stopping;
    _Atomic uint64_t requests_sent;
};

/* client.c */
struct kube_job *kube_job_start(struct kube *k, const struct kube_request *r, const struct kube_stream *stream);
void kube_job_queue(struct kube_job *j);                         /* again, behind those that wait */
void kube_job_wait(struct kube_job *j, uint64_t delay_ns);       /* then again */
void kube_job_settle(struct kube_job *j, const struct err *err); /* ends it, not from within; NULL: success */
void kube_job_end(struct kube_job *j);                           /* tells and frees */
void kube_pump(struct kube *k);

/* job.c */
void kube_job_send(struct kube_job *j);
