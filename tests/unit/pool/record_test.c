/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "pool/record.h"
#include <stdio.h>

static void written_record_is_read_back(void **state)
{
    (void)state;
    struct err err;
    auto_record r = {.fuse = true, .has_group = true, .group = 0, .writes = 3, .release = RELEASE_SEALED};
    auto_record back = {0};
    r.staged = str_dup(STR("/stage/\xc3\xa9"));
    r.context = str_dup(STR("u:r:t:s0:c1,c2"));
    assert_int_equal(record_add(&r, "/a", false, &err), 0);
    assert_int_equal(record_add(&r, "/b \"quoted\"", true, &err), 0);
    assert_int_equal(record_write(dir, &r, &err), 0);
    assert_int_equal(record_read(dir, &back, &err), 0);
    assert_string_equal(back.staged, "/stage/\xc3\xa9");
    assert_string_equal(back.context, "u:r:t:s0:c1,c2");
    assert_true(back.fuse && back.has_group && back.writes == 3 && back.release == RELEASE_SEALED && !back.read_only);
    assert_int_equal(back.group, 0);
    assert_int_equal(back.target_count, 2);
    assert_true(record_target(&back, "/b \"quoted\"")->read_only);
    assert_false(record_target(&back, "/a")->read_only);
}

static void no_file_is_an_empty_record(void **state)
{
    (void)state;
    struct err err;
    struct record r;
    unlinkat(dir, RECORD_FILE, 0);
    assert_int_equal(record_read(dir, &r, &err), 0);
    assert_null(r.staged);
    assert_null(r.context);
    assert_int_equal(r.target_count, 0);
    assert_false(r.has_group || r.writes || r.release);
}

static void a_garbled_file_is_corrupt_and_not_empty(void **state)
{
    (void)state;
    struct err err;
    struct record r;
    const char *const texts[] = {"",
                                 "{",
                                 "[]x",
                                 "{}",
                                 "{\"version\":1,\"targets\":[]}",
                                 "{\"written\":false,\"targets\":[{\"path\":3}]}",
                                 "{\"written\":false,\"staged\":7}",
                                 "{\"written\":false,\"targets\":[{\"path\":\"\",\"readOnly\":false}]}",
                                 "{\"written\":false,\"targets\":[{\"path\":\"a\",\"readOnly\":false}]}",
                                 "{\"written\":false,\"staged\":\"a\"}",
                                 "{\"written\":false,\"targets\":[{\"path\":\"/a\"}]}"};
    for (size_t i = 0; i < countof(texts); i++) {
        assert_int_equal(file_replace(dir, RECORD_FILE, str_of(texts[i]), 0600, &err), 0);
        assert_int_equal(record_read(dir, &r, &err), -ERR_CORRUPT);
        assert_int_equal(err.id, 3012);
    }
}

static void targets_are_added_once_removed_and_bounded(void **state)
{
    (void)state;
    struct err err;
    auto_record r = {0};
    assert_int_equal(record_add(&r, "/a", false, &err), 0);
    assert_int_equal(record_add(&r, "/a", true, &err), 0);
    assert_int_equal(r.target_count, 1);
    record_remove(&r, "/other");
    record_remove(&r, "/a");
    assert_int_equal(r.target_count, 0);
    for (int i = 0; i < RECORD_TARGETS_MAX; i++) {
        char path[16];
        snprintf(path, sizeof path, "/t%d", i);
        assert_int_equal(record_add(&r, path, false, &err), 0);
    }
    assert_int_equal(record_add(&r, "/more", false, &err), -ERR_BUSY);
}

static void a_volume_is_staged_at_its_path_or_in_the_directory_of_a_bind(void **state)
{
    (void)state;
    struct record r = {0};
    assert_false(record_is_staged_at(&r, "/stage"));
    r.staged = (char *)"/stage";
    assert_true(record_is_staged_at(&r, "/stage"));
    assert_false(record_is_staged_at(&r, "/sta"));
    assert_false(record_is_staged_at(&r, "/stage/bind"));
    r.staged = (char *)"/stage/bind";
    assert_true(record_is_staged_at(&r, "/stage"));
    r.staged = (char *)"/stage/binder";
    assert_false(record_is_staged_at(&r, "/stage"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_record_is_read_back),
        cmocka_unit_test(no_file_is_an_empty_record),
        cmocka_unit_test(a_garbled_file_is_corrupt_and_not_empty),
        cmocka_unit_test(targets_are_added_once_removed_and_bounded),
        cmocka_unit_test(a_volume_is_staged_at_its_path_or_in_the_directory_of_a_bind),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
