/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "file_lease.h"
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

static int setup(void **state)
{
    sigset_t io;
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    sigprocmask(SIG_BLOCK, &io, NULL); /* as file_lease.h asks of every thread */
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
    struct file_lease h;
    put("file", "words");
    assert_int_equal(file_lease_open(dir, "file", true, &h, &err), 0);
    assert_true(h.leased && h.stamp.size_bytes == 5);
    assert_int_equal(file_lease_check(&h, &err), 0);
    assert_false(file_lease_yield(&h));
    assert_int_equal(openat(dir, "file", O_WRONLY | O_NONBLOCK), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    assert_int_equal(file_lease_check(&h, &err), -ERR_CHANGED); /* another process is about to write */
    assert_true(file_lease_yield(&h));
    auto_fd writer = openat(dir, "file", O_WRONLY | O_NONBLOCK);
    assert_true(writer >= 0);
    file_lease_close(&h);
    file_lease_close(&h);
}

static void file_that_can_be_written_gets_no_lease(void **state)
{
    (void)state;
    struct err err;
    struct file_lease h;
    put("file", "words");
    auto_fd writer = openat(dir, "file", O_WRONLY);
    assert_int_equal(file_lease_open(dir, "file", true, &h, &err), -ERR_AGAIN);
    assert_int_equal(file_lease_open(dir, "file", false, &h, &err), -ERR_AGAIN);
    assert_non_null(strstr(err.text, "'file'"));
}

static void lease_of_another_process_is_not_waited_for(void **state)
{
    (void)state;
    struct err err;
    struct file_lease h;
    put("file", "words");
    auto_fd theirs = openat(dir, "file", O_RDWR);
    assert_int_equal(fcntl(theirs, F_SETLEASE, F_WRLCK), 0);
    assert_int_equal(file_lease_open(dir, "file", true, &h, &err), -ERR_AGAIN);
    assert_string_equal(err.text, "another process has a lease on 'file'");
}

static void other_kind_of_entry_counts_as_gone(void **state)
{
    (void)state;
    struct err err;
    struct file_lease h;
    put("file", "words");
    assert_int_equal(symlinkat("file", dir, "link"), 0);
    assert_int_equal(mkdirat(dir, "directory", 0700), 0);
    assert_int_equal(symlinkat("directory", dir, "way"), 0);
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    static const char *const names[] = {"link", "fifo", "way/file", "file/below", "none", "../file"};
    for (size_t i = 0; i < countof(names); i++)
        assert_int_equal(file_lease_open(dir, names[i], false, &h, &err), -ERR_NOT_FOUND);
}

static void a_change_is_seen_where_there_is_no_lease(void **state)
{
    (void)state;
    struct err err;
    struct file_lease h;
    put("file", "words");
    assert_int_equal(file_lease_open(dir, "file", false, &h, &err), 0);
    file_lease_yield(&h);
    (void)fcntl(h.fd, F_SETLEASE, F_UNLCK);
    h.leased = false;
    put("file", "other words");
    assert_int_equal(file_lease_check(&h, &err), -ERR_CHANGED);
    file_lease_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_writer_waits_until_the_file_is_given_back, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(file_that_can_be_written_gets_no_lease, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(lease_of_another_process_is_not_waited_for, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(other_kind_of_entry_counts_as_gone, setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_change_is_seen_where_there_is_no_lease, setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
