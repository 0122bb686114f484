/* SPDX-License-Identifier: Apache-2.0 */
#include "trash.h"
#include "io/ticker.h"
#include "util/clock.h"
#include "util/log.h"

struct trash {
    struct space *const *spaces; /* borrowed */
    size_t count;
    struct ticker *ticker; /* owned */
};

#define RETRY_NS (60 * NS_PER_SECOND)

static uint64_t empty_all(void *ctx)
{
    struct trash *t = ctx;
    uint64_t rest_ns = TICKER_NEVER;
    for (size_t i = 0; i < t->count; i++) {
        struct err err;
        if (!space_is_open(t->spaces[i]))
            continue; /* who opens it wakes us */
        if (space_empty_trash(t->spaces[i], &err) < 0) {
            log_err(LOG_WARN, "trash cannot be emptied", &err, "pool", space_name(t->spaces[i]), NULL);
            rest_ns = RETRY_NS;
        }
    }
    return rest_ns;
}

int trash_start(struct space *const *spaces, size_t count, struct trash **ret, struct err *err)
{
    struct trash *t = xcalloc(1, sizeof *t);
    *t = (struct trash){.spaces = spaces, .count = count};
    int r = ticker_start("trash", empty_all, t, &t->ticker, err);
    if (r < 0) {
        free(t);
        return r;
    }
    *ret = t;
    return 0;
}

void trash_wake(struct trash *t)
{
    ticker_wake(t->ticker);
}

void trash_stop(struct trash *t)
{
    if (!t)
        return;
    ticker_stop(t->ticker);
    free(t);
}
