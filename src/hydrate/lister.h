/* SPDX-License-Identifier: Apache-2.0 */
/* lister.h - Lists the sources into the catalog, page by page, while objects that are listed are fetched already.
 * home: pages come on any lane's loop, one at a time under `lock`; the rest is lane 0's, or the coordinator's while no
 * page can come. */
#pragma once

#include "catalog/index.h"
#include "fault.h"
#include "io/thread_pool.h"
#include "store/list.h"
#include "store/single.h"
#include <pthread.h>

struct hydrate_lister {
    pthread_mutex_t lock;
    struct store_listing *listing;
    size_t source;     /* that is being listed */
    struct index *all; /* owned; of a shard, until it is assigned: the objects of all shards */
    struct sbuf path;
    struct store_single single; /* instead of a listing; lane 0's loop */
    size_t strip;               /* bytes of a key that are not part of the path */
    bool cancelled;
    uint64_t found, left_out; /* objects of the source that is being listed */
    uint64_t excluded, skipped;
    char last_skipped[HYDRATE_OBJECT_TEXT_MAX];
    uint64_t began_ns; /* monotonic; 0: it continues an earlier run's listing */
    struct work finish;
    enum hydrate_fault_kind err_kind;
    struct err err;
    struct mail next;
};

void lister_init(struct hydrate_lister *l);
void lister_done(struct hydrate_lister *l);
must_check int lister_prepare(struct hydrate *h, struct err *err);
void lister_start(struct hydrate *h);  /* coordinator */
void lister_cancel(struct hydrate *h); /* any thread */
