/* SPDX-License-Identifier: Apache-2.0 */
#include "crowd.h"
#include "util/mem.h"
#include "util/thread.h"
#include <sys/socket.h>

struct member {
    struct list_node node_of_list;
    int fd; /* libmicrohttpd's, which closes it after crowd_notify() */
    bool is_waiting;
};

void crowd_init(struct crowd *c, size_t max)
{
    *c = (struct crowd){.max = max};
    pthread_mutex_init(&c->lock, NULL);
}

void crowd_done(struct crowd *c)
{
    pthread_mutex_destroy(&c->lock);
}

static void leave(struct crowd *c, struct member *m)
{
    if (!m->is_waiting)
        return;
    m->is_waiting = false;
    list_remove(&c->waiting, &m->node_of_list);
}

static void join(struct crowd *c, struct member *m)
{
    if (c->count >= c->max && !list_is_empty(&c->waiting)) {
        struct member *oldest = list_entry(c->waiting.first, struct member, node_of_list);
        leave(c, oldest);
        shutdown(oldest->fd, SHUT_RDWR);
    }
    m->is_waiting = true;
    list_add(&c->waiting, &m->node_of_list);
    c->count++;
}

void crowd_notify(void *ctx, struct MHD_Connection *c, void **member, enum MHD_ConnectionNotificationCode what)
{
    struct crowd *crowd = ctx;
    auto_lock(&crowd->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct member *m = *member = xcalloc(1, sizeof *m);
        m->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        join(crowd, m);
        return;
    }
    leave(crowd, *member);
    crowd->count--;
    free(*member);
    *member = NULL;
}

void crowd_leave(struct crowd *c, struct MHD_Connection *connection)
{
    auto_lock(&c->lock);
    leave(c, MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context);
}
