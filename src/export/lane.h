/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - one request to the store at a time, with the bytes that it sends: read, hashed, sent.
 * home: the run's loop fills it in and hears of its end; the work is done on the lane's worker, so that the parts of
 * one file travel on every loop. Between lane_go and `done` it belongs to the worker. Bytes are read into slices before
 * they are sent: what was hashed is what travels, whatever happens to the file. */
#pragma once

#include "hold.h"
#include "owner.h"
#include "util/budget.h"

enum lane_op {
    LANE_PUT,
    LANE_PROBE,
    LANE_PART,
    LANE_HASH,
    LANE_HEAD,
    LANE_READ,
    LANE_BEGIN,
    LANE_COMPLETE,
    LANE_ABORT,
    LANE_SWEEP,
    LANE_DELETE
};

struct lane_answer {
    int code; /* 0 or -(enum err_code) */
    struct err err;
    bool may_retry;         /* the failure was a passing one */
    enum store_guard guard; /* as in struct store_reply, as are the next two */
    bool rewritten;
    char owner[OWNER_TEXT_MAX];
    unsigned requests;       /* that it took, without looks */
    uint64_t size_bytes;     /* of the object, as the store told */
    struct digest digest;    /* the same; READ: of the bytes that came */
    struct digest composite; /* the same, where it is of as many parts as ours */
    char etag[LOGBOOK_ETAG_MAX];
    char tag[OBJECT_TAG_MAX]; /* object_tag */
    char id[2048];            /* BEGIN */
};

struct lane;
struct lane_read {
    struct disk_job job;
    struct lane *lane;
};

struct lane {
    struct worker *worker; /* borrowed */
    struct loop *home;     /* borrowed */
    struct store *store;   /* borrowed */
    struct rate *rate;     /* borrowed; NULL: no cap */
    struct lane *next;     /* the run's: in its list of free ones */

    /* What to do; the owner's until lane_go. Borrowed until `done`. */
    enum lane_op op;
    struct store_upload upload; /* key, condition and the rest; of PUT and HEAD too */
    struct str path;            /* of the file: for sentences */
    const struct hold *hold;    /* PUT, PROBE, PART, HASH; NULL: there are no bytes */
    unsigned number;
    uint64_t offset, len;
    void **slices; /* owned array, slices lent by the budget; as many as len needs */
    size_t slice_count, slice_room;
    const struct store_part *parts; /* COMPLETE */
    uint64_t object_bytes;          /* HEAD, READ: of the object that it may be */
    enum hash_kind read_kind;       /* READ: what is computed of the object's bytes */
    size_t part_count;              /* HEAD, COMPLETE; 0: it is no object of parts */
    struct digest whole;            /* COMPLETE */
    void *owner;
    void (*done)(struct lane *l); /* on home */

    /* What came of it. */
    struct digest digest; /* ours, of the bytes; their MD5 where that is what the store told, and it is right */
    struct lane_answer answer;

    /* The worker's. */
    struct mail mail;
    struct store_job *job;
    struct hash reading;     /* READ */
    struct timer again;      /* READ: the wait before another attempt */
    unsigned attempts;       /* READ */
    uint64_t began_ns;       /* READ */
    struct lane_read *reads; /* owned; one a slice */
    size_t reads_left;
    bool busy;
    bool stopped;
};

void lane_init(struct lane *l, struct worker *w, struct loop *home, struct store *store, struct rate *rate);
void lane_done(struct lane *l);
void lane_need_slices(struct lane *l, size_t count); /* room for so many in `slices` */
void lane_go(struct lane *l);

/* On the lane's worker: what runs ends with ERR_CANCELLED, and what comes later too. */
void lane_stop(struct lane *l);
