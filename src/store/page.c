/* SPDX-License-Identifier: Apache-2.0 */
#include "page.h"
#include <stdlib.h>

void object_page_init(struct object_page *p)
{
    *p = (struct object_page){0};
    sbuf_init(&p->text, PAGE_TEXT_MAX);
}

void object_page_done(struct object_page *p)
{
    free(p->objects);
    p->objects = NULL;
    p->count = p->room = 0;
    sbuf_done(&p->text);
}

void object_page_clear(struct object_page *p)
{
    p->count = 0;
    sbuf_clear(&p->text);
}

/* The text moves while it grows: until it is complete, a view into it is stored as an offset. */
static struct str keep(struct object_page *p, struct str s)
{
    struct str kept = {(const char *)(uintptr_t)p->text.len, s.len};
    sbuf_add(&p->text, s);
    return kept;
}

bool object_page_add(struct object_page *p, const struct store_object *o)
{
    if (p->count == PAGE_OBJECTS_MAX)
        return false;
    if (p->count == p->room) {
        p->room = p->room ? 2 * p->room : 1024;
        p->objects = xrealloc(p->objects, p->room, sizeof *p->objects);
    }
    struct store_object *mine = &p->objects[p->count];
    *mine = *o;
    mine->key = keep(p, o->key);
    mine->etag = keep(p, o->etag);
    mine->upload_id = keep(p, o->upload_id);
    if (p->text.overflow)
        return false;
    p->count++;
    return true;
}

void object_page_end(struct object_page *p)
{
    for (size_t i = 0; i < p->count; i++) {
        struct store_object *o = &p->objects[i];
        o->key.ptr = p->text.ptr + (uintptr_t)o->key.ptr;
        o->etag.ptr = p->text.ptr + (uintptr_t)o->etag.ptr;
        o->upload_id.ptr = p->text.ptr + (uintptr_t)o->upload_id.ptr;
    }
}

static int by_key(const void *a, const void *b)
{
    const struct store_object *x = a, *y = b;
    return str_cmp(x->key, y->key);
}

void object_page_sort(struct object_page *p)
{
    if (p->count > 0) /* an empty one has no array */
        qsort(p->objects, p->count, sizeof *p->objects, by_key);
}
