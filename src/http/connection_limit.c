/* SPDX-License-Identifier: Apache-2.0 */
#include "connection_limit.h"
#include "private.h"
#include "util/thread.h"
#include <sys/socket.h>

struct member {
    struct list_node node_of_list;
    struct list *list; /* .waiting or .calling; NULL: neither */
    int fd;            /* libmicrohttpd's, which closes it after connection_limit_notify() */
    uint8_t address[ADDRESS_BYTES];
};

void connection_limit_init(struct connection_limit *c, size_t max)
{
    *c = (struct connection_limit){.max = max};
    pthread_mutex_init(&c->lock, NULL);
}

void connection_limit_done(struct connection_limit *c)
{
    pthread_mutex_destroy(&c->lock);
}

static void move(struct member *m, struct list *to)
{
    if (m->list)
        list_remove(m->list, &m->node_of_list);
    m->list = to;
    if (to)
        list_add(to, &m->node_of_list);
}

static void join(struct connection_limit *c, struct member *m)
{
    if (c->count >= c->max && !list_is_empty(&c->waiting)) {
        struct member *oldest = list_entry(c->waiting.first, struct member, node_of_list);
        move(oldest, NULL);
        shutdown(oldest->fd, SHUT_RDWR);
    }
    move(m, &c->waiting);
    c->count++;
}

void connection_limit_notify(void *ctx, struct MHD_Connection *c, void **member,
                             enum MHD_ConnectionNotificationCode what)
{
    struct connection_limit *limit = ctx;
    auto_lock(&limit->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct member *m = *member = xcalloc(1, sizeof *m);
        m->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        (void)connection_address(c, m->address);
        join(limit, m);
        return;
    }
    move(*member, NULL);
    limit->count--;
    free(*member);
    *member = NULL;
}

bool connection_limit_may_call(struct connection_limit *c, struct MHD_Connection *connection)
{
    struct member *m, *own = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    size_t calls = 0, of_own_address = 0;
    auto_lock(&c->lock);
    list_foreach (&c->calling, m, node_of_list) {
        calls++;
        of_own_address += memcmp(m->address, own->address, sizeof m->address) == 0;
    }
    if (calls >= c->max || of_own_address >= c->max - calls)
        return false;
    move(own, &c->calling);
    return true;
}
