/* SPDX-License-Identifier: Apache-2.0 */
/* The lane's loop runs: what a part does is done there, a step at a time. */
#include "run.h"
#include <semaphore.h>
#include <sys/stat.h>

static struct hydrate_large large;
static struct hydrate_job job;
static char bytes[3 << 20];

/* ---- steps on the loop ------------------------------------------------------------------------------------------- */

struct step {
    struct mail mail;
    int (*act)(size_t len);
    size_t len;
    int result;
    sem_t done;
};

static void deliver(struct mail *m)
{
    struct step *s = container_of(m, struct step, mail);
    s->result = s->act(s->len);
    sem_post(&s->done);
}

static int on_loop(int (*act)(size_t len), size_t len)
{
    struct step s = {.mail.deliver = deliver, .act = act, .len = len};
    sem_init(&s.done, 0, 0);
    loop_post(lane->worker.loop, &s.mail);
    sem_wait(&s.done);
    sem_destroy(&s.done);
    return s.result;
}

static int feed(size_t len)
{
    return part_data(&job, bytes, len);
}

static int flush(size_t len)
{
    (void)len;
    part_flush(&job);
    return 0;
}

static int is_idle(size_t len)
{
    (void)len;
    return job.busy == 0;
}

static int end(size_t len)
{
    (void)len;
    job_free_slices(&job);
    return 0;
}

static void wait_until_written(void)
{
    while (!on_loop(is_idle, 0))
        usleep(500);
}

/* ---- the part ---------------------------------------------------------------------------------------------------- */

static void begin(uint64_t memory_bytes, int flags, uint32_t align)
{
    struct err err;
    assert_int_equal(budget_new(memory_bytes, &run->budget, &err), 0);
    large = (struct hydrate_large){.h = run, .align = align};
    large.fd = openat(run_data, "file", flags | O_CREAT | O_CLOEXEC, 0600);
    job = (struct hydrate_job){
        .lane = lane, .large = &large, .state = HYDRATE_JOB_GET, .filling = -1, .offset = PLAN_PART_BYTES};
    hash_init(&job.hash);
    hash_begin(&job.hash, HASH_CRC32C);
    for (int i = 0; i < HYDRATE_JOB_SLICES; i++)
        job.slices[i].job = &job;
}

static int setup(void **state)
{
    struct err err;
    int r = run_setup(state);
    loop_free(lane->worker.loop);
    lane->worker.loop = NULL;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 + i / 4096);
    if (r == 0)
        r = thread_pool_new(1, &run->threads, &err);
    if (r == 0)
        r = worker_init(&lane->worker, 0, run->threads, &(struct web_options){0}, true, &err);
    return r < 0 ? r : loop_start(lane->worker.loop, &err);
}

static int teardown(void **state)
{
    on_loop(end, 0);
    worker_done(&lane->worker);
    thread_pool_free(run->threads);
    budget_free(run->budget);
    hash_done(&job.hash);
    close(large.fd);
    return run_teardown(state);
}

static void assert_file_has(size_t len)
{
    auto_mem char *there = xcalloc(1, len + 1);
    auto_fd fd = openat(run_data, "file", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, there, len, PLAN_PART_BYTES), len);
    assert_memory_equal(there, bytes, len);
}

static void bytes_land_at_their_place_and_are_summed_on_the_way(void **state)
{
    (void)state;
    struct digest got, want;
    size_t len = (5 << 19) + 77;
    begin(8 * SLICE_BYTES, O_WRONLY, 0);
    assert_int_equal(on_loop(feed, len), 0);
    assert_int_equal(on_loop(flush, 0), 0);
    wait_until_written();
    assert_int_equal(job.received, len);
    assert_file_has(len);
    assert_int_equal(atomic_load(&run->barrier.unsynced_bytes), len);
    want = digest_of(HASH_CRC32C, (struct str){(const char *)bytes, len});
    hash_end(&job.hash, &got);
    assert_true(digest_eq(&got, &want));
}

static void part_without_memory_pauses_and_takes_the_rest_of_the_chunk_later(void **state)
{
    (void)state;
    size_t len = SLICE_BYTES + 5000;
    begin(SLICE_BYTES, O_WRONLY, 0);
    while (on_loop(feed, len) == WEB_PAUSE) {
        assert_int_equal(job.received, SLICE_BYTES);
        assert_int_equal(atomic_load(&run->window.paused), 1);
        wait_until_written();
    }
    assert_int_equal(job.received, len); /* nothing twice, nothing lost */
    on_loop(flush, 0);
    wait_until_written();
    assert_file_has(len);
}

static void the_end_of_an_object_is_padded_for_direct_writes(void **state)
{
    (void)state;
    struct stat st;
    begin(4 * SLICE_BYTES, O_WRONLY, 4096);
    assert_int_equal(on_loop(feed, 5000), 0);
    on_loop(flush, 0);
    wait_until_written();
    assert_int_equal(fstat(large.fd, &st), 0);
    assert_int_equal(st.st_size, PLAN_PART_BYTES + 8192);
    assert_int_equal(job.received, 5000);
    assert_file_has(5000);
}

static void a_write_that_fails_ends_the_taking_of_bytes(void **state)
{
    (void)state;
    begin(8 * SLICE_BYTES, O_RDONLY, 0);
    on_loop(feed, SLICE_BYTES);
    wait_until_written();
    assert_int_equal(job.io_error, EBADF);
    assert_int_equal(on_loop(feed, 10), -ERR_IO);
    assert_int_equal(atomic_load(&run->barrier.unsynced_bytes), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bytes_land_at_their_place_and_are_summed_on_the_way),
        TEST(part_without_memory_pauses_and_takes_the_rest_of_the_chunk_later),
        TEST(the_end_of_an_object_is_padded_for_direct_writes),
        TEST(a_write_that_fails_ends_the_taking_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
