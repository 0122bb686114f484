/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "logbook.h"
#include "util/file.h"
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const struct stamp seen = {.size_bytes = 20 << 20, .mtime_ns = 5, .ctime_ns = -6, .inode = 7};

static struct logbook *opened(void)
{
    struct logbook *l;
    struct err err;
    if (logbook_open(dir, STR("s3://b/p/"), &l, &err) < 0)
        fail_msg("%s", err.text);
    return l;
}

static void logbook_name(char *ret)
{
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY));
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "logbook-", 7) == 0)
            snprintf(ret, NAME_MAX + 1, "%s", e->d_name);
    closedir(d);
}

static struct logbook_upload *begun(struct logbook *l)
{
    struct err err;
    struct logbook_upload *u;
    struct logbook_part part = {.size_bytes = 8 << 20, .digest = {.kind = HASH_CRC32C, .bytes = {1, 2, 3, 4}}};
    snprintf(part.etag, sizeof part.etag, "%s", "\"e t%a\"g\"");
    assert_int_equal(logbook_intend(l, STR("a\nb c%\xff"), STR("p/a"), STR("uid1"), &seen, 8 << 20, &u, &err), 0);
    assert_int_equal(logbook_begun(l, u, STR("id with blanks\n"), &err), 0);
    assert_int_equal(logbook_part(l, u, 2, &part, &err), 0);
    return u;
}

static void sent_file_is_known_only_in_the_state_that_was_sent(void **state)
{
    (void)state;
    struct err err;
    struct logbook *l = opened();
    assert_false(logbook_has(l, STR("x"), &seen));
    assert_int_equal(logbook_add(l, STR("x"), &seen, STR("p/x"), STR_NULL, &err), 0);
    logbook_free(l);
    l = opened();
    assert_true(logbook_has(l, STR("x"), &seen));
    struct stamp touched = seen;
    touched.ctime_ns++;
    assert_false(logbook_has(l, STR("x"), &touched));
    assert_false(logbook_has(l, STR("y"), &seen));
    logbook_free(l);
}

static void an_upload_is_found_again_with_its_parts_whatever_bytes_its_names_hold(void **state)
{
    (void)state;
    struct logbook *l = opened();
    begun(l);
    logbook_free(l);
    l = opened();
    struct logbook_upload *u = logbook_find_upload(l, STR("a\nb c%\xff"));
    assert_non_null(u);
    assert_string_equal(u->key, "p/a");
    assert_string_equal(u->upload_id, "id with blanks\n");
    assert_string_equal(u->token, "uid1");
    assert_true(stamp_eq(&u->stamp, &seen));
    assert_int_equal(u->part_count, 3);
    assert_int_equal(u->parts[0].size_bytes, 0);
    assert_int_equal(u->parts[1].size_bytes, 8 << 20);
    assert_string_equal(u->parts[1].etag, "\"e t%a\"g\"");
    assert_int_equal(u->parts[1].digest.bytes[3], 4);
    logbook_ended(l, u);
    logbook_free(l);
    l = opened();
    assert_int_equal(logbook_upload_count(l), 0);
    logbook_free(l);
}

static void intent_without_an_answer_is_kept(void **state)
{
    (void)state;
    struct err err;
    struct logbook_upload *u;
    struct logbook *l = opened();
    assert_int_equal(logbook_intend(l, STR("f"), STR("k"), STR("u"), &seen, 8 << 20, &u, &err), 0);
    logbook_free(l);
    l = opened();
    assert_int_equal(logbook_upload_count(l), 1);
    assert_null(logbook_upload_at(l, 0)->upload_id);
    logbook_free(l);
}

static void cut_at_any_byte_it_keeps_what_was_whole_and_can_be_written_on(void **state)
{
    (void)state;
    struct err err;
    char name[NAME_MAX + 1];
    struct logbook *l = opened();
    assert_int_equal(logbook_add(l, STR("first"), &seen, STR("k"), STR_NULL, &err), 0);
    struct stat st;
    assert_int_equal(fstat(logbook_fd(l), &st), 0);
    off_t first = st.st_size;
    begun(l);
    assert_int_equal(fstat(logbook_fd(l), &st), 0);
    logbook_free(l);
    logbook_name(name);
    for (off_t cut = st.st_size; cut >= 0; cut--) {
        int fd = openat(dir, name, O_RDWR);
        assert_int_equal(ftruncate(fd, cut), 0);
        close(fd);
        l = opened();
        assert_int_equal(logbook_has(l, STR("first"), &seen), cut >= first);
        logbook_free(l);
    }
    l = opened();
    assert_int_equal(logbook_add(l, STR("again"), &seen, STR("k"), STR_NULL, &err), 0);
    logbook_free(l);
    l = opened();
    assert_true(logbook_has(l, STR("again"), &seen));
    logbook_free(l);
}

