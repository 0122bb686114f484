/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "catalog/index.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct index_source source = {{1, 2, 3}, {"s3://bucket/prefix/", 19}};

static struct index_entry entry_of(struct str path)
{
    struct index_entry e = {.path = path, .size_bytes = path.len * 1000, .mtime_ns = -5, .generation = path.len};
    e.etag = str_sub(path, 0, path.len / 2);
    if (path.len % 2) {
        e.digest.kind = HASH_CRC32C;
        memset(e.digest.bytes, (int)path.len, 4);
    }
    return e;
}

static void add(struct index *x, const char *path)
{
    struct err err;
    bool is_new;
    struct index_entry e = entry_of(str_of(path));
    assert_int_equal(index_add(x, &e, &is_new, &err), 0);
    assert_true(is_new);
}

static struct index *create(void)
{
    struct err err;
    struct index *x = NULL;
    assert_int_equal(index_create(dir, &source, &x, &err), 0);
    return x;
}

static void assert_entry(const struct index *x, uint64_t id, const char *path)
{
    struct err err;
    struct index_entry got, want = entry_of(str_of(path));
    assert_int_equal(index_get(x, id, &got, &err), 0);
    assert_true(str_eq(got.path, want.path));
    assert_true(str_eq(got.etag, want.etag));
    assert_true(got.size_bytes == want.size_bytes && got.generation == want.generation && got.mtime_ns == -5);
    assert_true(digest_eq(&got.digest, &want.digest));
}

static void added_entries_are_read_back_by_id_and_by_path(void **state)
{
    (void)state;
    struct err err;
    uint64_t id, position;
    auto_index x = create();
    add(x, "a");
    add(x, "b/");
    assert_int_equal(index_count(x), 0);
    assert_int_equal(index_flush(x, true, &err), 0);
    assert_int_equal(index_count(x), 2);
    assert_entry(x, 1, "b/");
    add(x, "c\xff");
    assert_int_equal(index_finish(x, &err), 0);
    index_free(x);
    x = NULL;
    assert_int_equal(index_open(dir, &source, true, &x, &err), 0);
    assert_int_equal(index_count(x), 3);
    assert_int_equal(index_bytes(x), 5000);
    assert_entry(x, 0, "a");
    assert_entry(x, 2, "c\xff");
    assert_int_equal(index_find(x, STR("b/"), &id, &err), 0);
    assert_int_equal(id, 1);
    assert_int_equal(index_find(x, STR("b"), &id, &err), -ERR_NOT_FOUND);
    assert_int_equal(index_lower_bound(x, STR("b"), &position, &err), 0);
    assert_int_equal(position, 1);
    bool has;
    assert_int_equal(index_has_prefix(x, STR("b/"), &has, &err), 0);
    assert_true(has);
    assert_int_equal(index_has_prefix(x, STR("b/x"), &has, &err), 0);
    assert_false(has);
    assert_int_equal(index_has_prefix(x, STR("d"), &has, &err), 0);
    assert_false(has);
    assert_int_equal(index_lower_bound(x, STR("d"), &position, &err), 0);
    assert_int_equal(position, 3);
    assert_int_equal(index_at(x, 3, &id, &err), -ERR_CORRUPT);
    assert_int_equal(index_get(x, 3, &(struct index_entry){0}, &err), -ERR_INTERNAL);
}

static struct digest manifest_of(const char *const *paths, size_t count, const char *other_etag)
{
    struct err err;
    struct digest d = {0};
    bool is_new;
    auto_index x = create();
    for (size_t i = 0; i < count; i++) {
        struct index_entry e = entry_of(str_of(paths[i]));
        e.mtime_ns = (int64_t)i; /* does not count */
        if (i == 0 && other_etag)
            e.etag = str_of(other_etag);
        assert_int_equal(index_add(x, &e, &is_new, &err), 0);
    }
    assert_int_equal(index_finish(x, &err), 0);
    assert_int_equal(index_manifest(x, &d, &err), 0);
    assert_int_equal(d.kind, HASH_SHA256);
    return d;
}

