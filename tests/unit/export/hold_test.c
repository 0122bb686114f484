/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "hold.h"
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

static int setup(void **state)
{
    sigset_t io;
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    sigprocmask(SIG_BLOCK, &io, NULL); /* as hold.h asks of every thread */
    return folder_setup(state);
}

static void put(const char *name, const char *text)
{
    struct err err;
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(file_write_all(fd, name, text, strlen(text), &err), 0);
}

static void a_writer_waits_until_the_file_is_given_back(void **state)
{
    (void)state;
    struct err err;
    struct hold h;
    put("file", "words");
    assert_int_equal(hold_open(dir, "file", true, &h, &err), 0);
    assert_true(h.leased && h.stamp.size_bytes == 5);
    assert_int_equal(hold_check(&h, &err), 0);
    assert_false(hold_yield(&h));
    assert_int_equal(openat(dir, "file", O_WRONLY | O_NONBLOCK), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    assert_int_equal(hold_check(&h, &err), -ERR_CHANGED); /* somebody will write */
    assert_true(hold_yield(&h));
    auto_fd writer = openat(dir, "file", O_WRONLY | O_NONBLOCK);
    assert_true(writer >= 0);
    hold_close(&h);
    hold_close(&h);
}

static void a_file_that_somebody_can_write_does_not_hold_still(void **state)
{
    (void)state;
    struct err err;
    struct hold h;
    put("file", "words");
    auto_fd writer = openat(dir, "file", O_WRONLY);
    assert_int_equal(hold_open(dir, "file", true, &h, &err), -ERR_AGAIN);
    assert_int_equal(hold_open(dir, "file", false, &h, &err), -ERR_AGAIN);
    assert_non_null(strstr(err.text, "'file'"));
}

static void a_lease_of_somebody_else_is_not_waited_for(void **state)
{
    (void)state;
    struct err err;
    struct hold h;
    put("file", "words");
    auto_fd theirs = openat(dir, "file", O_RDWR);
    assert_int_equal(fcntl(theirs, F_SETLEASE, F_WRLCK), 0);
    assert_int_equal(hold_open(dir, "file", true, &h, &err), -ERR_AGAIN);
    assert_string_equal(err.text, "somebody holds a lease on 'file'");
}

static void what_is_no_file_is_gone(void **state)
{
    (void)state;
    struct err err;
    struct hold h;
    put("file", "words");
    assert_int_equal(symlinkat("file", dir, "link"), 0);
    assert_int_equal(mkdirat(dir, "folder", 0700), 0);
    assert_int_equal(symlinkat("folder", dir, "way"), 0);
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    static const char *const names[] = {"link", "fifo", "way/file", "file/below", "none", "../file"};
    for (size_t i = 0; i < countof(names); i++)
        assert_int_equal(hold_open(dir, names[i], false, &h, &err), -ERR_NOT_FOUND);
}

static void a_change_is_seen_where_there_is_no_lease(void **state)
{
    (void)state;
    struct err err;
    struct hold h;
    put("file", "words");
    assert_int_equal(hold_open(dir, "file", false, &h, &err), 0);
    hold_yield(&h);
    (void)fcntl(h.fd, F_SETLEASE, F_UNLCK);
    h.leased = false;
    put("file", "other words");
    assert_int_equal(hold_check(&h, &err), -ERR_CHANGED);
    hold_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_writer_waits_until_the_file_is_given_back, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_file_that_somebody_can_write_does_not_hold_still, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_lease_of_somebody_else_is_not_waited_for, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_gone, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_change_is_seen_where_there_is_no_lease, setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
