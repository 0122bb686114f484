/* SPDX-License-Identifier: Apache-2.0 */
/* accept.h - accepts connections also when no descriptor is free. home: the thread that accepts.
 *
 * A connection that cannot be accepted would wait in the queue until its caller's deadline, and keep a poll(2) loop
 * busy. So it is accepted with a spare descriptor and closed at once: the caller sees that and may retry. */
#pragma once

#include "util/err.h"

enum { ACCEPT_PAUSE_MS = 100 }; /* after a lasting error */

struct acceptor {
    int fd;       /* borrowed: listens, O_NONBLOCK */
    int spare_fd; /* owned; -1: none */
};

void acceptor_init(struct acceptor *a, int fd);
void acceptor_done(struct acceptor *a);

/* `flags` of accept4(2). -1: no connection. If *ret_pause is set, do not call again for ACCEPT_PAUSE_MS. */
int acceptor_next(struct acceptor *a, int flags, bool *ret_pause);