static void a_manifest_is_the_same_in_whatever_order_the_same_was_listed(void **state)
{
    (void)state;
    const char *const one[] = {"a", "bb", "c/d"}, *const two[] = {"c/d", "a", "bb"}, *const less[] = {"a", "bb"};
    struct digest d = manifest_of(one, 3, NULL), e = manifest_of(two, 3, NULL);
    assert_true(digest_eq(&d, &e));
    e = manifest_of(one, 3, "other");
    assert_false(digest_eq(&d, &e));
    e = manifest_of(less, 2, NULL);
    assert_false(digest_eq(&d, &e));
}

static void objects_are_found_in_segments_of_any_sizes(void **state)
{
    (void)state;
    struct err err;
    static const unsigned sizes[] = {1, 900, 1, 1, 1, 1, 1, 1, 1, 1, 3, 2000, 1, 1, 40, 1}; /* few guesses are right */
    char path[32];
    uint64_t count = 0;
    auto_index x = create();
    for (size_t i = 0; i < 4 * countof(sizes); i++) {
        for (unsigned n = 0; n < sizes[i % countof(sizes)]; n++) {
            snprintf(path, sizeof path, "%08" PRIu64, count++);
            add(x, path);
        }
        assert_int_equal(index_flush(x, true, &err), 0);
    }
    for (uint64_t id = 0; id < count; id++) {
        snprintf(path, sizeof path, "%08" PRIu64, id);
        assert_entry(x, id, path);
    }
}

static void an_empty_catalog_is_a_catalog(void **state)
{
    (void)state;
    struct err err;
    uint64_t id;
    auto_index x = create();
    assert_int_equal(index_finish(x, &err), 0);
    index_free(x);
    x = NULL;
    assert_int_equal(index_open(dir, &source, true, &x, &err), 0);
    assert_int_equal(index_count(x), 0);
    assert_int_equal(index_find(x, STR("a"), &id, &err), -ERR_NOT_FOUND);
}

static void random_path(char *buf, size_t room)
{
    size_t len = 1 + clock_random() % (room - 1);
    for (size_t i = 0; i < len; i++)
        buf[i] = (char)("abc/\xc3"[clock_random() % 5]);
    buf[len] = '\0';
}

static void arrive_unsorted(unsigned count)
{
    struct err err;
    auto_index x = create();
    for (unsigned i = 0; i < count; i++) {
        char path[64];
        /* unique by its number, in an order that is not the numbers' */
        snprintf(path, sizeof path, "%c%u/%u", 'a' + (int)(clock_random() % 26), (i * 2654435761u) % 1000, i);
        add(x, path);
        if (clock_random() % 700 == 0)
            assert_int_equal(index_flush(x, false, &err), 0);
    }
    assert_int_equal(index_finish(x, &err), 0);
    index_free(x);
    x = NULL;
    assert_int_equal(index_open(dir, &source, true, &x, &err), 0);
    struct str last = STR_NULL;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id, found;
        struct index_entry e;
        assert_int_equal(index_at(x, i, &id, &err), 0);
        assert_int_equal(index_get(x, id, &e, &err), 0);
        assert_true(str_cmp(last, e.path) < 0);
        last = e.path;
        if (i % (count / 3000))
            continue;
        assert_int_equal(index_find(x, e.path, &found, &err), 0);
        assert_true(found == id);
    }
}

/* Any order of arrival, any pages: every path is found, once, in its place. */
static void unsorted_arrival_ends_sorted(void **state)
{
    (void)state;
    arrive_unsorted(30000);
}

/* More runs than are merged as they came, and more ids than are sorted at once. */
static void a_million_in_no_order_end_sorted(void **state)
{
    (void)state;
    arrive_unsorted(1100000);
}

static void two_entries_of_one_path_are_refused_by_name(void **state)
{
    (void)state;
    struct err err;
    auto_index x = create();
    add(x, "b");
    add(x, "a");
    add(x, "b");
    assert_int_equal(index_finish(x, &err), -ERR_CORRUPT);
    assert_non_null(strstr(err.text, "'b' twice"));
}

