/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"
#include "unit.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

static void make_pair(int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

static void a_message_arrives_whole_with_its_descriptors(void **state)
{
    (void)state;
    int pair[2], pipe_fds[2];
    struct err err;
    struct wire_msg m = wire_msg(WIRE_GIVE, "v1"), got;
    auto_fds fds = WIRE_NO_FDS;
    make_pair(pair);
    assert_int_equal(pipe(pipe_fds), 0);
    struct wire_fds sent = {{pipe_fds[0], pipe_fds[1], -1}};
    m.number = 42;
    assert_int_equal(wire_send(pair[0], &m, &sent, &err), 0);
    assert_int_equal(wire_recv_within(pair[1], 1000, &got, &fds, &err), 0);
    assert_int_equal(got.type, WIRE_GIVE);
    assert_int_equal(got.number, 42);
    assert_string_equal(got.volume_id, "v1");
    assert_int_equal(write(fds.fd[1], "x", 1), 1);
    char c;
    assert_int_equal(read(pipe_fds[0], &c, 1), 1);
    assert_int_equal(fds.fd[2], -1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(pair[0]);
    close(pair[1]);
}

static void an_error_travels_with_its_sentence_id_and_advice(void **state)
{
    (void)state;
    int pair[2];
    struct err err = {0}, there = {0};
    struct wire_msg got;
    auto_fds fds = WIRE_NO_FDS;
    make_pair(pair);
    err_set(&err, ERR_EXISTS, "volume '%s' is there", "v");
    err.sys = EEXIST;
    struct wire_msg m = wire_answer(err_advise_text(&err, 3102, "unmount it"), &err);
    assert_int_equal(wire_send(pair[0], &m, NULL, &err), 0);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &there), 0);
    assert_int_equal(wire_answer_to_err(&got, &there), -ERR_EXISTS);
    assert_string_equal(there.text, "volume 'v' is there");
    assert_string_equal(there.advice, "unmount it");
    assert_int_equal(there.id, 3102);
    assert_int_equal(there.sys, EEXIST);
    close(pair[0]);
    close(pair[1]);
}

static void malformed_message_is_corrupt_and_leaks_no_descriptor(void **state)
{
    (void)state;
    int pair[2];
    struct err err;
    struct wire_msg m = wire_msg(WIRE_STATUS, "v"), got;
    auto_fds fds = WIRE_NO_FDS;
    make_pair(pair);
    assert_int_equal(send(pair[0], "x", 1, 0), 1);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), -ERR_CORRUPT);
    for (unsigned version = 0; version < 100; version += 99) {
        m.version = (uint16_t)version;
        assert_int_equal(wire_send(pair[0], &m, NULL, &err), 0);
        assert_int_equal(wire_recv(pair[1], &got, &fds, &err), -ERR_CORRUPT);
    }
    static char huge[sizeof(struct wire_msg) + 4096];
    m.version = WIRE_OLDEST;
    memcpy(huge, &m, sizeof m);
    assert_int_equal(send(pair[0], huge, sizeof(huge), 0), (int)sizeof(huge));
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), -ERR_CORRUPT);
    close(pair[0]);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), -ERR_NOT_FOUND);
    close(pair[1]);
}

static void send_with_descriptors(int sock, const struct wire_msg *m, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 8)];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m};
    struct msghdr h = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * count);
    for (size_t i = 0; i < count; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &sock, sizeof sock);
    assert_int_equal(sendmsg(sock, &h, 0), (int)sizeof *m);
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* The kernel delivers one more than WIRE_FDS_MAX, because the control buffer is aligned; it drops all others. */
static void too_many_descriptors_of_a_message_are_closed(void **state)
{
    (void)state;
    int pair[2];
    struct err err;
    struct wire_msg m = wire_msg(WIRE_GIVE, "v"), got;
    make_pair(pair);
    int before = open_descriptors();
    for (size_t count = WIRE_FDS_MAX + 1; count <= 8; count++) {
        struct wire_fds fds = WIRE_NO_FDS;
        send_with_descriptors(pair[0], &m, count);
        int r = wire_recv(pair[1], &got, &fds, &err);
        assert_int_equal(r, count == WIRE_FDS_MAX + 1 ? 0 : -ERR_CORRUPT);
        wire_fds_close(&fds);
        assert_int_equal(open_descriptors(), before);
    }
    close(pair[0]);
    close(pair[1]);
}

