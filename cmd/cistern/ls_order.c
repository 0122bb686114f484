/* SPDX-License-Identifier: Apache-2.0 */
#include "ls_order.h"
#include <stdlib.h>

/* A page that waits for earlier ones: its place in the file, by its first key. */
struct early {
    char *key; /* owned */
    size_t key_len;
    long at;
    size_t len;
};

struct ls_order {
    FILE *out;
    FILE *file;         /* owned; NULL until a page waits */
    struct early *heap; /* owned: the least key first */
    size_t count, room;
};

struct ls_order *ls_order_new(FILE *out)
{
    struct ls_order *o = xcalloc(1, sizeof *o);
    o->out = out;
    return o;
}

void ls_order_free(struct ls_order *o)
{
    for (size_t i = 0; i < o->count; i++)
        free(o->heap[i].key);
    free(o->heap);
    if (o->file)
        fclose(o->file);
    free(o);
}

static struct str key_of(const struct early *e)
{
    return (struct str){e->key, e->key_len};
}

static bool heap_less(const struct ls_order *o, size_t a, size_t b)
{
    return str_cmp(key_of(&o->heap[a]), key_of(&o->heap[b])) < 0;
}

static void heap_swap(struct ls_order *o, size_t a, size_t b)
{
    struct early t = o->heap[a];
    o->heap[a] = o->heap[b];
    o->heap[b] = t;
}

static void heap_push(struct ls_order *o, struct early e)
{
    if (o->count == o->room) {
        o->room = o->room ? 2 * o->room : 64;
        o->heap = xrealloc(o->heap, o->room, sizeof *o->heap);
    }
    size_t at = o->count++;
    o->heap[at] = e;
    for (; at > 0 && heap_less(o, at, (at - 1) / 2); at = (at - 1) / 2)
        heap_swap(o, at, (at - 1) / 2);
}

static struct early heap_pop(struct ls_order *o)
{
    struct early least = o->heap[0];
    o->heap[0] = o->heap[--o->count];
    for (size_t at = 0;;) {
        size_t best = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < o->count; child++)
            if (heap_less(o, child, best))
                best = child;
        if (best == at)
            return least;
        heap_swap(o, at, best);
        at = best;
    }
}

static int spill(struct ls_order *o, struct str key, struct str text, struct err *err)
{
    if (!o->file)
        o->file = tmpfile();
    if (!o->file || fseek(o->file, 0, SEEK_END) != 0)
        return err_sys(err, errno, "cannot create a temporary file to sort the list");
    struct early e = {.key = str_dup(key), .key_len = key.len, .at = ftell(o->file), .len = text.len};
    heap_push(o, e);
    if (fwrite(text.ptr, 1, text.len, o->file) != text.len)
        return err_sys(err, errno, "cannot write the temporary file to sort the list");
    return 0;
}

static int copy_out(struct ls_order *o, const struct early *e, struct err *err)
{
    char buf[1 << 14];
    if (fseek(o->file, e->at, SEEK_SET) != 0)
        return err_sys(err, errno, "cannot read the temporary file to sort the list");
    for (size_t left = e->len; left > 0;) {
        size_t n = fread(buf, 1, left < sizeof buf ? left : sizeof buf, o->file);
        if (n == 0)
            return err_sys(err, errno, "cannot read the temporary file to sort the list");
        fwrite(buf, 1, n, o->out);
        left -= n;
    }
    return 0;
}

/* Writes the pages below `before`; NULL: all. */
static int release(struct ls_order *o, const struct str *before, struct err *err)
{
    int r = 0;
    while (r == 0 && o->count > 0 && (!before || str_cmp(key_of(&o->heap[0]), *before) < 0)) {
        struct early e = heap_pop(o);
        r = copy_out(o, &e, err);
        free(e.key);
    }
    return r;
}

int ls_order_add(struct ls_order *o, struct str key, struct str text, bool is_next, struct err *err)
{
    if (text.len == 0)
        return 0;
    if (!is_next)
        return spill(o, key, text, err);
    int r = release(o, &key, err);
    if (r == 0)
        fwrite(text.ptr, 1, text.len, o->out);
    return r;
}

int ls_order_end(struct ls_order *o, struct err *err)
{
    return release(o, NULL, err);
}
