/* SPDX-License-Identifier: Apache-2.0 */
#include "io/worker.h"
#include "unit.h"
#include "util/clock.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* Every test runs twice: on the kernel's ring, and on the pool. */
struct scene {
    bool kernel;
    struct thread_pool *threads;
    struct worker worker;
    char path[64];
    int fd;
};

struct call {
    struct disk_job job;
    struct mail mail;
    struct scene *scene;
    sem_t *over;
    bool inside;
    bool reentered;
    bool wrong_thread;
    struct call *then; /* submitted from done */
};

static void submit(struct call *c)
{
    c->inside = true;
    uring_submit(c->scene->worker.uring, &c->job);
    c->inside = false;
}

static void submit_by_mail(struct mail *m)
{
    submit(container_of(m, struct call, mail));
}

static void done(struct disk_job *j)
{
    struct call *c = container_of(j, struct call, job);
    c->reentered = c->inside;
    c->wrong_thread = !loop_is_mine(c->scene->worker.loop);
    if (c->then)
        submit(c->then);
    sem_post(c->over);
}

static void begin(struct scene *s, bool kernel)
{
    struct err err;
    struct web_options web = {0};
    s->kernel = kernel;
    assert_int_equal(thread_pool_new(4, &s->threads, &err), 0);
    assert_int_equal(worker_init(&s->worker, 0, s->threads, &web, kernel, &err), 0);
    assert_int_equal(loop_start(s->worker.loop, &err), 0);
    memcpy(s->path, "/tmp/cistern-uring-XXXXXX", sizeof "/tmp/cistern-uring-XXXXXX");
    s->fd = mkstemp(s->path);
    assert_true(s->fd >= 0);
}

static void end(struct scene *s)
{
    thread_pool_free(s->threads);
    worker_done(&s->worker);
    worker_done(&s->worker);
    close(s->fd);
    unlink(s->path);
}

static int setup_kernel(void **state)
{
    static struct scene s;
    begin(&s, true);
    *state = &s;
    return 0;
}

static int setup_pool(void **state)
{
    static struct scene s;
    begin(&s, false);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    end(*state);
    return 0;
}

/* Does `count` jobs and waits until all are done. */
static void run(struct scene *s, struct call *calls, size_t count)
{
    sem_t over;
    sem_init(&over, 0, 0);
    for (size_t i = 0; i < count; i++) {
        calls[i].scene = s;
        calls[i].over = &over;
        calls[i].job.done = done;
        calls[i].mail.deliver = submit_by_mail;
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || calls[i - 1].then != &calls[i])
            loop_post(s->worker.loop, &calls[i].mail);
    for (size_t i = 0; i < count; i++) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += 30;
        assert_int_equal(sem_timedwait(&over, &t), 0);
    }
    for (size_t i = 0; i < count; i++) {
        assert_false(calls[i].reentered);
        assert_false(calls[i].wrong_thread);
    }
    sem_destroy(&over);
}

static void uring_uses_the_kernel_if_allowed(void **state)
{
    struct scene *s = *state;
    /* A null pointer is what it refuses first, where it does not refuse everybody. */
    bool has_ring = syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EFAULT;
    assert_int_equal(uring_is_kernel(s->worker.uring), s->kernel && has_ring);
}

static void uring_reads_the_written_bytes(void **state)
{
    struct scene *s = *state;
    enum { N = 600, LEN = 10000 };
    struct call *calls = xcalloc(N, sizeof *calls);
    char *bytes = xcalloc(N, LEN), *again = xcalloc(N, LEN);
    for (size_t i = 0; i < (size_t)N * LEN; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < N; i++)
        calls[i].job =
            (struct disk_job){.op = DISK_WRITE, .fd = s->fd, .bytes = bytes + i * LEN, .len = LEN, .offset = i * LEN};
    run(s, calls, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(calls[i].job.result, LEN);
        calls[i].job =
            (struct disk_job){.op = DISK_READ, .fd = s->fd, .bytes = again + i * LEN, .len = LEN, .offset = i * LEN};
    }
    run(s, calls, N);
    assert_memory_equal(bytes, again, (size_t)N * LEN);
    free(calls);
    free(bytes);
    free(again);
}

