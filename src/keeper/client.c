/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

enum { ANSWER_MS = 10000, MOUNT_MS = 30000 };

static int copy_text(const char *what, const char *from, char *to, size_t room, struct err *err)
{
    if (!from || !*from)
        return err_set(err, ERR_INVALID, "the %s of the mount is empty", what);
    if (strlen(from) >= room)
        return err_set(err, ERR_INVALID, "the %s '%s' has more than %zu bytes", what, from, room - 1);
    memcpy(to, from, strlen(from) + 1);
    return 0;
}

static int check_id(const char *volume_id, struct err *err)
{
    char copy[KEEPER_ID_MAX];
    return copy_text("volume id", volume_id, copy, sizeof(copy), err);
}

static int check_absolute(const char *what, const char *path, struct err *err)
{
    if (path[0] != '/')
        return err_set(err, ERR_INVALID, "the %s '%s' is not an absolute path", what, path);
    return 0;
}

/* Sends a request and reads rows until DONE. */
static int converse(const char *socket, const struct wire_msg *ask, int timeout_ms,
                    void (*each)(const struct keeper_status *s, void *user), void *user, struct err *err)
{
    auto_fd sock = -1;
    int r = wire_connect(socket, &sock, err);
    if (r < 0)
        return r;
    r = wire_send(sock, ask, NULL, err);
    for (unsigned rows = 0; r == 0 && rows <= KEEPER_VOLUMES_MAX; rows++) {
        struct wire_msg m;
        auto_fds fds = WIRE_NO_FDS;
        r = wire_recv_within(sock, timeout_ms, &m, &fds, err);
        if (r == 0 && m.type == WIRE_DONE)
            return wire_answer_to_err(&m, err);
        if (r == 0 && m.type == WIRE_ROW && each)
            each(&m.body.status, user);
    }
    if (r == 0)
        return err_set(err, ERR_CORRUPT, "the keeper's reply has too many rows");
    if (err->code == ERR_NOT_FOUND)
        return err_fail(err, ERR_AGAIN, CIS_KEEPER_UNREACHABLE,
                        "the keeper closed the connection before its reply was complete");
    err_wrap(err, "request to the keeper");
    return err->code == ERR_TIMEOUT ? err_advise(err, CIS_KEEPER_UNREACHABLE) : r;
}

int wire_mount_of(const struct keeper_mount_request *m, struct wire_msg *ret, struct err *err)
{
    struct wire_msg ask = wire_msg(WIRE_MOUNT, m->volume_id);
    struct wire_config *c = &ask.body.config;
    int r = check_id(m->volume_id, err);
    if (r == 0)
        r = copy_text("data directory", m->data, c->data, sizeof(c->data), err);
    if (r == 0)
        r = copy_text("mount point", m->mount_point, c->mount_point, sizeof(c->mount_point), err);
    if (r == 0 && m->context)
        r = copy_text("SELinux context", m->context, ask.body.context, sizeof(ask.body.context), err);
    if (r == 0)
        r = check_absolute("data directory", m->data, err);
    if (r == 0)
        r = check_absolute("mount point", m->mount_point, err);
    if (r < 0)
        return r;
    c->capacity_bytes = m->capacity_bytes;
    c->group = m->has_group ? m->group : 0;
    c->has_group = m->has_group;
    c->read_only = m->read_only;
    c->allow_other = m->allow_other;
    c->exclusive = m->exclusive;
    c->passthrough = (uint8_t)m->passthrough;
    if (m->context)
        ask.version = WIRE_CONTEXT;
    *ret = ask;
    return 0;
}

int keeper_mount(const char *socket, const struct keeper_mount_request *m, struct err *err)
{
    struct wire_msg ask;
    int r = wire_mount_of(m, &ask, err);
    if (r < 0)
        return r;
    r = converse(socket, &ask, MOUNT_MS, NULL, NULL, err);
    return r < 0 ? err_wrap(err, "mounting volume '%s'", m->volume_id) : 0;
}

int keeper_unmount(const char *socket, const char *volume_id, uint32_t timeout_ms, struct err *err)
{
    int r = check_id(volume_id, err);
    if (r < 0)
        return r;
    struct wire_msg ask = wire_msg(WIRE_UNMOUNT, volume_id);
    ask.number = timeout_ms;
    int wait_ms = timeout_ms > INT32_MAX - ANSWER_MS ? INT32_MAX : (int)timeout_ms + ANSWER_MS;
    r = converse(socket, &ask, wait_ms, NULL, NULL, err);
    return r < 0 ? err_wrap(err, "unmounting volume '%s'", volume_id) : 0;
}

static void keep_row(const struct keeper_status *s, void *user)
{
    *(struct keeper_status *)user = *s;
}

int keeper_status(const char *socket, const char *volume_id, struct keeper_status *ret, struct err *err)
{
    int r = check_id(volume_id, err);
    if (r < 0)
        return r;
    struct wire_msg ask = wire_msg(WIRE_STATUS, volume_id);
    struct keeper_status row = {0};
    r = converse(socket, &ask, ANSWER_MS, keep_row, &row, err);
    if (r == 0)
        *ret = row;
    return r;
}

int keeper_list(const char *socket, void (*each)(const struct keeper_status *s, void *user), void *user,
                struct err *err)
{
    struct wire_msg ask = wire_msg(WIRE_STATUS, NULL);
    return converse(socket, &ask, ANSWER_MS, each, user, err);
}
