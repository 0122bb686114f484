/* SPDX-License-Identifier: Apache-2.0 */
/* web_private.h - structs of the web jobs: web.c has their states, web_transfer.c one request and its callbacks,
 * web_socket.c libcurl's sockets and timer, web_hosts.c the addresses of a host. home: the loop. */
#pragma once

#include "io/web.h"
#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

enum web_job_state {
    WEB_JOB_FREE,    /* on the free list */
    WEB_JOB_WAITING, /* submitted; starts at the tail of the turn */
    WEB_JOB_RUNNING, /* libcurl has it */
    WEB_JOB_ENDED,   /* on_done runs */
};

/* Steps of a job at the end of the turn. Only job_step changes the state of a job: libcurl may not be called from its
 * own callbacks. */
enum {
    STEP_START = 1,
    STEP_RESUME = 2,
    STEP_CANCEL = 4,
    STEP_SETTLE = 8,
    STEP_TIMEOUT = 16,
    STEP_NEXT_ADDRESS = 32,
    STEP_RUN = 64
};

/* The headers of a request for libcurl. The job keeps both blocks for its later requests. */
struct web_job_headers {
    char *text; /* owned */
    size_t text_room;
    struct curl_slist *lines; /* owned: one array, linked; they point into `text` */
    size_t lines_room;
};

/* The address to which a job connects. */
struct web_job_address {
    struct web_host *host; /* NULL: libcurl finds the address */
    struct list_node waiting_node;
    bool is_waiting;    /* for the addresses of `host` */
    uint64_t chosen_ns; /* when it began with its present address */
    bool has_resolve, has_order;
    struct curl_slist resolve; /* list for libcurl */
    char resolve_text[1200];
};

struct web_job_progress {
    uint64_t sent;     /* of the body */
    uint64_t received; /* of the reply's body */
    uint64_t started_ns;
    uint64_t first_byte_ns; /* since started_ns */
    uint64_t moved_ns;      /* when the bytes transferred last sufficed, plus the lateness of the loop since then */
    uint64_t moved_bytes;   /* body bytes since then */
};

struct web_job {
    struct web *web;                 /* borrowed: it outlives us */
    struct list_node node;           /* of the live list, or of the free list */
    struct list_node scheduled_node; /* of .scheduled, while there are steps */
    unsigned steps;                  /* STEP_*, for the end of the turn */
    enum web_job_state state;
    CURL *easy; /* owned; one a request */

    struct web_request request; /* url, headers and method are not kept in it */
    struct web_job_headers headers;
    struct curl_slist connect_to; /* list for libcurl */
    char connect_text[300];
    struct web_job_address address;
    struct {
        int code; /* negative: the job cannot start */
        struct err err;
    } start;

    bool is_read; /* GET or HEAD: it may be sent twice */
    bool head_reported;
    size_t trailer_bytes;
    bool paused;                      /* on_body returned WEB_PAUSE */
    struct web_socket *paused_socket; /* its connection, while it is paused */
    uint64_t rate_wait_until_ns;      /* the rate cap; 0: no wait */
    struct timer rate_timer;
    int aborted;               /* a callback's negative answer */
    CURLcode result;           /* with STEP_SETTLE */
    const char *timeout_cause; /* with STEP_TIMEOUT */
    int socket_errno;
    char blocked_address[INET6_ADDRSTRLEN]; /* an address that the guard refused; "": none */
    unsigned sends;
    bool is_repeat; /* libcurl would have sent it again */
    bool is_sent;   /* over the newest connection */
    bool was_read;  /* by a server that then closed the connection */
    struct web_job_progress progress;
    char error[CURL_ERROR_SIZE];
};

/* A socket of libcurl's, found by its descriptor. */
struct web_socket {
    struct watch watch;
    struct web *web;
    bool watched;
    bool ours;              /* made by open_socket, and not known to be closed */
    bool is_paused;         /* its job is paused: it is not idle */
    bool is_shut;           /* idle, and one too many: libcurl closes it at its next check */
    struct web_host *name;  /* of its address */
    struct web_job *opener; /* while it is not known to have answered */
    uint64_t opened_ns;
    bool is_probed; /* for a server without TLS */
    bool is_mute;   /* its first request is not answered in time */
    char address[INET6_ADDRSTRLEN];
    uint32_t wanted; /* what libcurl waits for; 0: nothing now */
};

struct web {
    struct loop *loop; /* borrowed */
    CURLM *multi;
    CURLSH *share; /* TLS sessions and addresses, over all easy handles */
    struct web_options options;
    char *ca_file;                /* owned */
    char *ca, *certificate, *key; /* owned; PEM; NULL unless the options have it */
    struct web_socket **sockets;
    size_t socket_room;
    size_t open;     /* count of our open sockets */
    size_t idle_max; /* of `open` */
    struct web_connects connects;
    struct list names; /* of web_host: owned */
    size_t name_count;
    bool hosts_wanted;
    struct list live, unused; /* jobs: owned */
    struct list scheduled;    /* live jobs with steps, in order */
    struct deferred tail;
    struct timer timer; /* libcurl's */
    struct timer sweep;
    uint64_t sweep_due_ns;
    bool timeout_is_due; /* libcurl's timer is due now */
};

static inline void web_job_schedule(struct web_job *j, unsigned steps)
{
    struct web *w = j->web;
    if (!j->steps) {
        list_add(&w->scheduled, &j->scheduled_node);
        loop_defer(w->loop, &w->tail);
    }
    j->steps |= steps;
}

static inline bool web_socket_state(int fd, struct tcp_info *ret)
{
    socklen_t len = sizeof *ret;
    *ret = (struct tcp_info){0};
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, ret, &len) == 0;
}

/* web_socket.c */
void web_sockets_attach(struct web *w); /* libcurl's multi handle to the loop */
void web_sockets_done(struct web *w);   /* after libcurl closed them all */
void web_sockets_prepare(struct web *w, CURL *easy, struct web_job *j);
void web_sockets_shut_idle(struct web *w);             /* those beyond idle_max */
void web_socket_check_handshake(struct web_socket *s); /* four times a second */

bool web_socket_may_connect(struct web_job *j, const struct sockaddr *to);         /* notes the address if not */
int web_socket_blocked(const struct web_job *j, const char *url, struct err *err); /* the error, after that */

/* web_transfer.c */
bool web_transfer_is_flooded(const struct web_job *j); /* with trailers */
void web_transfer_prepare(struct web_job *j);          /* once an easy handle */
must_check int web_transfer_set(struct web_job *j, const struct web_request *r, struct err *err);
void web_transfer_rate_wait_ended(struct timer *t);

/* web_hosts.c */
bool web_hosts_wanted(void);
struct web_host *web_host_of(struct web *w, const char *url);    /* NULL: libcurl looks it up */
bool web_host_must_wait(struct web_job *j);                      /* STEP_START follows when its addresses are known */
void web_host_stop_waiting(struct web_job *j);                   /* for its addresses */
bool web_host_is_known(const struct web_job *j);                 /* false: no address was found yet */
void web_host_choose_address(struct web_job *j, bool elsewhere); /* before it starts, or starts again */
void web_host_job_ended(struct web_job *j, bool answered, bool broke); /* it had started */
void web_host_socket_opened(struct web_socket *s, struct web_job *j, const struct sockaddr *address);
void web_host_socket_closing(struct web_socket *s); /* its descriptor is still open */
void web_host_socket_closed(struct web_socket *s);
void web_host_check_connect(struct web_socket *s); /* four times a second */
void web_hosts_free(struct web *w);
