/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The keeper's mounts, clients and held files. Private to this room.
 *
 * home: main. Everything is in tables of fixed size, made at start: a keeper under memory pressure must still be able
 * to restart a mount process. */
#pragma once

#include "keeper.h"
#include "table.h"
#include "util/accept.h"
#include <sys/types.h>

enum { KEEPER_CLIENTS_MAX = 64, KEEPER_FILES_MAX = 16384, NO_CLIENT = -1, NO_FILE = -1, MESSAGES_AT_ONCE = 64 };

enum keeper_mount_state {
    MOUNT_FREE,
    MOUNT_ADOPTED,  /* received from a mirror or an older keeper; starts when everything was received */
    MOUNT_STARTING, /* its first mount process is not ready yet: the client waits */
    MOUNT_SERVING,
    MOUNT_WAITING, /* its process died; the next one starts at due_ns */
    MOUNT_UNMOUNTING,
    MOUNT_DROPPING, /* unmounted; mirrors have yet to drop it */
};

struct keeper_mount {
    enum keeper_mount_state state; /* only keeper_mount_become() writes it */
    char id[KEEPER_ID_MAX];
    int fuse_fd, memfd, control_fd; /* owned; -1: none */
    int connection_fd;              /* owned: the FUSE connection's directory in fusectl; -1: unknown */
    int process_fd;                 /* owned: pidfd of the mount process; -1: none */
    pid_t pid;                      /* of the same, for status rows */
    const struct table_head *head;
    uint64_t due_ns;     /* time of the next attempt to start or unmount */
    uint64_t end_ns;     /* deadline of a start, an unmount, a drop */
    uint64_t started_ns; /* the process */
    uint64_t failing_ns; /* the first of the failures */
    unsigned failures;   /* consecutive processes that were never ready or died shortly after their start */
    uint32_t restarts;
    bool ready;        /* this process said so */
    unsigned attempts; /* to unmount */
    bool unmounted;    /* the mount point is free, the session may still have users */
    int client;        /* waits for a reply, or NO_CLIENT */
    int first_file;    /* index, or NO_FILE */
    uint64_t pending;  /* mirrors that have not dropped it yet: bits by client */
    /* watch.c */
    uint64_t look_ns;           /* time of the next look at a process that serves */
    uint64_t waits_since_ns;    /* of the look since which requests wait and none was answered; 0: none */
    uint64_t answered;          /* requests of the volume until the last look */
    uint64_t answered_at_start; /* the same until the start of the process */
    bool is_reported;
};

/* An open file without a name: its descriptor is the only way to it. */
struct keeper_file {
    uint64_t node;
    int fd;
    int next;
};

struct keeper_client {
    int fd; /* -1: free */
    bool is_mirror;
};

struct keeper {
    const struct keeper_options *options;
    const char *program;
    struct keeper_mount mounts[KEEPER_VOLUMES_MAX];
    struct keeper_client clients[KEEPER_CLIENTS_MAX];
    struct keeper_file files[KEEPER_FILES_MAX];
    int free_file;
    int signal_fd;
    struct acceptor listener; /* its descriptor: owned */
    uint64_t listen_ns;       /* accepts none before that time */
    ino_t socket_ino; /* inode of our socket: another one at its path belongs to another keeper. A bound socket keeps
                         its inode */
    uint64_t end_ns;  /* after SIGTERM: until when the mounts wait for a mirror; 0: no SIGTERM came */
    bool stop;
    struct err failure; /* of `alone` */
};

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration takes none
#define keeper_foreach_mount(k, v)                                                                                     \
    for (struct keeper_mount *v = (k)->mounts; v < (k)->mounts + KEEPER_VOLUMES_MAX; v++)                              \
        if (v->state != MOUNT_FREE)
// NOLINTEND(bugprone-macro-parentheses)

/* ---- mount.c ----------------------------------------------------------------------------------------------------- */

struct keeper_mount *keeper_find(struct keeper *k, const char *id);

