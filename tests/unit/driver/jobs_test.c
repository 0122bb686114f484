/* SPDX-License-Identifier: Apache-2.0 */
/* `cistern` is this program itself: the file "part" in the volume's directory is its script. */
#include "folder.h"

#include "child.h"
#include "hydrate/status.h"
#include "io/probe.h"
#include "util/clock.h"
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

static struct jobs *jobs;
static const struct volume_id v1 = {"v1"};
static char volume[128];

/* ---- the part of `cistern` --------------------------------------------------------------------------------------- */

static void note_start(int folder)
{
    auto_fd fd = openat(folder, "starts", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (write(fd, ".", 1) != 1)
        abort();
}

static void hold_lock(int folder)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(folder, HYDRATE_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* for our life */
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) < 0)
        exit(9);
}

static bool part_is(int folder, const char *which)
{
    char part[16] = "";
    auto_fd fd = openat(folder, "part", O_RDONLY | O_CLOEXEC);
    if (read(fd, part, sizeof part - 1) < 0)
        exit(8);
    return strcmp(part, which) == 0;
}

static int play(const char *path)
{
    struct err err;
    auto_mem struct hydrate_status *s = xcalloc(1, sizeof *s);
    auto_fd folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    hold_lock(folder);
    note_start(folder);
    if (part_is(folder, "stubborn"))
        signal(SIGTERM, SIG_IGN);
    if (probe_serve("hydrate", path, &err) < 0)
        return 7;
    for (int i = 0; i < 6000 && (part_is(folder, "wait") || part_is(folder, "stubborn")); i++)
        usleep(5000);
    if (!part_is(folder, "done"))
        return 1;
    s->phase = HYDRATE_DONE;
    return hydrate_status_write(folder, s, &err) < 0;
}

/* ---- a volume ---------------------------------------------------------------------------------------------------- */

static void write_part_of(const char *path, const char *part)
{
    struct err err;
    auto_fd folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(file_replace(folder, "part", str_of(part), 0600, &err), 0);
}

static void write_part(const char *part)
{
    write_part_of(volume, part);
}

static unsigned starts(void)
{
    struct stat st;
    return fstatat(dir, "volume/starts", &st, 0) == 0 ? (unsigned)st.st_size : 0;
}

static struct driver_job_view want_kind(enum job_kind kind, bool fresh)
{
    struct err err;
    struct driver_job_view v;
    assert_int_equal(jobs_request(jobs, &v1, volume, kind, fresh, &v, &err), 0);
    return v;
}

static struct driver_job_view want(bool fresh)
{
    return want_kind(JOB_HYDRATE, fresh);
}

static struct driver_job_view want_until(enum driver_job_state state)
{
    struct driver_job_view v;
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_SECOND;
    while ((v = want(false)).state != state) {
        assert_true(clock_now_ns() < end_ns);
        usleep(2000);
    }
    return v;
}

static void wait_for_starts(unsigned n)
{
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_SECOND;
    while (starts() < n) {
        assert_true(clock_now_ns() < end_ns);
        usleep(2000);
    }
}

static int start_jobs(void)
{
    struct err err;
    return jobs_start("/proc/self/exe", &jobs, &err);
}

static int setup(void **state)
{
    if (folder_setup(state) || mkdirat(dir, "volume", 0700) < 0)
        return 1;
    snprintf(volume, sizeof volume, "%s/volume", dir_name);
    return start_jobs();
}

