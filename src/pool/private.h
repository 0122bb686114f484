/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The state of a pool: its identity, its lock and the ledger of reserved space. Private to this room. */
#pragma once

#include "pool/pool.h"
#include "util/clock.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- identity: cistern.json -------------------------------------------------------------------------------------- */

enum { IDENTITY_EARLIER_MAX = 64 };

/* A pool that this one replaced. */
struct identity_earlier {
    char uuid[SPEC_UUID_LEN + 1];
    bool given_up; /* an administrator gave the pool and its volumes up; else its disk was ephemeral */
};

struct pool_identity {
    char uuid[SPEC_UUID_LEN + 1];
    char created[TIME_TEXT_MAX];
    struct identity_earlier earlier[IDENTITY_EARLIER_MAX];
    size_t earlier_count;
};

/* ERR_NOT_FOUND: the directory has no identity. ERR_CHANGED (CIS_POOL_ABSENT), ERR_INVALID (CIS_POOL_NAME_DIFFERS):
 * it belongs to another node or pool. */
must_check int identity_read(int dir, const struct pool_options *o, struct pool_identity *ret, struct err *err);
void identity_make(struct pool_identity *ret);
must_check int identity_write(int dir, const struct pool_options *o, const struct pool_identity *i, struct err *err);

/* `given_up`: only if an administrator gave it up. */
bool identity_replaces(const struct pool_identity *i, struct str uuid, bool given_up);
must_check int identity_add_earlier(struct pool_identity *i, struct str uuid, bool given_up, struct err *err);

/* An entry that a fresh file system does not have; "": none. */
must_check int identity_look_for_content(int dir, const char *path, char ret[NAME_MAX + 1], struct err *err);

/* Facts that decide whether a directory without an identity may get one. */
struct identity_facts {
    bool is_blank;      /* nothing is in it */
    bool is_mounted;    /* a disk of its own is mounted there */
    bool require_mount; /* options of the pool */
    bool is_ephemeral;
    bool is_asked;    /* every source that may name an earlier pool was read */
    bool has_earlier; /* and one of them does */
    bool is_given_up; /* an administrator gave up every pool that is named */
};

enum identity_may {
    IDENTITY_MAKE,
    IDENTITY_NOT_BLANK,
    IDENTITY_NOT_MOUNTED,
    IDENTITY_NOT_ASKED,
    IDENTITY_EARLIER, /* another pool belongs there */
};

/* May it? Pure. */
enum identity_may identity_may_be_made(const struct identity_facts *f);

/* ---- memory: the last pool at a path, recorded apart from the pool's disk
 * ------------------------------------------ */

/* "" in ret: no pool is recorded. */
must_check int memory_read(const char *directory, const char *path, char ret[SPEC_UUID_LEN + 1], struct err *err);
must_check int memory_write(const char *directory, const char *path, const char *uuid, struct err *err);

/* ---- ledger: every volume of the pool, as its directories said when they were last read -------------------------- */

enum ledger_state {
    LEDGER_MAKING, /* in making/ */
    LEDGER_READY,  /* in volumes/ */
    LEDGER_BROKEN, /* in volumes/, but its volume.json cannot be read: counted and kept, never served */
};

struct ledger_entry {
    struct volume_id volume_id;
    char *name; /* owned; "" if broken */
    uint64_t capacity_bytes;
    enum spec_backend backend;
    uint32_t project;
    enum ledger_state state;
};

/* home: under the pool's lock. Sorted by id. */
struct ledger {
    struct ledger_entry *entries; /* owned */
    size_t count;
};

void ledger_done(struct ledger *l);
must_check int ledger_read(struct ledger *l, int volumes, int making, struct err *err);
struct ledger_entry *ledger_find(const struct ledger *l, const struct volume_id *id);
struct ledger_entry *ledger_find_name(const struct ledger *l, struct str name);
void ledger_add(struct ledger *l, const struct spec *s, enum ledger_state state);
void ledger_remove(struct ledger *l, const struct volume_id *id);

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

struct pool {
    struct pool_options options; /* strings are owned */
    const char *name;            /* borrowed: of the options */

    pthread_mutex_t opening; /* guards the attempts to open it, and .why */
    struct err why;          /* it is not open */
    bool asks;               /* closed because of a witness, or because none was given */
    struct err disks_failed; /* error of the last attempt to set up its disks; code 0: none */
    uint64_t disks_again_ns; /* the next one */
    _Atomic bool is_open;    /* set once, after the fields below */

    char *path; /* owned; real */
    struct pool_identity identity;
    const char *uuid; /* borrowed: of the identity */
    enum spec_backend backend;
    char why_backend[DISK_WHY_MAX];
    bool has_loop;                   /* images are possible too */
    int dir, volumes, making, trash; /* owned */
    int lock_file;                   /* owned */

    pthread_mutex_t lock; /* `lock` excludes threads, the lock file processes; both together are the pool's lock. Guards
                             the fields below */
    struct ledger ledger;
    uint64_t generation; /* number in the lock file when the ledger was read; 0: never */
    uint64_t write_ns;   /* time of the next write that shows whether the file system is writable */
};

/* Takes the pool's lock, and reads the ledger again if another process changed the pool. Held over short I/O on the
 * pool itself, never while a disk is made, grown or removed. */
must_check int pool_lock(struct pool *p, struct err *err);
void pool_unlock(struct pool *p);

int pool_flock(int fd); /* flock(2), whatever signals come */

/* Call it before a change of the pool, never after: it invalidates the ledgers of other processes. After a crash
 * in between they are read once too often, never once too seldom. */
must_check int pool_touch(struct pool *p, struct err *err);

/* Moves half-made volumes whose maker died to the trash. CreateVolume never returned their ids, and a caller that
 * still needs one asks again by name. Not under the lock. */
must_check int pool_recover(struct pool *p, struct err *err);

/* Under the lock. The bytes that can still be reserved. */
must_check int pool_available(struct pool *p, uint64_t *ret_bytes, struct err *err);

/* ---- the directory of one volume --------------------------------------------------------------------------------- */

/* A volume's directory, locked against other calls for the same volume, in this process and in others. */
struct directory_lock {
    int dir;    /* owned; has the flock until directory_lock_release() */
    char *path; /* owned */
};
void directory_lock_release(struct directory_lock *h); /* may run twice */
#define auto_directory_lock auto_with(directory_lock_release) struct directory_lock

/* Locks `<parent>/<id>`, where parent is p->volumes, p->making or p->trash. ERR_NOT_FOUND if it does not exist (any
 * more), ERR_PENDING (CIS_VOLUME_CHANGING) if another call has the lock. */
must_check int directory_lock_take(struct pool *p, int parent, const char *id, struct directory_lock *ret,
                                   struct err *err);

/* The disk of the locked volume, for the functions of disk.h. */
struct disk directory_lock_disk(const struct directory_lock *h, const struct spec *spec);

/* After a rename of its directory. */
must_check int directory_lock_moved(const struct pool *p, int parent, const char *id, struct directory_lock *h,
                                    struct err *err);

/* From `parent` to trash, on disk and in the ledger. The disk must be detached. Under the pool's lock. */
must_check int pool_discard_volume(struct pool *p, int parent, const struct volume_id *id, struct err *err);
