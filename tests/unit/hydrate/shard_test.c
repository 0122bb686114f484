/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "hydrate/shard.h"
#include "util/file.h"
#include "util/macro.h"
#include <fcntl.h>
#include <stdio.h>

static const struct index_source source = {{1}, {"s3://b/", 7}};
enum { OBJECTS_MAX = 20000, SHARDS = 4 };

struct dealt {
    uint64_t bytes[16];
    uint64_t objects[16];
    uint8_t owner[OBJECTS_MAX]; /* by generation: shard + 1 */
    unsigned now;
};

static int mine(void *ctx, const struct index_entry *e, struct err *err)
{
    struct dealt *d = ctx;
    (void)err;
    assert_int_equal(d->owner[e->generation], 0);
    d->owner[e->generation] = (uint8_t)(d->now + 1);
    d->bytes[d->now] += e->size_bytes;
    d->objects[d->now]++;
    return 0;
}

/* `count` objects; their order of arrival turns with `turn`. Objects of size 0 by `size` are left out. */
static struct index *listed(unsigned count, unsigned turn, uint64_t (*size)(unsigned i))
{
    struct err err;
    struct index *x = NULL;
    char name[64];
    bool is_new;
    assert_int_equal(index_create(dir, &source, &x, &err), 0);
    for (unsigned i = 0; i < count; i++) {
        unsigned which = (i + turn) % count;
        snprintf(name, sizeof name, "data/part-%05u-of-%05u", which, count);
        struct index_entry e = {.path = str_of(name), .size_bytes = size(which), .generation = which};
        if (e.size_bytes)
            assert_int_equal(index_add(x, &e, &is_new, &err), 0);
    }
    assert_int_equal(index_flush(x, false, &err), 0);
    assert_int_equal(index_finish(x, &err), 0);
    return x;
}

static void deal_all(const struct index *x, unsigned shards, struct dealt *d)
{
    struct err err;
    *d = (struct dealt){0};
    for (d->now = 0; d->now < shards; d->now++)
        assert_int_equal(shard_assign(x, &(struct shard){d->now, shards}, mine, d, &err), 0);
}

static void assert_even(const struct dealt *d, unsigned shards, unsigned percent)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (unsigned i = 0; i < shards; i++) {
        least = min_u64(least, d->bytes[i]);
        most = max_u64(most, d->bytes[i]);
    }
    if ((most - least) * 100 > most * percent)
        fail_msg("%llu to %llu bytes", (unsigned long long)least, (unsigned long long)most);
}

static uint64_t one_size(unsigned i)
{
    (void)i;
    return 1 << 20;
}

/* A few of a thousand times the rest's size. */
static uint64_t skewed(unsigned i)
{
    return i % 500 == 7 ? (UINT64_C(1) << 30) + i : 1000 + (i * UINT64_C(2654435761)) % 2000000;
}

/* One that nothing can make up for. */
static uint64_t tiny(unsigned i)
{
    return i == 0 ? UINT64_C(100) << 30 : 1000 + i;
}

static void a_hundred_equal_objects_are_twenty_five_for_each_of_four(void **state)
{
    (void)state;
    static struct dealt d;
    auto_index x = listed(100, 0, one_size);
    deal_all(x, SHARDS, &d);
    for (unsigned i = 0; i < SHARDS; i++)
        assert_int_equal(d.objects[i], 25);
}

static void every_object_is_in_exactly_one_shard_and_all_have_the_same_bytes(void **state)
{
    (void)state;
    static uint64_t (*const sizes[])(unsigned) = {one_size, skewed};
    static const unsigned shards[] = {1, 2, 3, 7, 16};
    static struct dealt d;
    for (size_t s = 0; s < countof(sizes); s++) {
        auto_index x = listed(OBJECTS_MAX, 0, sizes[s]);
        for (size_t i = 0; i < countof(shards); i++) {
            deal_all(x, shards[i], &d);
            for (unsigned o = 0; o < OBJECTS_MAX; o++)
                assert_int_not_equal(d.owner[o], 0);
            assert_even(&d, shards[i], 3);
        }
    }
}

