/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - the listing, which becomes the catalog page by page, while what it brought is fetched already.
 * home: pages come on any lane's loop, one at a time under `lock`; the rest is lane 0's, or the driver's while no page
 * can come. */
#pragma once

#include "catalog/index.h"
#include "hydrate/status.h"
#include "io/pool.h"
#include "store/list.h"
#include <pthread.h>

struct hydrate;

struct feed {
    pthread_mutex_t lock;
    struct listing *listing;
    size_t source;     /* that is being listed */
    struct index *all; /* owned; of a shard, while it lasts: what all shards have together */
    struct sbuf prefix;
    struct sbuf path;
    struct store_job *probe; /* before the listing; lane 0's loop */
    size_t strip;            /* bytes of a key that are not part of the path */
    bool single;             /* the URI names one object */
    bool cancelled;
    uint64_t space_bytes, space_files, block; /* what fits, what is there of ours included */
    uint64_t need_bytes, need_files;
    uint64_t excluded, skipped, largest_bytes;
    char last_skipped[HYDRATE_OBJECT_TEXT_MAX];
    uint64_t began_ns; /* monotonic; 0: it goes on where an earlier run left it */
    struct work finish;
    struct err err;
    struct mail next;
};

must_check int feed_prepare(struct hydrate *h, struct err *err);
void feed_start(struct hydrate *h);  /* driver */
void feed_cancel(struct hydrate *h); /* any thread */
void feed_stop(struct hydrate *h);   /* lane 0's loop: the same for what is asked before the listing */
void feed_done(struct hydrate *h);

/* Counts an object of the run against the space. ERR_NO_SPACE (CIS1510): it does not fit. */
must_check int feed_count(struct hydrate *h, uint64_t size_bytes, struct err *err);
must_check int feed_fits(const struct hydrate *h, struct err *err); /* what was counted */
void feed_need(struct hydrate *h, uint64_t size_bytes);             /* whether it fits or not */

/* known.c: before anything is fetched. What others have taken away is not whole any more. */
must_check int known_count(struct hydrate *h, struct err *err);
struct stat;
/* What is at an object's path (false: nothing that can be seen), and may it be the object? */
must_check bool known_look(const struct hydrate *h, struct str path, struct stat *ret);
must_check bool known_is_its(const struct stat *st, struct str path, uint64_t size_bytes);

/* deal.c: a shard's listing goes into a catalog beside the run's, which takes its part of it when all is listed. */
must_check int deal_prepare(struct hydrate *h, struct err *err);
must_check int deal(struct hydrate *h, struct err *err); /* blocks */