static int teardown(void **state)
{
    struct err err;
    int r = jobs_end(jobs, &v1, volume, &err);
    jobs_stop(jobs);
    return r | folder_teardown(state);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void work_that_is_wanted_is_done_once(void **state)
{
    (void)state;
    write_part("done");
    assert_int_equal(want(false).state, JOB_QUEUED);
    want_until(JOB_DONE);
    assert_int_equal(want(false).state, JOB_DONE);
    assert_int_equal(starts(), 1);
    assert_int_equal(jobs_running(jobs), 0);
}

static void work_that_runs_is_not_started_again(void **state)
{
    (void)state;
    write_part("wait");
    want_until(JOB_RUNNING);
    wait_for_starts(1);
    for (int i = 0; i < 20; i++)
        assert_int_equal(want(false).state, JOB_RUNNING);
    assert_int_equal(jobs_running(jobs), 1);
    assert_int_equal(starts(), 1);
}

static void failed_job_is_retried_with_longer_waits(void **state)
{
    (void)state;
    write_part("fail");
    struct driver_job_view v = want_until(JOB_FAILED);
    assert_int_equal(v.failures, 1);
    assert_true(v.retry_ns > 0 && v.retry_ns <= 3 * NS_PER_SECOND);
    wait_for_starts(2);
    assert_true(want_until(JOB_FAILED).failures >= 1);
    write_part("done");
    v = want_until(JOB_DONE);
    assert_int_equal(v.failures, 0);
    assert_true(starts() >= 3);
}

static void done_job_whose_result_is_removed_runs_again(void **state)
{
    (void)state;
    write_part("done");
    want_until(JOB_DONE);
    assert_int_equal(unlinkat(dir, "volume/" HYDRATE_STATUS_FILE, 0), 0);
    usleep(1100 * 1000); /* so long it is new: who asks cannot have looked */
    assert_int_equal(want(false).state, JOB_QUEUED);
    want_until(JOB_DONE);
    assert_int_equal(starts(), 2);
}

static void fresh_request_runs_once_more_after_the_running_child(void **state)
{
    (void)state;
    write_part("wait");
    want_until(JOB_RUNNING);
    wait_for_starts(1);
    want(true);
    want(true);
    write_part("done");
    wait_for_starts(2);
    want_until(JOB_DONE);
    assert_int_equal(starts(), 2); /* twice asked is once more */
}

static void fresh_request_counts_while_the_child_is_asked_whether_it_is_stuck(void **state)
{
    (void)state;
    write_part("wait");
    want_until(JOB_RUNNING);
    wait_for_starts(1);
    child_signal_all(JOB_HYDRATE, volume, SIGSTOP);
    usleep(17 * 1000 * 1000); /* it is asked after 15 s, for 8 s */
    want(true);
    child_signal_all(JOB_HYDRATE, volume, SIGCONT);
    write_part("done");
    wait_for_starts(2);
    want_until(JOB_DONE);
}

static void unwanted_job_ends_soon(void **state)
{
    (void)state;
    struct err err;
    write_part("wait");
    want_until(JOB_RUNNING);
    wait_for_starts(1);
    assert_int_equal(jobs_end(jobs, &v1, volume, &err), 0); /* and not ERR_TIMEOUT */
    assert_false(child_lives(JOB_HYDRATE, volume));
    assert_int_equal(jobs_running(jobs), 0);
}

static void job_that_ignores_sigterm_is_killed(void **state)
{
    (void)state;
    struct err err;
    write_part("stubborn");
    want_until(JOB_RUNNING);
    wait_for_starts(1);
    assert_int_equal(jobs_end(jobs, &v1, volume, &err), 0);
    assert_false(child_lives(JOB_HYDRATE, volume));
}

static void a_child_of_the_driver_before_us_is_found_and_not_started_twice(void **state)
{
    (void)state;
    write_part("wait");
    want_until(JOB_RUNNING);
    wait_for_starts(1);
    jobs_stop(jobs);
    assert_true(child_lives(JOB_HYDRATE, volume));
    assert_int_equal(start_jobs(), 0);
    want_until(JOB_RUNNING);
    assert_int_equal(starts(), 1);
    child_signal_all(JOB_HYDRATE, volume, SIGKILL); /* no signal reports it: it is not our child */
    write_part("done");
    want_until(JOB_DONE);
    assert_int_equal(starts(), 2);
}

static void job_that_cannot_be_started_has_the_cause_until_it_runs(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(dir, "volume/hydrate.log", 0700), 0);
    struct driver_job_view v = want_until(JOB_FAILED);
    assert_int_equal(v.start.sys, EISDIR);
    assert_non_null(strstr(v.start.text, "hydrate.log"));
    assert_int_equal(starts(), 0);
    assert_int_equal(unlinkat(dir, "volume/hydrate.log", AT_REMOVEDIR), 0);
    write_part("done");
    v = want_until(JOB_DONE);
    assert_int_equal(v.start.code, 0);
}

