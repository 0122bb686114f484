/* SPDX-License-Identifier: Apache-2.0 */
#include "dir_watch.h"
#include "folder.h"
#include "unit.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the reports; tsan does not see that a rename precedes them */
static char reported[64];
static sem_t moved;

static void note(void *ctx, const char *name)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    snprintf(reported, sizeof reported, "%s", name);
    pthread_mutex_unlock(&lock);
    sem_post(&moved);
}

static bool hears(const char *name, unsigned milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (sem_timedwait(&moved, &until) != 0)
        return false;
    pthread_mutex_lock(&lock);
    bool same = strcmp(reported, name) == 0;
    pthread_mutex_unlock(&lock);
    return same;
}

/* As hydrations and exports replace what they tell. */
static void replace(const char *folder, const char *name)
{
    char temporary[4096], path[4096];
    snprintf(temporary, sizeof temporary, "%s/.%s", folder, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(temporary, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(rename(temporary, path), 0);
}

struct fixture {
    struct loop *loop;
    struct dir_watch *dir_watch;
    char a[64], b[64], export[80]; /* directories of two volumes, and of the first one's export */
};

static void begin(struct fixture *f)
{
    struct err err;
    sem_init(&moved, 0, 0);
    snprintf(f->a, sizeof f->a, "%s/a", dir_name);
    snprintf(f->b, sizeof f->b, "%s/b", dir_name);
    snprintf(f->export, sizeof f->export, "%s/export", f->a);
    assert_int_equal(mkdir(f->a, 0700) | mkdir(f->b, 0700), 0);
    assert_int_equal(loop_new("loop/t", &f->loop, &err), 0);
    assert_int_equal(dir_watch_new(f->loop, note, NULL, &f->dir_watch, &err), 0);
    assert_int_equal(loop_start(f->loop, &err), 0);
}

static void end(struct fixture *f)
{
    loop_stop_and_join(f->loop);
    dir_watch_free(f->dir_watch);
    loop_free(f->loop);
    sem_destroy(&moved);
}

static void a_replaced_file_is_reported_with_its_volumes_name(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    dir_watch_add(f.dir_watch, "one", f.a);
    dir_watch_add(f.dir_watch, "two", f.b);
    replace(f.b, "status.json");
    assert_true(hears("two", 2000));
    replace(f.a, "status.json");
    assert_true(hears("one", 2000));
    end(&f);
}

static void a_later_export_is_watched_after_the_next_add_and_reported_once(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    dir_watch_add(f.dir_watch, "one", f.a);
    assert_int_equal(mkdir(f.export, 0700), 0);
    dir_watch_add(f.dir_watch, "one", f.a);
    replace(f.export, "verdict.json");
    assert_true(hears("one", 2000));
    assert_false(hears("one", 100));
    end(&f);
}

static void a_removed_volume_is_not_reported(void **state)
{
    (void)state;
    struct err err;
    struct fixture f;
    begin(&f);
    dir_watch_add(f.dir_watch, "one", f.a);
    dir_watch_add(f.dir_watch, "two", f.b);
    dir_watch_remove(f.dir_watch, "one");
    dir_watch_remove(f.dir_watch, "never");
    replace(f.a, "status.json");
    assert_int_equal(dir_remove(AT_FDCWD, f.b, &err), 0);
    assert_false(hears("one", 100));
    dir_watch_add(f.dir_watch, "two", f.b); /* not there: by the clock alone */
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_replaced_file_is_reported_with_its_volumes_name, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_later_export_is_watched_after_the_next_add_and_reported_once, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_removed_volume_is_not_reported, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
