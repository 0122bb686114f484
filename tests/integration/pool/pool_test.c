/* SPDX-License-Identifier: Apache-2.0 */
#include "pool_disk.h"

/* ---- identity of a pool ------------------------------------------------------------------------------------------ */

static void write_text(const char *path, const char *text, size_t len)
{
    auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
}

static void empty_directory_becomes_a_pool_once(void **state)
{
    (void)state;
    char uuid[SPEC_UUID_LEN + 1];
    mkdir(at("fresh"), 0755);
    mkdir(at("fresh/lost+found"), 0700);
    auto_pool p = open_pool(at("fresh"));
    assert_int_equal(strlen(pool_uuid(p)), SPEC_UUID_LEN);
    assert_int_equal(pool_backend(p), BACKEND_LOOP);
    memcpy(uuid, pool_uuid(p), sizeof uuid);
    pool_close(take(&p));
    p = open_pool(at("fresh"));
    assert_string_equal(pool_uuid(p), uuid);
}

static void another_disk_under_the_same_path_is_refused(void **state)
{
    (void)state;
    struct pool *p = NULL;
    mkdir(at("swap"), 0755);
    pool_close(open_pool(at("swap")));
    struct pool_options o = options(at("swap"));
    o.node = "node-2";
    must_fail(ERR_CHANGED, 3001, try_pool(&o, &p, &err));
    o = options(at("swap"));
    o.name = "slow";
    must_fail(ERR_INVALID, 2026, try_pool(&o, &p, &err));
    assert_null(p);
}

static void directory_with_other_content_is_refused(void **state)
{
    (void)state;
    struct pool *p = NULL;
    mkdir(at("home"), 0755);
    write_text(at("home/thesis.txt"), "x", 1);
    struct pool_options o = options(at("home"));
    must_fail(ERR_INVALID, 2021, try_pool(&o, &p, &err));
    o = options(at("nowhere"));
    must_fail(ERR_NOT_FOUND, 0, try_pool(&o, &p, &err));
    o = options("relative");
    must_fail(ERR_INVALID, 0, try_pool(&o, &p, &err));
}

