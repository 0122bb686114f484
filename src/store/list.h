/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - one prefix listed by many workers that split the key space and steal from each other.
 * home: made and freed by any thread; pages arrive on the workers' loops, several at once: the sink takes its own lock
 * or posts mail. */
#pragma once

#include "store/store.h"

struct store_listing;

struct store_listing_options {
    struct str prefix;
    /* Ranges that an earlier run finished or began: keys up to and including `start_after` are not listed again. */
    struct str start_after;
    unsigned parallel; /* maximum of concurrent ranges; 1: strictly in order of keys; 0: as many as keep the workers
                          busy. Several ranges cost at most a quarter more requests, and one for each range */
    void *ctx;
    /* Objects of one page, sorted; `sorted_so_far`: no smaller key can come later. Negative stops the listing with that
     * code. Borrowed until it returns. */
    int (*on_page)(void *ctx, const struct store_object *objects, size_t count, bool sorted_so_far);
    /* Names on a page that are not objects (store_reply.skipped), and the last of them. Before on_page. May be NULL. */
    void (*on_skipped)(void *ctx, unsigned count, struct str last);
    /* Called once, last, on one of the workers' loops. err NULL: complete. `err` is freed with the listing. */
    void (*on_done)(void *ctx, const struct err *err, uint64_t requests);
};

/* Does the listing make progress? Not if a thousand successive pages are empty, or the next token equals the one
 * that was sent: such a listing would never end. `empty_pages` belongs to the owner of one listing or range, 0 at
 * first. */
bool list_goes_on(unsigned *empty_pages, size_t count, struct str token, struct str next_token);

/* Detects a listing that repeats: returns true for a page whose first key began an earlier page. Only the keys of
 * pages 1, 2, 4, 8 ... are kept (Brent). home: its owner's. */
struct list_rounds {
    struct sbuf key; /* first key of the page `page`; the owner creates it */
    uint64_t page, count;
};
bool list_comes_round(struct list_rounds *r, const struct store_object *objects, size_t count);

struct store_listing *store_listing_start(struct store *s, struct worker **workers, size_t worker_count,
                                          const struct store_listing_options *o);
void store_listing_cancel(struct store_listing *l); /* any thread, at most once, before on_done, which still follows */
void store_listing_free(struct store_listing *l);   /* after on_done, or from within it */
