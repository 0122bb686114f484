/* SPDX-License-Identifier: Apache-2.0 */
#include "shard.h"
#include <assert.h>
#include <stdlib.h>

enum {
    GRAINS = 4096,       /* an object of less than a 4,096th of a share is small: what chance makes of those is 1.6 % */
    UNEVEN = 100,        /* a hundredth of a share is even enough */
    LARGE_MAX = 1 << 20, /* then chance levels what is left */
};

struct large {
    uint64_t size_bytes;
    uint64_t id;
    unsigned shard;
};

/* The volumes as a heap: the first has the least, and of equals is the first by number. */
struct pile {
    uint64_t bytes;
    unsigned shard;
};

/* FNV-1a and the end of MurmurHash3, which brings every bit to every other: neighbours in name are none in shard.
 * Volumes of different versions share a bucket: never to be changed. */
static unsigned shard_of_path(struct str path, unsigned count)
{
    uint64_t h = 14695981039346656037U;
    for (size_t i = 0; i < path.len; i++)
        h = (h ^ (unsigned char)path.ptr[i]) * 1099511628211U;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdU;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53U;
    h ^= h >> 33;
    return (unsigned)(h % count);
}

struct dealing {
    const struct index *x;
    unsigned count;
    struct pile *piles;  /* owned */
    struct large *large; /* owned */
    size_t n, room;
    uint64_t least;      /* what is smaller is small */
    uint64_t left_bytes; /* of what is smaller */
};

static int by_size(const void *a, const void *b, void *ctx)
{
    const struct large *l = a, *r = b;
    struct index_entry x = {0}, y = {0};
    struct err ignored;
    if (l->size_bytes != r->size_bytes)
        return l->size_bytes > r->size_bytes ? -1 : 1;
    /* Ids are given by arrival, which is another one each time. Both were read before. */
    if (index_get(ctx, l->id, &x, &ignored) < 0 || index_get(ctx, r->id, &y, &ignored) < 0)
        return 0;
    return str_cmp(x.path, y.path);
}

static int by_id(const void *a, const void *b)
{
    const struct large *l = a, *r = b;
    return l->id < r->id ? -1 : l->id > r->id;
}

static bool is_less(const struct pile *a, const struct pile *b)
{
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->shard < b->shard);
}

static void sift_down(struct pile *heap, unsigned count)
{
    for (unsigned at = 0;;) {
        unsigned least = at;
        for (unsigned child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (is_less(&heap[child], &heap[least]))
                least = child;
        if (least == at)
            return;
        struct pile p = heap[at];
        heap[at] = heap[least];
        heap[least] = p;
        at = least;
    }
}

static int collect(struct dealing *d, uint64_t least, uint64_t below, struct err *err)
{
    for (uint64_t id = 0; id < index_count(d->x); id++) {
        struct index_entry e;
        int r = index_get(d->x, id, &e, err);
        if (r < 0)
            return r;
        if (e.size_bytes < least || e.size_bytes >= below)
            continue;
        if (d->n == d->room)
            d->large = xrealloc(d->large, d->room = d->room ? 2 * d->room : 1024, sizeof *d->large);
        d->large[d->n++] = (struct large){.size_bytes = e.size_bytes, .id = id};
        d->left_bytes -= e.size_bytes;
    }
    return 0;
}

/* Objects of these sizes, largest first, each to who has the least. */
static int level(struct dealing *d, uint64_t least, uint64_t below, struct err *err)
{
    size_t first = d->n;
    int r = collect(d, least, below, err);
    if (r < 0)
        return r;
    d->least = least;
    if (d->n > first)
        qsort_r(d->large + first, d->n - first, sizeof *d->large, by_size, (void *)(uintptr_t)d->x);
    for (size_t i = first; i < d->n; i++) {
        d->large[i].shard = d->piles[0].shard;
        d->piles[0].bytes += d->large[i].size_bytes;
        sift_down(d->piles, d->count);
    }
    return 0;
}

static bool is_even(const struct dealing *d, uint64_t share)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < d->count; i++)
        most = max_u64(most, d->piles[i].bytes);
    return most - d->piles[0].bytes <= share / UNEVEN;
}

/* Lines between sizes are powers of two, so that a listing that grew a little draws the same ones. */
static int deal_large(struct dealing *d, struct err *err)
{
    assert(d->count > 0);
    uint64_t share = d->left_bytes / d->count, least = 1;
    while (least <= share / GRAINS / 2)
        least *= 2;
    int r = level(d, least, UINT64_MAX, err);
    /* A few huge ones leave gaps that smaller ones have to fill. */
    while (r == 0 && d->least > 1 && !is_even(d, share) && d->left_bytes > share / UNEVEN && d->n < LARGE_MAX)
        r = level(d, d->least / 2, d->least, err);
    if (d->n > 0)
        qsort(d->large, d->n, sizeof *d->large, by_id);
    return r;
}

static void dealing_done(struct dealing *d)
{
    free(d->piles);
    free(d->large);
}

int shard_deal(const struct index *x, const struct shard *s,
               int (*mine)(void *ctx, const struct index_entry *e, struct err *err), void *ctx, struct err *err)
{
    auto_with(dealing_done) struct dealing d = {.x = x, .count = s->count, .left_bytes = index_bytes(x)};
    d.piles = xcalloc(s->count, sizeof *d.piles);
    for (unsigned i = 0; i < s->count; i++)
        d.piles[i].shard = i;
    int r = deal_large(&d, err);
    size_t next = 0;
    for (uint64_t id = 0; r == 0 && id < index_count(x); id++) {
        struct index_entry e;
        r = index_get(x, id, &e, err);
        if (r < 0)
            return r;
        bool small = e.size_bytes < d.least;
        assert(small || (d.large && next < d.n));
        unsigned shard = small ? shard_of_path(e.path, s->count) : d.large[next++].shard;
        if (shard == s->index)
            r = mine(ctx, &e, err);
    }
    return r;
}

int shard_parse(struct str text, struct shard *ret, struct err *err)
{
    struct str rest = text, first;
    uint64_t index = 0, count = 0;
    struct err ignored;
    bool ok = str_split(&rest, '/', &first) && rest.ptr && str_to_u64(first, &index, &ignored) == 0 &&
              str_to_u64(rest, &count, &ignored) == 0;
    if (!ok || count == 0 || count > SHARDS_MAX || index >= count)
        return err_set(err, ERR_INVALID,
                       "'%.*s' is not a shard: of four, they are 0/4 to 3/4, and there are %d at most", STR_FMT(text),
                       SHARDS_MAX);
    *ret = (struct shard){(unsigned)index, (unsigned)count};
    return 0;
}
