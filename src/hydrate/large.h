/* SPDX-License-Identifier: Apache-2.0 */
/* large.h - Fetches a large object: preallocates its file, hands out its parts to all lanes, verifies one checksum over
 * them all.
 * home: its fields are under queue.lock; `fd`, `want` and `is_pinned` are frozen once its parts are queued.
 *
 * All parts must be of one version. Mostly the listing pins it by ETag or generation; where it has neither, each answer
 * is compared with the first one. */
#pragma once

#include "catalog/index.h"
#include "fault.h"
#include "io/thread_pool.h"
#include "store/store.h"
#include "util/list.h"

struct hydrate_lane;

struct hydrate_large {
    struct hydrate *h;
    struct hydrate_lane *lane; /* runs HEAD and the end */
    uint64_t id;
    struct index_entry entry; /* strings in the catalog's mapping */
    char *path;               /* owned, NUL-terminated */
    int fd;                   /* owned */
    uint32_t align;           /* of O_DIRECT; 0: through the page cache */
    struct digest want, got;
    bool is_pinned; /* by the listing */
    struct {
        bool is_known;
        struct store_object object;
        char *etag; /* owned */
    } first;        /* if not pinned: the version of the first answer */
    uint32_t part_count;
    uint32_t next; /* part to hand out */
    uint32_t left; /* parts that are missing */
    uint32_t running;
    uint8_t *have;          /* owned: one byte per part */
    struct digest *digests; /* owned: of the parts */
    bool again;             /* all parts are being fetched a second time: the checksum was wrong once */
    bool failed;
    enum hydrate_fault_kind kind;
    unsigned attempts; /* of its worst part */
    struct err err;
    struct list_node node; /* in queue.larges; before that in the lane's heads */
    bool is_queued;        /* in queue.larges */
    struct store_job *head;
    struct work verify;
};

/* Whether it sends a HEAD. */
bool large_begin(struct hydrate_lane *l, uint64_t id, const struct index_entry *e);
/* For an object that is not pinned. ERR_CHANGED: it was overwritten since its first answer. Any lane's loop. */
must_check int large_check_version(struct hydrate_large *g, const struct store_object *reply, struct err *err);
void large_part_done(struct hydrate_lane *l, struct hydrate_large *g, uint32_t part, const struct digest *d);
void large_part_failed(struct hydrate_lane *l, struct hydrate_large *g, enum hydrate_fault_kind kind,
                       const struct err *err, unsigned attempts);
void large_part_dropped(struct hydrate_lane *l, struct hydrate_large *g); /* the run stops */
void large_stop(struct hydrate_lane *l);
