/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.h - the open connections of a server. A new one beyond the limit ends the oldest without a whole request:
 * silent and slow clients of many addresses must not keep others out. Slow calls of a few addresses must not either: an
 * address has at most as many calls as there are places left. home: any thread; under its own lock. */
#pragma once

#include "util/list.h"
#include <microhttpd.h>
#include <pthread.h>

/* libmicrohttpd refuses connections at its own limit. So that is higher, by those that end at the same time. */
enum { CROWD_SPARE = 64 };

struct crowd {
    pthread_mutex_t lock; /* guards what follows */
    struct list waiting;  /* oldest first: their requests are not whole */
    struct list calling;  /* their calls run, or the answers are sent */
    size_t count, max;    /* of all connections; `max` of those with calls too */
};

void crowd_init(struct crowd *c, size_t max);
void crowd_done(struct crowd *c);

/* For MHD_OPTION_NOTIFY_CONNECTION; `ctx` is the crowd. */
void crowd_notify(void *ctx, struct MHD_Connection *c, void **member, enum MHD_ConnectionNotificationCode what);

/* The request of this connection is complete. True: its call may run, and it is not closed to make room for others. */
must_check bool crowd_may_call(struct crowd *c, struct MHD_Connection *connection);
