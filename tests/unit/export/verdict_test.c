/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "verdict.h"
#include <stdio.h>
#include <sys/stat.h>

static int export_dir(void)
{
    int at;
    struct err err;
    if (dir_make(dir, "export", 0700, &at, &err) < 0)
        fail_msg("%s", err.text);
    return at;
}

static void write_raw(const char *text)
{
    struct err err;
    auto_fd at = export_dir();
    assert_int_equal(file_replace(at, "verdict.json", str_of(text), 0644, &err), 0);
}

static void nothing_there_is_no_verdict(void **state)
{
    (void)state;
    struct err err;
    struct verdict v;
    assert_int_equal(verdict_read(dir, &v, &err), 0);
    assert_int_equal(v.state, VERDICT_NONE);
    close(export_dir());
    assert_int_equal(verdict_read(dir, &v, &err), 0);
    assert_int_equal(v.state, VERDICT_NONE);
    assert_false(v.alive);
}

static void written_verdict_is_read_back(void **state)
{
    (void)state;
    struct err err, why;
    struct verdict v, back;
    auto_fd at = export_dir();
    verdict_init(&v);
    v.state = VERDICT_FAILED;
    v.purpose = VERDICT_FOR_RELEASE;
    snprintf(v.uri, sizeof v.uri, "s3://b/p/");
    v.done_files = 7;
    v.pending_files = 4;
    v.done_bytes = UINT64_C(1) << 40;
    v.started_ns = 5;
    v.updated_ns = 6;
    err_set(&why, ERR_DENIED, "403: no");
    err_advise_text(&why, 4012, "grant it");
    verdict_add_failure(&v, STR("a/b\xff\n"), 9, &why);
    for (int i = 0; i < 20; i++)
        verdict_add_failure(&v, STR("more"), 1, &why);
    assert_int_equal(verdict_write(at, &v, &err), 0);
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_int_equal(back.state, VERDICT_FAILED);
    assert_int_equal(back.purpose, VERDICT_FOR_RELEASE);
    assert_string_equal(back.uri, "s3://b/p/");
    assert_true(back.done_files == 7 && back.done_bytes == UINT64_C(1) << 40);
    assert_int_equal(verdict_missing_files(&back), 25);
    assert_true(back.failed_files == 21 && back.failed_bytes == 29 && back.failed_count == VERDICT_FAILED_MAX);
    assert_string_equal(back.failed[0].path, "a/b\\xff\\x0a");
    assert_int_equal(back.failed[0].err.code, ERR_DENIED);
    assert_int_equal(back.failed[0].err.id, 4012);
    assert_string_equal(back.failed[0].err.text, "403: no");
    assert_string_equal(back.failed[0].err.advice, "grant it");
    verdict_done(&v);
    verdict_done(&back);
}

static void progress_counts_only_for_the_run_it_is_of(void **state)
{
    (void)state;
    struct err err;
    struct verdict v, back;
    auto_fd at = export_dir();
    verdict_init(&v);
    v.state = VERDICT_RUNNING;
    v.started_ns = 100;
    v.pending_files = 10;
    assert_int_equal(verdict_write(at, &v, &err), 0);
    v.pending_files = 4;
    v.done_files = 6;
    assert_int_equal(verdict_write_progress(at, &v, &err), 0);
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_true(back.pending_files == 4 && back.done_files == 6);
    v.started_ns = 200;
    v.pending_files = 9;
    v.done_files = 0;
    assert_int_equal(verdict_write(at, &v, &err), 0);
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_true(back.pending_files == 9 && back.done_files == 0);
}

/* A run on a full disk can make neither of them. */
static void reserve_is_made_with_the_lock(void **state)
{
    (void)state;
    struct stat st;
    verdict_reserve(dir);
    assert_int_equal(fstatat(dir, "export/lock", &st, 0), 0);
    assert_int_equal(fstatat(dir, "export/reserve", &st, 0), 0);
    assert_true(st.st_blocks * 512 >= 1 << 20);
    assert_true(verdict_spend_reserve(dir) && verdict_spend_reserve(dir) && !verdict_spend_reserve(dir));
}

