/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's part of what was listed. Which objects those are is known when the last one is (shard.h): the listing goes
 * into a catalog of its own, on the disk as any, and the run's catalog takes its part from there. */
#include "private.h"
#include "util/file.h"

static const char folder[] = "listing";

int deal_prepare(struct hydrate *h, struct err *err)
{
    auto_fd dir = -1;
    /* What an earlier run listed and did not deal is of another day than what this one lists. */
    int r = dir_remove(h->target->state, folder, err);
    if (r < 0 || h->o.shard.count <= 1 || index_is_complete(h->index))
        return r;
    struct index_source source = {.text = STR("all shards")};
    r = dir_make(h->target->state, folder, 0700, &dir, err);
    return r == 0 ? index_create(dir, &source, &h->feed.all, err) : r;
}

static int keep(void *ctx, const struct index_entry *e, struct err *err)
{
    struct hydrate *h = ctx;
    bool is_new;
    int r = index_add(h->index, e, &is_new, err);
    return r == 0 ? feed_count(h, e->size_bytes, err) : r;
}

int deal(struct hydrate *h, struct err *err)
{
    int r = index_finish(h->feed.all, err);
    if (r == 0)
        r = shard_deal(h->feed.all, &h->o.shard, keep, h, err);
    if (r == 0)
        r = index_flush(h->index, false, err);
    return r == 0 ? dir_remove(h->target->state, folder, err) : r;
}
