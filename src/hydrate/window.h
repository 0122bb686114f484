/* SPDX-License-Identifier: Apache-2.0 */
/* window.h - Decides how many requests run at once, and how many start each second.
 * home: atomics: any thread; `lock` guards `pace`; the rest: the coordinator's loop. */
#pragma once

#include "io/rate.h"
#include "io/web.h"
#include "store/pace.h"
#include <pthread.h>
#include <stdatomic.h>

struct hydrate;

#define ROUND_NS (10 * NS_PER_MS)       /* between looks for the end of a round trip */
#define STARTS_SLACK_NS (5 * NS_PER_MS) /* a store that limits requests each second refuses bursts */

enum { WINDOW_START = 16, WINDOW_MAX = 512, STARTS_UNIT = 1000 };

struct window_mark {
    uint64_t ns; /* monotonic */
    uint64_t requests;
};

struct hydrate_window {
    _Atomic unsigned size;
    _Atomic bool is_crowded;           /* a store has refused connections while it served others */
    _Atomic unsigned paused;           /* parts that wait for the disk, or for memory */
    _Atomic uint64_t refused;          /* GETs that were answered by 429 or 503 */
    _Atomic uint64_t served_ns;        /* monotonic: the last byte of an object, or reply that was not a refusal */
    _Atomic uint64_t refused_since_ns; /* monotonic: the first refusal after that; 0: none */

    pthread_mutex_t lock;
    struct pace pace;   /* for a store that refuses some GETs */
    struct rate starts; /* of GETs and of HEADs of large objects, in thousandths of one: the lower of `pace` and the
                           store's ramp */
    uint64_t starts_initial, starts_since_ns;

    uint64_t last_work;
    bool has_rested;       /* the first climb is over */
    double before, during; /* work without and with the step on trial */
    unsigned hold_ticks;   /* ticks until the next trial */
    unsigned tried_from;   /* 0: no trial */
    unsigned trial_ticks;
    bool tries_less;
    unsigned threshold; /* from here on it grows slowly: the server refused connections; 0: it never did */
    unsigned epoch_ticks;
    uint64_t quickest_ns;
    struct window_mark tick, round; /* where the last one ended */
    struct web_connects tried;      /* up to the last tick */
};

void window_init(struct hydrate *h);
void window_tick(struct hydrate *h, uint64_t now_ns);
/* Doubles the window at the end of a round trip, between ticks, while the first climb is network-bound. Returns when to
 * look again, in nanoseconds from now; 0: the climb is over. */
uint64_t window_climb(struct hydrate *h, uint64_t now_ns);
/* The store serves requests for objects: a byte came, or a reply that is not a refusal. Any thread. */
void window_served(struct hydrate_window *w, uint64_t now_ns);
/* A request was refused, all its attempts since `began_ns` too. Returns for how long the store has served nothing but
 * refusals. Any thread. */
uint64_t window_refused(struct hydrate_window *w, uint64_t began_ns, uint64_t now_ns);
/* Counts the answer to a GET: its first byte, or a refusal. Any thread. */
void window_answered(struct hydrate_window *w, uint64_t sent_ns, uint64_t now_ns, bool refused);
/* Whether the store serves most GETs, so that a refused one may be sent again soon. Any thread. */
bool window_refusals_are_few(struct hydrate_window *w);
