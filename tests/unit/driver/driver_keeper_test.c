/* SPDX-License-Identifier: Apache-2.0 */
/* `cistern-keeper` is this program itself: a keeper as the real one is, without its logging. */
#include "folder.h"

#include "child.h"
#include "driver_keeper.h"
#include "keeper/keeper.h"
#include "util/clock.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

static char socket_path[128];
static struct mirror *mirror;
static struct driver_keeper *keeper;
static struct spec spec = {.id = {"v1-0123456789ab-0123456789ab"}};

static int play(const char *path)
{
    struct err err;
    struct keeper_options o = {.socket = path, .ready_fd = -1, .take_over = true};
    return keeper_run(&o, &err) < 0;
}

static bool answers(void)
{
    struct err err;
    struct keeper_status s;
    return keeper_status(socket_path, "nobody", &s, &err) == -ERR_NOT_FOUND;
}

static void wait_until(bool (*what)(void))
{
    uint64_t end_ns = clock_now_ns() + 60 * NS_PER_SECOND;
    while (!what()) {
        assert_true(clock_now_ns() < end_ns);
        usleep(2000);
    }
}

static bool is_silent(void)
{
    return !answers();
}

static bool is_mirrored(void)
{
    return mirror_is_connected(mirror);
}

/* Nothing can be mounted at a place that is not there; but a keeper is wanted from then on. */
static int ask_for_a_mount(struct err *err)
{
    struct record wish = {.staged = (char *)"/nowhere/at/all"};
    return driver_keeper_mount(keeper, &spec, dir_name, &wish, NULL, err);
}

static void start(const char *programs)
{
    struct err err;
    assert_int_equal(driver_keeper_start(socket_path, programs, mirror, &keeper, &err), 0);
}

static int setup(void **state)
{
    struct err err;
    if (folder_setup(state) || symlinkat("/proc/self/exe", dir, "cistern-keeper") < 0)
        return 1;
    snprintf(socket_path, sizeof socket_path, "%s/keeper.sock", dir_name);
    return mirror_start(socket_path, &mirror, &err);
}

static int teardown(void **state)
{
    driver_keeper_stop(keeper);
    keeper = NULL;
    mirror_stop(mirror);
    return folder_teardown(state);
}

static void the_keeper_is_started_by_the_first_mount_and_ends_with_us_if_nothing_is_mounted(void **state)
{
    (void)state;
    struct err err;
    start(dir_name);
    assert_false(answers());
    assert_true(ask_for_a_mount(&err) < 0);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    assert_true(answers());
    driver_keeper_stop(keeper);
    keeper = NULL;
    wait_until(is_silent); /* it was asked to end, and the wait is bounded */
}

static void a_keeper_that_dies_is_started_again_without_being_asked(void **state)
{
    (void)state;
    struct err err;
    start(dir_name);
    assert_true(ask_for_a_mount(&err) < 0);
    for (int i = 0; i < 3; i++) {
        wait_until(is_mirrored);
        child_signal_like("--socket", socket_path, SIGKILL);
        wait_until(answers);
    }
}

static void keeper_that_was_never_wanted_is_not_started(void **state)
{
    (void)state;
    struct err err;
    start(dir_name);
    usleep(600 * 1000); /* two looks of the thread */
    assert_false(answers());
    assert_int_equal(driver_keeper_unmount(keeper, &spec.id, "/nowhere", &err),
                     0); /* there is no mount without a keeper */
    assert_false(answers());
}

static void keeper_being_started_by_another_thread_asks_the_caller_to_retry(void **state)
{
    (void)state;
    struct err err;
    start(NULL);
    assert_int_equal(ask_for_a_mount(&err), -ERR_AGAIN);
    assert_int_equal(err.id, 3101);
    assert_int_equal(driver_keeper_unmount(keeper, &spec.id, "/nowhere", &err), 0);
}

static void a_keeper_that_cannot_be_started_is_named(void **state)
{
    (void)state;
    struct err err;
    start("/nowhere");
    assert_true(ask_for_a_mount(&err) < 0);
    assert_non_null(strstr(err.text, "/nowhere/cistern-keeper"));
}

/* A keeper that does not come up. */
static void write_keeper(const char *script)
{
    assert_int_equal(unlinkat(dir, "cistern-keeper", 0), 0);
    auto_fd fd = openat(dir, "cistern-keeper", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "#!/bin/sh\ncd '%s' || exit\n%s\n", dir_name, script) > 0);
}

static bool is_begun(void)
{
    return faccessat(dir, "begun", F_OK, 0) == 0;
}

static void *ask_beside(void *ret_err)
{
    return ask_for_a_mount(ret_err) < 0 ? ret_err : NULL;
}

static void a_keeper_that_ends_at_once_is_not_waited_for(void **state)
{
    (void)state;
    struct err err;
    write_keeper("exit 1");
    start(dir_name);
    assert_int_equal(ask_for_a_mount(&err), -ERR_AGAIN);
    assert_non_null(strstr(err.text, "cistern-keeper': exited right after its start"));
}

static void all_who_ask_while_it_cannot_be_started_learn_why(void **state)
{
    (void)state;
    struct err err = {0}, other = {0};
    pthread_t beside;
    void *failed;
    write_keeper(": >begun; while [ -e begun ] && [ ! -e over ]; do sleep 0.01; done; exit 1");
    start(dir_name);
    assert_int_equal(pthread_create(&beside, NULL, ask_beside, &other), 0);
    wait_until(is_begun);
    assert_int_equal(symlinkat("begun", dir, "over"), 0);
    assert_int_equal(ask_for_a_mount(&err), -ERR_AGAIN);
    assert_int_equal(pthread_join(beside, &failed), 0);
    assert_ptr_equal(failed, &other);
    assert_non_null(strstr(err.text, "exited right after its start"));
    assert_non_null(strstr(other.text, "exited right after its start"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 2)
        return play(argv[2]);
    const struct CMUnitTest tests[] = {
        TEST(the_keeper_is_started_by_the_first_mount_and_ends_with_us_if_nothing_is_mounted),
        TEST(a_keeper_that_dies_is_started_again_without_being_asked),
        TEST(keeper_that_was_never_wanted_is_not_started),
        TEST(keeper_being_started_by_another_thread_asks_the_caller_to_retry),
        TEST(a_keeper_that_cannot_be_started_is_named),
        TEST(a_keeper_that_ends_at_once_is_not_waited_for),
        TEST(all_who_ask_while_it_cannot_be_started_learn_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
