/* SPDX-License-Identifier: Apache-2.0 */
/* Replies to clients, descriptors for mirrors and other keepers, events for the log. */
#include "private.h"
#include <sys/socket.h>

void keeper_event(const struct keeper *k, const char *what, const struct keeper_mount *v, const struct err *why)
{
    if (k->options->event)
        k->options->event(what, v->id, why);
}

void keeper_answer(struct keeper *k, int *client, int code, const struct err *err)
{
    int c = *client;
    *client = NO_CLIENT;
    if (c == NO_CLIENT || k->clients[c].fd < 0)
        return;
    struct wire_msg m = wire_answer(code, err);
    (void)!wire_send(k->clients[c].fd, &m, NULL, ERR_IGNORED); /* a client that hung up gets no reply */
}

/* A mirror missed a message: it will reconnect and get everything. The loop closes it as if it had hung up. */
static void cut_off(const struct keeper *k, int mirror)
{
    shutdown(k->clients[mirror].fd, SHUT_RDWR);
}

void keeper_send_to_mirrors(struct keeper *k, const struct wire_msg *m, const struct wire_fds *fds)
{
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        if (k->clients[c].fd >= 0 && k->clients[c].is_mirror && wire_send(k->clients[c].fd, m, fds, ERR_IGNORED) < 0)
            cut_off(k, c);
}

int keeper_send_files(struct keeper *k, const struct keeper_mount *v, int sock, struct err *err)
{
    int r = 0;
    for (int i = v->first_file; i != NO_FILE && r == 0; i = k->files[i].next) {
        struct wire_msg m = wire_msg(WIRE_HOLD, v->id);
        struct wire_fds fds = {{k->files[i].fd, -1, -1}};
        m.number = k->files[i].node;
        r = wire_send(sock, &m, &fds, err);
    }
    return r;
}

int keeper_send_mount(struct keeper *k, const struct keeper_mount *v, int sock, struct err *err)
{
    struct wire_msg m = wire_msg(WIRE_GIVE, v->id);
    struct wire_fds fds = {{v->fuse_fd, v->memfd, -1}};
    int r = wire_send(sock, &m, &fds, err);
    return r < 0 ? r : keeper_send_files(k, v, sock, err);
}

/* After a new GIVE, a mirror keeps only the files that follow it. */
void keeper_show_to_mirrors(struct keeper *k, const struct keeper_mount *v)
{
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        if (k->clients[c].fd >= 0 && k->clients[c].is_mirror &&
            keeper_send_mount(k, v, k->clients[c].fd, ERR_IGNORED) < 0)
            cut_off(k, c);
}
