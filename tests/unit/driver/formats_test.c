/* SPDX-License-Identifier: Apache-2.0 */
/* Every format on the disk, as docs/design/009-formats.md lists them. A file of a later version is refused with its
 * name and version, and stays byte for byte. A file of this version is read. The tests of each format read the files of
 * the version before, where there is one. */
#include "folder.h"

#include "catalog/index.h"
#include "catalog/journal.h"
#include "export/owner.h"
#include "export/verdict.h"
#include "hydrate/status.h"
#include "pool/pool.h"
#include "pool/record.h"
#include "spec/spec.h"
#include "util/hash.h"
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct index_source source = {{1, 2, 3}, {"s3://bucket/prefix/", 19}};
static const uint8_t uid[16] = "a catalog's name", boot[16] = "boot";
enum { PART_BYTES = 8 << 20 };

/* ---- files of today, and their readers --------------------------------------------------------------------------- */

static int open_pool(struct pool **ret, struct err *err)
{
    static const struct disk_facts facts = {.loop = true};
    static const struct pool_witness nobody = {0};
    struct pool_options o = {
        .path = dir_name, .name = "default", .node = "n", .backend = BACKEND_LOOP, .facts = &facts};
    int r = pool_new(&o, ret, err);
    return r < 0 ? r : pool_open(*ret, &nobody, err);
}

static int read_pool(struct err *err)
{
    auto_pool p = NULL;
    return open_pool(&p, err);
}

static char pool_record[NAME_MAX + 1]; /* its name is a digest of the pool's path */

static int open_recorded(struct pool **ret, struct err *err)
{
    static const struct disk_facts facts = {.loop = true};
    static const struct pool_witness nobody = {0};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/recorded", dir_name);
    struct pool_options o = {
        .path = path, .name = "p", .node = "n", .memory = dir_name, .backend = BACKEND_LOOP, .facts = &facts};
    int r = pool_new(&o, ret, err);
    return r < 0 ? r : pool_open(*ret, &nobody, err);
}

static int make_pool_record(struct err *err)
{
    auto_pool p = NULL;
    assert_int_equal(mkdirat(dir, "recorded", 0700), 0);
    int r = open_recorded(&p, err);
    if (r == 0)
        r = pool_remember(p, err);
    auto_dir d = dir_stream(openat(dir, ".", O_RDONLY | O_DIRECTORY));
    struct dirent *e;
    while (r == 0 && (e = dir_next(d)))
        if (strncmp(e->d_name, "pool-", 5) == 0)
            snprintf(pool_record, sizeof pool_record, "%s", e->d_name);
    return r;
}

static int read_pool_record(struct err *err)
{
    auto_pool p = NULL;
    return open_recorded(&p, err);
}

static int read_spec(struct err *err)
{
    auto_mem char *text = NULL;
    auto_spec s = NULL;
    size_t len;
    int r = file_read(dir, VOLUME_SPEC, 1 << 20, &text, &len, err);
    return r < 0 ? r : spec_from_json((struct str){text, len}, VOLUME_SPEC, &s, err);
}

static int make_record(struct err *err)
{
    auto_record r = {.fuse = true};
    return record_write(dir, &r, err);
}

static int read_record(struct err *err)
{
    auto_record r = {0};
    return record_read(dir, &r, err);
}

static int make_status(struct err *err)
{
    static struct hydrate_status s;
    return hydrate_status_write(dir, &s, err);
}

static int read_status(struct err *err)
{
    static struct hydrate_status s;
    return hydrate_status_read(dir, &s, err);
}

static int make_verdict(struct err *err)
{
    struct verdict v = {.state = VERDICT_RUNNING, .started_ns = 50};
    auto_fd at = -1;
    int r = dir_make(dir, VOLUME_EXPORT, 0700, &at, err);
    return r < 0 ? r : verdict_write(at, &v, err);
}

static int read_verdict(struct err *err)
{
    auto_with(verdict_done) struct verdict v = {0};
    return verdict_read(dir, &v, err);
}

static int read_owner(struct err *err)
{
    char owner[OWNER_MAX];
    auto_fd at = -1;
    int r = dir_make(dir, VOLUME_EXPORT, 0700, &at, err);
    return r < 0 ? r : owner_of_state(at, owner, err);
}

static int make_catalog(struct err *err)
{
    auto_index x = NULL;
    int r = index_create(dir, &source, &x, err);
    return r < 0 ? r : index_finish(x, err);
}

static int read_catalog(struct err *err)
{
    auto_index x = NULL;
    return index_open(dir, &source, true, &x, err);
}

static int open_journal(struct err *err)
{
    auto_journal j = NULL;
    int r = journal_open(dir, uid, PART_BYTES, boot, &j, err);
    return r < 0 ? r : journal_flush(j, err);
}