static void a_running_export_is_seen_by_its_lock_and_has_it_alone(void **state)
{
    (void)state;
    struct err err;
    struct verdict v, back;
    int at, lock, other_dir, other_lock;
    verdict_init(&v);
    v.state = VERDICT_RUNNING;
    assert_int_equal(verdict_lock(dir, &at, &lock, &err), 0);
    assert_int_equal(verdict_write(at, &v, &err), 0);
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_true(back.state == VERDICT_RUNNING && back.alive);
    assert_int_equal(verdict_lock(dir, &other_dir, &other_lock, &err), -ERR_BUSY);
    assert_int_equal(err.id, 4003);
    assert_int_equal(verdict_forget(dir, &err), -ERR_BUSY);
    close(lock);
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_true(back.state == VERDICT_RUNNING && !back.alive);
    assert_int_equal(verdict_forget(dir, &err), 0);
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_int_equal(back.state, VERDICT_NONE);
    close(at);
}

static void a_run_has_as_pending_what_the_last_one_left_until_it_has_looked_itself(void **state)
{
    (void)state;
    struct err err, why;
    struct verdict last, next = {.state = VERDICT_RUNNING, .pending_since_ns = 300};
    auto_fd at = export_dir();
    assert_int_equal(verdict_inherit(at, &next, &err), 0); /* no verdict */
    assert_true(next.pending_files == 0 && next.pending_since_ns == 300);
    verdict_init(&last);
    last.state = VERDICT_FAILED;
    last.started_ns = 200;
    last.pending_since_ns = 100;
    last.pending_files = 3;
    last.pending_bytes = 30;
    last.done_files = 7;
    err_set(&why, ERR_IO, "no");
    verdict_add_failure(&last, STR("a"), 5, &why);
    assert_int_equal(verdict_write(at, &last, &err), 0);
    assert_int_equal(verdict_inherit(at, &next, &err), 0);
    assert_true(next.pending_files == 4 && next.pending_bytes == 35 && next.pending_since_ns == 100);
    assert_true(next.done_files == 0 && next.failed_files == 0 && next.state == VERDICT_RUNNING);
    assert_int_equal(next.started_ns, 201); /* the clock was set back; two runs would have one name */
    verdict_done(&last);
    write_raw("not a verdict");
    assert_int_equal(verdict_inherit(at, &next, &err), 0);
    assert_true(next.pending_files == 4);
}

static void after_a_run_that_is_done_nothing_is_pending(void **state)
{
    (void)state;
    struct err err;
    struct verdict last = {.state = VERDICT_DONE, .done_files = 7, .started_ns = 200, .pending_since_ns = 100};
    struct verdict next = {.state = VERDICT_RUNNING, .pending_since_ns = 300};
    auto_fd at = export_dir();
    assert_int_equal(verdict_write(at, &last, &err), 0);
    assert_int_equal(verdict_inherit(at, &next, &err), 0);
    assert_true(next.pending_files == 0 && next.pending_since_ns == 300);
}

static void a_run_of_an_older_version_left_what_it_left_since_it_began(void **state)
{
    (void)state;
    struct err err;
    struct verdict next = {.state = VERDICT_RUNNING, .pending_since_ns = 300};
    auto_fd at = export_dir();
    write_raw("{\"version\":1,\"state\":\"running\",\"purpose\":\"release\",\"uri\":\"\",\"startedNs\":50,"
              "\"pending\":{\"files\":2,\"bytes\":20},\"done\":{\"files\":0,\"bytes\":0},"
              "\"failed\":{\"files\":0,\"bytes\":0},\"skipped\":{\"files\":0},\"sizeOnly\":{\"files\":0},"
              "\"updatedNs\":60,\"failures\":[]}");
    assert_int_equal(verdict_inherit(at, &next, &err), 0);
    assert_true(next.pending_files == 2 && next.pending_since_ns == 50);
}

