/* SPDX-License-Identifier: Apache-2.0 */
/* web_private.h - what web.c (a job's life), web_transfer.c (one request and its callbacks) and web_socket.c (libcurl's
 * sockets and timer on our loop) share. home: the loop. */
#pragma once

#include "io/web.h"
#include <curl/curl.h>
#include <netinet/in.h>

enum job_state {
    JOB_FREE,    /* on the free list */
    JOB_WAITING, /* submitted; starts at the tail of the turn */
    JOB_RUNNING, /* libcurl has it */
    JOB_ENDED,   /* on_done is being told */
};

/* Why a job is to be looked at when the turn ends. All that changes a job's life happens there, in job_step: never
 * within libcurl, which may not be entered from its own callbacks. */
enum { TODO_START = 1, TODO_RESUME = 2, TODO_CANCEL = 4, TODO_SETTLE = 8, TODO_TIMEOUT = 16, TODO_ELSEWHERE = 32 };

struct web_job {
    struct web *web;             /* borrowed: it outlives us */
    struct web_job *next, *prev; /* live list; `next` alone: free list */
    struct web_job *next_todo;
    unsigned todo;
    enum job_state state;
    CURL *easy; /* owned; one a request */

    struct web_request request;      /* url, headers and method are not kept in it */
    char *header_text;               /* owned; the lines that header_lines point to */
    size_t header_room;              /* of header_text */
    struct curl_slist *header_lines; /* owned: one array, linked */
    size_t header_lines_room;        /* lines */
    struct curl_slist connect_to;    /* as libcurl wants it */
    char connect_text[300];
    struct web_name *name; /* NULL: libcurl finds the address */
    struct web_job *next_waiting;
    bool is_waiting; /* for the name's addresses */
    bool has_resolve, has_order;
    struct curl_slist resolve; /* as libcurl wants it */
    char resolve_text[1200];
    int start_code; /* negative: it cannot start, start_err says why */
    struct err start_err;

    bool head_told;
    size_t trailer_bytes;
    bool paused;             /* the reader asked for it */
    struct web_socket *held; /* its connection, while nothing is wanted of it for its own sake */
    uint64_t held_until;     /* the rate cap; 0: not held */
    struct timer hold;
    int aborted;          /* a callback's negative answer */
    CURLcode result;      /* with TODO_SETTLE */
    const char *too_long; /* with TODO_TIMEOUT: what took so long */
    int socket_errno;
    char closed[INET6_ADDRSTRLEN]; /* an address that the guard refused; "": none */
    unsigned sends;
    uint64_t sent; /* of `body` */
    uint64_t received;
    uint64_t started_ns;
    uint64_t first_byte_ns;
    uint64_t moved_ns; /* when enough bytes had last moved */
    uint64_t crumbs;   /* body bytes since then */
    char error[CURL_ERROR_SIZE];
};

/* A socket of libcurl's, found by its descriptor. */
struct web_socket {
    struct watch watch;
    struct web *web;
    bool watched;
    bool ours;              /* made by socket_open, so that socket_close will be called */
    bool is_held;           /* its job is paused: nothing is wanted of it, and it is not idle */
    bool is_shut;           /* idle, and one too many: libcurl closes it when it looks at it again */
    struct web_name *name;  /* that it was opened for */
    struct web_job *opener; /* while it is not known to be connected */
    uint64_t opened_ns;
    char address[INET6_ADDRSTRLEN];
    uint32_t wanted; /* what libcurl waits for; 0: nothing now */
};

struct web {
    struct loop *loop; /* borrowed */
    CURLM *multi;
    CURLSH *share; /* TLS sessions and addresses, over all easy handles */
    struct web_options options;
    char *ca_file;                /* owned */
    char *ca, *certificate, *key; /* owned; PEM; as long as the options say */
    struct web_socket **sockets;
    size_t socket_room;
    size_t open;     /* sockets of ours that are not shut */
    size_t kept_max; /* of those */
    struct web_tried tried;
    struct web_name *names;
    bool names_wanted;
    struct web_job *live;
    struct web_job *unused;
    struct web_job *todo_first;
    struct web_job **todo_last;
    struct tail tail;
    struct timer timer; /* libcurl's */
    struct timer sweep;
    bool kick; /* libcurl's timer is due now */
};

void job_todo(struct web_job *j, unsigned what);

/* web_socket.c */
void web_sockets_attach(struct web *w); /* libcurl's multi handle to the loop */
void web_sockets_done(struct web *w);   /* after libcurl closed them all */
void web_sockets_prepare(struct web *w, CURL *easy, struct web_job *j);
void web_sockets_shut_idle(struct web *w); /* those beyond kept_max */

bool web_socket_may_connect(struct web_job *j, const struct sockaddr *to); /* notes the address if not */

/* web_transfer.c */
bool transfer_is_flooded(const struct web_job *j); /* with trailers */
void transfer_prepare(struct web_job *j);          /* once an easy handle */
must_check int transfer_set(struct web_job *j, const struct web_request *r, struct err *err);
void transfer_hold_over(struct timer *t);

/* web_names.c */
bool web_names_wanted(void);
struct web_name *web_name_of(struct web *w, const char *url);     /* NULL: nothing for us to look up */
bool web_name_waits(struct web_job *j);                           /* TODO_START follows when its addresses are known */
void web_name_left(struct web_job *j);                            /* waits no longer */
void web_name_choose(struct web_job *j, bool elsewhere);          /* it is about to start, or to start again */
void web_name_over(struct web_job *j, bool answered, bool broke); /* it had started */
void web_name_opened(struct web_socket *s, struct web_job *j, const struct sockaddr *address);
void web_name_closing(struct web_socket *s);
void web_name_look(struct web_socket *s); /* now and then */
void web_names_free(struct web *w);