/* ---- one version later ------------------------------------------------------------------------------------------- */

static uint32_t crc32c(uint64_t before, size_t before_len, const char *bytes, size_t len)
{
    struct hash h;
    struct digest d;
    hash_init(&h);
    hash_begin(&h, HASH_CRC32C);
    hash_update(&h, (const char *)&before, before_len);
    hash_update(&h, bytes, len);
    hash_end(&h, &d);
    hash_done(&h);
    return (uint32_t)d.bytes[0] << 24 | (uint32_t)d.bytes[1] << 16 | (uint32_t)d.bytes[2] << 8 | d.bytes[3];
}

static void raise_json(char *text, size_t len, char next)
{
    char *number = memmem(text, len, "\"version\":", 10);
    assert_non_null(number);
    number += 10 + strspn(number + 10, " ");
    assert_in_range(*number, '1', next - 1);
    *number = next;
}

static void raise_owner(char *bytes, size_t len, char next)
{
    static const char head[] = "cistern-owner 1 ";
    assert_true(len > sizeof head && memcmp(bytes, head, sizeof head - 1) == 0);
    bytes[sizeof head - 3] = next;
}

static void raise_catalog(char *bytes, size_t len, char next)
{
    assert_true(len >= 4096);
    bytes[8] = (char)(next - '0');
    uint32_t crc = crc32c(0, 0, bytes, 4092);
    memcpy(bytes + 4092, &crc, 4);
}

static void raise_journal(char *bytes, size_t len, char next)
{
    assert_true(len >= 32);
    bytes[28] = (char)(next - '0');
    uint32_t crc = crc32c(0, 8, bytes + 4, 28);
    memcpy(bytes, &crc, 4);
}

static const struct format {
    const char *file, *text; /* text: what today's program writes, where no call of its own does it here */
    int (*make)(struct err *err);
    int (*read)(struct err *err);
    void (*raise)(char *bytes, size_t len, char next);
    const char *named; /* in the refusal; ends with the digit of the version after the newest that is read */
} formats[] = {
    {"cistern.json", NULL, read_pool, read_pool, raise_json, "format 3"},
    {VOLUME_SPEC,
     "{\"version\":1,\"id\":\"v1-0123456789ab-ba9876543210\",\"name\":\"pvc-1\",\"capacityBytes\":10485760,"
     "\"createdAt\":\"2025-11-21T09:30:00.123Z\",\"backend\":\"loop\",\"project\":0,\"parameters\":{},\"source\":{}}",
     NULL, read_spec, raise_json, "format 2"},
    {pool_record, NULL, make_pool_record, read_pool_record, raise_json, "format 2"},
    {RECORD_FILE, NULL, make_record, read_record, raise_json, "format 2"},
    {HYDRATE_STATUS_FILE, NULL, make_status, read_status, raise_json, "format 2"},
    {VOLUME_EXPORT "/verdict.json", NULL, make_verdict, read_verdict, raise_json, "format 3"},
    {VOLUME_EXPORT "/owner", NULL, read_owner, read_owner, raise_owner, "format 2"},
    {INDEX_FILE, NULL, make_catalog, read_catalog, raise_catalog, "version 2"},
    {JOURNAL_FILE, NULL, open_journal, open_journal, raise_journal, "version 2"},
};

static void check(const struct format *f)
{
    struct err err = {0};
    auto_mem char *bytes = NULL, *after = NULL;
    size_t len, after_len;
    int r = f->text ? file_replace(dir, f->file, str_of(f->text), 0600, &err) : f->make(&err);
    if (r == 0)
        r = f->read(&err);
    if (r < 0)
        fail_msg("%s of today: %s", f->file, err.text);
    assert_int_equal(file_read(dir, f->file, 1 << 20, &bytes, &len, &err), 0);
    f->raise(bytes, len, f->named[strlen(f->named) - 1]);
    auto_fd file = openat(dir, f->file, O_WRONLY);
    assert_int_equal(file_write_all(file, f->file, bytes, len, &err), 0);
    r = f->read(&err);
    if (r != -ERR_UNSUPPORTED || !strstr(err.text, f->named))
        fail_msg("%s of tomorrow: %d: %s", f->file, r, r < 0 ? err.text : "it was read");
    assert_int_equal(file_read(dir, f->file, 1 << 20, &after, &after_len, &err), 0);
    assert_int_equal(after_len, len);
    assert_memory_equal(after, bytes, len);
}

static void format_of_the_next_version_is_refused_by_name_and_stays_as_it_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(formats); i++)
        check(&formats[i]);
}