static void a_garbled_verdict_is_an_error_that_names_it_and_never_done(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         "{}",
        "[1]",      "{\"version\":1,\"state\":\"done\"}",
        "\x01\x02", "{\"version\":1,\"state\":\"finished\",\"purpose\":\"release\",\"uri\":\"\",\"startedNs\":1}",
    };
    struct err err;
    struct verdict v = {.state = VERDICT_NONE};
    for (size_t i = 0; i < countof(bad); i++) {
        write_raw(bad[i]);
        assert_int_equal(verdict_read(dir, &v, &err), -ERR_CORRUPT);
        assert_int_equal(err.id, 4020);
        assert_non_null(strstr(err.text, "verdict.json"));
        assert_int_equal(v.state, VERDICT_NONE);
    }
}

#define COUNTS                                                                                                         \
    "\"pending\":{\"files\":0,\"bytes\":0},\"done\":{\"files\":0,\"bytes\":0},\"failed\":{\"files\":2,\"bytes\":0},"   \
    "\"skipped\":{\"files\":0},\"sizeOnly\":{\"files\":0},\"updatedNs\":60,"

static void verdict_of_format_1_has_numbers_for_codes_and_is_read(void **state)
{
    (void)state;
    struct err err;
    auto_with(verdict_done) struct verdict v = {.state = VERDICT_NONE};
    auto_fd at = export_dir();
    write_raw("{\"version\":1,\"state\":\"failed\",\"purpose\":\"release\",\"uri\":\"\",\"startedNs\":50," COUNTS
              "\"failures\":[{\"path\":\"a\",\"code\":2,\"id\":4409,\"text\":\"t\",\"advice\":\"\"}]}");
    assert_int_equal(verdict_read(dir, &v, &err), 0);
    assert_int_equal(v.failed[0].err.code, ERR_EXISTS);
}

static void verdict_has_names_for_codes_and_one_of_a_newer_version_is_an_internal_error(void **state)
{
    (void)state;
    struct err err, why;
    auto_with(verdict_done) struct verdict v = {.state = VERDICT_FAILED}, back = {.state = VERDICT_NONE};
    auto_fd at = export_dir();
    auto_mem char *text = NULL;
    size_t len;
    err_set(&why, ERR_EXISTS, "t");
    verdict_add_failure(&v, STR("a"), 5, &why);
    assert_int_equal(verdict_write(at, &v, &err), 0);
    assert_int_equal(file_read(at, "verdict.json", 1 << 20, &text, &len, &err), 0);
    assert_non_null(strstr(text, "\"code\": \"EXISTS\""));
    write_raw("{\"version\":2,\"state\":\"failed\",\"purpose\":\"release\",\"uri\":\"\",\"startedNs\":50," COUNTS
              "\"failures\":[{\"path\":\"a\",\"code\":\"LOST\",\"id\":4409,\"text\":\"t\",\"advice\":\"\"}]}");
    assert_int_equal(verdict_read(dir, &back, &err), 0);
    assert_int_equal(back.failed[0].err.code, ERR_INTERNAL);
}

static void verdict_of_a_newer_format_is_refused_and_not_replaced(void **state)
{
    (void)state;
    struct err err;
    struct verdict v = {.state = VERDICT_NONE};
    auto_fd at = export_dir();
    write_raw("{\"version\":3}");
    assert_int_equal(verdict_read(dir, &v, &err), -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 4023);
    assert_non_null(strstr(err.text, "verdict.json"));
    assert_non_null(strstr(err.text, "format 3"));
    err = (struct err){0};
    assert_int_equal(verdict_inherit(at, &v, &err), -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 4023);
}

