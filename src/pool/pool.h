/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - A pool: the directory on the node's disk that volumes are made in. No byte is promised twice. home: any
 * thread, under its own lock; several processes may have one pool open (an old cisternd and the new one). Everything
 * blocks on the disk: call it from the thread pool.
 *
 *     <pool>/cistern.json   format version, pool UUID, node: how a wiped or another disk is detected, and the UUIDs of
 *                           the pools that it replaces
 *     <pool>/lock           one lock a pool, between processes too
 *     <pool>/making/<id>/   reserved, not yet a volume: its maker is at work, or died (then it goes to trash)
 *     <pool>/volumes/<id>/  a volume
 *     <pool>/trash/<id>/    deleted by rename; pool_empty_trash() frees the bytes
 *
 * Code: open.c opens and closes a pool and has what it replaces, create.c makes volumes, change.c changes and deletes
 * them. identity.c has pool_is_here(), and pool.c the lock, the bytes and the look-ups. */
#pragma once

#include "pool/disk.h"
#include "pool/volume.h"
#include <limits.h>

struct pool;

struct pool_options {
    const char *path;          /* absolute */
    const char *name;          /* the pool's: "default" */
    const char *node;          /* this node: a pool of another node is refused (CIS_POOL_ABSENT) */
    const char *memory;        /* a directory that outlives reboots and the pool's disk; NULL: nothing is recorded */
    const char *given_up;      /* UUIDs of pools that an administrator gave up, separated by commas; NULL: none */
    bool require_mount;        /* a new pool is made only where a disk of its own is mounted (CIS_POOL_NOT_MOUNTED) */
    bool is_ephemeral;         /* its disk may be blank after any boot: a new pool then takes its place */
    bool in_cluster;           /* its volumes belong to Kubernetes, which supports more parameters */
    unsigned reserve_percent;  /* reserve of the file system, never given to volumes */
    enum spec_backend backend; /* BACKEND_AUTO asks the kernel */
    const struct local_disks_wanted *disks; /* borrowed: disks to mount at the path, set up if needed; NULL: none */
    const struct disk_facts *facts;         /* tests: instead of asking the kernel; NULL otherwise */
};

/* "DIR[,OPTION...]", as in --pool: require-mount, ephemeral. */
struct pool_place {
    char path[PATH_MAX];
    bool require_mount, is_ephemeral;
};
must_check int pool_place_parse(const char *text, struct pool_place *ret, struct err *err);

/* Reports what pool_open() would do with these options, without a witness. Writes nothing. *ret_new: it would
 * make a pool. */
must_check int pool_examine(const struct pool_options *o, bool *ret_new, struct err *err);

/* Other sources than the disk and its records that name the pool that was at the path before. */
struct pool_witness {
    const char *uuid;     /* NULL: no pool was there */
    const char *who;      /* names it: "CisternPool 'node1.default'" */
    const char *given_up; /* as in the options; NULL: none in addition */
};

/* A pool that is not open yet. ERR_INVALID: the options are invalid. Strings are copied. */
must_check int pool_new(const struct pool_options *o, struct pool **ret, struct err *err);

/* Opens the pool, or makes one of an empty directory, and moves half-made volumes of a crash to the trash. Until it
 * succeeds, all other functions fail with ERR_ABSENT and the reason. Any thread may call it again; an open pool is
 * success. A refused directory is left as it was.
 *
 * Refused: a directory with foreign content (CIS_POOL_DIRECTORY_NOT_EMPTY), another pool than the recorded one
 * (CIS_POOL_ABSENT), a cistern.json that is corrupt (CIS_POOL_RECORD_CORRUPT) or of a newer version
 * (CIS_POOL_RECORD_VERSION). A pool is never created while a source names an earlier one that was not given up
 * (CIS_POOL_REPLACED), nor without a witness (NULL; CIS_POOL_IDENTITY_UNKNOWN). */
must_check int pool_open(struct pool *p, const struct pool_witness *w, struct err *err);
bool pool_is_open(const struct pool *p);
bool pool_asks(struct pool *p); /* Is it closed because of a witness, or because none was given? */
void pool_close(struct pool *own_p);
DEFINE_AUTO(pool, struct pool, pool_close)
#define auto_pool auto_with(auto_clean_pool) struct pool *

const char *pool_name(const struct pool *p);
const char *pool_path(const struct pool *p);
/* Appends the path where the volume of this id is, or would be, to `ret`. */
void pool_add_volume_path(const struct pool *p, const struct volume_id *id, struct sbuf *ret);
const char *pool_uuid(const struct pool *p); /* "" while it is not open */
/* Has it replaced the pool `uuid`? `given_up`: because an administrator gave that one up, not because it is
 * ephemeral. */
bool pool_replaces(struct pool *p, const char *uuid, bool given_up);
/* Records that an administrator gave up the pool `uuid`, which this open one has replaced. Repeatable. */
must_check int pool_give_up(struct pool *p, const char *uuid, struct err *err);
/* Records the pool's UUID in the state directory, if it has one. */
must_check int pool_remember(const struct pool *p, struct err *err);
enum spec_backend pool_backend(const struct pool *p);
const char *pool_backend_why(const struct pool *p); /* disk_choose()'s sentence */