static void reading_stops_at_a_flipped_byte(void **state)
{
    (void)state;
    struct err err;
    char name[NAME_MAX + 1], c = '!';
    struct logbook *l = opened();
    assert_int_equal(logbook_add(l, STR("one"), &seen, STR("k"), STR_NULL, &err), 0);
    struct stat st;
    assert_int_equal(fstat(logbook_fd(l), &st), 0);
    assert_int_equal(logbook_add(l, STR("two"), &seen, STR("k"), STR_NULL, &err), 0);
    logbook_free(l);
    logbook_name(name);
    int fd = openat(dir, name, O_RDWR);
    assert_int_equal(pwrite(fd, &c, 1, st.st_size + 12), 1);
    close(fd);
    l = opened();
    assert_true(logbook_has(l, STR("one"), &seen));
    assert_false(logbook_has(l, STR("two"), &seen));
    logbook_free(l);
}

static void file_sent_many_times_is_compacted(void **state)
{
    (void)state;
    struct err err;
    struct stat before, after;
    struct stamp s = seen;
    struct logbook *l = opened();
    struct logbook_upload *u = begun(l);
    (void)u;
    for (int i = 0; i < 20000; i++) {
        s.ctime_ns = i;
        assert_int_equal(logbook_add(l, STR("same"), &s, STR("k"), STR_NULL, &err), 0);
    }
    assert_int_equal(fstat(logbook_fd(l), &before), 0);
    logbook_free(l);
    l = opened();
    assert_int_equal(fstat(logbook_fd(l), &after), 0);
    assert_true(after.st_size < 1000 && before.st_size > 500000);
    logbook_free(l);
    l = opened();
    assert_true(logbook_has(l, STR("same"), &s));
    assert_string_equal(logbook_upload_at(l, 0)->upload_id, "id with blanks\n");
    assert_int_equal(logbook_upload_at(l, 0)->parts[1].size_bytes, 8 << 20);
    logbook_free(l);
}

static void another_bucket_has_another_ledger(void **state)
{
    (void)state;
    struct err err;
    struct logbook *l = opened(), *other;
    assert_int_equal(logbook_add(l, STR("x"), &seen, STR("k"), STR_NULL, &err), 0);
    logbook_free(l);
    assert_int_equal(logbook_open(dir, STR("s3://other/"), &other, &err), 0);
    assert_false(logbook_has(other, STR("x"), &seen));
    logbook_free(other);
}

#define in_a_folder(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

