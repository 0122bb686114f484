/* SPDX-License-Identifier: Apache-2.0 */
/* client_private.h - the requests under way, struct kube_exchange. exchange.c has their queue, rate, states,
 * retries and pages; client.c, on top, the public functions. informer.c adds watches: requests whose reply does not
 * end. home: the client's loop. */
#pragma once

#include "answer.h"
#include "bearer_token.h"
#include "io/rate.h"
#include "io/web.h"
#include "kube/client.h"
#include "request.h"
#include <stdatomic.h>

enum kube_exchange_state {
    KUBE_EXCHANGE_WAITING, /* new, or until its timer queues it again */
    KUBE_EXCHANGE_QUEUED,  /* waits for the rate, in order */
    KUBE_EXCHANGE_SENT,    /* in flight */
    KUBE_EXCHANGE_ENDING,  /* its timer calls on_done with `reply` */
};

/* A watch: its reply is a stream. */
struct kube_stream {
    struct str resource_version;
    uint64_t lasts_ns;                                       /* how long the server should keep it open */
    uint64_t silence_ns;                                     /* ends the watch after this time without a byte */
    int (*on_bytes)(void *ctx, const char *bytes, size_t n); /* negative ends it */
};

struct kube_exchange {
    struct kube *kube;            /* borrowed: it outlives us */
    struct list_node node;        /* of .exchanges */
    struct list_node queued_node; /* of .queue, while QUEUED */
    enum kube_exchange_state state;
    struct kube_request request; /* its strings are not copied */
    struct kube_stream stream;   /* of a watch */
    bool is_watch;
    bool cancelled;
    struct kube_http_request http;
    struct web_job *web; /* while SENT */
    struct timer timer;
    uint64_t deadline_ns; /* of this page */
    unsigned attempt;     /* of this page; 1 is the first */
    unsigned token_turn;  /* number of the token that was sent */
    struct sbuf got;      /* the answer */
    bool fenced;          /* its time is limited by the lease */

    /* A list. */
    char *next_page;   /* owned; NULL: the first */
    unsigned restarts; /* the server dropped the continue token, and the list started again */
    json *gathered;    /* owned; NULL: on_page takes the items */

    struct kube_reply reply;
};

/* The mail of kube_stop. It may outlive the client; its delivery frees it. */
struct kube_stop {
    struct mail mail;
    struct kube *kube; /* NULL: gone */
};

struct kube {
    struct loop *loop;         /* borrowed */
    struct web *web;           /* owned */
    char *server;              /* owned */
    char *manager;             /* owned */
    char *user_agent;          /* owned */
    struct bearer_token token; /* of the requests */
    unsigned queue_max;
    size_t body_max;
    struct rate rate;
    struct timer pump;      /* when the rate allows the next request */
    struct list exchanges;  /* all of them: owned */
    struct list queue;      /* QUEUED exchanges, in order */
    unsigned queued, sent;  /* `sent` without watches and exempt requests */
    struct kube_stop *stop; /* NULL: delivered */
    atomic_bool stopping;
    _Atomic uint64_t requests_sent;
};

/* exchange.c */
void kube_exchange_queue(struct kube_exchange *x); /* behind those that wait */
/* Ends it at the loop's next turn; NULL: success. */
void kube_exchange_settle(struct kube_exchange *x, const struct err *err);
void kube_exchange_settle_cancelled(struct kube_exchange *x, const char *why);
void kube_exchange_end(struct kube_exchange *x); /* calls on_done and frees */
void kube_exchange_timer(struct timer *t);
void kube_pump_timer(struct timer *t);

/* client.c */
struct kube_exchange *kube_exchange_start(struct kube *k, const struct kube_request *r,
                                          const struct kube_stream *stream);