static void verdict_cut_at_any_byte_is_corrupt(void **state)
{
    (void)state;
    struct err err;
    struct verdict v, back;
    auto_fd at = export_dir();
    auto_mem char *text = NULL;
    size_t len;
    verdict_init(&v);
    v.state = VERDICT_DONE;
    assert_int_equal(verdict_write(at, &v, &err), 0);
    assert_int_equal(file_read(at, "verdict.json", 1 << 20, &text, &len, &err), 0);
    for (size_t cut = len - 1; cut-- > 0;) {
        text[cut] = '\0';
        write_raw(text);
        assert_int_equal(verdict_read(dir, &back, &err), -ERR_CORRUPT);
    }
}

#define in_a_folder(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

static void a_long_name_is_cut_where_a_character_ends(void **state)
{
    (void)state;
    struct err err, why = {0};
    char name[2 * VERDICT_PATH_MAX];
    auto_fd at = export_dir();
    err_set(&why, ERR_IO, "no");
    for (size_t begin = 0; begin < 2; begin++) { /* of two bytes each: one of both ends in the midst of one */
        struct verdict v, back;
        memset(name, 'x', begin);
        for (size_t i = begin; i + 1 < sizeof name; i += 2) {
            name[i] = '\xc3';
            name[i + 1] = '\xa4';
        }
        verdict_init(&v);
        v.state = VERDICT_FAILED;
        verdict_add_failure(&v, (struct str){name, sizeof name - 2 + begin}, 1, &why);
        assert_int_equal(verdict_write(at, &v, &err), 0);
        assert_int_equal(verdict_read(dir, &back, &err), 0);
        size_t len = strlen(back.failed[0].path);
        assert_in_range(len, VERDICT_PATH_MAX - 8, VERDICT_PATH_MAX - 1);
        assert_true(str_is_utf8(str_of(back.failed[0].path)));
        assert_memory_equal(back.failed[0].path, name, len);
        verdict_done(&v);
        verdict_done(&back);
    }
}

static void only_an_export_for_release_makes_a_volume_released(void **state)
{
    (void)state;
    struct verdict v = {.state = VERDICT_DONE, .purpose = VERDICT_FOR_UNPUBLISH};
    assert_null(verdict_phase(&v));
    v.purpose = VERDICT_FOR_RELEASE;
    assert_string_equal(verdict_phase(&v), "Released");
    v.state = VERDICT_RUNNING;
    assert_string_equal(verdict_phase(&v), "ExportInterrupted");
    v.alive = true;
    assert_string_equal(verdict_phase(&v), "Exporting");
    v.state = VERDICT_FAILED;
    assert_string_equal(verdict_phase(&v), "ExportFailed");
    v.state = VERDICT_NONE;
    assert_null(verdict_phase(&v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_an_export_for_release_makes_a_volume_released),
        in_a_folder(nothing_there_is_no_verdict),
        in_a_folder(written_verdict_is_read_back),
        in_a_folder(a_long_name_is_cut_where_a_character_ends),
        in_a_folder(progress_counts_only_for_the_run_it_is_of),
        in_a_folder(a_running_export_is_seen_by_its_lock_and_has_it_alone),
        in_a_folder(a_run_has_as_pending_what_the_last_one_left_until_it_has_looked_itself),
        in_a_folder(after_a_run_that_is_done_nothing_is_pending),
        in_a_folder(a_run_of_an_older_version_left_what_it_left_since_it_began),
        in_a_folder(a_garbled_verdict_is_an_error_that_names_it_and_never_done),
        in_a_folder(reserve_is_made_with_the_lock),
        in_a_folder(verdict_of_format_1_has_numbers_for_codes_and_is_read),
        in_a_folder(verdict_has_names_for_codes_and_one_of_a_newer_version_is_an_internal_error),
        in_a_folder(verdict_of_a_newer_format_is_refused_and_not_replaced),
        in_a_folder(verdict_cut_at_any_byte_is_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
