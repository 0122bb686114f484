/* SPDX-License-Identifier: Apache-2.0 */
/* page.h - collects the objects of one page of a listing in two growing blocks. home: its owner. */
#pragma once

#include "store/store.h"

/* More than any store sends on a page: S3 and GCS stop at 1,000, some servers at 10,000. */
enum { PAGE_OBJECTS_MAX = 100000, PAGE_TEXT_MAX = 128 << 20 };

struct object_page {
    struct store_object *objects; /* owned; keys, ETags and upload IDs are offsets into text until object_page_end */
    size_t count;
    size_t room;
    struct sbuf text;
};

void object_page_init(struct object_page *p);
void object_page_done(struct object_page *p);  /* may run twice */
void object_page_clear(struct object_page *p); /* keeps the memory */

/* Adds a copy of `o`. False past the ceilings. */
bool object_page_add(struct object_page *p, const struct store_object *o);

/* Makes the objects' strings readable; nothing may be added afterwards. */
void object_page_end(struct object_page *p);
void object_page_sort(struct object_page *p); /* by key; after object_page_end */