/* Mounts and starts; the client gets its reply when the mount process is ready. */
must_check int keeper_mount_create(struct keeper *k, const struct wire_msg *ask, int client, struct err *err);

/* Takes over a session that another process held. A dead one is ERR_NOT_FOUND. */
must_check int keeper_mount_adopt(struct keeper *k, const char *id, struct wire_fds *own_fds, struct err *err);
void keeper_mount_start(struct keeper *k, struct keeper_mount *v);
void keeper_mount_end(struct keeper *k, struct keeper_mount *v, uint64_t timeout_ms, int client);

void keeper_mount_on_message(struct keeper *k, struct keeper_mount *v); /* from its process, which may have hung up */
void keeper_mount_drain(struct keeper *k, struct keeper_mount *v);      /* all that its process sent before it ended */
void keeper_mount_on_exit(struct keeper *k, struct keeper_mount *v);    /* of its process */
void keeper_mount_on_timer(struct keeper *k, struct keeper_mount *v, uint64_t now_ns);
void keeper_mount_on_dropped(struct keeper *k, struct keeper_mount *v, int client);

/* ms until keeper_mount_on_timer is due, -1 for never. */
int keeper_mount_wait_ms(const struct keeper_mount *v, uint64_t now_ns);
void keeper_mount_status(const struct keeper_mount *v, struct keeper_status *ret);

void process_await(const struct keeper_mount *v); /* until it has exited; none is fine */

/* ---- watch.c: mount processes that answer nothing ---------------------------------------------------------------- */

void watch_begin(struct keeper_mount *v, uint64_t now_ns);                  /* its process is ready */
void watch_look(struct keeper *k, struct keeper_mount *v, uint64_t now_ns); /* at .look_ns, while it serves */
/* Whether it answers or not; none is fine. process_await() waits for its end. */
void process_kill(const struct keeper_mount *v);

/* ---- files.c: descriptors that the keeper holds ------------------------------------------------------------------ */

/* False: it is not held, because the table is full. The file is then lost if its mount process dies. */
bool keeper_hold_file(struct keeper *k, struct keeper_mount *v, uint64_t node, int own_fd);
bool keeper_release_file(struct keeper *k, struct keeper_mount *v, uint64_t node); /* false: it was not held */
void keeper_mount_close(struct keeper *k, struct keeper_mount *v);                 /* all that the mount holds */

/* ---- send.c ------------------------------------------------------------------------------------------------------ */

void keeper_event(const struct keeper *k, const char *what, const struct keeper_mount *v, const struct err *why);
void keeper_answer(struct keeper *k, int *client, int code, const struct err *err);
void keeper_send_to_mirrors(struct keeper *k, const struct wire_msg *m, const struct wire_fds *fds);
void keeper_show_to_mirrors(struct keeper *k, const struct keeper_mount *v);

/* Sends all descriptors of a mount to another keeper or a mirror; its files alone to a mount process. */
must_check int keeper_send_mount(struct keeper *k, const struct keeper_mount *v, int sock, struct err *err);
must_check int keeper_send_files(struct keeper *k, const struct keeper_mount *v, int sock, struct err *err);

/* ---- mountpoint.c: the kernel's side ----------------------------------------------------------------------------- */

/* Checks a request's paths: the keeper must never walk through a mount of its own. */
must_check int mountpoint_check(struct keeper *k, const struct wire_config *c, struct err *err);
must_check int mountpoint_mount(const struct keeper_mount *v, const struct wire_msg *ask, struct err *err);

/* Whether the topmost mount at the mount point is this one, not a mount that was made over it or in its place. */
bool mountpoint_is_ours(const struct keeper_mount *v);

/* Aborts the FUSE connection through fusectl, whatever processes hold its descriptor. False: not mounted, or there is
 * no fusectl. */
bool mountpoint_abort(const struct keeper_mount *v);

/* Opens the connection's directory in fusectl, which never becomes that of another one. -1: not mounted, or there is no
 * fusectl. */
int mountpoint_open_connection(const struct keeper_mount *v);