static void a_partial_one_goes_on_and_keeps_what_it_pinned(void **state)
{
    (void)state;
    struct err err;
    bool is_new;
    auto_index x = create();
    add(x, "a");
    add(x, "c");
    assert_int_equal(index_flush(x, true, &err), 0);
    add(x, "m");
    assert_int_equal(index_flush(x, false, &err), 0);
    add(x, "lost, because it was not flushed");
    index_free(x);
    x = NULL;
    assert_int_equal(index_resume(dir, &source, &x, &err), 0);
    assert_int_equal(index_count(x), 3);
    assert_true(str_eq(index_resume_after(x), STR("c")));
    struct index_entry again = entry_of(STR("m"));
    again.generation = 999;
    assert_int_equal(index_add(x, &again, &is_new, &err), 0);
    assert_false(is_new);
    add(x, "d");
    assert_int_equal(index_finish(x, &err), 0);
    index_free(x);
    x = NULL;
    assert_int_equal(index_open(dir, &source, true, &x, &err), 0);
    assert_int_equal(index_count(x), 4);
    assert_entry(x, 2, "m");
    assert_entry(x, 3, "d");
    uint64_t id;
    assert_int_equal(index_at(x, 2, &id, &err), 0);
    assert_int_equal(id, 3);
}

static void one_of_another_source_is_refused_with_its_name(void **state)
{
    (void)state;
    struct err err;
    struct index_source other = {{9}, {"s3://other/", 11}};
    auto_index x = create();
    index_free(x);
    x = NULL;
    assert_int_equal(index_resume(dir, &other, &x, &err), -ERR_EXISTS);
    assert_non_null(strstr(err.text, "s3://bucket/prefix/"));
    assert_int_equal(index_open(dir, &other, true, &x, &err), -ERR_NOT_FOUND);
}

static off_t file_size(const char *name)
{
    struct stat st;
    assert_int_equal(fstatat(dir, name, &st, 0), 0);
    return st.st_size;
}

