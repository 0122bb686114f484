/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "child.h"
#include "export/verdict.h"
#include "hydrate/status.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void write_program(const char *name, const char *script)
{
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(dprintf(fd, "#!/bin/sh\n%s\n", script), (int)strlen(script) + 11);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir_name, name);
    return path;
}

static void read_text(const char *name, char *ret, size_t room)
{
    auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, ret, room - 1);
    assert_true(n >= 0);
    ret[n] = '\0';
}

static int exit_code(struct child child)
{
    siginfo_t how;
    struct pollfd ended = {.fd = child.fd, .events = POLLIN};
    assert_int_equal(poll(&ended, 1, -1), 1);
    assert_true(child_reap(&child, &how));
    assert_int_equal(child.fd, -1);
    return how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
}

static void it_is_started_by_its_words_and_what_it_says_is_its_log(void **state)
{
    (void)state;
    struct err err;
    struct child child;
    char log[256], want[256];
    write_program("cistern", "echo \"$@\"; echo trouble >&2; exit 3");
    char *program = strdup(path_of("cistern"));
    assert_int_equal(child_start(program, JOB_EXPORT_RELEASE, dir_name, &child, &err), 0);
    assert_int_equal(exit_code(child), 3);
    read_text("export.log", log, sizeof log);
    snprintf(want, sizeof want, "export --no-progress --volume %s --for release\ntrouble\n", dir_name);
    assert_string_equal(log, want);
    assert_int_equal(child_start(program, JOB_HYDRATE, dir_name, &child, &err), 0);
    assert_int_equal(exit_code(child), 3);
    read_text("hydrate.log", log, sizeof log);
    assert_int_equal(strncmp(log, "hydrate ", 8), 0);
    free(program);
}

static void a_child_has_a_session_of_its_own_and_none_of_our_descriptors_and_signals(void **state)
{
    (void)state;
    struct err err;
    struct child child;
    char log[512];
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    signal(SIGHUP, SIG_IGN);
    /* The masks are those that grep inherits: the shell's own are others for moments, while it waits. */
    write_program("cistern", "readlink /proc/$$/fd/*; cut -d' ' -f1,6 /proc/$$/stat; grep -E '^Sig(Blk|Ign)' "
                             "/proc/self/status");
    char *program = strdup(path_of("cistern"));
    int inherited = dup(dir);
    assert_int_equal(child_start(program, JOB_HYDRATE, dir_name, &child, &err), 0);
    close(inherited);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGHUP, SIG_DFL);
    assert_int_equal(exit_code(child), 0);
    read_text("hydrate.log", log, sizeof log);
    char line[160];
    snprintf(line, sizeof line, "\n%s\n", dir_name);
    assert_null(strstr(log, line));
    snprintf(line, sizeof line, "\n%d %d\n", child.pid, child.pid); /* its session is its own */
    assert_non_null(strstr(log, line));
    assert_non_null(strstr(log, "SigBlk:\t0000000000000000"));
    assert_int_equal(strtoull(strstr(log, "SigIgn:") + 8, NULL, 16) & 0x7fffffff, 0); /* two more are the C library's */
    free(program);
}

static void a_program_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct err err;
    struct child child;
    assert_true(child_start("/nowhere/cistern", JOB_HYDRATE, dir_name, &child, &err) < 0);
    assert_non_null(strstr(err.text, "'/nowhere/cistern hydrate'"));
}

static void a_path_without_room_for_the_log_is_refused(void **state)
{
    (void)state;
    struct err err;
    struct child child;
    char path[4096];
    memset(path, 'x', sizeof path - 4);
    path[sizeof path - 4] = '\0';
    assert_int_equal(child_start("/bin/true", JOB_HYDRATE, path, &child, &err), -ERR_INVALID);
}

static void child_lives_while_its_lock_in_the_directory_is_held(void **state)
{
    (void)state;
    struct err err;
    int export_dir, lock;
    assert_false(child_lives(JOB_EXPORT_RELEASE, dir_name));
    assert_int_equal(verdict_lock(dir, &export_dir, &lock, &err), 0);
    struct verdict v;
    verdict_init(&v);
    v.state = VERDICT_RUNNING;
    assert_int_equal(verdict_write(export_dir, &v, &err), 0);
    assert_true(child_lives(JOB_EXPORT_UNPUBLISH, dir_name));
    assert_false(child_lives(JOB_HYDRATE, dir_name));
    close(lock);
    assert_false(child_lives(JOB_EXPORT_RELEASE, dir_name));
    close(export_dir);
    verdict_done(&v);
    assert_false(child_lives(JOB_HYDRATE, "/nowhere"));
}