/* A journal's end may be torn: what is whole is replayed. A damaged owner is replaced. */
static void truncated_format_is_corrupt(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + countof(formats); f++) {
        struct err err = {0};
        auto_mem char *bytes = NULL;
        size_t len;
        bool is_mended = strcmp(f->file, JOURNAL_FILE) == 0 || f->read == read_owner;
        int wanted = is_mended ? 0 : -ERR_CORRUPT;
        int r = f->text ? file_replace(dir, f->file, str_of(f->text), 0600, &err) : f->make(&err);
        if (r < 0)
            fail_msg("%s: %s", f->file, err.text);
        assert_int_equal(file_read(dir, f->file, 1 << 20, &bytes, &len, &err), 0);
        for (size_t cut = 0; cut < len; cut++) {
            auto_fd file = openat(dir, f->file, O_WRONLY | O_TRUNC);
            assert_int_equal(file_write_all(file, f->file, bytes, cut, &err), 0);
            r = f->read(&err);
            if (r != wanted)
                fail_msg("%s, cut after %zu bytes: %d: %s", f->file, cut, r, r < 0 ? err.text : "it was read");
        }
    }
}

static void record_of_the_first_format_is_read(void **state)
{
    (void)state;
    struct err err;
    auto_record r = {0};
    struct str text = STR("{\"staged\":\"/s\",\"fuse\":true,\"readOnly\":false,\"written\":true,\"targets\":[]}");
    assert_int_equal(file_replace(dir, RECORD_FILE, text, 0600, &err), 0);
    assert_int_equal(record_read(dir, &r, &err), 0);
    assert_string_equal(r.staged, "/s");
    assert_true(r.fuse && r.writes > 0);
}

static void owner_without_a_version_is_read(void **state)
{
    (void)state;
    static const char digits[] = "0123456789abcdef0123456789abcdef";
    struct err err;
    char owner[OWNER_MAX];
    assert_int_equal(file_replace(dir, "owner", STR(digits), 0600, &err), 0);
    assert_int_equal(owner_of_state(dir, owner, &err), 0);
    assert_string_equal(owner, digits);
}

static void pool_record_without_a_version_is_read(void **state)
{
    (void)state;
    struct err err;
    auto_pool p = NULL;
    auto_pool again = NULL;
    auto_mem char *text = NULL;
    size_t len;
    assert_int_equal(make_pool_record(&err), 0);
    assert_int_equal(file_read(dir, pool_record, 1 << 20, &text, &len, &err), 0);
    char *version = strstr(text, "\"version\"");
    memcpy(version, "\"unknown\"", 9);
    assert_int_equal(file_replace(dir, pool_record, str_of(text), 0600, &err), 0);
    assert_int_equal(open_recorded(&p, &err), 0);
    /* It is still the record of this pool: an empty directory in its place is refused. */
    assert_int_equal(renameat(dir, "recorded", dir, "elsewhere"), 0);
    assert_int_equal(mkdirat(dir, "recorded", 0700), 0);
    assert_int_equal(open_recorded(&again, &err), -ERR_ABSENT);
    assert_non_null(strstr(err.text, pool_uuid(p)));
}

/* A pool that replaced no other one is still written in format 1. */
static void pool_identity_of_each_format_is_read(void **state)
{
    (void)state;
#define IDENTITY_OF(version, more)                                                                                     \
    "{\"version\":" version ",\"uuid\":\"0123456789ab\",\"pool\":\"default\",\"node\":\"n\","                          \
    "\"createdAt\":\"2025-11-21T09:30:00Z\"" more "}"
    static const struct {
        const char *text;
        bool replaces;
    } cases[] = {
        {IDENTITY_OF("1", ""), false},
        {IDENTITY_OF("2", ",\"replaces\":[{\"uuid\":\"ba9876543210\",\"givenUp\":true}]"), true},
    };
#undef IDENTITY_OF
    for (size_t i = 0; i < countof(cases); i++) {
        struct err err;
        auto_mem char *after = NULL;
        size_t len;
        assert_int_equal(file_replace(dir, "cistern.json", str_of(cases[i].text), 0644, &err), 0);
        auto_pool p = NULL;
        if (open_pool(&p, &err) < 0)
            fail_msg("format %zu: %s", i + 1, err.text);
        assert_string_equal(pool_uuid(p), "0123456789ab");
        assert_int_equal(pool_replaces(p, "ba9876543210", true), cases[i].replaces);
        assert_int_equal(file_read(dir, "cistern.json", 1 << 16, &after, &len, &err), 0);
        assert_string_equal(after, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(format_of_the_next_version_is_refused_by_name_and_stays_as_it_is, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(owner_without_a_version_is_read, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(pool_record_without_a_version_is_read, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(truncated_format_is_corrupt, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(pool_identity_of_each_format_is_read, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(record_of_the_first_format_is_read, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
