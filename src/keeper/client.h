/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - Asks the keeper for mounts over its unix socket.
 *
 * For each mounted volume the keeper (cistern-keeper) holds the /dev/fuse descriptor and a memfd with the state that
 * must survive. It starts a mount process (cistern-mount) on them, and starts it again when it dies. cisternd asks it
 * for mounts with the calls below, and runs a mirror (mirror.h) against the keeper's own death. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <stdbool.h>
#include <stdint.h>

#define KEEPER_SOCKET "/run/cistern/keeper.sock"

enum {
    KEEPER_ID_MAX = 64,       /* bytes of a volume id with its NUL; longer is ERR_INVALID */
    KEEPER_PATH_MAX = 1024,   /* bytes of a path with its NUL */
    KEEPER_CONTEXT_MAX = 256, /* bytes of an SELinux context with its NUL */
    KEEPER_VOLUMES_MAX = 1024,
};

enum keeper_passthrough {
    KEEPER_PASSTHROUGH_AUTO, /* if the kernel and the lower file system have it */
    KEEPER_PASSTHROUGH_ON,   /* the mount fails without it */
    KEEPER_PASSTHROUGH_OFF,  /* plain FUSE reads and writes */
};

/* Zeroed options: a writable mount that only its owner may use. */
struct keeper_mount_request {
    const char *volume_id;   /* names the mount; unique in a keeper */
    const char *data;        /* absolute: the lower directory, on a file system with file handles (ext4, XFS, btrfs) */
    const char *mount_point; /* absolute: an existing directory, seen in the keeper's mount namespace */
    bool read_only;
    bool allow_other;        /* other users than root may use it; the kernel checks permissions */
    bool exclusive;          /* `data` changes only through this mount: the kernel may cache names for a day */
    bool has_group;          /* fsGroup: `group` is shown as every file's group, with g+rwX and setgid directories */
    uint32_t group;          /* nothing is written to the disk for it, so its cost does not grow with the files */
    uint64_t capacity_bytes; /* statfs shows at most this; 0: the lower file system's (right for `loop` and `quota`) */
    enum keeper_passthrough passthrough;
    const char *context; /* SELinux: the label of every file, for mount(2); NULL: none. The kernel must have SELinux */
};

enum keeper_state {
    KEEPER_SERVING,    /* a mount process replies */
    KEEPER_RESTARTING, /* it died and the next one starts; users wait */
    KEEPER_LEAVING,    /* detached; its last open files are still served */
};

struct keeper_status {
    char volume_id[KEEPER_ID_MAX];
    char data[KEEPER_PATH_MAX];
    char mount_point[KEEPER_PATH_MAX];
    enum keeper_state state;
    bool read_only;
    bool passthrough; /* as negotiated with the kernel */
    bool has_group;
    uint32_t group;
    int32_t pid;       /* of the mount process; 0 while none runs */
    uint32_t restarts; /* since the volume was mounted */
    uint64_t nodes;    /* files and directories that the kernel knows */
    uint64_t opens;    /* open files */
#ifdef CISTERN_TEST_NEWER
    uint64_t newer;
#endif
};

/* Each call opens a connection of its own, so any thread may call at any time. `socket` NULL is KEEPER_SOCKET. Calls
 * block: mount for at most 30 s, the others for 10 s beyond their own timeout. Without a keeper: ERR_AGAIN,
 * CIS_KEEPER_UNREACHABLE. */

/* Returns when the mount is ready. The same request again is success; the same id with other options is ERR_EXISTS,
 * CIS_MOUNT_EXISTS, and changes nothing. A dead mount (ENOTCONN) at the mount point is replaced. ERR_UNSUPPORTED if
 * passthrough is required and missing. */
must_check int keeper_mount(const char *socket, const struct keeper_mount_request *m, struct err *err);

/* Unmounts. While the mount is in use, retries for `timeout_ms`, then detaches it; its users get ENOTCONN or EIO. On
 * return neither the keeper nor any mirror holds a descriptor of the volume: its disk may be taken apart. An id that is
 * not mounted is success. */
must_check int keeper_unmount(const char *socket, const char *volume_id, uint32_t timeout_ms, struct err *err);

/* ERR_NOT_FOUND if it is not mounted by this keeper. */
must_check int keeper_status(const char *socket, const char *volume_id, struct keeper_status *ret, struct err *err);

/* Calls `each` for every volume, in mount order. */
must_check int keeper_list(const char *socket, void (*each)(const struct keeper_status *s, void *user), void *user,
                           struct err *err);
