/* SPDX-License-Identifier: Apache-2.0 */
#include "pool_disk.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PROCESSES = 3, THREADS = 3, TRIES = 6, VOLUME_BYTES = 24 * MIB };

struct score {
    unsigned made;
    unsigned refused;
    unsigned wrong;
};

struct racer {
    struct pool *pool;
    unsigned process, thread;
    struct score *score; /* shared between the processes */
};

static void *race(void *arg)
{
    struct racer *r = arg;
    for (unsigned i = 0; i < TRIES; i++) {
        char name[64];
        struct err err = {0};
        auto_volume v = NULL;
        snprintf(name, sizeof name, "pvc-%u-%u-%u", r->process, r->thread, i);
        auto_spec want = wanted(name, VOLUME_BYTES);
        int code = pool_create_volume(r->pool, want, 0, &v, &err);
        if (code == 0)
            __atomic_add_fetch(&r->score->made, 1, __ATOMIC_SEQ_CST);
        else if (code == -ERR_NO_SPACE)
            __atomic_add_fetch(&r->score->refused, 1, __ATOMIC_SEQ_CST);
        else {
            fprintf(stderr, "%s\n", err.text);
            __atomic_add_fetch(&r->score->wrong, 1, __ATOMIC_SEQ_CST);
        }
    }
    return NULL;
}

