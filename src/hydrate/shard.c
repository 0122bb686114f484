/* SPDX-License-Identifier: Apache-2.0 */
#include "shard.h"
#include "plan.h"
#include "util/heap.h"
#include <assert.h>
#include <stdlib.h>

enum {
    GRAINS = 4096,       /* objects below a 4,096th of a share are small: by chance their sums differ by 1.6 % */
    UNEVEN = 100,        /* a hundredth of a share is even enough */
    LARGE_MAX = 1 << 20, /* then chance levels the rest */
};

struct shard_object {
    uint64_t size_bytes;
    uint64_t id;
    unsigned shard;
};

struct shard_sum {
    struct heap_node node;
    uint64_t bytes;
    unsigned shard;
};

/* FNV-1a and the end of MurmurHash3, which mixes all bits: similar names spread over the shards. Never change it:
 * volumes of different versions share a bucket. */
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

struct shard_assignment {
    const struct index *x;
    unsigned count;
    struct shard_sum *sums;     /* owned */
    struct heap heap;           /* of the sums: the first has the fewest bytes; of equal ones, the lowest number */
    struct shard_object *large; /* owned */
    size_t n, room;
    uint64_t least;      /* objects below it are small */
    uint64_t left_bytes; /* of the small objects */
};

static int by_size(const void *a, const void *b, void *ctx)
{
    const struct shard_object *l = a, *r = b;
    struct index_entry x = {0}, y = {0};
    if (l->size_bytes != r->size_bytes)
        return l->size_bytes > r->size_bytes ? -1 : 1;
    /* By path: ids are in the order of arrival, which differs from run to run. The entries were read before, so this
     * does not fail. */
    if (index_get(ctx, l->id, &x, ERR_IGNORED) < 0 || index_get(ctx, r->id, &y, ERR_IGNORED) < 0)
        return 0;
    return str_cmp(x.path, y.path);
}

static int by_id(const void *a, const void *b)
{
    const struct shard_object *l = a, *r = b;
    return l->id < r->id ? -1 : l->id > r->id;
}

static bool is_less(const struct heap_node *x, const struct heap_node *y)
{
    const struct shard_sum *a = container_of(x, struct shard_sum, node), *b = container_of(y, struct shard_sum, node);
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->shard < b->shard);
}

static struct shard_sum *least_sum(const struct shard_assignment *d)
{
    return heap_first(&d->heap, struct shard_sum, node);
}

/* A listing may claim any size. An object larger than any store holds is never fetched, and counts as small: it would
 * overflow the sum of its shard. */
static bool is_small(const struct index_entry *e, uint64_t least)
{
    return e->size_bytes < least || e->size_bytes > PLAN_OBJECT_MAX;
}

static int collect(struct shard_assignment *d, uint64_t least, uint64_t below, struct err *err)
{
    for (uint64_t id = 0; id < index_count(d->x); id++) {
        struct index_entry e;
        int r = index_get(d->x, id, &e, err);
        if (r < 0)
            return r;
        if (is_small(&e, least) || e.size_bytes >= below)
            continue;
        if (d->n == d->room)
            d->large = xrealloc(d->large, d->room = d->room ? 2 * d->room : 1024, sizeof *d->large);
        d->large[d->n++] = (struct shard_object){.size_bytes = e.size_bytes, .id = id};
        d->left_bytes -= e.size_bytes;
    }
    return 0;
}

/* Assigns the objects of these sizes, largest first, each to the shard that has the least. */
static int level(struct shard_assignment *d, uint64_t least, uint64_t below, struct err *err)
{
    size_t first = d->n;
    int r = collect(d, least, below, err);
    if (r < 0)
        return r;
    d->least = least;
    if (d->n > first)
        qsort_r(d->large + first, d->n - first, sizeof *d->large, by_size, (void *)(uintptr_t)d->x);
    for (size_t i = first; i < d->n; i++) {
        struct shard_sum *s = least_sum(d);
        d->large[i].shard = s->shard;
        s->bytes += d->large[i].size_bytes;
        heap_update(&d->heap, &s->node);
    }
    return 0;
}

static bool is_even(const struct shard_assignment *d, uint64_t share)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < d->count; i++)
        most = max_u64(most, d->sums[i].bytes);
    return most - least_sum(d)->bytes <= share / UNEVEN;
}

/* Limits between sizes are powers of two, so that a listing that grew a little has the same limits. */
static int assign_large(struct shard_assignment *d, struct err *err)
{
    assert(d->count > 0);
    uint64_t share = d->left_bytes / d->count, least = 1;
    while (least <= share / GRAINS / 2)
        least *= 2;
    int r = level(d, least, UINT64_MAX, err);
    /* A few huge objects leave gaps that smaller ones fill. */
    while (r == 0 && d->least > 1 && !is_even(d, share) && d->left_bytes > share / UNEVEN && d->n < LARGE_MAX)
        r = level(d, d->least / 2, d->least, err);
    if (d->n > 0)
        qsort(d->large, d->n, sizeof *d->large, by_id);
    return r;
}

static void assignment_done(struct shard_assignment *d)
{
    heap_done(&d->heap);
    free(d->sums);
    free(d->large);
}

int shard_assign(const struct index *x, const struct shard *s,
                 int (*mine)(void *ctx, const struct index_entry *e, struct err *err), void *ctx, struct err *err)
{
    auto_with(assignment_done) struct shard_assignment d = {
        .x = x, .count = s->count, .heap.is_before = is_less, .left_bytes = index_bytes(x)};
    d.sums = xcalloc(s->count, sizeof *d.sums);
    for (unsigned i = 0; i < s->count; i++) {
        d.sums[i].shard = i;
        heap_add(&d.heap, &d.sums[i].node);
    }
    int r = assign_large(&d, err);
    size_t next = 0;
    for (uint64_t id = 0; r == 0 && id < index_count(x); id++) {
        struct index_entry e;
        r = index_get(x, id, &e, err);
        if (r < 0)
            return r;
        bool small = is_small(&e, d.least);
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
    bool ok = str_split(&rest, '/', &first) && rest.ptr && str_to_u64(first, &index, ERR_IGNORED) == 0 &&
              str_to_u64(rest, &count, ERR_IGNORED) == 0;
    if (!ok || count == 0 || count > SHARDS_MAX || index >= count)
        return err_set(err, ERR_INVALID, "'%.*s' is not a shard: four shards are 0/4 to 3/4, and there are %d at most",
                       STR_FMT(text), SHARDS_MAX);
    *ret = (struct shard){(unsigned)index, (unsigned)count};
    return 0;
}