static void the_order_of_arrival_changes_nothing(void **state)
{
    (void)state;
    static struct dealt a, b;
    auto_index x = listed(5000, 0, skewed);
    deal_all(x, SHARDS, &a);
    auto_index y = listed(5000, 1234, skewed);
    deal_all(y, SHARDS, &b);
    assert_memory_equal(a.owner, b.owner, sizeof a.owner);
}

static uint64_t tiny_without_some(unsigned i)
{
    return i % 10 == 3 ? 0 : tiny(i);
}

static void small_objects_stay_where_they_are_whatever_else_is_listed(void **state)
{
    (void)state;
    static struct dealt a, b;
    auto_index x = listed(OBJECTS_MAX, 0, tiny);
    deal_all(x, SHARDS, &a);
    auto_index y = listed(OBJECTS_MAX, 0, tiny_without_some);
    deal_all(y, SHARDS, &b);
    for (unsigned i = 1; i < OBJECTS_MAX; i++)
        assert_int_equal(b.owner[i], i % 10 == 3 ? 0 : a.owner[i]);
}

/* Two releases share a bucket: what one gives to its neighbour, the other must not give away again. */
static void the_paths_go_where_they_always_went(void **state)
{
    (void)state;
    static struct dealt d;
    static const uint8_t owners[] = {1, 3, 2, 4, 1, 2, 4, 4};
    auto_index x = listed(OBJECTS_MAX, 0, tiny);
    deal_all(x, SHARDS, &d);
    assert_memory_equal(d.owner + 1, owners, sizeof owners);
}

static void empty_catalog_assigns_no_object(void **state)
{
    (void)state;
    static struct dealt d;
    auto_index x = listed(0, 0, one_size);
    deal_all(x, SHARDS, &d);
    assert_int_equal(d.objects[0], 0);
}

/* A listing may claim any size: these overflow every sum. */
static uint64_t impossible(unsigned i)
{
    return i < 2 * SHARDS ? UINT64_MAX - i % 2 : 1 << 20;
}

static void objects_larger_than_any_store_holds_are_in_exactly_one_shard_as_all_others(void **state)
{
    (void)state;
    static struct dealt d;
    auto_index one = listed(1, 0, impossible);
    deal_all(one, SHARDS, &d);
    assert_int_not_equal(d.owner[0], 0);
    auto_index many = listed(100, 0, impossible);
    deal_all(many, SHARDS, &d);
    for (unsigned i = 0; i < 100; i++)
        assert_int_not_equal(d.owner[i], 0);
}

static void a_shard_is_written_as_a_part_of_how_many(void **state)
{
    (void)state;
    struct shard s = {9, 9};
    struct err err;
    assert_int_equal(shard_parse(STR("3/4"), &s, &err), 0);
    assert_true(s.index == 3 && s.count == 4);
    static const char *const bad[] = {"", "1", "4/4", "/4", "1/", "-1/4", "1/4/2", "0/0", "0/1025", "a/b", "1 /4"};
    for (size_t i = 0; i < countof(bad); i++)
        if (shard_parse(str_of(bad[i]), &s, &err) != -ERR_INVALID)
            fail_msg("'%s' was taken", bad[i]);
}

#define in_a_folder(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(a_hundred_equal_objects_are_twenty_five_for_each_of_four),
        in_a_folder(every_object_is_in_exactly_one_shard_and_all_have_the_same_bytes),
        in_a_folder(the_order_of_arrival_changes_nothing),
        in_a_folder(small_objects_stay_where_they_are_whatever_else_is_listed),
        in_a_folder(the_paths_go_where_they_always_went),
        in_a_folder(empty_catalog_assigns_no_object),
        in_a_folder(objects_larger_than_any_store_holds_are_in_exactly_one_shard_as_all_others),
        in_a_folder(a_shard_is_written_as_a_part_of_how_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