static void race_process(const char *path, unsigned process, struct score *score)
{
    struct err err = {0};
    struct pool *p = NULL;
    struct pool_options o = options(path);
    pthread_t threads[THREADS];
    struct racer racers[THREADS];
    if (try_pool(&o, &p, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){p, process, i, score};
        pthread_create(&threads[i], NULL, race, &racers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

static void run_processes(const char *path, struct score *score)
{
    pid_t pids[PROCESSES];
    int status;
    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            race_process(path, i, score);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Every volume of the pool filled to its brim and flushed: what was promised is there. Bytes written. */
static uint64_t fill_all(struct pool *p, size_t *ret_count)
{
    struct pool_entry *list = NULL;
    size_t count = 0;
    uint64_t sum = 0;
    must(pool_list_volumes(p, &(struct volume_id){0}, 1000, &list, &count, &err));
    for (size_t i = 0; i < count; i++) {
        auto_volume v = NULL;
        struct volume_usage u;
        int errnum;
        must(pool_find_volume(p, &list[i].volume_id, &v, &err));
        must(volume_usage(v, &u, &err));
        uint64_t most = u.available_bytes / MIB * MIB - 2 * MIB;
        assert_int_equal(fill(v, most, &errnum), most);
        assert_int_equal(errnum, 0);
        sum += most;
    }
    pool_entries_free(list, count);
    *ret_count = count;
    return sum;
}

static void racing_reservations_promise_no_byte_twice(void **state)
{
    (void)state;
    struct pool_at disk;
    struct score *score = mmap(NULL, sizeof *score, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pool_usage u;
    size_t count;
    make_pool_disk(&disk, "race", 512 * MIB);
    auto_pool p = open_pool(disk.path);
    must(pool_usage(p, &u, &err));
    unsigned room = (unsigned)(u.available_bytes / VOLUME_BYTES);
    assert_in_range(room, 10, PROCESSES * THREADS * TRIES - 1);
    run_processes(disk.path, score);
    assert_int_equal(score->wrong, 0);
    assert_int_equal(score->made + score->refused, PROCESSES * THREADS * TRIES);
    assert_in_range(score->made, room - 1, room);
    must(pool_usage(p, &u, &err));
    assert_int_equal(u.volumes, score->made);
    assert_int_equal(u.allocated_bytes, (uint64_t)score->made * VOLUME_BYTES);
    fill_all(p, &count);
    assert_int_equal(count, score->made);
    munmap(score, sizeof *score);
}

struct twin {
    struct pool *pool;
    struct volume_id id;
    int code;
};

static void *create_twin(void *arg)
{
    struct twin *t = arg;
    struct err err = {0};
    auto_spec want = wanted("twin", 16 * MIB);
    auto_volume v = NULL;
    do
        t->code = pool_create_volume(t->pool, want, 0, &v, &err);
    while (t->code == -ERR_PENDING);
    if (t->code == 0)
        t->id = v->spec->id;
    else
        fprintf(stderr, "%s\n", err.text);
    return NULL;
}

static void the_same_name_at_once_gives_one_volume(void **state)
{
    (void)state;
    struct twin twins[4] = {0};
    pthread_t threads[countof(twins)];
    mkdir(at("twins"), 0755);
    for (size_t i = 0; i < countof(twins); i++)
        twins[i].pool = open_pool(at("twins"));
    for (size_t i = 0; i < countof(twins); i++)
        pthread_create(&threads[i], NULL, create_twin, &twins[i]);
    for (size_t i = 0; i < countof(twins); i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < countof(twins); i++) {
        assert_int_equal(twins[i].code, 0);
        assert_string_equal(twins[i].id.text, twins[0].id.text);
    }
    must(pool_delete_volume(twins[0].pool, &twins[0].id, &err));
    must(pool_empty_trash(twins[0].pool, &err));
    for (size_t i = 0; i < countof(twins); i++)
        pool_close(twins[i].pool);
}

static size_t open_fds(void)
{
    size_t count = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static void a_thousand_volumes_leave_nothing_behind(void **state)
{
    (void)state;
    mkdir(at("thousand"), 0755);
    auto_pool p = open_pool(at("thousand"));
    size_t fds = open_fds(), mounts = mounts_here();
    await_loops(mounts); /* each mount here is of an image */
    many_come_and_go(p, 1000);
    assert_int_equal(open_fds(), fds);
    assert_int_equal(mounts_here(), mounts);
    await_loops(mounts);
    assert_int_equal(rmdir(at("thousand/volumes")), 0);
    assert_int_equal(rmdir(at("thousand/making")), 0);
    assert_int_equal(rmdir(at("thousand/trash")), 0);
}

enum { REMOUNTS = 300 };

struct remounts {
    _Atomic unsigned mounts, opened;
};

/* As a stage that sets the label of an image. Each tenth mount stays until it was opened: on a busy machine the other
 * thread may have no CPU during all of them. */
static void *mount_again_and_again(void *arg)
{
    struct remounts *m = arg;
    while (m->mounts < REMOUNTS) {
        must(mount_make("none", at("bare/data"), "tmpfs", 0, NULL, &err));
        unsigned opened = m->opened;
        for (unsigned i = 0; m->mounts % 10 == 9 && m->opened == opened && i < 10000; i++)
            usleep(1000);
        m->mounts++;
        must(mount_unmount(at("bare/data"), 0, true, &err));
    }
    return NULL;
}

static void data_of_an_image_that_is_mounted_again_is_never_the_bare_mount_point(void **state)
{
    (void)state;
    struct remounts m = {0};
    struct stat bare, st;
    pthread_t thread;
    auto_mem char *data = str_dup(str_of(at("bare/data"))), *path = str_dup(str_of(at("bare")));
    auto_spec spec = wanted("bare", MIB);
    spec->backend = BACKEND_LOOP;
    assert_true(mkdir(path, 0755) == 0 && mkdir(data, 0755) == 0 && stat(data, &bare) == 0);
    auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct volume v = {.path = path, .dir = dir, .spec = spec};
    pthread_create(&thread, NULL, mount_again_and_again, &m);
    while (m.mounts < REMOUNTS) {
        struct err err;
        int fd, r = volume_data(&v, &fd, &err);
        if (r < 0) {
            assert_int_equal(err.id, CIS_VOLUME_NOT_ATTACHED);
            continue;
        }
        assert_true(fstat(fd, &st) == 0 && st.st_dev != bare.st_dev); /* /tmp may be a tmpfs, too */
        m.opened++;
        close(fd);
    }
    pthread_join(thread, NULL);
    assert_true(m.opened > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(racing_reservations_promise_no_byte_twice),
        cmocka_unit_test(the_same_name_at_once_gives_one_volume),
        cmocka_unit_test(a_thousand_volumes_leave_nothing_behind),
        cmocka_unit_test(data_of_an_image_that_is_mounted_again_is_never_the_bare_mount_point),
    };
    return cmocka_run_group_tests(tests, enter_place, leave_place);
}
