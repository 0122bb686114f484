/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h - limits how many requests a second are sent to a store that refuses some of them (429, 503): the GETs of a
 * hydration, and the writes of a store. In this file GET stands for both.
 *
 * Two kinds of refusals need opposite reactions. A store with a limit of requests a second refuses those above it:
 * sending less costs nothing. A store that refuses a random share of all requests needs only retries: sending less
 * takes longer. So the reaction follows the share of refused requests, measured over round trips. A share of a few
 * percent changes nothing. A larger share sets a limit just below the rate that was served since the first refusal. A
 * limit that does not lower the share is lifted again.
 *
 * While nearly all are refused, the rate that the store would serve is unknown. The pace searches for it with few GETs:
 * fewer if all are refused, more if all are served. home: under the lock of its owner. Pure: time is an argument. */
#pragma once

#include "io/rate.h"

struct pace_search {
    bool runs;
    bool is_near; /* a rate was too high, or was served before: the next step may end the search */
    double known; /* the rate that was served for a second before the search; 0: none, or tried already */
};

struct pace {
    double per_second; /* 0: no limit */
    double growth;     /* of a known limit: its next step */
    double share;      /* of refusals in the last round */
    double allowed;    /* the share of refusals that changes nothing */
    double share_then; /* `share` of the round that lowered the limit, to compare the next with; 0: none did */
    unsigned rounds;   /* for which `allowed` holds */
    unsigned in_vain;  /* how often a lower limit has not helped since one did */
    bool is_starting;  /* as pace_start() says */
    struct pace_search search;
    double brief, lasting; /* GETs served a second: exponential means over BRIEF_NS and LASTING_NS */
    uint64_t now_ns, first_ns, served_ns;
    uint64_t changed_ns; /* the limit: answers to GETs that were sent before do not count as asked */
    /* This round: it ends when enough GETs are answered. The first refusal restarts it, and is not counted: before it,
     * the store may have served a burst above its limit. */
    uint64_t began_ns, asked_ns; /* asked_ns: of the first answer that counts */
    bool is_at_refusal;
    bool is_held; /* far too many are refused: it waits for the answers on their way, and hardly a GET is sent */
    double held_per_second; /* the limit before */
    unsigned served;        /* of all GETs that were answered */
    unsigned asked;         /* replies to the GETs sent at the present limit, and of these ... */
    unsigned refused;
    unsigned in_row; /* served since the last refusal */
};

/* Begins with few requests a second, for a caller that has many requests at once. The first answer to a request of the
 * present rate doubles it, until three requests in a row are refused, or no limit is needed. */
void pace_start(struct pace *p);

/* A GET sent at `sent_ns` was answered: its first byte came, or it was refused. */
void pace_answered(struct pace *p, uint64_t sent_ns, uint64_t now_ns, bool refused);

/* Changes the rate of requests, which cost `unit` each. A store that has just refused requests would refuse the next
 * one, too, if that came before its time at the new rate: when the rate falls, one is reserved, so that the next
 * request waits for its time. */
void pace_apply(struct rate *r, uint64_t unit, uint64_t units_per_second, uint64_t now_ns);

/* In the last round: then the limit spares the store, and a GET that was refused may be sent again soon. */
bool pace_refusals_are_few(const struct pace *p);
