/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "unit.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

enum { ROOM = 200, MESSAGES = 100 };

struct scene {
    struct keeper *keeper;
    struct keeper_mount *mount;
    int process, mirror; /* the other ends of their sockets */
};

static void setup(struct scene *s)
{
    int pair[2];
    struct keeper *k = s->keeper = xcalloc(1, sizeof *k);
    for (int i = 0; i < KEEPER_FILES_MAX; i++)
        k->files[i] = (struct keeper_file){.fd = -1, .next = i + 1 < ROOM ? i + 1 : NO_FILE};
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        k->clients[c].fd = -1;
    s->mount = &k->mounts[0];
    *s->mount = (struct keeper_mount){.state = MOUNT_SERVING,
                                      .id = "v",
                                      .fuse_fd = -1,
                                      .memfd = -1,
                                      .process_fd = -1,
                                      .connection_fd = -1,
                                      .client = NO_CLIENT,
                                      .first_file = NO_FILE};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    s->mount->control_fd = pair[0];
    s->process = pair[1];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    k->clients[0] = (struct keeper_client){.fd = pair[0], .is_mirror = true};
    s->mirror = pair[1];
}

static void teardown(struct scene *s)
{
    keeper_mount_close(s->keeper, s->mount);
    close(s->keeper->clients[0].fd);
    close(s->process);
    close(s->mirror);
    free(s->keeper);
}

static void send_files(struct scene *s, uint64_t first, unsigned count)
{
    struct err err;
    auto_fd null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (uint64_t node = first; node < first + count; node++) {
        struct wire_msg m = wire_msg(WIRE_HOLD, "v");
        struct wire_fds fds = {{null, -1, -1}};
        m.number = node;
        assert_int_equal(wire_send(s->process, &m, &fds, &err), 0);
    }
}

static unsigned held(const struct scene *s)
{
    unsigned n = 0;
    for (int i = s->mount->first_file; i != NO_FILE; i = s->keeper->files[i].next)
        n++;
    return n;
}

/* Messages of this type that the mirror got. */
static unsigned mirrored(struct scene *s, uint32_t type)
{
    unsigned n = 0;
    for (struct pollfd p = {.fd = s->mirror, .events = POLLIN}; poll(&p, 1, 0) > 0;) {
        struct wire_msg m;
        struct err err;
        auto_fds fds = WIRE_NO_FDS;
        assert_int_equal(wire_recv(s->mirror, &m, &fds, &err), 0);
        n += m.type == type;
    }
    return n;
}

static void one_mount_with_many_messages_lets_others_pass(void **state)
{
    (void)state;
    struct scene s;
    setup(&s);
    send_files(&s, 1, MESSAGES);
    keeper_mount_on_message(s.keeper, s.mount);
    assert_int_equal(held(&s), MESSAGES_AT_ONCE);
    keeper_mount_drain(s.keeper, s.mount);
    assert_int_equal(held(&s), MESSAGES);
    assert_int_equal(mirrored(&s, WIRE_HOLD), MESSAGES);
    teardown(&s);
}

static void mirrors_hold_no_file_that_the_keeper_does_not_hold(void **state)
{
    (void)state;
    struct err err;
    struct scene s;
    setup(&s);
    for (uint64_t node = 1; node <= 3 * MESSAGES; node += MESSAGES) {
        send_files(&s, node, MESSAGES);
        keeper_mount_drain(s.keeper, s.mount);
        assert_int_equal(mirrored(&s, WIRE_HOLD), node < ROOM ? MESSAGES : 0);
    }
    assert_int_equal(held(&s), ROOM);
    struct wire_msg m = wire_msg(WIRE_RELEASE, "v");
    for (m.number = ROOM; m.number <= ROOM + 1; m.number++)
        assert_int_equal(wire_send(s.process, &m, NULL, &err), 0);
    keeper_mount_drain(s.keeper, s.mount);
    assert_int_equal(held(&s), ROOM - 1);
    assert_int_equal(mirrored(&s, WIRE_RELEASE), 1);
    teardown(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_mount_with_many_messages_lets_others_pass),
        cmocka_unit_test(mirrors_hold_no_file_that_the_keeper_does_not_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
