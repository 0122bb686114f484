/* SPDX-License-Identifier: Apache-2.0 */
#include "util/map.h"
#include "util/str.h"

enum { BUCKETS_FIRST = 16 };

static struct map_node **bucket_of(const struct map *m, uint64_t hash)
{
    return &m->buckets[hash & (m->bucket_count - 1)];
}

static void insert(struct map *m, struct map_node *n)
{
    struct map_node **bucket = bucket_of(m, n->hash);
    n->next = *bucket;
    *bucket = n;
}

static void grow(struct map *m)
{
    struct map old = *m;
    m->bucket_count = old.bucket_count ? 2 * old.bucket_count : BUCKETS_FIRST;
    m->buckets = xcalloc(m->bucket_count, sizeof(struct map_node *));
    for (size_t i = 0; i < old.bucket_count; i++)
        for (struct map_node *n = old.buckets[i], *next; n; n = next) {
            next = n->next;
            insert(m, n);
        }
    free(old.buckets);
}

void map_add(struct map *m, struct map_node *n, uint64_t hash)
{
    if (m->count == m->bucket_count)
        grow(m);
    n->hash = hash;
    insert(m, n);
    m->count++;
}

void map_remove(struct map *m, struct map_node *n)
{
    struct map_node **at = bucket_of(m, n->hash);
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    m->count--;
}

void map_done(struct map *m)
{
    free(m->buckets);
    *m = (struct map){0};
}

static struct map_node *with_hash(struct map_node *n, uint64_t hash)
{
    while (n && n->hash != hash)
        n = n->next;
    return n;
}

struct map_node *map_first(const struct map *m, uint64_t hash)
{
    return m->count ? with_hash(*bucket_of(m, hash), hash) : NULL;
}

struct map_node *map_same(const struct map_node *n)
{
    return with_hash(n->next, n->hash);
}

struct map_node *map_next(const struct map *m, const struct map_node *after)
{
    if (after && after->next)
        return after->next;
    size_t i = after ? (size_t)(bucket_of(m, after->hash) - m->buckets) + 1 : 0;
    while (i < m->bucket_count && !m->buckets[i])
        i++;
    return i < m->bucket_count ? m->buckets[i] : NULL;
}
