/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - chooses the next object, and divides objects into parts. Pure. home: the lock of its owner. */
#pragma once

#include "catalog/index.h"

enum {
    PLAN_SMALL_MAX = 1 << 20,  /* up to here: one GET into one slice, written through the page cache */
    PLAN_PART_BYTES = 8 << 20, /* more than that: ranges; large enough that a request's cost is lost in it */
    PLAN_RANKS_MAX = 33,       /* 32 priority patterns and the rest */
    /* Objects to read, or to skip, before the mapped memory of their names is released: about 25 MB. */
    PLAN_RELEASE_OBJECTS = 1 << 18,
};

/* No store has larger objects (S3: 50 TB): a listing that says so is wrong, and must not cost memory for each
 * part. */
#define PLAN_OBJECT_MAX (UINT64_C(64) << 40)

/* A cursor for each rank. The catalog grows while objects are taken: a new object of a rank precedes all objects of the
 * next rank. */
struct hydrate_plan {
    uint64_t next[PLAN_RANKS_MAX];
    uint64_t begin[PLAN_RANKS_MAX], end[PLAN_RANKS_MAX]; /* the objects that were listed when the cursor reached them */
    unsigned ranks;
};

void plan_init(struct hydrate_plan *p, unsigned ranks);

/* A permutation of 0 .. n - 1 that visits PLAN_PLACES places in turns. A store limits the requests a second for each
 * range of keys, and raises a range's limit slowly. */
enum { PLAN_PLACES = 16, PLAN_RUN = 16 /* neighbours at one place: they share a directory */ };
uint64_t plan_spread(uint64_t k, uint64_t n);

/* The next object to look at. 1: *ret_id and *ret; 0: none now (more may be listed later); negative: the catalog is
 * damaged. */
must_check int plan_next(struct hydrate_plan *p, const struct index *x, uint64_t *ret_id, struct index_entry *ret,
                         struct err *err);
bool plan_is_exhausted(const struct hydrate_plan *p, uint64_t count);

must_check int plan_check_size(uint64_t size_bytes, struct err *err); /* the functions below need a size that passed */
bool plan_is_small(uint64_t size_bytes);
uint32_t plan_part_count(uint64_t size_bytes);
void plan_part(uint64_t size_bytes, uint32_t part, uint64_t *ret_offset, uint64_t *ret_len);
