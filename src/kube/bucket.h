/* SPDX-License-Identifier: Apache-2.0 */
/* bucket.h - a token bucket: so many requests a second, and a burst after a rest. home: the client's loop; pure. */
#pragma once

#include <stdint.h>

struct bucket {
    uint64_t interval_ns; /* between two */
    uint64_t burst_ns;    /* how far ahead of that one may be */
    uint64_t paid_ns;     /* until when what was taken is paid for */
};

void bucket_init(struct bucket *b, unsigned per_second, unsigned burst); /* neither may be 0 */

/* Takes one and returns 0, or takes nothing and returns how long to wait before asking again. */
uint64_t bucket_take(struct bucket *b, uint64_t now_ns);
