/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "journal_format.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const uint8_t uid[16] = "a catalog's name";
static const uint8_t boot_a[16] = "boot a", boot_b[16] = "boot b";
enum { PART = 8 << 20 };

static struct journal *open_in(const uint8_t *boot)
{
    struct err err = {0};
    struct journal *j = NULL;
    assert_int_equal(journal_open(dir, uid, PART, boot, &j, &err), 0);
    return j;
}

static unsigned whole_count(struct journal *j)
{
    unsigned count = 0;
    for (uint64_t id = 0; id < j->whole_words * 64; id++)
        count += journal_is_whole(j, id);
    return count;
}

/* As after a crash of the process: records that were not flushed are lost. */
static void reopen(struct journal **j, const uint8_t *boot)
{
    journal_free(*j);
    *j = open_in(boot);
}

static void flush(struct journal *j)
{
    struct err err;
    assert_int_equal(journal_flush(j, &err), 0);
}

static void barrier(struct journal *j)
{
    struct err err;
    assert_int_equal(journal_barrier_begin(j, &err), 0);
    assert_int_equal(journal_barrier_succeeded(j, &err), 0);
}

static void fail_barrier(struct journal *j)
{
    struct err err;
    (void)!err_set(&err, ERR_IO, "pages were lost");
    journal_barrier_failed(j, &err);
}

static void written_files_are_trusted_while_the_machine_runs(void **state)
{
    (void)state;
    auto_journal j = open_in(boot_a);
    journal_written(j, 5);
    journal_written(j, 7);
    flush(j);
    journal_written(j, 9);
    reopen(&j, boot_a);
    assert_true(journal_is_whole(j, 5) && journal_is_whole(j, 7));
    assert_false(journal_is_whole(j, 6) || journal_is_whole(j, 9));
    assert_int_equal(whole_count(j), 2);
    assert_int_equal(journal_runs(j), 2);
}

static void after_a_power_loss_only_what_a_barrier_covered_is_trusted(void **state)
{
    (void)state;
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    barrier(j);
    journal_written(j, 2);
    flush(j);
    reopen(&j, boot_b);
    assert_true(journal_is_whole(j, 1));
    assert_false(journal_is_whole(j, 2));
    reopen(&j, boot_b);
    assert_false(journal_is_whole(j, 2));
    assert_int_equal(whole_count(j), 1);
}

static void writes_during_a_barrier_are_not_covered_by_it(void **state)
{
    (void)state;
    struct err err;
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    assert_int_equal(journal_barrier_begin(j, &err), 0);
    journal_written(j, 2);
    flush(j);
    assert_int_equal(journal_barrier_succeeded(j, &err), 0);
    reopen(&j, boot_b);
    assert_true(journal_is_whole(j, 1));
    assert_false(journal_is_whole(j, 2));
}

static void a_failed_barrier_discards_all_since_the_last_that_held(void **state)
{
    (void)state;
    struct err err;
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    barrier(j);
    journal_written(j, 2);
    assert_int_equal(journal_barrier_begin(j, &err), 0);
    journal_written(j, 3);
    fail_barrier(j);
    reopen(&j, boot_a);
    assert_true(journal_is_whole(j, 1));
    assert_false(journal_is_whole(j, 2) || journal_is_whole(j, 3));
    /* and a later barrier does not bring them back */
    journal_written(j, 3);
    barrier(j);
    reopen(&j, boot_b);
    assert_true(journal_is_whole(j, 3));
    assert_false(journal_is_whole(j, 2));
}