static void a_damaged_identity_is_never_guessed(void **state)
{
    (void)state;
    struct pool *p = NULL;
    auto_mem char *text = NULL;
    size_t len;
    mkdir(at("damaged"), 0755);
    pool_close(open_pool(at("damaged")));
    struct pool_options o = options(at("damaged"));
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", at("damaged/cistern.json"));
    must(file_read(AT_FDCWD, path, 4096, &text, &len, &err));
    for (size_t cut = 0; cut + 1 < len; cut++) {
        write_text(path, text, cut);
        must_fail(ERR_CORRUPT, 2022, try_pool(&o, &p, &err));
    }
    static const char *const bad[] = {
        "[]",
        "{\"version\":1,\"uuid\":\"x\",\"pool\":\"default\",\"node\":\"node-1\",\"createdAt\":\"\"}",
        "{\"version\":1,\"uuid\":\"0123456789abc\",\"pool\":\"default\",\"node\":\"node-1\",\"createdAt\":\"\"}",
        "{\"version\":1,\"uuid\":\"0123456789ab\",\"pool\":7,\"node\":\"node-1\",\"createdAt\":\"\"}",
        "{\"version\":1,\"uuid\":\"0123456789ab\",\"pool\":\"default\",\"node\":\"node-1\",\"createdAt\":\"\",\"x\":1}",
    };
    for (size_t i = 0; i < countof(bad); i++) {
        write_text(path, bad[i], strlen(bad[i]));
        must_fail(ERR_CORRUPT, 2022, try_pool(&o, &p, &err));
    }
    write_text(path, "{\"version\":3}", 13);
    must_fail(ERR_UNSUPPORTED, 2023, try_pool(&o, &p, &err));
    write_text(path, text, len);
    pool_close(open_pool(at("damaged")));
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

static void a_volume_lives_from_create_to_trash(void **state)
{
    (void)state;
    mkdir(at("life"), 0755);
    auto_pool p = open_pool(at("life"));
    auto_volume v = create(p, "pvc-1", 32 * MIB);
    assert_true(volume_id_is_of_pool(&v->spec->id, pool_uuid(p)));
    struct volume_usage u;
    must(volume_usage(v, &u, &err));
    assert_in_range(u.total_bytes, 24 * MIB, 32 * MIB);
    auto_volume again = NULL;
    must(pool_find_volume(p, &v->spec->id, &again, &err));
    assert_string_equal(again->spec->name, "pvc-1");
    volume_close(take(&again));
    must(pool_find_volume_name(p, STR("pvc-1"), &again, &err));
    assert_string_equal(again->spec->id.text, v->spec->id.text);
    volume_close(take(&again));
    auto_mem char *data = volume_data_path(v);
    assert_int_equal(umount2(data, 0), 0);
    must_fail(ERR_BUSY, 2010, volume_usage(v, &u, &err));
    must(pool_attach_volume(p, &v->spec->id, &err));
    must(volume_usage(v, &u, &err));
    must(pool_delete_volume(p, &v->spec->id, &err));
    must(pool_delete_volume(p, &v->spec->id, &err));
    must_fail(ERR_NOT_FOUND, 0, pool_find_volume(p, &v->spec->id, &again, &err));
    must_fail(ERR_NOT_FOUND, 0, pool_find_volume_name(p, STR("pvc-1"), &again, &err));
    must(pool_empty_trash(p, &err));
    await_loops(0);
    assert_int_equal(mounts_here(), 0);
}

static void missing_id_is_not_found_and_deleted_with_success(void **state)
{
    (void)state;
    struct volume *v = NULL;
    mkdir(at("ids"), 0755);
    auto_pool p = open_pool(at("ids"));
    struct volume_id missing, foreign;
    volume_id_make(pool_uuid(p), &missing);
    volume_id_make("ffffffffffff", &foreign);
    must_fail(ERR_NOT_FOUND, 0, pool_find_volume(p, &missing, &v, &err));
    must_fail(ERR_CHANGED, CIS_POOL_ABSENT, pool_find_volume(p, &foreign, &v, &err));
    must(pool_delete_volume(p, &missing, &err));
    must(pool_delete_volume(p, &foreign, &err));
    must_fail(ERR_NOT_FOUND, 0, pool_grow_volume(p, &missing, 1, &err));
}

static void the_same_name_gives_the_same_volume_or_an_error(void **state)
{
    (void)state;
    struct volume *none = NULL;
    mkdir(at("names"), 0755);
    auto_pool p = open_pool(at("names"));
    auto_volume a = create(p, "x", 32 * MIB);
    auto_volume b = create(p, "x", 32 * MIB);
    assert_string_equal(a->spec->id.text, b->spec->id.text);
    auto_volume smaller = create(p, "x", 20 * MIB);
    assert_string_equal(a->spec->id.text, smaller->spec->id.text);
    auto_spec larger = wanted("x", 33 * MIB);
    must_fail(ERR_EXISTS, 2006, pool_create_volume(p, larger, 0, &none, &err));
    auto_spec limited = wanted("x", 20 * MIB);
    must_fail(ERR_EXISTS, 2006, pool_create_volume(p, limited, 31 * MIB, &none, &err));
    auto_spec other = wanted("x", 32 * MIB);
    must(spec_set(other, STR("hydration"), STR("none"), &err));
    must_fail(ERR_EXISTS, 2006, pool_create_volume(p, other, 0, &none, &err));
    auto_spec tiny = wanted("y", 1);
    must_fail(ERR_RANGE, 2027, pool_create_volume(p, tiny, 0, &none, &err));
    auto_spec nameless = wanted("", 32 * MIB);
    must_fail(ERR_INVALID, 0, pool_create_volume(p, nameless, 0, &none, &err));
    auto_spec broken = wanted("x\xff", 32 * MIB);
    must_fail(ERR_INVALID, 0, pool_create_volume(p, broken, 0, &none, &err));
    must(pool_delete_volume(p, &a->spec->id, &err));
    must(pool_empty_trash(p, &err));
}

static void volumes_are_listed_in_pages(void **state)
{
    (void)state;
    char name[16];
    struct volume_id last = {0};
    size_t seen = 0, count;
    mkdir(at("pages"), 0755);
    auto_pool p = open_pool(at("pages"));
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "pvc-%d", i);
        volume_close(create(p, name, 16 * MIB));
    }
    do {
        struct pool_entry *page = NULL;
        must(pool_list_volumes(p, &last, 2, &page, &count, &err));
        for (size_t i = 0; i < count; i++) {
            assert_true(strcmp(page[i].volume_id.text, last.text) > 0);
            last = page[i].volume_id;
            assert_int_equal(page[i].capacity_bytes, 16 * MIB);
            must(pool_delete_volume(p, &page[i].volume_id, &err));
            seen++;
        }
        pool_entries_free(page, count);
    } while (count > 0);
    assert_int_equal(seen, 5);
    must(pool_empty_trash(p, &err));
}

static void parameters_change_all_or_none(void **state)
{
    (void)state;
    mkdir(at("modify"), 0755);
    auto_pool p = open_pool(at("modify"));
    auto_volume v = create(p, "x", 16 * MIB);
    struct pool_volume_change good[] = {{STR("concurrency"), STR("8")}, {STR("bandwidth"), STR("1Mi")}};
    struct pool_volume_change bad[] = {{STR("concurrency"), STR("9")}, {STR("pool"), STR("other")}};
    must(pool_modify_volume(p, &v->spec->id, good, 2, &err));
    must_fail(ERR_INVALID, 2008, pool_modify_volume(p, &v->spec->id, bad, 2, &err));
    auto_volume again = NULL;
    must(pool_find_volume(p, &v->spec->id, &again, &err));
    assert_int_equal(again->spec->params.concurrency, 8);
    assert_int_equal(again->spec->params.bandwidth, MIB);
    erase(p, v);
}

