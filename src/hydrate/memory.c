/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a run takes where nobody says: what is fast, but no more than a control group lets it have. Beside
 * the bytes in flight each request under way costs what libcurl receives into, and the kernel's buffers of its
 * connection: so the window follows, too. */
#include "private.h"
#include "util/cgroup.h"

static const uint64_t buffers_most = UINT64_C(128) << 20, for_a_request = UINT64_C(1) << 20;

/* Measured: the least limit that runs of small objects, of large ones and of both outlived. */
static const uint64_t limit_least = UINT64_C(64) << 20;

int memory_fit(struct hydrate_options *o, uint64_t limit, struct err *err)
{
    if (o->memory_bytes)
        return 0;
    if (limit < limit_least) {
        char its[BYTES_TEXT_MAX], least[BYTES_TEXT_MAX];
        err_set(err, ERR_NO_SPACE, "the control group of this process has %s of memory, and %s are needed",
                bytes_text(limit, its), bytes_text(limit_least, least));
        return err_advise(err, 1516, "give it more, or go slowly with --memory 4Mi --concurrency 8");
    }
    o->memory_bytes = min_u64(limit / 4, buffers_most);
    if (!o->concurrency_max)
        o->concurrency_max = (unsigned)min_u64(limit / for_a_request, WINDOW_MAX);
    return 0;
}
