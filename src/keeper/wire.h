/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - The messages between the keeper, its clients, its mirrors and its mount processes.
 *
 * A message is one packet of a SOCK_SEQPACKET unix socket, whole or not at all, with up to WIRE_FDS_MAX descriptors.
 *
 * Programs of neighbouring versions use it together. A body may only grow at its end: fields that an older peer does
 * not send are zero, and bytes that a newer peer adds are dropped. So a new field needs no new version. A message
 * states the oldest version that understands it, mostly WIRE_OLDEST. A message newer than WIRE_VERSION is
 * refused before it has any effect. home: any; one thread at a time uses a socket.
 * Code: wire.c, and client.c for wire_mount_of(). */
#pragma once

#include "client.h"

#ifdef CISTERN_TEST_NEWER /* a later version, for tests */
enum { WIRE_VERSION = 3 };
#else
enum { WIRE_VERSION = 2 };
#endif
enum {
    WIRE_OLDEST = 1,
    WIRE_CONTEXT = 2, /* a mount with a context: older keepers would mount without it */
    WIRE_FDS_MAX = 3,
};

/* Exit status of a mount process whose session no process can continue; 0: the volume was unmounted. */
enum { WIRE_EXIT_LOST = 3 };

enum wire_type {
    WIRE_MOUNT = 1, /* client: body.config, body.context */
    WIRE_UNMOUNT,   /* client: volume_id, number = timeout in ms */
    WIRE_STATUS,    /* client: volume_id, or "" for all */
    WIRE_ROW,       /* keeper: body.status, one a volume */
    WIRE_DONE,      /* keeper: the end of a reply; code 0 or body.failure */
    WIRE_MIRROR,    /* mirror: send duplicates; it may send some back */
    WIRE_TAKE_OVER, /* another keeper: stop and hand over; number = the newest table it reads, 0: 1 */
    WIRE_GIVE,      /* a volume: fds = /dev/fuse, memfd */
    WIRE_HOLD,      /* an open file without a name: number = node id, fds = the file */
    WIRE_DROP,      /* volume_id: close all of it */
    WIRE_RELEASE,   /* number = node id: close the file held for it */
    WIRE_SYNCED,    /* the end of a hand-over */
    WIRE_START,     /* to a mount process: fds = /dev/fuse, memfd, root directory; HOLDs follow, then SYNCED */
    WIRE_READY,     /* from a mount process: it serves, or body.failure (code) */
};

/* The options of a mount; also part of the memfd's head. */
struct wire_config {
    char data[KEEPER_PATH_MAX];
    char mount_point[KEEPER_PATH_MAX];
    uint64_t capacity_bytes;
    uint32_t group;
    uint8_t has_group, read_only, allow_other, exclusive;
    uint8_t passthrough; /* enum keeper_passthrough */
    uint8_t pad[3];
};

struct wire_failure {
    uint32_t id;
    int32_t sys;
    char text[ERR_TEXT_MAX];
    char advice[ERR_ADVICE_MAX];
};

struct wire_msg {
    uint16_t version;
    uint16_t type; /* enum wire_type */
    int32_t code;  /* enum err_code, 0 for success */
    uint64_t number;
    char volume_id[KEEPER_ID_MAX];
    union {
        struct {
            struct wire_config config;
            char context[KEEPER_CONTEXT_MAX]; /* "": none */
        };
        struct keeper_status status;
        struct wire_failure failure;
    } body;
};

/* Received descriptors; the scope's end closes those that were not taken. */
struct wire_fds {
    int fd[WIRE_FDS_MAX]; /* -1: none */
};
void wire_fds_close(struct wire_fds *f);
#define auto_fds auto_with(wire_fds_close) struct wire_fds
#define WIRE_NO_FDS ((struct wire_fds){{-1, -1, -1}})

/* A zeroed message of this type and volume. */
struct wire_msg wire_msg(enum wire_type type, const char *volume_id);

/* Sends one message with `fds` (NULL for none; -1 entries end the list). Never raises SIGPIPE. ERR_AGAIN if the peer
 * does not read and the socket does not block. */
must_check int wire_send(int sock, const struct wire_msg *m, const struct wire_fds *fds, struct err *err);

/* Receives one. ERR_NOT_FOUND after the peer hung up, ERR_AGAIN if a non-blocking socket has none, ERR_CORRUPT for a
 * malformed one. Strings inside are terminated. */
must_check int wire_recv(int sock, struct wire_msg *ret, struct wire_fds *ret_fds, struct err *err);

/* The same, but waits at most `timeout_ms`: ERR_TIMEOUT. */
must_check int wire_recv_within(int sock, int timeout_ms, struct wire_msg *ret, struct wire_fds *ret_fds,
                                struct err *err);

/* A reply: success if code is 0, else the error in it. */
struct wire_msg wire_answer(int code, const struct err *err);
must_check int wire_answer_to_err(const struct wire_msg *m, struct err *err);

/* The message of a request, checked. */
must_check int wire_mount_of(const struct keeper_mount_request *m, struct wire_msg *ret, struct err *err);

/* Connects to the keeper within 10 s. A wire_send() to it waits as long. */
must_check int wire_connect(const char *socket_path, int *ret_fd, struct err *err);
