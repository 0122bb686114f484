/* SPDX-License-Identifier: Apache-2.0 */
/* connection_limit.h - limits the open connections of a server. A new connection beyond the limit closes the oldest one
 * without a complete request: silent and slow clients of many addresses must not exclude others. Neither must slow
 * calls of a few addresses: the calls of an address may not exceed the free places. home: any thread; under its
 * own lock. */
#pragma once

#include "util/list.h"
#include <microhttpd.h>
#include <pthread.h>

/* libmicrohttpd refuses connections at its own limit. So that limit is higher, by the number of connections that
 * may be closing. */
enum { CONNECTION_LIMIT_SPARE = 64 };

struct connection_limit {
    pthread_mutex_t lock; /* guards the fields below */
    struct list waiting;  /* without a complete request; oldest first */
    struct list calling;  /* their calls run, or the replies are sent */
    size_t count, max;    /* limit of all connections, and of those with calls */
};

void connection_limit_init(struct connection_limit *c, size_t max);
void connection_limit_done(struct connection_limit *c);

/* For MHD_OPTION_NOTIFY_CONNECTION; `ctx` is the struct connection_limit. */
void connection_limit_notify(void *ctx, struct MHD_Connection *c, void **member,
                             enum MHD_ConnectionNotificationCode what);

/* The request of this connection is complete. True: its call may run, and it is not closed to make room for others. */
must_check bool connection_limit_may_call(struct connection_limit *c, struct MHD_Connection *connection);
