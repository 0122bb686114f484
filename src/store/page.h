/* SPDX-License-Identifier: Apache-2.0 */
/* page.h - the objects of one page of a listing while they are being found: two growing blocks and no more.
 * home: whoever fills it. */
#pragma once

#include "store/store.h"

/* More than any store sends on a page: S3 and GCS stop at 1,000, some servers at 10,000. */
enum { PAGE_OBJECTS_MAX = 100000, PAGE_TEXT_MAX = 128 << 20 };

struct page {
    struct object *objects; /* owned; keys and etags are offsets into text until page_end */
    size_t count;
    size_t room;
    struct sbuf text;
};

void page_init(struct page *p);
void page_done(struct page *p);  /* may run twice */
void page_clear(struct page *p); /* keeps the memory */

/* Adds a copy of `o`. False past the ceilings. */
bool page_add(struct page *p, const struct object *o);

/* Now the objects' strings may be read, and nothing may be added. */
void page_end(struct page *p);
void page_sort(struct page *p); /* by key; after page_end */
