/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests at once: as many as still make it faster. Begins modest and doubles while each step pays; then
 * tries a little more now and then; halves when the store asks for less. */
#include "private.h"

enum { HOLD_TICKS = 20 }; /* 2 s between trials once the first climb is over */

/* Bytes, and objects as if each were some more: a wall of small requests is work too. */
static double work_done(struct hydrate *h)
{
    return (double)atomic_load(&h->received) + 65536.0 * (double)atomic_load(&h->requests);
}

void window_tick(struct hydrate *h)
{
    unsigned window = atomic_load(&h->window);
    unsigned most = h->o.concurrency_max ? h->o.concurrency_max : WINDOW_MAX;
    double work = work_done(h), round = work - (double)h->tune.last_received;
    h->tune.last_received = (uint64_t)work;
    pthread_mutex_lock(&h->lock);
    bool is_full = h->active + 1 >= window;
    pthread_mutex_unlock(&h->lock);
    if (atomic_exchange(&h->slowed, false)) {
        window = window / 2 > 2 ? window / 2 : 2;
        h->tune.hold = HOLD_TICKS;
        h->tune.tried_from = 0;
    } else if (h->tune.hold > 0) {
        h->tune.hold--;
        h->tune.before = round;
    } else if (h->tune.tried_from && round < h->tune.before * 1.05) {
        /* The last step did not pay: back, and rest. */
        window = h->tune.tried_from;
        h->tune.tried_from = 0;
        h->tune.hold = HOLD_TICKS;
    } else if (is_full && window < most) {
        h->tune.tried_from = window;
        h->tune.before = round;
        window = (unsigned)min_u64(most, window * 2);
    }
    atomic_store(&h->window, (unsigned)min_u64(window, most));
    if (is_full)
        lanes_kick(h);
}
