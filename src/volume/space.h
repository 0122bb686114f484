/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - a pool: the folder on the node's disk that volumes are made in. No byte is promised twice.
 * home: any thread, under its own lock; several processes may have one pool open (an old cisternd and the new one).
 * Everything blocks on the disk: call it from the thread pool.
 *
 *     <pool>/cistern.json   format version, pool UUID, node: how a wiped or another disk is noticed, and the UUIDs of
 *                           the pools that it replaces
 *     <pool>/lock           one lock a pool, between processes too
 *     <pool>/making/<id>/   counted, not yet a volume: its maker is at work, or died (then it goes to trash)
 *     <pool>/volumes/<id>/  a volume
 *     <pool>/trash/<id>/    deleted by rename; space_empty_trash() frees the bytes */
#pragma once

#include "volume/disk.h"
#include "volume/volume.h"
#include <limits.h>

struct space;

struct space_options {
    const char *path;          /* absolute */
    const char *name;          /* the pool's: "default" */
    const char *node;          /* who we are: a pool of another node is refused (CIS3001) */
    const char *memory;        /* a directory that outlives reboots and the pool's disk; NULL: nothing is remembered */
    const char *given_up;      /* UUIDs of pools that an administrator gave up, separated by commas; NULL: none */
    bool require_mount;        /* a new pool is made only where a disk of its own is mounted (CIS2043) */
    bool is_ephemeral;         /* its disk may be blank after any boot: a new pool then takes its place */
    bool in_cluster;           /* its volumes are Kubernetes's, for whom more is served */
    unsigned reserve_percent;  /* of the file system, never given to volumes */
    enum disk_backend backend; /* DISK_AUTO asks the kernel */
    const struct disk_facts *facts; /* tests: instead of asking the kernel; NULL otherwise */
};

/* "DIR[,OPTION...]" as --pool has it: require-mount, ephemeral. */
struct space_place {
    char path[PATH_MAX];
    bool require_mount, is_ephemeral;
};
must_check int space_place_parse(const char *text, struct space_place *ret, struct err *err);

/* What would space_open() do with these options, on a machine by itself? Nothing is written. *ret_new: it would make a
 * pool. */
must_check int space_examine(const struct space_options *o, bool *ret_new, struct err *err);

/* What was at the pool's path before, as far as others than its disk and its memory know. */
struct space_witness {
    const char *uuid;     /* NULL: no pool was */
    const char *who;      /* names it: "CisternPool 'node1.default'" */
    const char *given_up; /* as in the options; NULL: none more */
};

/* A pool that is not open yet. ERR_INVALID: the options are off. Strings are copied. */
must_check int space_new(const struct space_options *o, struct space **ret, struct err *err);

/* Opens the pool, or makes one of an empty directory, and repairs what a crash left: half-made volumes go to trash.
 * Until it succeeds, everything else here answers ERR_ABSENT with the reason; it may be called again and again, by any
 * thread; open already is success. Refused, it leaves nothing in the directory.
 *
 * A directory with foreign content is refused (CIS2021), as is another pool than the one that is remembered (CIS3001),
 * and a cistern.json that is corrupt (CIS2022) or newer than we are (CIS2023). A new pool is never made while anything
 * names an earlier one that nobody gave up (CIS2045), nor without a witness (NULL; CIS2044). */
must_check int space_open(struct space *s, const struct space_witness *w, struct err *err);
bool space_is_open(const struct space *s);
bool space_asks(struct space *s); /* is it closed for want of a witness, or by what one said? */
void space_close(struct space *own_s);
DEFINE_AUTO(space, struct space, space_close)
#define auto_space auto_with(auto_clean_space) struct space *

const char *space_name(const struct space *s);
const char *space_path(const struct space *s);
/* Where the volume of this id is, or would be: appended to `ret`. */
void space_add_folder(const struct space *s, const char *id, struct sbuf *ret);
const char *space_uuid(const struct space *s); /* "" while it is not open */
/* Has it taken the place of the pool `uuid`? `given_up`: by an administrator's word, not because it is ephemeral. */
bool space_replaces(struct space *s, const char *uuid, bool given_up);
/* An administrator gives up the pool `uuid`, whose place this open one has taken. Known already: success. */
must_check int space_give_up(struct space *s, const char *uuid, struct err *err);
/* Puts the pool's UUID into its memory, if it has one. */
must_check int space_remember(const struct space *s, struct err *err);
enum disk_backend space_backend(const struct space *s);
const char *space_backend_why(const struct space *s); /* disk_choose()'s sentence */

