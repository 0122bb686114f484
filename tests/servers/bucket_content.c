/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"

struct content *content_hold(struct content *c)
{
    if (c)
        atomic_fetch_add(&c->holders, 1);
    return c;
}

void content_drop(struct content *own_c)
{
    if (!own_c || atomic_fetch_sub(&own_c->holders, 1) > 1)
        return;
    free(own_c->bytes);
    free(own_c);
}

void pieces_free(struct piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(take(&pieces[i].content));
}

struct content *content_new(struct piece *pieces, size_t count)
{
    char *bytes = take(&pieces[0].content);
    uint64_t size = pieces[0].size;
    for (size_t i = 1; i < count; i++) {
        if (bytes && pieces[i].content) {
            bytes = xrealloc(bytes, size + pieces[i].size + 1, 1);
            memcpy(bytes + size, pieces[i].content, pieces[i].size);
        }
        size += pieces[i].size;
    }
    pieces_free(pieces, count);
    if (!bytes)
        return NULL;
    struct content *c = xcalloc(1, sizeof *c);
    *c = (struct content){.holders = 1, .bytes = bytes};
    return c;
}