static void export_for_unpublish_does_not_count_for_release(void **state)
{
    (void)state;
    struct err err;
    int export_dir;
    struct verdict v;
    verdict_init(&v);
    assert_int_equal(dir_make(dir, "export", 0700, &export_dir, &err), 0);
    assert_false(child_succeeded(JOB_EXPORT_UNPUBLISH, dir_name));
    v.state = VERDICT_DONE;
    v.purpose = VERDICT_FOR_UNPUBLISH;
    assert_int_equal(verdict_write(export_dir, &v, &err), 0);
    assert_true(child_succeeded(JOB_EXPORT_UNPUBLISH, dir_name));
    assert_false(child_succeeded(JOB_EXPORT_RELEASE, dir_name));
    v.purpose = VERDICT_FOR_RELEASE;
    assert_int_equal(verdict_write(export_dir, &v, &err), 0);
    assert_true(child_succeeded(JOB_EXPORT_RELEASE, dir_name));
    v.state = VERDICT_FAILED;
    assert_int_equal(verdict_write(export_dir, &v, &err), 0);
    assert_false(child_succeeded(JOB_EXPORT_RELEASE, dir_name));
    close(export_dir);
    verdict_done(&v);
}

static void a_hydration_succeeded_when_its_status_says_done(void **state)
{
    (void)state;
    struct err err;
    static struct hydrate_status s = {.phase = HYDRATE_FETCHING};
    assert_false(child_succeeded(JOB_HYDRATE, dir_name));
    assert_int_equal(hydrate_status_write(dir, &s, &err), 0);
    assert_false(child_succeeded(JOB_HYDRATE, dir_name));
    s.phase = HYDRATE_DONE;
    assert_int_equal(hydrate_status_write(dir, &s, &err), 0);
    assert_true(child_succeeded(JOB_HYDRATE, dir_name));
}

/* This program itself, started as a child that waits for its signal. */
static struct child start_like(const char *verb, const char *volume)
{
    struct err err;
    struct child child = NO_CHILD;
    char *const words[] = {(char *)"/proc/self/exe", (char *)verb, (char *)"--volume", (char *)volume, NULL};
    assert_int_equal(child_spawn(words, NULL, &child, &err), 0);
    char name[64], *line;
    snprintf(name, sizeof name, "/proc/%ld/cmdline", (long)child.pid);
    for (size_t len = 0; len == 0;) { /* between exec and its words, who looks for them does not find it */
        assert_int_equal(file_read(AT_FDCWD, name, 4096, &line, &len, &err), 0);
        free(line);
    }
    return child;
}

static void only_who_does_just_this_gets_the_signal(void **state)
{
    (void)state;
    char volume[128], longer[128];
    snprintf(volume, sizeof volume, "%s/a", dir_name);
    snprintf(longer, sizeof longer, "%s/ab", dir_name);
    struct child wanted = start_like("hydrate", volume), other_volume = start_like("hydrate", longer);
    struct child other_work = start_like("export", volume);
    child_signal_all(JOB_HYDRATE, volume, SIGTERM);
    assert_int_equal(exit_code(wanted), 128 + SIGTERM);
    child_signal_all(JOB_EXPORT_UNPUBLISH, volume, SIGKILL);
    assert_int_equal(exit_code(other_work), 128 + SIGKILL);
    siginfo_t ignored;
    assert_false(child_reap(&other_volume, &ignored));
    child_signal_like("hydrate", longer, SIGKILL);
    assert_int_equal(exit_code(other_volume), 128 + SIGKILL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return (int)sleep(30);
    const struct CMUnitTest tests[] = {
        TEST(it_is_started_by_its_words_and_what_it_says_is_its_log),
        TEST(a_child_has_a_session_of_its_own_and_none_of_our_descriptors_and_signals),
        TEST(a_program_that_is_not_there_is_named),
        TEST(a_path_without_room_for_the_log_is_refused),
        TEST(child_lives_while_its_lock_in_the_directory_is_held),
        TEST(export_for_unpublish_does_not_count_for_release),
        TEST(a_hydration_succeeded_when_its_status_says_done),
        TEST(only_who_does_just_this_gets_the_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
