/* SPDX-License-Identifier: Apache-2.0 */
/* token_bucket.h - limits requests a second, with a burst after a pause. home: the client's loop; pure. */
#pragma once

#include <stdint.h>

struct token_bucket {
    uint64_t interval_ns; /* between two */
    uint64_t burst_ns;    /* allowed ahead of the rate */
    uint64_t paid_ns;     /* time at which the taken tokens are paid off */
};

void token_bucket_init(struct token_bucket *b, unsigned per_second, unsigned burst); /* neither may be 0 */

/* Takes a token and returns 0, or takes none and returns how long to wait. */
uint64_t token_bucket_take(struct token_bucket *b, uint64_t now_ns);
/* The same with a token of each bucket. */
uint64_t token_bucket_take_both(struct token_bucket *a, struct token_bucket *b, uint64_t now_ns);
