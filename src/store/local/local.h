/* SPDX-License-Identifier: Apache-2.0 */
/* local.h - the job of file://, which visits the disk on the pool; shared by reading and writing. home of a
 * local_job: its loop; during a visit, the pool thread.
 * Code: local.c, read.c and write.c. */
#pragma once

#include "backend.h"
#include "page.h"
#include "walk.h"
#include <pthread.h>

enum {
    LOCAL_CHUNK = 1 << 20,  /* bytes that a visit moves: returns to the loop once a megabyte */
    LOCAL_PAGE_KEYS = 1000, /* as S3 and GCS do */
    LOCAL_ETAG_MAX = 80,
    LOCAL_WALKS_MAX = 16, /* listings whose walk is kept between two pages */
};

struct idle_walk {
    uint64_t id;
    struct local_walk *walk; /* owned */
};

struct local {
    char *path;           /* owned */
    pthread_mutex_t lock; /* guards the fields below */
    int root;             /* owned; -1 until first needed */
    struct idle_walk idle[LOCAL_WALKS_MAX];
    size_t next_idle;
};

struct local_job;
typedef int local_visit_fn(struct local_job *j, struct err *err);

struct local_job {
    struct store_job job;
    struct work work;
    local_visit_fn *visit;
    void (*after)(struct local_job *j);
    int code;
    int abandoned; /* the code of a job whose temporary is being removed */
    struct err err;
    bool running;       /* a visit is under way */
    bool head_reported; /* on_head was called */
    bool paused;        /* the reader said WEB_PAUSE */
    bool waiting;       /* the timer is set */
    struct timer pause;
    uint64_t visit_ns;
    uint64_t first_visit_ns;
    int fd; /* owned */
    char *buf;
    size_t filled;
    uint64_t moved;
    char etag[LOCAL_ETAG_MAX];
    char owner[128]; /* HEAD */

    struct object_page page; /* LIST */
    struct sbuf token;       /* LIST: next_token; BEGIN: the id */
    struct sbuf skipped;     /* LIST: the reply's last_skipped */

    int parent; /* PUT: the directory of temporaries; owned */
    char name[64];
    struct hash hash;
};

/* The store's directory, opened at first use: the destination of an export may not exist before. Blocks. */
must_check int local_root(struct local *l, bool make, int *ret, struct err *err);

/* Runs `visit` on the pool, then `after` on the loop; a failed visit ends the job instead. */
void local_visit(struct local_job *j, local_visit_fn *visit, void (*after)(struct local_job *j));
void local_visit_paced(struct local_job *j, uint64_t bytes, local_visit_fn *visit, void (*after)(struct local_job *j));

/* Ends the attempt; j->err is set if code is negative. */
void local_end(struct local_job *j, int code);
void local_end_well(struct local_job *j);

/* Ends a job that failed after it removed the job's temporary. */
void local_abandon(struct local_job *j, int code);

/* Made from size and time, in `buf` of LOCAL_ETAG_MAX. */
struct str local_etag(const struct stat *st, char *buf);

/* `etag` of LOCAL_ETAG_MAX holds ret->etag. */
void local_describe(struct str key, const struct stat *st, char *etag, struct store_object *ret);

#define LOCAL_XATTR_OWNER "user.cistern.owner"

void local_read_start(struct local_job *j);  /* GET, HEAD, LIST */
void local_wake(struct local_job *j);        /* resumes a paused GET, and ends a waiting job that was cancelled */
void local_write_start(struct local_job *j); /* PUT, BEGIN, PART, COMPLETE, ABORT, SWEEP, DELETE */
