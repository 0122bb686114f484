/* SPDX-License-Identifier: Apache-2.0 */
/* journal_format.h - defines the journal file: records of 32 bytes. Private to this room.
 * Code: journal_state.c and journal_replay.c. */
#pragma once

#include "catalog/journal.h"
#include <assert.h>
#include <pthread.h>

enum { JOURNAL_VERSION = 1 };

enum journal_kind {
    JOURNAL_HEAD = 1, /* a, b: the catalog's uid; c: version << 32 | part_bytes. Only the first record has this type */
    JOURNAL_RUN,      /* a process started; a, b: the boot id */
    JOURNAL_WRITTEN,  /* a: first id, b: count, at most JOURNAL_BATCH */
    JOURNAL_PART,     /* a: id, b: part, c: checksum of the kind `digest_kind` */
    JOURNAL_DURABLE,  /* a: position before which everything is durable */
    JOURNAL_DISCARD,  /* a: position; the records from there to this one are not trusted */
    JOURNAL_VOID,     /* a: id */
    JOURNAL_CUT,      /* the catalog was cut; a: its new number of objects */
    JOURNAL_COMPLETE, /* a: objects, b: bytes, c: wall clock, ns; 0: unknown */
    JOURNAL_STALE,    /* the catalog is out of date */
};

struct journal_record {
    uint32_t crc; /* CRC32C of the record's position (8 bytes) and of the fields below */
    uint8_t kind;
    uint8_t digest_kind;
    uint16_t zero;
    uint64_t a;
    uint64_t b;
    uint64_t c;
};
static_assert(sizeof(struct journal_record) == 32, "no padding");

/* The written parts of one incomplete object. */
struct journal_parts {
    uint64_t id;
    uint32_t room;    /* of the arrays */
    uint64_t *values; /* owned */
    uint8_t *kinds;   /* owned: enum hash_kind + 1; 0: not written */
};

enum { JOURNAL_PARTS_OBJECTS_MAX = 65536, JOURNAL_PARTS_MAX = 1 << 22, JOURNAL_BATCH = 2048 };

struct journal {
    pthread_mutex_t lock;
    int fd; /* owned */
    bool complete;
    bool stale; /* as the replay found it */
    int64_t completed_ns;
    unsigned runs;
    bool must_discard; /* the replay found records that this boot may not trust */

    /* Under lock. */
    uint64_t *whole; /* owned: a bit an id */
    uint64_t whole_words;
    struct journal_parts *parts; /* owned, sorted by id; only those of earlier runs */
    size_t parts_count;
    size_t parts_room;
    uint64_t parts_total;         /* of the arrays' rooms */
    uint64_t end;                 /* where the next record goes */
    uint64_t held;                /* everything before it is durable */
    uint64_t barrier_at;          /* of the barrier under way */
    struct journal_record *batch; /* owned: JOURNAL_BATCH */
    size_t batch_count;
    uint64_t *ids; /* owned: JOURNAL_BATCH ids of complete objects, to be written as runs */
    size_t id_count;
    struct err failed; /* a failed write, returned by the next flush. code 0: none */
};

uint32_t journal_record_crc(const struct journal_record *r, uint64_t position);
void journal_set_whole(struct journal *j, uint64_t id, bool whole);
void journal_note_part(struct journal *j, uint64_t id, uint32_t part, uint8_t kind, uint64_t value);
void journal_forget_parts(struct journal *j, uint64_t id);
void journal_forget_from(struct journal *j, uint64_t id);
struct journal_parts *journal_parts_of(struct journal *j, uint64_t id); /* NULL: none */
void journal_state_done(struct journal *j);

/* Reads the file and cuts a torn end. Fills whole, parts, complete, runs, end, held. */
must_check int journal_replay(struct journal *j, const uint8_t uid[INDEX_UID_BYTES], uint32_t part_bytes,
                              const uint8_t boot_id[16], struct err *err);
