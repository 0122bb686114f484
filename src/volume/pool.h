/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - what the parts of space share: who the pool is, its lock, and the ledger of what is promised. */
#pragma once

#include "util/clock.h"
#include "volume/space.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- identity: cistern.json -------------------------------------------------------------------------------------- */

enum { IDENTITY_EARLIER_MAX = 64 };

/* A pool whose place this one has taken. */
struct identity_earlier {
    char uuid[SPEC_UUID_LEN + 1];
    bool given_up; /* an administrator gave it up, and its volumes with it; else its disk was ephemeral */
};

struct identity {
    char uuid[SPEC_UUID_LEN + 1];
    char created[TIME_TEXT_MAX];
    struct identity_earlier earlier[IDENTITY_EARLIER_MAX];
    size_t earlier_count;
};

/* ERR_NOT_FOUND: there is none. ERR_CHANGED (CIS3001), ERR_INVALID (CIS2026): it is another node's or pool's. */
must_check int identity_read(int dir, const struct space_options *o, struct identity *ret, struct err *err);
void identity_make(struct identity *ret);
must_check int identity_write(int dir, const struct space_options *o, const struct identity *i, struct err *err);

/* `given_up`: only if an administrator gave it up. */
bool identity_replaces(const struct identity *i, struct str uuid, bool given_up);
must_check int identity_add_earlier(struct identity *i, struct str uuid, bool given_up, struct err *err);

/* The name of something in the directory that no fresh file system holds; "" if there is nothing. */
must_check int identity_look_for_content(int dir, const char *path, char ret[NAME_MAX + 1], struct err *err);

/* What decides whether a directory without an identity may get one. */
struct identity_facts {
    bool is_blank;      /* nothing is in it */
    bool is_mounted;    /* a disk of its own is mounted there */
    bool require_mount; /* options of the pool */
    bool is_ephemeral;
    bool is_asked;    /* everything that may name an earlier pool was asked */
    bool has_earlier; /* and something does */
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

/* ---- memory: which pool was open at a path last, kept apart from the pool's disk --------------------------------- */

/* "" in ret: none is remembered. */
must_check int memory_read(const char *folder, const char *path, char ret[SPEC_UUID_LEN + 1], struct err *err);
must_check int memory_write(const char *folder, const char *path, const char *uuid, struct err *err);

/* ---- ledger: every volume of the pool, as its folders said when they were last read ------------------------------ */

enum ledger_state {
    LEDGER_MAKING, /* in making/ */
    LEDGER_READY,  /* in volumes/ */
    LEDGER_BROKEN, /* in volumes/, and its volume.json cannot be read: counted and kept, never served */
};

struct ledger_entry {
    char id[SPEC_ID_LEN + 1];
    char *name; /* owned; "" if broken */
    uint64_t capacity_bytes;
    enum disk_backend backend;
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
struct ledger_entry *ledger_find(const struct ledger *l, struct str id);
struct ledger_entry *ledger_find_name(const struct ledger *l, struct str name);
void ledger_add(struct ledger *l, const struct spec *s, enum ledger_state state);
void ledger_remove(struct ledger *l, struct str id);

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

struct space {
    struct space_options options; /* strings are owned */
    const char *name;             /* borrowed: of the options */

    pthread_mutex_t opening; /* guards the attempts to open it, and .why */
    struct err why;          /* it is not open */
    bool asks;               /* because nobody said yet what was here before, or somebody did */
    _Atomic bool is_open;    /* once and for all: what follows is set before */

    char *path; /* owned; real */
    struct identity identity;
    const char *uuid; /* borrowed: of the identity */
    enum disk_backend backend;
    char why_backend[DISK_WHY_MAX];
    int dir, volumes, making, trash; /* owned */
    int lock_file;                   /* owned */

    pthread_mutex_t lock; /* threads; the lock file, processes. Together: the pool's lock. Guards what follows */
    struct ledger ledger;
    uint64_t generation; /* of the lock file when the ledger was read; 0: never */
};

/* Takes the pool's lock, and rereads the ledger if another process changed the pool. It is held over short I/O on the
 * pool itself, never over the making, growing or removing of a disk. */
must_check int space_lock(struct space *s, struct err *err);
void space_unlock(struct space *s);

int space_flock(int fd); /* flock(2), whatever signals come */

/* Says that the pool is about to change: the other processes' ledgers are void. Before the change, never after: who
 * dies in between has made them read once too often, instead of once too seldom. */
must_check int space_touch(struct space *s, struct err *err);

/* Half-made volumes whose maker is dead go to trash: CreateVolume never said OK, so nobody knows them, and whoever
 * still wants one asks for it again by name. Not under the lock. */
must_check int space_recover(struct space *s, struct err *err);

/* Under the lock. What can still be promised. */
must_check int space_available(struct space *s, uint64_t *ret_bytes, struct err *err);

/* ---- one volume's folder ----------------------------------------------------------------------------------------- */

/* A volume's folder, locked against other calls for the same volume, in this process and in others. */
struct held {
    int dir;    /* owned; holds the lock until closed */
    char *path; /* owned */
};
void held_done(struct held *h); /* may run twice */
#define auto_held auto_with(held_done) struct held

/* Locks `<parent>/<id>`, where parent is s->volumes, s->making or s->trash. ERR_NOT_FOUND if there is none (any more),
 * ERR_PENDING (CIS2007) if another call holds it. */
must_check int held_open(struct space *s, int parent, const char *id, struct held *ret, struct err *err);

/* What to hand to disk.h. */
struct disk held_disk(const struct held *h, const struct spec *spec);

/* After a rename of its folder. */
must_check int held_moved(const struct space *s, int parent, const char *id, struct held *h, struct err *err);

/* From `parent` to trash, on disk and in the ledger. The disk must be detached. Under the pool's lock. */
must_check int space_discard(struct space *s, int parent, const char *id, struct err *err);

/* Removes one folder of trash. */
must_check int space_remove(struct space *s, const char *id, struct err *err);
