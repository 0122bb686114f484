/* SPDX-License-Identifier: Apache-2.0 */
/* keep.h - the keeper's volumes, clients and held descriptors. Private to this folder.
 *
 * home: main. Everything is in tables of fixed size, made at start: a keeper under memory pressure must still be able
 * to start a mount process again. */
#pragma once

#include "session.h"
#include "table.h"
#include <sys/types.h>

enum { KEEP_CLIENTS = 64, KEEP_HELD = 16384, NO_CLIENT = -1, NO_HELD = -1 };

enum kept_state {
    KEPT_FREE,
    KEPT_ADOPTED,  /* given by a mirror or an older keeper; starts when all was given */
    KEPT_STARTING, /* its first mount process was not ready yet: who asked for the mount waits */
    KEPT_SERVING,
    KEPT_WAITING,  /* its process died; the next one starts at due_ns */
    KEPT_LEAVING,  /* being unmounted */
    KEPT_DROPPING, /* unmounted; mirrors are told */
};

struct kept {
    enum kept_state state; /* kept_become() alone writes it */
    char id[KEEPER_ID_MAX];
    int fuse_fd, memfd, control_fd;
    const struct table_head *head;
    pid_t pid;
    uint64_t due_ns;     /* of the next attempt: to start, to unmount */
    uint64_t end_ns;     /* patience: with a start, an unmount, a mirror */
    uint64_t started_ns; /* the process */
    uint64_t failing_ns; /* the first of the failures */
    unsigned failures;   /* processes that were never ready or died shortly after their start, in a row */
    uint32_t restarts;
    bool ready;     /* this process said so */
    bool unmounted; /* the mount point is free, the session may still have users */
    int client;     /* who waits for an answer, or NO_CLIENT */
    int first_held; /* index, or NO_HELD */
    uint64_t owing; /* mirrors that have not yet said that they dropped it: bits by client */
};

struct held {
    uint64_t node;
    int fd;
    int next;
};

struct client {
    int fd; /* -1: free */
    bool is_mirror;
};

struct keep {
    const struct keep_options *options;
    const char *program;
    struct kept volumes[KEEPER_VOLUMES_MAX];
    struct client clients[KEEP_CLIENTS];
    struct held held[KEEP_HELD];
    int free_held;
    int listen_fd, signal_fd;
    bool stop;
    struct err failure; /* of a mount of our own */
};

struct kept *keep_find(struct keep *k, const char *id);
struct kept *keep_free_slot(struct keep *k);
void keep_event(const struct keep *k, const char *what, const struct kept *v, const struct err *why);
void keep_answer(struct keep *k, int *client, int code, const struct err *err);
void keep_tell_mirrors(struct keep *k, const struct wire_msg *m, const struct wire_fds *fds);

/* What a volume is made of, to whomever asks. */
must_check int keep_give(struct keep *k, const struct kept *v, int sock, struct err *err);

/* ---- kept.c ------------------------------------------------------------------------------------------------------ */

/* Mounts and starts; the client is answered when the mount process is ready. */
must_check int kept_mount(struct keep *k, const struct wire_msg *ask, int client, struct err *err);

/* Takes over a session that somebody else held. A dead one is ERR_NOT_FOUND. */
must_check int kept_adopt(struct keep *k, const char *id, struct wire_fds *own_fds, struct err *err);
void kept_start(struct keep *k, struct kept *v);
void kept_unmount(struct keep *k, struct kept *v, uint64_t timeout_ms, int client);

/* A descriptor to hold (own_fd), or to let go. */
void kept_hold(struct keep *k, struct kept *v, uint64_t node, int own_fd);
void kept_let_go(struct keep *k, struct kept *v, uint64_t node);

void kept_on_control(struct keep *k, struct kept *v); /* its process speaks, or is gone */
void kept_on_exit(struct keep *k, struct kept *v, int status);
void kept_on_time(struct keep *k, struct kept *v, uint64_t now_ns);
void kept_on_dropped(struct keep *k, struct kept *v, int client);

/* Ends the connection, whoever holds its descriptors: abort.c. False: not mounted, or there is no fusectl. */
bool kept_abort(const struct kept *v);

/* ms until it wants kept_on_time, -1 for never. */
int kept_wait_ms(const struct kept *v, uint64_t now_ns);
void kept_row(const struct kept *v, struct keeper_status *ret);
void kept_forget(struct keep *k, struct kept *v); /* closes all */
