/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"
#include "notify.h"
#include "unit.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards told: that a rename comes first, tsan does not see */
static char told[64];
static sem_t moved;

static void note(void *ctx, const char *name)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    snprintf(told, sizeof told, "%s", name);
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
    bool same = strcmp(told, name) == 0;
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
    struct notify *notify;
    char a[64], b[64], export[80]; /* folders of two volumes, and of the first one's export */
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
    assert_int_equal(notify_new(f->loop, note, NULL, &f->notify, &err), 0);
    assert_int_equal(loop_start(f->loop, &err), 0);
}

static void end(struct fixture *f)
{
    loop_stop_and_join(f->loop);
    notify_free(f->notify);
    loop_free(f->loop);
    sem_destroy(&moved);
}

static void a_file_that_is_replaced_is_told_with_its_volumes_name(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    notify_add(f.notify, "one", f.a);
    notify_add(f.notify, "two", f.b);
    replace(f.b, "status.json");
    assert_true(hears("two", 2000));
    replace(f.a, "status.json");
    assert_true(hears("one", 2000));
    end(&f);
}

static void an_export_that_began_later_is_watched_from_the_next_look_on_and_told_once(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    notify_add(f.notify, "one", f.a);
    assert_int_equal(mkdir(f.export, 0700), 0);
    notify_add(f.notify, "one", f.a);
    replace(f.export, "verdict.json");
    assert_true(hears("one", 2000));
    assert_false(hears("one", 100));
    end(&f);
}

static void what_is_removed_or_gone_is_not_told(void **state)
{
    (void)state;
    struct err err;
    struct fixture f;
    begin(&f);
    notify_add(f.notify, "one", f.a);
    notify_add(f.notify, "two", f.b);
    notify_remove(f.notify, "one");
    notify_remove(f.notify, "never");
    replace(f.a, "status.json");
    assert_int_equal(dir_remove(AT_FDCWD, f.b, &err), 0);
    assert_false(hears("one", 100));
    notify_add(f.notify, "two", f.b); /* not there: by the clock alone */
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_is_replaced_is_told_with_its_volumes_name, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(an_export_that_began_later_is_watched_from_the_next_look_on_and_told_once,
                                        folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(what_is_removed_or_gone_is_not_told, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