static void cut(const char *name, off_t size)
{
    int fd = openat(dir, name, O_WRONLY);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

/* As a disk leaves it that had room for the length of the file and none for its pages. */
static void a_partial_one_whose_head_was_lost_holds_nothing(void **state)
{
    (void)state;
    struct err err;
    auto_index x = create();
    add(x, "a");
    assert_int_equal(index_flush(x, true, &err), 0);
    off_t size = file_size(INDEX_PARTIAL_FILE);
    index_free(x);
    x = NULL;
    cut(INDEX_PARTIAL_FILE, 0);
    cut(INDEX_PARTIAL_FILE, size);
    assert_int_equal(index_resume(dir, &source, &x, &err), -ERR_NOT_FOUND);
}

static void partial_catalog_torn_anywhere_loses_only_its_end(void **state)
{
    (void)state;
    struct err err;
    auto_index x = create();
    add(x, "a");
    add(x, "b");
    assert_int_equal(index_flush(x, true, &err), 0);
    off_t whole = file_size(INDEX_PARTIAL_FILE);
    add(x, "c");
    assert_int_equal(index_flush(x, true, &err), 0);
    for (off_t size = file_size(INDEX_PARTIAL_FILE) - 1; size >= whole; size--) {
        index_free(x);
        x = NULL;
        cut(INDEX_PARTIAL_FILE, size);
        assert_int_equal(index_resume(dir, &source, &x, &err), 0);
        assert_int_equal(index_count(x), 2);
        assert_true(str_eq(index_resume_after(x), STR("b")));
        assert_int_equal(file_size(INDEX_PARTIAL_FILE), whole);
        add(x, "c");
        assert_int_equal(index_flush(x, true, &err), 0);
    }
}

static void make_complete(void)
{
    struct err err;
    struct index *x = create();
    add(x, "c");
    add(x, "a");
    assert_int_equal(index_flush(x, false, &err), 0);
    add(x, "b/long name");
    assert_int_equal(index_finish(x, &err), 0);
    index_free(x);
}

static void read_all(const struct index *x)
{
    struct err err;
    for (uint64_t i = 0; i < index_count(x) && i < 100; i++) {
        uint64_t id;
        struct index_entry e;
        if (index_at(x, i, &id, &err) == 0 && index_get(x, id, &e, &err) == 0)
            index_find(x, e.path, &id, &err) == 0 ? (void)id : (void)0;
    }
}

static void a_truncated_one_is_an_error_that_names_it(void **state)
{
    (void)state;
    struct err err;
    struct index *x = NULL;
    make_complete();
    for (off_t size = file_size(INDEX_FILE) - 1; size >= 0; size -= 7) {
        cut(INDEX_FILE, size);
        assert_int_equal(index_open(dir, &source, false, &x, &err), -ERR_CORRUPT);
        assert_non_null(strstr(err.text, "'catalog' is damaged at byte"));
    }
}

static void a_flipped_bit_is_found_wherever_it_is_and_never_a_crash(void **state)
{
    (void)state;
    struct err err;
    make_complete();
    int fd = openat(dir, INDEX_FILE, O_RDWR);
    off_t size = file_size(INDEX_FILE);
    unsigned missed = 0;
    for (off_t at = 0; at < size; at += at < 4000 && at > 200 ? 97 : 1) {
        uint8_t byte, bad;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        bad = byte ^ (uint8_t)(1u << clock_random() % 8);
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        struct index *x = NULL;
        if (index_open(dir, &source, true, &x, &err) == 0)
            missed++;
        index_free(x);
        x = NULL;
        if (index_open(dir, NULL, false, &x, &err) == 0)
            read_all(x);
        index_free(x);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    assert_true(missed <= 4); /* three ids of 4 bytes leave 4 bytes to fill up to 8 */
}

static void any_mix_of_adding_and_dying_ends_with_every_path_once(void **state)
{
    (void)state;
    struct err err;
    for (unsigned round = 0; round < 20; round++) {
        auto_index x = create();
        for (unsigned step = 0; step < 300; step++) {
            char path[12];
            bool is_new;
            random_path(path, sizeof path);
            struct index_entry e = entry_of(str_of(path));
            uint64_t id;
            auto_index found = NULL;
            /* a resumed run compares its listing only with the entries that earlier runs pinned */
            index_free(x);
            x = NULL;
            assert_int_equal(index_resume(dir, &source, &x, &err), 0);
            assert_int_equal(index_add(x, &e, &is_new, &err), 0);
            assert_true(is_new == (index_find(x, e.path, &id, &err) != 0));
            if (clock_random() % 3)
                assert_int_equal(index_flush(x, false, &err), 0);
        }
        assert_int_equal(index_finish(x, &err), 0);
        struct str last = STR_NULL;
        for (uint64_t i = 0, id; i < index_count(x); i++) {
            struct index_entry e;
            assert_int_equal(index_at(x, i, &id, &err), 0);
            assert_int_equal(index_get(x, id, &e, &err), 0);
            assert_true(str_cmp(last, e.path) < 0);
            last = e.path;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(added_entries_are_read_back_by_id_and_by_path, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_manifest_is_the_same_in_whatever_order_the_same_was_listed, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(objects_are_found_in_segments_of_any_sizes, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(an_empty_catalog_is_a_catalog, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(unsorted_arrival_ends_sorted, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_million_in_no_order_end_sorted, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(two_entries_of_one_path_are_refused_by_name, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_partial_one_goes_on_and_keeps_what_it_pinned, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(one_of_another_source_is_refused_with_its_name, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_partial_one_whose_head_was_lost_holds_nothing, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(partial_catalog_torn_anywhere_loses_only_its_end, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_truncated_one_is_an_error_that_names_it, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_flipped_bit_is_found_wherever_it_is_and_never_a_crash, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(any_mix_of_adding_and_dying_ends_with_every_path_once, folder_setup,
                                        folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
