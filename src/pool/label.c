/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/label.h"
#include "util/err.h"

enum { CATEGORIES_MAX = 1024 }; /* of every known policy; a larger number makes a label equal only to its own text */

struct level {
    struct str sensitivity;
    bool has[CATEGORIES_MAX];
};

static bool parse_category(struct str s, uint64_t *ret)
{
    return str_starts(s, STR("c")) && str_to_u64(str_from(s, 1), ret, ERR_IGNORED) == 0 && *ret < CATEGORIES_MAX;
}

/* "s0:c1,c5.c7" */
static bool parse_level(struct str s, struct level *ret)
{
    struct str field, first;
    uint64_t from, to;
    *ret = (struct level){0};
    if (!str_split(&s, ':', &ret->sensitivity))
        return false;
    while (str_split(&s, ',', &field)) {
        if (!str_split(&field, '.', &first) || !parse_category(first, &from))
            return false;
        to = from;
        if (field.ptr && !parse_category(field, &to))
            return false;
        for (uint64_t i = from; i <= to; i++)
            ret->has[i] = true;
    }
    return true;
}

/* Both ends of "s0-s0:c0.c1023"; a single level is both. */
static bool parse_range(struct str s, struct level *ret_low, struct level *ret_high)
{
    struct str low;
    if (!str_split(&s, '-', &low) || !parse_level(low, ret_low))
        return false;
    return parse_level(s.len > 0 ? s : low, ret_high);
}

static bool level_eq(const struct level *a, const struct level *b)
{
    return str_eq(a->sensitivity, b->sensitivity) && memcmp(a->has, b->has, sizeof a->has) == 0;
}

bool label_eq(struct str a, struct str b)
{
    struct level low[2], high[2];
    struct str x, y;
    if (str_eq(a, b))
        return true;
    for (unsigned i = 0; i < 3; i++) /* user, role, type */
        if (!str_split(&a, ':', &x) || !str_split(&b, ':', &y) || !str_eq(x, y))
            return false;
    return parse_range(a, &low[0], &high[0]) && parse_range(b, &low[1], &high[1]) && level_eq(&low[0], &low[1]) &&
           level_eq(&high[0], &high[1]);
}
