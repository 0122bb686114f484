/* SPDX-License-Identifier: Apache-2.0 */
/* limited_store.h - A store in virtual time that refuses requests, for tests of the pace. Its chance is repeatable. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define DICE_FIRST 88172645463325252 /* a seed, not zero */

static uint64_t dice = DICE_FIRST;

/* From 0 to 1, by xorshift64 (Marsaglia, 2003). */
static double drawn(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (double)(dice % 1000000) / 1e6;
}

/* With a limit (`per_second`), a request takes one of the tokens, which the caller refills. Without it, a share is
 * refused. */
static bool store_refuses(double per_second, double share, double *tokens)
{
    if (per_second == 0)
        return drawn() < share;
    bool is_served = *tokens >= 1;
    *tokens -= is_served;
    return !is_served;
}