/* ERR_ABSENT: it is not open, and why; or its directory is not at its path any more (CIS3001). What was opened stays
 * good when its disk is unmounted or another is mounted over it: the path tells. */
must_check int space_is_here(struct space *s, struct err *err);

struct space_usage {
    uint64_t total_bytes;     /* of the file system, less the reserve */
    uint64_t allocated_bytes; /* promised to volumes */
    uint64_t available_bytes; /* that can still be promised: neighbours' files count against it */
    uint64_t largest_bytes;   /* the largest volume that can be made now */
    uint64_t volumes;
};
must_check int space_usage(struct space *s, struct space_usage *ret, struct err *err);

/* Makes the volume `want` (name, capacity, parameters, source, export), attached and empty. One of that name is there:
 * it is returned if its capacity is in [want->capacity_bytes, limit_bytes] (0: no limit) and spec_difference() finds
 * none, else ERR_EXISTS (CIS2006). Its id is want->id if that says one, which must be of this pool (ERR_CHANGED,
 * CIS3001) unless want->takes_over. ERR_PENDING (CIS2007) while another call is making it. ERR_NO_SPACE (CIS2028) has
 * the bytes free and asked. `want` is only read. */
must_check int space_create(struct space *s, const struct spec *want, uint64_t limit_bytes, struct volume **ret,
                            struct err *err);

/* ERR_NOT_FOUND: no such volume, also for what is no id. ERR_CORRUPT (CIS2005): its folder is there, and its
 * volume.json is damaged, gone or another volume's. ERR_CHANGED (CIS3001): it is not here and the id is of another pool
 * UUID, so the disk was replaced or wiped. */
must_check int space_find(struct space *s, struct str id, struct volume **ret, struct err *err);
must_check int space_find_name(struct space *s, struct str name, struct volume **ret, struct err *err);

struct space_entry {
    char id[SPEC_ID_LEN + 1];
    char *name; /* owned */
    uint64_t capacity_bytes;
};
/* Up to `max` volumes with ids above `after` ("": from the start), in the order of ids. */
must_check int space_list(struct space *s, struct str after, size_t max, struct space_entry **ret, size_t *ret_count,
                          struct err *err);
void space_entries_free(struct space_entry *own_entries, size_t count);

/* Mounts the volume's disk (after a reboot), or takes it down (in use: ERR_BUSY). Both may be repeated. */
/* All that changes one volume excludes itself: ERR_PENDING (CIS2007) while another call is at work on it. */
must_check int space_attach(struct space *s, struct str id, struct err *err);
must_check int space_detach(struct space *s, struct str id, struct err *err);

/* Raises the capacity, while mounted too. As large already: success. ERR_RANGE (CIS2029) if the pool is short. */
must_check int space_grow(struct space *s, struct str id, uint64_t capacity_bytes, struct err *err);

/* Changes what may change (spec_modify) in volume.json: all pairs or none. */
struct space_change {
    struct str key;
    struct str value;
};
must_check int space_modify(struct space *s, struct str id, const struct space_change *changes, size_t count,
                            struct err *err);

/* The same for all that follows the order of a volume (spec_follow). */
must_check int space_follow(struct space *s, struct str id, const struct spec *order, struct err *err);

/* Writes volume.json anew where it is damaged or gone, from what whoever ordered the volume `known->id` knows of it:
 * name, capacity, parameters, source. What its disk is, the folder shows. The damaged file stays beside it
 * (volume.json.damaged); one that can be read is left as it is. ERR_UNSUPPORTED (CIS2004): a newer version's, which is
 * no damage. ERR_CORRUPT: nothing of its disk is left. */
must_check int space_restore(struct space *s, const struct spec *known, struct err *err);

/* Detaches and renames into trash. Absent (or no id at all) is success; in use is ERR_BUSY. Its bytes can be promised
 * again once space_empty_trash() has freed them; space_create() does that itself when it is short. */
must_check int space_delete(struct space *s, struct str id, struct err *err);

/* Frees what was deleted, and what makers that died in other processes left, as long as it takes and without the lock;
 * goes on past a folder that cannot be removed and then tells of the first. */
must_check int space_empty_trash(struct space *s, struct err *err);
