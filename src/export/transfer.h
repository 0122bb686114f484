/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - Runs one request to the store at a time, and reads, hashes and sends its bytes. home: the run's
 * loop fills it in and receives its end; the transfer's worker does the work. So the parts of one file use every
 * loop. Between transfer_go and `done` it belongs to the worker. Bytes are read into slices before they are sent:
 * the hashed bytes are the sent bytes, even if the file changes. */
#pragma once

#include "file_lease.h"
#include "owner.h"
#include "util/budget.h"
#include "util/list.h"

enum transfer_op {
    TRANSFER_PUT,
    TRANSFER_PROBE,
    TRANSFER_PART,
    TRANSFER_HASH,
    TRANSFER_HEAD,
    TRANSFER_READ,
    TRANSFER_BEGIN,
    TRANSFER_COMPLETE,
    TRANSFER_ABORT,
    TRANSFER_SWEEP,
    TRANSFER_DELETE
};

struct transfer_answer {
    int code; /* 0 or -(enum err_code) */
    struct err err;
    bool may_retry;         /* the failure was temporary */
    enum store_guard guard; /* as in struct store_reply, as are the next two */
    bool rewritten;
    char owner[OWNER_TEXT_MAX];
    unsigned requests;       /* that it took, without HEADs */
    uint64_t size_bytes;     /* of the object, from the store */
    struct digest digest;    /* the same; READ: of the received bytes */
    struct digest composite; /* the same, if it has as many parts as the upload */
    char etag[LOGBOOK_ETAG_MAX];
    char tag[STORE_OBJECT_TAG_MAX]; /* store_object_tag */
    char upload_id[2048];           /* BEGIN */
};

struct transfer;
struct transfer_slice {
    struct disk_job read; /* its bytes are borrowed from the budget */
    struct transfer *transfer;
};

/* Common to all transfers of a run. */
struct transfer_way {
    struct loop *home;                /* borrowed */
    struct store *store;              /* borrowed */
    struct rate *rate;                /* borrowed; NULL: no cap */
    void (*done)(struct transfer *l); /* on home */
};

/* Borrowed from the owner until `done`. */
struct transfer_request {
    enum transfer_op op;
    struct store_write write;       /* also for HEAD and READ: the key, the tag */
    struct str path;                /* of the file: for sentences */
    const struct file_lease *lease; /* PUT, PROBE, PART, HASH; NULL: no bytes are sent */
    unsigned number;                /* PART, HASH, READ: of the part */
    uint64_t offset, len;           /* of the bytes to read */
    struct store_parts parts;       /* COMPLETE; HEAD: its count; 0: not a multipart object */
    uint64_t object_bytes;          /* HEAD, READ: size of the file, in case the object has its bytes */
    enum hash_kind read_kind;       /* READ: the digest of the object's bytes */
};

/* READ; the worker's. */
struct transfer_read {
    struct hash hash;
    struct timer again; /* the wait before another attempt */
    unsigned attempts;
    uint64_t began_ns;
};

struct transfer {
    const struct transfer_way *way; /* borrowed */
    struct worker *worker;          /* borrowed */
    struct list_node in_free;       /* the run's */

    /* The owner's until transfer_go. */
    struct transfer_request request;
    struct transfer_slice *slices; /* owned array; as many as request.len needs */
    size_t slice_count, slice_room;
    void *owner;

    /* The result. */
    struct digest digest; /* of the sent bytes; their MD5 if the store returned that MD5 */
    struct transfer_answer answer;

    /* The worker's. */
    struct mail mail;
    struct store_job *job;
    struct transfer_read read;
    size_t reads_left;
    bool busy;
    bool stopped;
};

void transfer_init(struct transfer *l, const struct transfer_way *way, struct worker *w);
void transfer_done(struct transfer *l);
void transfer_need_slices(struct transfer *l, size_t count); /* room for so many in `slices` */
void transfer_go(struct transfer *l);

/* On the transfer's worker: the running request and all later ones end with ERR_CANCELLED. */
void transfer_stop(struct transfer *l);