/* ERR_ABSENT with the reason: the pool is not open, or its directory is no longer at its path (CIS_POOL_ABSENT).
 * The descriptors stay valid when the disk is unmounted or mounted over: only the path shows that. */
must_check int pool_is_here(struct pool *p, struct err *err);

struct pool_usage {
    uint64_t total_bytes;     /* size of the file system, less the reserve */
    uint64_t allocated_bytes; /* promised to volumes */
    uint64_t available_bytes; /* bytes that can still be promised: other files on the disk reduce them */
    uint64_t largest_bytes;   /* the largest volume that can be made now */
    uint64_t volumes;
};
must_check int pool_usage(struct pool *p, struct pool_usage *ret, struct err *err);

/* Makes the volume `want` (name, capacity, parameters, source, export), attached and empty. If one of that name
 * exists, it is returned if its capacity is in [want->capacity_bytes, limit_bytes] (0: no limit) and
 * spec_difference() finds none, else ERR_EXISTS (CIS_VOLUME_EXISTS). A given want->id must be of this pool
 * (ERR_CHANGED, CIS_POOL_ABSENT) unless want->takes_over. ERR_PENDING (CIS_VOLUME_CHANGING) while another call
 * is making it. ERR_NO_SPACE (CIS_POOL_FULL) has the bytes free and asked. `want` is only read; it has passed
 * spec_check(), and its in_cluster is the pool's. spec_check_served() is checked here. */
must_check int pool_create_volume(struct pool *p, const struct spec *want, uint64_t limit_bytes, struct volume **ret,
                                  struct err *err);

/* ERR_NOT_FOUND: no such volume. ERR_CORRUPT (CIS_VOLUME_RECORD_CORRUPT): its directory exists, and its volume.json
 * is damaged, missing or another volume's. ERR_CHANGED (CIS_POOL_ABSENT): it is not here and the id has another pool
 * UUID, so the disk was replaced or wiped. */
must_check int pool_find_volume(struct pool *p, const struct volume_id *id, struct volume **ret, struct err *err);
must_check int pool_find_volume_name(struct pool *p, struct str name, struct volume **ret, struct err *err);

struct pool_entry {
    struct volume_id volume_id;
    char *name; /* owned */
    uint64_t capacity_bytes;
};
/* Up to `max` volumes with ids above `after` (empty: from the start), in the order of ids. */
must_check int pool_list_volumes(struct pool *p, const struct volume_id *after, size_t max, struct pool_entry **ret,
                                 size_t *ret_count, struct err *err);
void pool_entries_free(struct pool_entry *own_entries, size_t count);

/* Mounts the volume's disk (after a reboot). Repeatable. Changes of one volume exclude each other: ERR_PENDING
 * (CIS_VOLUME_CHANGING) while another call changes it. */
must_check int pool_attach_volume(struct pool *p, const struct volume_id *id, struct err *err);

/* Forbids all writes to the attached volume, by any mount of it, or allows them again. ERR_BUSY
 * (CIS_VOLUME_IN_USE) while a file is open or mapped for writing. ERR_UNSUPPORTED: its backend is the quota. */
must_check int pool_set_volume_writable(struct pool *p, const struct volume_id *id, bool writable, struct err *err);

/* Attaches the volume's disk with this SELinux label of all its files, NULL: none. Errors as disk_set_label(). */
must_check int pool_set_volume_label(struct pool *p, const struct volume_id *id, const char *label, struct err *err);

/* Raises the capacity, also while mounted. Success if it is as large already. ERR_RANGE (CIS_VOLUME_GROW_LIMIT) if
 * the pool has too little space. */
must_check int pool_grow_volume(struct pool *p, const struct volume_id *id, uint64_t capacity_bytes, struct err *err);

/* Changes mutable parameters (spec_modify) in volume.json: all pairs or none. */
struct pool_volume_change {
    struct str key;
    struct str value;
};
must_check int pool_modify_volume(struct pool *p, const struct volume_id *id, const struct pool_volume_change *changes,
                                  size_t count, struct err *err);

/* The same for every field that follows the order of a volume (spec_follow). */
must_check int pool_follow_volume_order(struct pool *p, const struct volume_id *id, const struct spec *order,
                                        struct err *err);

/* Writes a damaged or missing volume.json again, from the order `known`: name, capacity, parameters, source. The
 * directory shows the backend. The damaged file stays beside it (volume.json.damaged); a readable one is left as it
 * is. ERR_UNSUPPORTED (CIS_VOLUME_RECORD_VERSION): a newer version wrote it. ERR_CORRUPT: nothing is left of its
 * disk. */
must_check int pool_restore_volume(struct pool *p, const struct spec *known, struct err *err);

/* Detaches the volume and renames it into the trash. A missing volume is success; one in use is ERR_BUSY. Its bytes can
 * be reserved again after pool_empty_trash(), which pool_create_volume() calls itself when space is short. */
must_check int pool_delete_volume(struct pool *p, const struct volume_id *id, struct err *err);

/* Frees deleted volumes, and those of makers that died in other processes, however long it takes and without the
 * lock. A directory that cannot be removed is skipped; the first such error is returned. */
must_check int pool_empty_trash(struct pool *p, struct err *err);
