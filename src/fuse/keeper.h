/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h - asking the keeper for mounts, over its unix socket; and keeping duplicates of what it holds.
 *
 * The keeper (cistern-keeper) holds, for each mounted volume, the /dev/fuse descriptor and a memfd with what must
 * survive; it starts `cistern-mount` on them and starts it again when it dies. cisternd asks it for mounts with the
 * calls below, and runs a mirror, so that either of the two may die and be given everything back by the other. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <stdbool.h>
#include <stdint.h>

#define KEEPER_SOCKET "/run/cistern/keeper.sock"

enum {
    KEEPER_ID_MAX = 64,     /* bytes of a volume's id with its NUL; longer is ERR_INVALID */
    KEEPER_PATH_MAX = 1024, /* bytes of a path with its NUL */
    KEEPER_VOLUMES_MAX = 1024,
};

enum keeper_passthrough {
    KEEPER_PASSTHROUGH_AUTO, /* where the kernel and the disk below have it */
    KEEPER_PASSTHROUGH_ON,   /* the mount fails without it */
    KEEPER_PASSTHROUGH_OFF,  /* plain FUSE reads and writes */
};

/* What a mount is asked to be. Zeroed, it is a writable mount of a folder that only its owner may use. */
struct keeper_mount {
    const char *volume_id;   /* the name under which it is asked for and taken away; unique in a keeper */
    const char *data;        /* absolute: the folder below, on a file system with file handles (ext4, XFS, btrfs ...) */
    const char *mount_point; /* absolute: an existing folder, seen in the keeper's mount namespace */
    bool read_only;
    bool allow_other;        /* other users than root may use it (permissions are the kernel's to check) */
    bool exclusive;          /* nobody changes `data` but through this mount: the kernel may remember names for ever */
    bool has_group;          /* fsGroup: `group` is shown as every file's group, with g+rwX and setgid folders */
    uint32_t group;          /* nothing is written to the disk for it, so it costs the same for any number of files */
    uint64_t capacity_bytes; /* statfs shows at most this; 0: what the disk below says (right for `loop` and `quota`) */
    enum keeper_passthrough passthrough;
};

enum keeper_state {
    KEEPER_SERVING,    /* a mount process answers */
    KEEPER_RESTARTING, /* it died, and the next one is being started; users wait */
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
    int32_t pid;       /* of the mount process; 0 while there is none */
    uint32_t restarts; /* since the volume was mounted */
    uint64_t nodes;    /* files and folders that the kernel remembers */
    uint64_t opens;    /* open files */
#ifdef CISTERN_TEST_NEWER
    uint64_t newer;
#endif
};

/* Each call is one conversation of its own: it connects, asks, waits for the answer and hangs up, so any thread may
 * call, at the same time as others. `socket` NULL is KEEPER_SOCKET. They block: mount for at most 30 s, the others for
 * 10 s beyond their own timeout. No keeper there: ERR_AGAIN, CIS3101. */

/* Done when the mount answers. The same mount again is success; the same id with other words (another group, folder,
 * mount point or option) is ERR_EXISTS, CIS3102, and changes nothing. A dead mount (ENOTCONN) left at the mount point
 * is replaced. ERR_UNSUPPORTED if passthrough is a must and cannot be. */
must_check int keeper_mount(const char *socket, const struct keeper_mount *m, struct err *err);

/* Unmounts; while it is in use tries again for `timeout_ms`, then detaches it and cuts its users off (they get ENOTCONN
 * or EIO), so that this always ends. When it returns, neither the keeper nor any mirror holds a descriptor of the
 * volume: the disk below may be taken apart. An id that is not mounted is success. */
must_check int keeper_unmount(const char *socket, const char *volume_id, uint32_t timeout_ms, struct err *err);

/* ERR_NOT_FOUND if it is not mounted by this keeper. */
must_check int keeper_status(const char *socket, const char *volume_id, struct keeper_status *ret, struct err *err);

/* Calls `each` for every volume, in the order of their mounting. */
must_check int keeper_list(const char *socket, void (*each)(const struct keeper_status *s, void *user), void *user,
                           struct err *err);

/* ---- mirror -------------------------------------------------------------------------------------------------------
 * A thread that stays connected to the keeper and holds a duplicate of every descriptor that the keeper holds. A keeper
 * that was started anew is given them all back, and its mount processes go on where the old ones stopped. It
 * reconnects for ever, with back-off up to 1 s. The other way round, a restarted cisternd gets everything from the
 * keeper when its mirror connects. */
struct mirror;
must_check int mirror_start(const char *socket, struct mirror **ret, struct err *err);
void mirror_stop(struct mirror *m); /* NULL is fine; joins the thread and closes the duplicates: mounts are untouched */

/* How many volumes it holds, and whether it is connected now: for tests and for status. */
uint32_t mirror_volumes(struct mirror *m);
bool mirror_is_connected(struct mirror *m);

/* What the mount processes of this keeper's volumes did since the mirror knows each of them. It only rises. Read from
 * the memfds: no mount and no keeper is asked. */
struct counts;
void mirror_counts(struct mirror *m, struct counts *ret);