static void a_volume_with_a_damaged_record_is_kept_counted_and_deletable(void **state)
{
    (void)state;
    char path[PATH_MAX + 32];
    struct volume_id id;
    struct pool_usage u;
    struct pool_entry *page = NULL;
    size_t count;
    mkdir(at("broken"), 0755);
    auto_pool p = open_pool(at("broken"));
    auto_volume v = create(p, "x", 16 * MIB);
    id = v->spec->id;
    snprintf(path, sizeof path, "%s/volume.json", v->path);
    write_text(path, "{\"version\": 1, ", 15);
    pool_close(take(&p));
    p = open_pool(at("broken"));
    must(pool_usage(p, &u, &err));
    assert_int_equal(u.allocated_bytes, 16 * MIB);
    assert_int_equal(u.volumes, 1);
    auto_volume none = NULL;
    must_fail(ERR_CORRUPT, 2005, pool_find_volume(p, &id, &none, &err));
    must_fail(ERR_CORRUPT, 2005, pool_attach_volume(p, &id, &err));
    must(pool_list_volumes(p, &(struct volume_id){0}, 10, &page, &count, &err));
    assert_int_equal(count, 1);
    pool_entries_free(page, count);
    must(pool_delete_volume(p, &id, &err));
    must(pool_empty_trash(p, &err));
    await_loops(0);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void no_more_is_promised_than_there_is(void **state)
{
    (void)state;
    struct pool_at disk;
    struct pool_usage u;
    struct volume *none = NULL;
    make_pool_disk(&disk, "small", 400 * MIB);
    auto_pool p = open_pool(disk.path);
    must(pool_usage(p, &u, &err));
    uint64_t all = u.available_bytes;
    assert_in_range(all, 290 * MIB, 400 * MIB);
    auto_spec too_large = wanted("x", all + MIB);
    must_fail(ERR_NO_SPACE, 2028, pool_create_volume(p, too_large, 0, &none, &err));
    auto_volume v = create(p, "x", all);
    must(pool_usage(p, &u, &err));
    assert_int_equal(u.allocated_bytes, all);
    assert_true(u.available_bytes < 2 * MIB);
    assert_int_equal(u.largest_bytes, 0);
    auto_spec one_more = wanted("y", 16 * MIB);
    must_fail(ERR_NO_SPACE, 2028, pool_create_volume(p, one_more, 0, &none, &err));
    must_fail(ERR_RANGE, 2029, pool_grow_volume(p, &v->spec->id, all + 16 * MIB, &err));
    /* Deleted bytes come back by themselves when they are asked for. */
    must(pool_delete_volume(p, &v->spec->id, &err));
    volume_close(take(&v));
    v = create(p, "y", all - MIB);
    erase(p, v);
    volume_close(take(&v));
    pool_close(take(&p));
    drop_pool_disk(&disk);
}

static void neighbours_files_and_the_reserve_are_not_promised(void **state)
{
    (void)state;
    struct pool_at disk;
    struct pool_usage before, after, reserved;
    make_pool_disk(&disk, "shared", 400 * MIB);
    auto_pool p = open_pool(disk.path);
    must(pool_usage(p, &before, &err));
    struct pool_options o = options(disk.path);
    o.reserve_percent = 20;
    auto_pool careful = NULL;
    must(try_pool(&o, &careful, &err));
    must(pool_usage(careful, &reserved, &err));
    assert_in_range(before.available_bytes - reserved.available_bytes, 60 * MIB, 85 * MIB);
    auto_fd other = openat(disk.dir, "data/neighbour", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(fallocate(other, 0, 0, 100 * MIB), 0);
    must(pool_usage(p, &after, &err));
    assert_in_range(before.available_bytes - after.available_bytes, 99 * MIB, 101 * MIB);
    fd_close(&other);
    pool_close(take(&p));
    pool_close(take(&careful));
    drop_pool_disk(&disk);
}

static void holes_in_an_image_are_not_promised_to_others(void **state)
{
    (void)state;
    struct pool_at disk;
    struct pool_usage before, after;
    char image[PATH_MAX + 16];
    make_pool_disk(&disk, "holes", 400 * MIB);
    auto_pool p = open_pool(disk.path);
    auto_volume v = create(p, "x", 100 * MIB);
    must(pool_usage(p, &before, &err));
    snprintf(image, sizeof image, "%s/data.img", v->path);
    auto_fd fd = open(image, O_RDWR | O_CLOEXEC);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 80 * MIB, 16 * MIB), 0);
    must(pool_usage(p, &after, &err));
    assert_in_range(after.available_bytes + MIB - before.available_bytes, 0, 2 * MIB);
    fd_close(&fd);
    erase(p, v);
    volume_close(take(&v));
    pool_close(take(&p));
    drop_pool_disk(&disk);
}