/* As a disk that becomes full in the middle of a line. */
static void half_a_line_hides_nothing_that_comes_behind_it(void **state)
{
    (void)state;
    struct err err;
    struct rlimit all, little;
    struct stat st;
    char name[NAME_MAX + 1];
    auto_logbook l = opened();
    assert_int_equal(logbook_add(l, STR("before"), &seen, STR("p/before"), STR_NULL, &err), 0);
    logbook_name(name);
    assert_int_equal(fstatat(dir, name, &st, 0), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    little = (struct rlimit){.rlim_cur = (rlim_t)st.st_size + 10, .rlim_max = all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    assert_true(logbook_add(l, STR("torn"), &seen, STR("p/torn"), STR_NULL, &err) < 0);
    setrlimit(RLIMIT_FSIZE, &all);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(logbook_add(l, STR("behind"), &seen, STR("p/behind"), STR_NULL, &err), 0);
    logbook_free(l);
    l = opened();
    assert_true(logbook_has(l, STR("before"), &seen) && logbook_has(l, STR("behind"), &seen));
    assert_false(logbook_has(l, STR("torn"), &seen));
}

/* Lines as they are in the file: each behind its checksum. */
static void write_lines(const char *name, const char *const *lines, size_t count)
{
    auto_sbuf text;
    struct err err;
    sbuf_init(&text, 4096);
    for (size_t i = 0; i < count; i++) {
        struct digest sum = digest_of(HASH_CRC32C, str_of(lines[i]));
        digest_add_hex(&sum, &text);
        sbuf_addf(&text, " %s\n", lines[i]);
    }
    assert_int_equal(file_replace(dir, name, sbuf_str(&text), 0600, &err), 0);
}

static void logbook_without_a_version_is_taken_over_whole(void **state)
{
    (void)state;
    static const char *const lines[] = {"S 20971520 5 -6 7 x p/x", "I 20971520 5 -6 7 8388608 uid1 big p/big",
                                        "B uid1 the-id", "P uid1 2 8388608 2 01020304 \"tag\""};
    char name[NAME_MAX + 1], unversioned[NAME_MAX + 1];
    logbook_free(opened());
    logbook_name(name);
    snprintf(unversioned, sizeof unversioned, "%.*s", (int)strlen("logbook-0123456789abcdef"), name);
    assert_int_equal(unlinkat(dir, name, 0), 0);
    write_lines(unversioned, lines, countof(lines));
    for (int times = 0; times < 2; times++) {
        auto_logbook l = opened();
        assert_true(logbook_has(l, STR("x"), &seen));
        assert_string_equal(logbook_upload_at(l, 0)->upload_id, "the-id");
        assert_int_equal(logbook_upload_at(l, 0)->parts[1].digest.kind, HASH_CRC32C);
        assert_int_equal(faccessat(dir, unversioned, F_OK, 0), -1);
    }
}

/* Whether the file has this text. */
static bool has_text(const char *name, const char *text)
{
    auto_mem char *all = NULL;
    size_t len;
    struct err err;
    assert_int_equal(file_read(dir, name, 1 << 20, &all, &len, &err), 0);
    return strstr(all, text);
}

static void lost_state_of_a_file_is_kept_and_only_then_the_format_is_newer(void **state)
{
    (void)state;
    struct err err;
    char name[NAME_MAX + 1];
    logbook_free(opened());
    logbook_name(name);
    assert_true(has_text(name, " V 2\n"));
    for (int times = 0; times < 3; times++) {
        auto_logbook l = opened();
        if (times == 0)
            assert_int_equal(logbook_add_lost(l, STR("a b"), &seen, &err), 0);
        assert_true(stamp_eq(logbook_lost(l, seen.inode), &seen));
        assert_null(logbook_lost(l, seen.inode + 1));
        assert_false(logbook_has(l, STR("a b"), &seen));
        for (int i = 0; times == 1 && i < 20000; i++) /* the next one compacts it */
            assert_int_equal(logbook_add(l, STR("same"), &seen, STR("k"), STR_NULL, &err), 0);
    }
    assert_true(has_text(name, " V 3\n") && !has_text(name, " V 2\n"));
}

static void logbook_of_a_newer_format_is_refused_and_left_as_it_is(void **state)
{
    (void)state;
    static const char *const lines[] = {"V 4", "Z an unknown kind"};
    struct stat before, after;
    struct err err;
    struct logbook *l = NULL;
    char name[NAME_MAX + 1];
    logbook_free(opened());
    logbook_name(name);
    write_lines(name, lines, countof(lines));
    assert_int_equal(fstatat(dir, name, &before, 0), 0);
    assert_int_equal(logbook_open(dir, STR("s3://b/p/"), &l, &err), -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 4023);
    assert_non_null(strstr(err.text, name));
    assert_non_null(strstr(err.text, "format 4"));
    assert_int_equal(fstatat(dir, name, &after, 0), 0);
    assert_int_equal(after.st_size, before.st_size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(sent_file_is_known_only_in_the_state_that_was_sent),
        in_a_folder(an_upload_is_found_again_with_its_parts_whatever_bytes_its_names_hold),
        in_a_folder(intent_without_an_answer_is_kept),
        in_a_folder(cut_at_any_byte_it_keeps_what_was_whole_and_can_be_written_on),
        in_a_folder(half_a_line_hides_nothing_that_comes_behind_it),
        in_a_folder(reading_stops_at_a_flipped_byte),
        in_a_folder(file_sent_many_times_is_compacted),
        in_a_folder(another_bucket_has_another_ledger),
        in_a_folder(logbook_without_a_version_is_taken_over_whole),
        in_a_folder(lost_state_of_a_file_is_kept_and_only_then_the_format_is_newer),
        in_a_folder(logbook_of_a_newer_format_is_refused_and_left_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