static void an_export_for_release_does_not_wait_for_the_next_try_of_one_that_failed(void **state)
{
    (void)state;
    struct driver_job_view v;
    write_part("fail");
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_SECOND;
    do
        v = want_kind(JOB_EXPORT_UNPUBLISH, false);
    while (v.state != JOB_FAILED && clock_now_ns() < end_ns);
    assert_int_equal(v.state, JOB_FAILED);
    write_part("wait");
    unsigned before = starts();
    v = want_kind(JOB_EXPORT_RELEASE, false);
    assert_true(v.state == JOB_QUEUED && v.failures == 0);
    wait_for_starts(before + 1);
    assert_true(clock_now_ns() < end_ns);
}

/* Volume `i` of many that run or wait for a place. */
static const struct volume_id *nth(int i, char *ret_path, size_t size)
{
    static struct volume_id id;
    snprintf(id.text, sizeof id.text, "w%d", i);
    snprintf(ret_path, size, "%s/volume-%d", dir_name, i);
    return &id;
}

static void want_nth(int i)
{
    struct err err;
    struct driver_job_view v;
    char path[192];
    const struct volume_id *id = nth(i, path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    write_part_of(path, "wait");
    assert_int_equal(jobs_request(jobs, id, path, JOB_HYDRATE, false, &v, &err), 0);
}

static void end_nth(int i)
{
    struct err err;
    char path[192];
    const struct volume_id *id = nth(i, path, sizeof path);
    assert_int_equal(jobs_end(jobs, id, path, &err), 0);
}

static void wait_until_all_places_are_taken(void)
{
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_SECOND;
    while (jobs_running(jobs) < JOBS_RUNNING_MAX && clock_now_ns() < end_ns)
        usleep(2000);
    usleep(50000);
    assert_int_equal(jobs_running(jobs), JOBS_RUNNING_MAX);
}

static void no_more_run_at_once_than_may_and_the_rest_follow(void **state)
{
    (void)state;
    enum { VOLUMES = JOBS_RUNNING_MAX + 3 };
    for (int i = 0; i < VOLUMES; i++)
        want_nth(i);
    wait_until_all_places_are_taken();
    for (int i = VOLUMES; i-- > 0;)
        end_nth(i);
    assert_int_equal(jobs_running(jobs), 0);
}

static void the_job_that_has_waited_longest_starts_first(void **state)
{
    (void)state;
    char path[192];
    for (int i = 0; i < JOBS_RUNNING_MAX; i++)
        want_nth(i);
    wait_until_all_places_are_taken();
    want_nth(JOBS_RUNNING_MAX);
    want_nth(JOBS_RUNNING_MAX + 1);
    end_nth(0);
    wait_until_all_places_are_taken();
    nth(JOBS_RUNNING_MAX, path, sizeof path);
    for (int i = 0; i < 1000 && !child_lives(JOB_HYDRATE, path); i++)
        usleep(5000);
    assert_true(child_lives(JOB_HYDRATE, path));
    for (int i = JOBS_RUNNING_MAX + 2; i-- > 1;)
        end_nth(i);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 4)
        return play(argv[4]);
    const struct CMUnitTest tests[] = {
        TEST(work_that_is_wanted_is_done_once),
        TEST(work_that_runs_is_not_started_again),
        TEST(failed_job_is_retried_with_longer_waits),
        TEST(done_job_whose_result_is_removed_runs_again),
        TEST(fresh_request_runs_once_more_after_the_running_child),
        TEST(fresh_request_counts_while_the_child_is_asked_whether_it_is_stuck),
        TEST(unwanted_job_ends_soon),
        TEST(job_that_ignores_sigterm_is_killed),
        TEST(a_child_of_the_driver_before_us_is_found_and_not_started_twice),
        TEST(job_that_cannot_be_started_has_the_cause_until_it_runs),
        TEST(an_export_for_release_does_not_wait_for_the_next_try_of_one_that_failed),
        TEST(no_more_run_at_once_than_may_and_the_rest_follow),
        TEST(the_job_that_has_waited_longest_starts_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
