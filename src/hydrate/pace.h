/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h - limits how many GETs a second are sent to a store that refuses some of them (429, 503).
 *
 * Two kinds of refusals need opposite reactions. A store with a limit of requests a second refuses those above it:
 * sending less costs nothing. A store that refuses a random share of all requests needs only retries: sending less
 * takes longer. So the reaction follows the share of refused requests, measured over round trips. A share of a few
 * percent changes nothing. A larger share sets a limit just below the rate that was served. A limit that does not lower
 * the share is lifted again. home: under the lock of its owner. Pure: time is an argument. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pace {
    double per_second; /* 0: no limit */
    unsigned raised;   /* how often in a row it was raised */
    bool is_blind;     /* every request was refused when the rate was lowered: the limit of the store is unknown */
    double share;      /* of refusals in the last round */
    double allowed;    /* the share of refusals that changes nothing; 0: the default */
    double share_then; /* `share` when the limit was lowered: the next round compares; 0: it was not lowered */
    unsigned rounds;   /* for which `allowed` holds */
    unsigned in_vain;  /* how often in a row a lower limit has not helped */
    /* This round: it ends when enough of the GETs that were sent in it are answered. */
    uint64_t began_ns;
    unsigned answers; /* to all GETs */
    unsigned asked;   /* replies to the GETs sent in this round, and of these ... */
    unsigned refused;
};

/* A GET sent at `sent_ns` was answered: served, or refused. Until the first refusal there is no need to call it. */
void pace_answered(struct pace *p, uint64_t sent_ns, uint64_t now_ns, bool refused);

/* In the last round: then the limit spares the store, and a GET that was refused may be sent again soon. */
bool pace_refusals_are_few(const struct pace *p);