static void text_of_a_peer_is_terminated(void **state)
{
    (void)state;
    static const enum wire_type types[] = {WIRE_MOUNT, WIRE_ROW, WIRE_DONE};
    for (size_t i = 0; i < countof(types); i++) {
        int pair[2];
        struct err err;
        struct wire_msg m = wire_msg(types[i], "v"), got;
        auto_fds fds = WIRE_NO_FDS;
        make_pair(pair);
        memset(m.volume_id, 'x', sizeof m.volume_id);
        memset(&m.body, 'x', sizeof m.body);
        assert_int_equal(send(pair[0], &m, sizeof m, 0), (int)sizeof m);
        assert_int_equal(wire_recv(pair[1], &got, &fds, &err), 0);
        assert_int_equal(strlen(got.volume_id), KEEPER_ID_MAX - 1);
        if (types[i] == WIRE_MOUNT) {
            assert_int_equal(strnlen(got.body.config.data, KEEPER_PATH_MAX), KEEPER_PATH_MAX - 1);
            assert_int_equal(strnlen(got.body.config.mount_point, KEEPER_PATH_MAX), KEEPER_PATH_MAX - 1);
            assert_int_equal(strnlen(got.body.context, KEEPER_CONTEXT_MAX), KEEPER_CONTEXT_MAX - 1);
        } else if (types[i] == WIRE_ROW) {
            assert_int_equal(strnlen(got.body.status.volume_id, KEEPER_ID_MAX), KEEPER_ID_MAX - 1);
            assert_int_equal(strnlen(got.body.status.data, KEEPER_PATH_MAX), KEEPER_PATH_MAX - 1);
            assert_int_equal(strnlen(got.body.status.mount_point, KEEPER_PATH_MAX), KEEPER_PATH_MAX - 1);
        } else {
            assert_int_equal(strnlen(got.body.failure.text, ERR_TEXT_MAX), ERR_TEXT_MAX - 1);
            assert_int_equal(strnlen(got.body.failure.advice, ERR_ADVICE_MAX), ERR_ADVICE_MAX - 1);
        }
        close(pair[0]);
        close(pair[1]);
    }
}

/* A newer peer has codes that this program does not know. */
static void unknown_code_of_a_peer_is_an_internal_error(void **state)
{
    (void)state;
    struct err err;
    struct wire_msg m = wire_msg(WIRE_DONE, NULL);
    memcpy(m.body.failure.text, "why", sizeof "why");
    static const int32_t unknown[] = {-1, ERR_ABSENT + 1, INT32_MAX};
    for (size_t i = 0; i < countof(unknown); i++) {
        m.code = unknown[i];
        assert_int_equal(wire_answer_to_err(&m, &err), -ERR_INTERNAL);
        assert_string_equal(err.text, "why");
    }
    m.code = ERR_ABSENT;
    assert_int_equal(wire_answer_to_err(&m, &err), -ERR_ABSENT);
}