static void a_read_is_short_only_at_the_end_of_the_file(void **state)
{
    struct scene *s = *state;
    char bytes[3][100]; /* they are under way together */
    struct call calls[3] = {{.job = {.op = DISK_READ, .fd = s->fd, .bytes = bytes[0], .len = 100, .offset = 0}},
                            {.job = {.op = DISK_READ, .fd = s->fd, .bytes = bytes[1], .len = 100, .offset = 50}},
                            {.job = {.op = DISK_READ, .fd = s->fd, .bytes = bytes[2], .len = 100, .offset = 500}}};
    assert_int_equal(ftruncate(s->fd, 100), 0);
    run(s, calls, 3);
    assert_int_equal(calls[0].job.result, 100);
    assert_int_equal(calls[1].job.result, 50);
    assert_int_equal(calls[2].job.result, 0);
}

/* A pipe gives what it has: the job asks again until it has all. */
static void partial_write_continues(void **state)
{
    struct scene *s = *state;
    int ends[2];
    char bytes[12];
    struct call c = {.job = {.op = DISK_READ, .bytes = bytes, .len = 12}};
    if (!s->kernel)
        return; /* pread wants a seekable file; the pool's loop is the same job_account */
    assert_int_equal(pipe(ends), 0);
    c.job.fd = ends[0];
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) {
            usleep(20000);
            if (write(ends[1], "abcd", 4) != 4)
                _exit(1);
        }
        _exit(0);
    }
    run(s, &c, 1);
    assert_int_equal(c.job.result, 12);
    assert_memory_equal(bytes, "abcdabcdabcd", 12);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

static void errors_come_as_negative_errno(void **state)
{
    struct scene *s = *state;
    char byte = 'x';
    struct call calls[3] = {{.job = {.op = DISK_WRITE, .fd = 98765, .bytes = &byte, .len = 1}},
                            {.job = {.op = DISK_FSYNC, .fd = 98765}},
                            {.job = {.op = DISK_WRITE, .fd = open("/dev/full", O_WRONLY), .bytes = &byte, .len = 1}}};
    run(s, calls, 3);
    assert_int_equal(calls[0].job.result, -EBADF);
    assert_int_equal(calls[1].job.result, -EBADF);
    assert_int_equal(calls[2].job.result, -ENOSPC);
    close(calls[2].job.fd);
}

static void a_file_too_large_is_an_error(void **state)
{
    struct scene *s = *state;
    struct rlimit before, small;
    char bytes[100] = "";
    struct call c = {.job = {.op = DISK_WRITE, .fd = s->fd, .bytes = bytes, .len = 100, .offset = 1000}};
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){.rlim_cur = 500, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    run(s, &c, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(c.job.result, -EFBIG);
}

static void barriers_work_and_jobs_may_follow_from_done(void **state)
{
    struct scene *s = *state;
    char byte = 'x';
    struct call calls[3] = {{.job = {.op = DISK_WRITE, .fd = s->fd, .bytes = &byte, .len = 1}, .then = &calls[1]},
                            {.job = {.op = DISK_FDATASYNC, .fd = s->fd}, .then = &calls[2]},
                            {.job = {.op = DISK_FSYNC, .fd = s->fd}}};
    run(s, calls, 3);
    assert_int_equal(calls[0].job.result, 1);
    assert_int_equal(calls[1].job.result, 0);
    assert_int_equal(calls[2].job.result, 0);
}

/* As the profile of a container runtime does: io_uring_setup answers EPERM. In a child, since it cannot be undone. */
static void pool_does_the_work_if_seccomp_forbids_io_uring(void **state)
{
    (void)state;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    pid_t child = fork();
    if (child == 0) {
        struct scene s;
        char byte = 'x';
        struct call c = {.job = {.op = DISK_WRITE, .bytes = &byte, .len = 1}};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
            _exit(2);
        begin(&s, true);
        c.job.fd = s.fd;
        bool kernel = uring_is_kernel(s.worker.uring);
        run(&s, &c, 1);
        end(&s);
        _exit(!kernel && c.job.result == 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define BOTH(f)                                                                                                        \
    {"kernel: " #f, f, setup_kernel, teardown, NULL},                                                                  \
    {                                                                                                                  \
        "pool: " #f, f, setup_pool, teardown, NULL                                                                     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(uring_uses_the_kernel_if_allowed),
        BOTH(uring_reads_the_written_bytes),
        BOTH(a_read_is_short_only_at_the_end_of_the_file),
        BOTH(partial_write_continues),
        BOTH(errors_come_as_negative_errno),
        BOTH(a_file_too_large_is_an_error),
        BOTH(barriers_work_and_jobs_may_follow_from_done),
        cmocka_unit_test(pool_does_the_work_if_seccomp_forbids_io_uring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
