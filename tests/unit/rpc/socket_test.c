/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "socket.h"
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static char path[64];

static int setup(void **state)
{
    int r = folder_setup(state);
    snprintf(path, sizeof path, "%s/csi.sock", dir_name);
    return r;
}

static void bind_at(const char *where)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(where) < sizeof a.sun_path);
    memcpy(a.sun_path, where, strlen(where));
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void socket_of_the_second_driver_is_kept_by_the_first(void **state)
{
    (void)state;
    struct err err;
    struct stat before, after;
    static struct socket_name first, second;
    assert_int_equal(socket_name_init(&first, path, &err), 0);
    bind_at(first.temporary);
    assert_int_equal(socket_name_publish(&first, &err), 0);
    assert_int_equal(socket_name_init(&second, path, &err), 0);
    assert_string_not_equal(first.temporary, second.temporary);
    bind_at(second.temporary);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(socket_name_publish(&second, &err), 0);
    socket_name_remove(&first);
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    assert_int_equal(after.st_mode & 0777, 0600);
    socket_name_remove(&second);
    assert_int_equal(stat(path, &after), -1);
}

static void a_path_that_cannot_be_a_socket_is_refused_with_the_reason(void **state)
{
    (void)state;
    struct err err;
    static struct socket_name n;
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(socket_name_init(&n, "csi.sock", &err), -ERR_INVALID);
    assert_int_equal(socket_name_init(&n, "/tmp/", &err), -ERR_INVALID);
    assert_int_equal(socket_name_init(&n, longer, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "too long"));
    assert_int_equal(socket_name_init(&n, "/no/such/csi.sock", &err), -ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(socket_of_the_second_driver_is_kept_by_the_first),
        cmocka_unit_test(a_path_that_cannot_be_a_socket_is_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, setup, folder_teardown);
}
