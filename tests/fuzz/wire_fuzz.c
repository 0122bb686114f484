/* SPDX-License-Identifier: Apache-2.0 */
/* A packet to the keeper: a message whose words end, or an error; and what was received can be sent. */
#include "fuzz.h"
#include "wire.h"
#include <sys/socket.h>

static bool ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

static void check_words(const struct wire_msg *m)
{
    assert(ends(m->volume_id, sizeof m->volume_id));
    if (m->type == WIRE_MOUNT)
        assert(ends(m->body.config.data, KEEPER_PATH_MAX) && ends(m->body.config.mount_point, KEEPER_PATH_MAX) &&
               ends(m->body.context, KEEPER_CONTEXT_MAX));
    else if (m->type == WIRE_ROW)
        assert(ends(m->body.status.data, KEEPER_PATH_MAX) && ends(m->body.status.mount_point, KEEPER_PATH_MAX));
    else if (m->type == WIRE_DONE || m->type == WIRE_READY)
        assert(ends(m->body.failure.text, ERR_TEXT_MAX) && ends(m->body.failure.advice, ERR_ADVICE_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int pair[2] = {-1, -1};
    struct wire_msg m;
    auto_fds fds = WIRE_NO_FDS;
    struct err err = {0};
    if (pair[0] < 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        abort();
    if (len == 0 || send(pair[0], bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        return 0;
    if (wire_recv(pair[1], &m, &fds, &err) < 0) {
        assert(err.code != 0 && err.text[0]);
        return 0;
    }
    check_words(&m);
    int r = wire_send(pair[0], &m, NULL, &err);
    assert(r == 0);
    r = wire_recv(pair[1], &m, &fds, &err);
    assert(r == 0);
    return 0;
}