/* A newer peer's body is longer, an older one's shorter. */
static void body_that_has_grown_is_read_and_what_is_missing_is_zero(void **state)
{
    (void)state;
    int pair[2];
    struct err err;
    struct wire_msg got;
    auto_fds fds = WIRE_NO_FDS;
    static char longer[offsetof(struct wire_msg, body.context) + KEEPER_CONTEXT_MAX + 200];
    make_pair(pair);
    struct wire_msg m = wire_msg(WIRE_MOUNT, "v");
    memcpy(m.body.config.data, "/data", 6);
    memcpy(longer, &m, sizeof longer - 200);
    memset(longer + sizeof longer - 200, 'x', 200);
    assert_int_equal(send(pair[0], longer, sizeof longer, 0), (int)sizeof longer);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), 0);
    assert_string_equal(got.body.config.data, "/data");
    size_t row = offsetof(struct wire_msg, body) + offsetof(struct keeper_status, opens) + 8;
    m = wire_msg(WIRE_ROW, "v");
    m.body.status.opens = 7;
    assert_int_equal(send(pair[0], &m, row, 0), (int)row);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), 0);
    assert_int_equal(got.body.status.opens, 7);
    assert_int_equal(send(pair[0], &m, row - 8, 0), (int)row - 8);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), -ERR_CORRUPT);
    close(pair[0]);
    close(pair[1]);
}

/* A keeper from before contexts would mount without one: it refuses the message. */
static void mount_with_a_context_is_of_version_2_and_one_of_version_1_has_none(void **state)
{
    (void)state;
    int pair[2];
    struct err err;
    struct wire_msg m, got;
    auto_fds fds = WIRE_NO_FDS;
    struct keeper_mount_request ask = {.volume_id = "v", .data = "/data", .mount_point = "/mnt"};
    size_t first = offsetof(struct wire_msg, body) + sizeof(struct wire_config);
    make_pair(pair);
    assert_int_equal(wire_mount_of(&ask, &m, &err), 0);
    assert_int_equal(m.version, 1);
    memset(m.body.context, 'x', sizeof m.body.context);
    assert_int_equal(send(pair[0], &m, first, 0), (int)first);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), 0);
    assert_string_equal(got.body.context, "");
    assert_int_equal(table_context_hash(&got), 0);
    assert_int_equal(send(pair[0], &m, first - 1, 0), (int)first - 1);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), -ERR_CORRUPT);
    ask.context = "u:r:t:s0:c1,c2";
    assert_int_equal(wire_mount_of(&ask, &m, &err), 0);
    assert_int_equal(m.version, 2);
    assert_int_equal(wire_send(pair[0], &m, NULL, &err), 0);
    assert_int_equal(wire_recv(pair[1], &got, &fds, &err), 0);
    assert_string_equal(got.body.context, ask.context);
    assert_int_equal(table_context_hash(&got), table_context_hash(&m));
    assert_int_not_equal(table_context_hash(&got), 0);
    close(pair[0]);
    close(pair[1]);
}

static void silence_ends_with_a_timeout(void **state)
{
    (void)state;
    int pair[2];
    struct err err;
    struct wire_msg got;
    auto_fds fds = WIRE_NO_FDS;
    make_pair(pair);
    assert_int_equal(wire_recv_within(pair[1], 20, &got, &fds, &err), -ERR_TIMEOUT);
    close(pair[0]);
    close(pair[1]);
}

static void no_keeper_is_an_error_that_says_so(void **state)
{
    (void)state;
    struct err err;
    struct keeper_status s;
    assert_int_equal(keeper_status("/nonexistent/keeper.sock", "v", &s, &err), -ERR_AGAIN);
    assert_int_equal(err.id, 3101);
    char path[sizeof((struct sockaddr_un){0}).sun_path + 1] = {0};
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(keeper_status(path, "v", &s, &err), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_whole_with_its_descriptors),
        cmocka_unit_test(an_error_travels_with_its_sentence_id_and_advice),
        cmocka_unit_test(malformed_message_is_corrupt_and_leaks_no_descriptor),
        cmocka_unit_test(too_many_descriptors_of_a_message_are_closed),
        cmocka_unit_test(text_of_a_peer_is_terminated),
        cmocka_unit_test(unknown_code_of_a_peer_is_an_internal_error),
        cmocka_unit_test(body_that_has_grown_is_read_and_what_is_missing_is_zero),
        cmocka_unit_test(mount_with_a_context_is_of_version_2_and_one_of_version_1_has_none),
        cmocka_unit_test(silence_ends_with_a_timeout),
        cmocka_unit_test(no_keeper_is_an_error_that_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
