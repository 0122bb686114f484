/* SPDX-License-Identifier: Apache-2.0 */
#include "ls_order.h"
#include "util/heap.h"
#include <stdlib.h>

/* A page that waits for earlier ones: its place in the file, by its first key. */
struct early {
    struct heap_node node;
    struct str key; /* owned */
    long at;
    size_t len;
};

struct ls_order {
    FILE *out;
    FILE *file;        /* owned; NULL until a page waits */
    struct heap early; /* the least key first */
};

static bool is_before(const struct heap_node *a, const struct heap_node *b)
{
    return str_cmp(container_of(a, struct early, node)->key, container_of(b, struct early, node)->key) < 0;
}

static void early_free(struct ls_order *o, struct early *own_e)
{
    heap_remove(&o->early, &own_e->node);
    free((char *)(uintptr_t)own_e->key.ptr);
    free(own_e);
}

struct ls_order *ls_order_new(FILE *out)
{
    struct ls_order *o = xcalloc(1, sizeof *o);
    o->out = out;
    o->early.is_before = is_before;
    return o;
}

void ls_order_free(struct ls_order *o)
{
    for (struct early *e; (e = heap_first(&o->early, struct early, node)) != NULL;)
        early_free(o, e);
    heap_done(&o->early);
    if (o->file)
        fclose(o->file);
    free(o);
}

static int spill(struct ls_order *o, struct str key, struct str text, struct err *err)
{
    if (!o->file)
        o->file = tmpfile();
    if (!o->file || fseek(o->file, 0, SEEK_END) != 0)
        return err_sys(err, errno, "cannot create a temporary file to sort the list");
    struct early *e = xcalloc(1, sizeof *e);
    *e = (struct early){.key = {str_dup(key), key.len}, .at = ftell(o->file), .len = text.len};
    heap_add(&o->early, &e->node);
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
    for (struct early *e; r == 0 && (e = heap_first(&o->early, struct early, node)) != NULL;) {
        if (before && str_cmp(e->key, *before) >= 0)
            break;
        r = copy_out(o, e, err);
        early_free(o, e);
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