static void a_failed_barrier_that_cannot_be_written_down_discards_all_the_same(void **state)
{
    (void)state;
    struct err err;
    struct rlimit all, none = {0};
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    barrier(j);
    journal_written(j, 2);
    assert_int_equal(journal_barrier_begin(j, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    none.rlim_max = all.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none); /* no byte more goes into any file */
    fail_barrier(j);
    setrlimit(RLIMIT_FSIZE, &all);
    signal(SIGXFSZ, SIG_DFL);
    journal_written(j, 3);
    assert_true(journal_flush(j, &err) < 0); /* nor after the record that was cut off */
    reopen(&j, boot_a);
    assert_true(journal_is_whole(j, 1));
    assert_false(journal_is_whole(j, 2) || journal_is_whole(j, 3));
}

/* A lane writes, the barrier loses the pages, and only then does the lane tell. */
static void record_after_a_failed_barrier_is_not_trusted(void **state)
{
    (void)state;
    struct err err;
    auto_journal j = open_in(boot_a);
    assert_int_equal(journal_barrier_begin(j, &err), 0);
    fail_barrier(j);
    journal_written(j, 1);
    assert_true(journal_flush(j, &err) < 0);
    assert_string_equal(err.text, "pages were lost");
    reopen(&j, boot_a);
    assert_false(journal_is_whole(j, 1));
}

static void any_number_of_boots_without_a_barrier_is_borne(void **state)
{
    (void)state;
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    barrier(j);
    for (int boot = 0; boot < 1100; boot++) {
        journal_written(j, 2);
        flush(j);
        reopen(&j, boot % 2 ? boot_a : boot_b);
    }
    assert_true(journal_is_whole(j, 1));
    assert_false(journal_is_whole(j, 2));
}

static void replay_of_an_unfinished_object_restores_parts_and_checksums(void **state)
{
    (void)state;
    struct err err;
    struct digest got, d = {.kind = HASH_CRC64NVME, .bytes = {0xF1, 2, 3, 4, 5, 6, 7, 8}};
    auto_journal j = open_in(boot_a);
    journal_part_written(j, 4, 0, &d);
    journal_part_written(j, 4, 300, &d);
    journal_part_written(j, 2, 1, &(struct digest){.kind = HASH_NONE});
    journal_part_written(j, 9, 1, &d);
    flush(j);
    journal_written(j, 9);
    flush(j);
    reopen(&j, boot_a);
    assert_true(journal_has_part(j, 4, 300, HASH_CRC64NVME, &got));
    assert_true(digest_eq(&got, &d));
    assert_false(journal_has_part(j, 4, 300, HASH_CRC32C, &got));
    assert_false(journal_has_part(j, 4, 1, HASH_NONE, &got));
    assert_true(journal_has_part(j, 2, 1, HASH_NONE, &got));
    assert_false(journal_has_part(j, 9, 1, HASH_NONE, &got));
    assert_int_equal(journal_void(j, 4, &err), 0);
    reopen(&j, boot_a);
    assert_false(journal_has_part(j, 4, 0, HASH_NONE, &got));
}

static void a_cut_catalog_takes_its_ids_back(void **state)
{
    (void)state;
    struct err err;
    struct digest got;
    auto_journal j = open_in(boot_a);
    for (uint64_t id = 0; id < 200; id++)
        journal_written(j, id);
    journal_part_written(j, 201, 0, &(struct digest){.kind = HASH_NONE});
    barrier(j);
    reopen(&j, boot_a);
    assert_int_equal(journal_cut(j, 130, &err), 0);
    assert_int_equal(whole_count(j), 130);
    journal_written(j, 150);
    flush(j);
    reopen(&j, boot_a);
    assert_int_equal(whole_count(j), 131);
    assert_true(journal_is_whole(j, 129) && journal_is_whole(j, 150));
    assert_false(journal_is_whole(j, 130) || journal_has_part(j, 201, 0, HASH_NONE, &got));
}

static void replay_of_a_complete_journal_restores_its_time(void **state)
{
    (void)state;
    struct err err;
    auto_journal j = open_in(boot_a);
    journal_written(j, 0);
    barrier(j);
    assert_false(journal_is_complete(j));
    assert_int_equal(journal_complete(j, 1, 10, 1795000000000000000, &err), 0);
    reopen(&j, boot_b);
    assert_true(journal_is_complete(j));
    assert_int_equal(journal_completed_ns(j), 1795000000000000000);
}

static void replay_of_a_stale_journal_restores_the_mark(void **state)
{
    (void)state;
    auto_journal j = open_in(boot_a);
    reopen(&j, boot_a);
    assert_false(journal_is_stale(j));
    journal_written(j, 3);
    journal_mark_stale(j);
    flush(j);
    reopen(&j, boot_b); /* the mark needs no barrier: an extra listing does no harm */
    assert_true(journal_is_stale(j) && !journal_is_whole(j, 3));
}

static void the_parts_of_an_older_catalogs_object_are_taken_over(void **state)
{
    (void)state;
    struct err err;
    auto_fd older = -1;
    auto_journal from = NULL;
    struct digest got, d = {.kind = HASH_CRC32C, .bytes = {0xF1, 2, 3, 4}};
    assert_int_equal(dir_make(dir, "older", 0700, &older, &err), 0);
    assert_int_equal(journal_open(older, (const uint8_t *)"an older catalog", PART, boot_a, &from, &err), 0);
    journal_part_written(from, 4, 0, &d);
    journal_part_written(from, 4, 300, &(struct digest){.kind = HASH_NONE});
    flush(from);
    journal_free(take(&from));
    assert_int_equal(journal_open(older, (const uint8_t *)"an older catalog", PART, boot_a, &from, &err), 0);
    auto_journal j = open_in(boot_a);
    journal_adopt_parts(j, 9, from, 4);
    journal_adopt_parts(j, 8, from, 5);
    for (int i = 0; i < 2; i++) {
        assert_true(journal_has_part(j, 9, 0, HASH_CRC32C, &got) && digest_eq(&got, &d));
        assert_true(journal_has_part(j, 9, 300, HASH_NONE, &got) && got.kind == HASH_NONE);
        assert_false(journal_has_part(j, 9, 1, HASH_NONE, &got) || journal_has_parts(j, 8) || journal_has_parts(j, 4));
        flush(j);
        reopen(&j, boot_a);
    }
}

static void a_journal_is_of_one_catalog(void **state)
{
    (void)state;
    struct err err;
    bool is;
    assert_true(journal_is_of(dir, uid, &is, &err) == 0 && !is);
    journal_free(open_in(boot_a));
    assert_true(journal_is_of(dir, uid, &is, &err) == 0 && is);
    assert_true(journal_is_of(dir, (const uint8_t *)"another catalog!", &is, &err) == 0 && !is);
    assert_int_equal(unlinkat(dir, JOURNAL_FILE, 0), 0);
    assert_int_equal(symlinkat("elsewhere", dir, JOURNAL_FILE), 0);
    assert_int_equal(journal_is_of(dir, uid, &is, &err), -ERR_INVALID); /* what cannot be read is not another's */
}

static off_t size_now(void)
{
    struct stat st;
    assert_int_equal(fstatat(dir, JOURNAL_FILE, &st, 0), 0);
    return st.st_size;
}

static void torn_last_record_is_dropped(void **state)
{
    (void)state;
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    flush(j);
    off_t before = size_now();
    journal_written(j, 5);
    flush(j);
    int fd = openat(dir, JOURNAL_FILE, O_RDWR);
    for (off_t torn = size_now() - 1; torn > before; torn -= 5) {
        assert_int_equal(ftruncate(fd, torn), 0);
        reopen(&j, boot_a);
        assert_true(journal_is_whole(j, 1));
        assert_false(journal_is_whole(j, 5));
        assert_int_equal(ftruncate(fd, before), 0);
        journal_free(j);
        j = open_in(boot_a);
        before = size_now();
        journal_written(j, 5);
        flush(j);
        torn = size_now() - (size_now() - before) / 2;
        assert_int_equal(ftruncate(fd, torn), 0);
        break;
    }
    reopen(&j, boot_a);
    assert_false(journal_is_whole(j, 5));
    close(fd);
}

static void garble(off_t at)
{
    uint8_t byte;
    int fd = openat(dir, JOURNAL_FILE, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void damage_before_a_record_that_is_right_is_an_error_that_names_the_place(void **state)
{
    (void)state;
    struct err err;
    struct journal *j = open_in(boot_a);
    journal_written(j, 1);
    flush(j);
    off_t at = size_now() - 32;
    journal_written(j, 5);
    barrier(j);
    journal_free(j);
    garble(at + 9);
    assert_int_equal(journal_open(dir, uid, PART, boot_a, &j, &err), -ERR_CORRUPT);
    assert_non_null(strstr(err.text, "'journal' is damaged at byte 64"));
    /* a barrier vouches for it even after a power loss */
    assert_int_equal(journal_open(dir, uid, PART, boot_b, &j, &err), -ERR_CORRUPT);
}

static void pages_that_a_power_loss_took_in_any_order_are_a_torn_end(void **state)
{
    (void)state;
    auto_journal j = open_in(boot_a);
    journal_written(j, 1);
    barrier(j);
    journal_written(j, 3);
    flush(j);
    off_t at = size_now() - 32;
    journal_written(j, 5);
    flush(j);
    garble(at);
    reopen(&j, boot_b);
    assert_true(journal_is_whole(j, 1));
    assert_false(journal_is_whole(j, 3) || journal_is_whole(j, 5));
}

static void the_journal_of_another_catalog_is_refused(void **state)
{
    (void)state;
    struct err err;
    struct journal *j = open_in(boot_a);
    journal_free(j);
    assert_int_equal(journal_open(dir, (const uint8_t *)"another catalog!", PART, boot_a, &j, &err), -ERR_CORRUPT);
    assert_int_equal(journal_open(dir, uid, PART * 2, boot_a, &j, &err), -ERR_UNSUPPORTED);
}

static void garbage_is_an_error_never_a_crash(void **state)
{
    (void)state;
    struct err err;
    struct journal *j = NULL;
    for (unsigned round = 0; round < 200; round++) {
        uint8_t bytes[256];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)clock_random();
        int fd = openat(dir, JOURNAL_FILE, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
        close(fd);
        /* nothing of it was ever right: it is all torn end */
        assert_int_equal(journal_open(dir, uid, PART, boot_a, &j, &err), 0);
        assert_int_equal(whole_count(j), 0);
        journal_free(j);
    }
}

/* A model with two sets. In any order of events, a replay trusts no lost record. It keeps all records that were flushed
 * (same boot) or covered by a barrier (another boot). */
static void random_histories_replay_as_the_model_says(void **state)
{
    (void)state;
    struct err err;
    enum { IDS = 300 };
    for (unsigned round = 0; round < 60; round++) {
        bool whole[IDS] = {0}, flushed[IDS] = {0}, durable[IDS] = {0};
        uint8_t boot[16] = {1};
        assert_true(unlinkat(dir, JOURNAL_FILE, 0) == 0 || errno == ENOENT);
        struct journal *j = open_in(boot);
        for (unsigned step = 0; step < 200; step++) {
            uint64_t id = clock_random() % IDS;
            switch (clock_random() % 12) {
            case 0:
                barrier(j);
                memcpy(flushed, whole, sizeof whole);
                memcpy(durable, whole, sizeof whole);
                break;
            case 1:
                flush(j);
                memcpy(flushed, whole, sizeof whole);
                break;
            case 2:
                assert_int_equal(journal_void(j, id, &err), 0);
                whole[id] = durable[id] = false;
                memcpy(flushed, whole, sizeof whole);
                break;
            case 3: /* we die */
                memcpy(whole, flushed, sizeof whole);
                reopen(&j, boot);
                break;
            case 4: /* the power goes */
                boot[0]++;
                memcpy(whole, durable, sizeof whole);
                memcpy(flushed, durable, sizeof whole);
                reopen(&j, boot);
                break;
            default:
                journal_written(j, id);
                whole[id] = true;
            }
            for (uint64_t i = 0; i < IDS; i++)
                assert_int_equal(journal_is_whole(j, i), whole[i]);
        }
        journal_free(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_files_are_trusted_while_the_machine_runs, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(after_a_power_loss_only_what_a_barrier_covered_is_trusted, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(writes_during_a_barrier_are_not_covered_by_it, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_failed_barrier_discards_all_since_the_last_that_held, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_failed_barrier_that_cannot_be_written_down_discards_all_the_same,
                                        folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(record_after_a_failed_barrier_is_not_trusted, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(any_number_of_boots_without_a_barrier_is_borne, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(replay_of_an_unfinished_object_restores_parts_and_checksums, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_cut_catalog_takes_its_ids_back, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(replay_of_a_complete_journal_restores_its_time, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(replay_of_a_stale_journal_restores_the_mark, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(the_parts_of_an_older_catalogs_object_are_taken_over, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_journal_is_of_one_catalog, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(torn_last_record_is_dropped, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(damage_before_a_record_that_is_right_is_an_error_that_names_the_place,
                                        folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(pages_that_a_power_loss_took_in_any_order_are_a_torn_end, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(the_journal_of_another_catalog_is_refused, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(garbage_is_an_error_never_a_crash, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(random_histories_replay_as_the_model_says, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