static void a_full_volume_is_felt_by_its_writer_alone(void **state)
{
    (void)state;
    struct pool_at disk;
    int errnum;
    make_pool_disk(&disk, "enospc", 400 * MIB);
    auto_pool p = open_pool(disk.path);
    auto_volume a = create(p, "a", 100 * MIB);
    auto_volume b = create(p, "b", 100 * MIB);
    assert_in_range(fill(a, 200 * MIB, &errnum), 80 * MIB, 100 * MIB);
    assert_int_equal(errnum, ENOSPC);
    assert_int_equal(fill(b, 85 * MIB, &errnum), 85 * MIB);
    assert_int_equal(errnum, 0);
    must(pool_grow_volume(p, &a->spec->id, 150 * MIB, &err));
    assert_int_equal(fill(a, 40 * MIB, &errnum), 40 * MIB);
    auto_volume again = NULL;
    must(pool_find_volume(p, &a->spec->id, &again, &err));
    assert_int_equal(again->spec->capacity_bytes, 150 * MIB);
    must(pool_grow_volume(p, &a->spec->id, 100 * MIB, &err)); /* as large already */
    must(pool_delete_volume(p, &a->spec->id, &err));
    must(pool_delete_volume(p, &b->spec->id, &err));
    must(pool_empty_trash(p, &err));
    volume_close(take(&a));
    volume_close(take(&b));
    volume_close(take(&again));
    pool_close(take(&p));
    drop_pool_disk(&disk);
}

static void a_volume_in_use_is_not_deleted(void **state)
{
    (void)state;
    mkdir(at("inuse"), 0755);
    auto_pool p = open_pool(at("inuse"));
    auto_volume v = create(p, "x", 16 * MIB);
    int data = -1;
    must(volume_data(v, &data, &err));
    must_fail(ERR_BUSY, 3010, pool_delete_volume(p, &v->spec->id, &err));
    close(data);
    auto_volume still = NULL;
    must(pool_find_volume(p, &v->spec->id, &still, &err));
    erase(p, v);
}

static void a_bind_volume_is_an_image_where_others_have_a_quota(void **state)
{
    (void)state;
    static const struct disk_facts with_quota = {"ext4", true, true, true}, without_loop = {"ext4", true, true, false};
    struct volume *v = NULL;
    mkdir(at("bound"), 0755);
    struct pool_options o = options(at("bound"));
    o.facts = &with_quota;
    auto_pool p = NULL;
    must(try_pool(&o, &p, &err));
    assert_int_equal(pool_backend(p), BACKEND_QUOTA);
    auto_spec want = wanted("x", 16 * MIB);
    want->params.access = ACCESS_BIND;
    must(pool_create_volume(p, want, 0, &v, &err));
    assert_int_equal(v->spec->backend, BACKEND_LOOP);
    assert_int_equal(v->spec->project, 0);
    erase(p, v);
    volume_close(v);
    pool_close(take(&p));
    o.facts = &without_loop;
    must(try_pool(&o, &p, &err));
    must_fail(ERR_INVALID, 2030, pool_create_volume(p, want, 0, &v, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_directory_becomes_a_pool_once),
        cmocka_unit_test(another_disk_under_the_same_path_is_refused),
        cmocka_unit_test(directory_with_other_content_is_refused),
        cmocka_unit_test(a_damaged_identity_is_never_guessed),
        cmocka_unit_test(a_volume_lives_from_create_to_trash),
        cmocka_unit_test(missing_id_is_not_found_and_deleted_with_success),
        cmocka_unit_test(the_same_name_gives_the_same_volume_or_an_error),
        cmocka_unit_test(volumes_are_listed_in_pages),
        cmocka_unit_test(parameters_change_all_or_none),
        cmocka_unit_test(a_volume_with_a_damaged_record_is_kept_counted_and_deletable),
        cmocka_unit_test(no_more_is_promised_than_there_is),
        cmocka_unit_test(neighbours_files_and_the_reserve_are_not_promised),
        cmocka_unit_test(holes_in_an_image_are_not_promised_to_others),
        cmocka_unit_test(a_full_volume_is_felt_by_its_writer_alone),
        cmocka_unit_test(a_volume_in_use_is_not_deleted),
        cmocka_unit_test(a_bind_volume_is_an_image_where_others_have_a_quota),
    };
    return cmocka_run_group_tests(tests, enter_place, leave_place);
}
