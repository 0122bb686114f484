/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.h - limits the open connections of a server. A new connection beyond the limit closes the oldest one
 * without a complete request: silent and slow clients of many addresses must not exclude others. Neither must slow
 * calls of a few addresses: the calls of an address may not exceed the free places. home: any thread; under its
 * own lock. */
#pragma once

#include "util/list.h"
#include <microhttpd.h>
#include <pthread.h>

/* libmicrohttpd refuses connections at its own limit. So that limit is higher, by the number of connections that
 * may be closing. */
enum { CROWD_SPARE = 64 };

struct crowd {
    pthread_mutex_t lock; /* guards the fields below */
    struct list waiting;  /* without a complete request; oldest first */
    struct list calling;  /* their calls run, or the replies are sent */
    size_t count, max;    /* limit of all connections, and of those with calls */
};

void crowd_init(struct crowd *c, size_t max);
void crowd_done(struct crowd *c);

/* For MHD_OPTION_NOTIFY_CONNECTION; `ctx` is the crowd. */
void crowd_notify(void *ctx, struct MHD_Connection *c, void **member, enum MHD_ConnectionNotificationCode what);

/* The request of this connection is complete. True: its call may run, and it is not closed to make room for others. */
must_check bool crowd_may_call(struct crowd *c, struct MHD_Connection *connection);
