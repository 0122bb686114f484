/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <assert.h>
#include <inttypes.h>

void plan_init(struct hydrate_plan *p, unsigned ranks)
{
    assert(ranks >= 1 && ranks <= PLAN_RANKS_MAX);
    *p = (struct hydrate_plan){.ranks = ranks};
}

uint64_t plan_spread(uint64_t k, uint64_t n)
{
    uint64_t runs = n / (PLAN_PLACES * PLAN_RUN), run = k / PLAN_RUN;
    if (run >= runs * PLAN_PLACES)
        return k; /* the rest, which does not divide */
    return run % PLAN_PLACES * runs * PLAN_RUN + run / PLAN_PLACES * PLAN_RUN + k % PLAN_RUN;
}

static uint64_t next_id(struct hydrate_plan *p, unsigned rank, uint64_t count)
{
    uint64_t at = p->next[rank]++;
    if (at == p->end[rank]) {
        p->begin[rank] = at;
        p->end[rank] = count;
    }
    return p->begin[rank] + plan_spread(at - p->begin[rank], p->end[rank] - p->begin[rank]);
}

int plan_next(struct hydrate_plan *p, const struct index *x, uint64_t *ret_id, struct index_entry *ret, struct err *err)
{
    uint64_t count = index_count(x);
    for (unsigned rank = 0; rank < p->ranks; rank++)
        while (p->next[rank] < count) {
            uint64_t id = next_id(p, rank, count);
            int r = index_get(x, id, ret, err);
            if (r < 0)
                return r;
            if (p->next[rank] % PLAN_RELEASE_OBJECTS == 0)
                index_release(x);
            /* a catalog of other priorities may hold ranks that this run has not */
            if ((ret->rank < p->ranks ? ret->rank : p->ranks - 1) != rank)
                continue;
            *ret_id = id;
            return 1;
        }
    return 0;
}

bool plan_is_exhausted(const struct hydrate_plan *p, uint64_t count)
{
    for (unsigned rank = 0; rank < p->ranks; rank++)
        if (p->next[rank] < count)
            return false;
    return true;
}

int plan_check_size(uint64_t size_bytes, struct err *err)
{
    if (size_bytes <= PLAN_OBJECT_MAX)
        return 0;
    return err_fail(err, ERR_INVALID, CIS_OBJECT_TOO_LARGE,
                    "it has %" PRIu64 " bytes, as the listing says; no store holds more than %" PRIu64, size_bytes,
                    PLAN_OBJECT_MAX);
}

bool plan_is_small(uint64_t size_bytes)
{
    return size_bytes <= PLAN_SMALL_MAX;
}

uint32_t plan_part_count(uint64_t size_bytes)
{
    assert(size_bytes <= PLAN_OBJECT_MAX);
    return (uint32_t)((size_bytes + PLAN_PART_BYTES - 1) / PLAN_PART_BYTES);
}

void plan_part(uint64_t size_bytes, uint32_t part, uint64_t *ret_offset, uint64_t *ret_len)
{
    *ret_offset = (uint64_t)part * PLAN_PART_BYTES;
    *ret_len = min_u64(PLAN_PART_BYTES, size_bytes - *ret_offset);
}
