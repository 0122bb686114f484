/* SPDX-License-Identifier: Apache-2.0 */
/* large.h - a large object: a file of its length, parts that any lane may fetch, one checksum over them all.
 * home: its fields are under h->lock; `fd`, `want` and `is_pinned` are frozen once it is published.
 *
 * Its parts must be of one version of it. Mostly the listing pins that; where it tells neither an ETag nor a
 * generation, every answer is held to what the first one told. */
#pragma once

#include "catalog/index.h"
#include "io/pool.h"
#include "store/store.h"

struct hydrate;
struct lane;

struct large {
    struct hydrate *h;
    struct lane *lane; /* where HEAD and the end run */
    uint64_t id;
    struct index_entry entry; /* strings in the catalog's mapping */
    char *path;               /* owned, NUL-terminated */
    int fd;                   /* owned */
    uint32_t align;           /* of O_DIRECT; 0: through the page cache */
    struct digest want;
    bool is_pinned;      /* by the listing */
    struct object first; /* else: what the first answer told of it */
    bool has_first;
    char *first_etag; /* owned */
    uint32_t part_count;
    uint32_t next; /* part to give out */
    uint32_t left; /* parts that are not there */
    uint32_t running;
    uint8_t *have;          /* owned: a byte a part */
    struct digest *digests; /* owned: of the parts */
    unsigned attempts;      /* of its worst part */
    bool failed;
    bool again; /* the whole was fetched a second time: its checksum was wrong once */
    struct err err;
    struct large *next_large; /* h->larges; before that: the lane's heads */
    struct store_job *head;
    struct work verify;
    struct digest got;
};

void large_begin(struct lane *l, uint64_t id, const struct index_entry *e);
/* Of one that is not pinned. ERR_CHANGED: it was overwritten since its first answer. Any lane's loop. */
must_check int large_hold(struct large *g, const struct object *told, struct err *err);
bool large_take_part(struct hydrate *h, struct large **ret, uint32_t *ret_part); /* h->lock held */
void large_part_done(struct lane *l, struct large *g, uint32_t part, const struct digest *d);
void large_part_failed(struct lane *l, struct large *g, const struct err *err, unsigned attempts);
void large_part_dropped(struct lane *l, struct large *g); /* the run stops */
void large_stop(struct lane *l);
