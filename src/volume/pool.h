/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - what the parts of space share: who the pool is, its lock, and the ledger of what is promised. */
#pragma once

#include "volume/space.h"
#include <pthread.h>

/* ---- identity: cistern.json -------------------------------------------------------------------------------------- */

/* Reads the pool's UUID, or makes the folder a pool. Called under the pool's lock. */
must_check int identity_establish(int dir, const struct space_options *o, char ret_uuid[SPEC_UUID_LEN + 1],
                                  struct err *err);

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
    char *path; /* owned; real */
    char *name; /* owned */
    char uuid[SPEC_UUID_LEN + 1];
    bool in_cluster;
    unsigned reserve_percent;
    enum disk_backend backend;
    char why[DISK_WHY_MAX];
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
must_check int held_open(const struct space *s, int parent, const char *id, struct held *ret, struct err *err);

/* What to hand to disk.h. */
struct disk held_disk(const struct held *h, const struct spec *spec);

/* After a rename of its folder. */
must_check int held_moved(const struct space *s, int parent, const char *id, struct held *h, struct err *err);

/* From `parent` to trash, on disk and in the ledger. The disk must be detached. Under the pool's lock. */
must_check int space_discard(struct space *s, int parent, const char *id, struct err *err);

/* Removes one folder of trash. */
must_check int space_remove(struct space *s, const char *id, struct err *err);
