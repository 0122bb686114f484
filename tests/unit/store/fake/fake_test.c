/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that the generic code has never heard of is opened, written, listed, read and deleted through it. */
#include "here.h"
#include "store/list.h"

static struct here fixture;

static ssize_t read_text(void *ctx, char *buf, size_t room, uint64_t offset)
{
    struct str text = str_from(*(struct str *)ctx, offset);
    size_t n = min_u64(room, text.len);
    memcpy(buf, text.ptr, n);
    return (ssize_t)n;
}

struct write {
    struct str key, text;
    enum store_if condition;
};

static void make_put(struct here_call *c)
{
    const struct write *w = c->arg;
    store_put(c->here->store, &c->here->worker, &(struct store_write){.key = w->key, .condition = w->condition},
              &(struct store_body){.len = w->text.len, .ctx = (void *)(uintptr_t)&w->text, .read = read_text}, NULL,
              call_done, c);
}

static int on_data(void *ctx, const char *bytes, size_t len)
{
    struct here_call *c = ctx;
    sbuf_add(&c->data, (struct str){bytes, len});
    return 0;
}

static void make_get(struct here_call *c)
{
    const struct store_get *g = c->arg;
    struct store_get mine = *g;
    mine.ctx = c;
    mine.on_data = on_data;
    mine.on_done = call_done;
    store_get(c->here->store, &c->here->worker, &mine);
}

static void make_delete(struct here_call *c)
{
    store_delete(c->here->store, &c->here->worker, *(const struct str *)c->arg, call_done, c);
}

static int put(const char *key, const char *text, enum store_if condition)
{
    struct here_call c = {0};
    int r = call(&fixture, &c, make_put, &(struct write){str_of(key), str_of(text), condition});
    call_free(&c);
    return r;
}

static void object_is_written_once_and_read_in_ranges(void **state)
{
    struct here_call c = {0}, missing = {0};
    struct store_object o = {.key = STR("a/1"), .size_bytes = 5}, none = {.key = STR("a/none"), .size_bytes = 1};
    (void)state;
    assert_int_equal(put("a/1", "hello", STORE_IF_ABSENT), 0);
    assert_int_equal(put("a/1", "other", STORE_IF_ABSENT), -ERR_EXISTS);
    assert_int_equal(call(&fixture, &c, make_get, &(struct store_get){.object = &o, .offset = 1, .len = 3}), 0);
    assert_true(str_eq(sbuf_str(&c.data), STR("ell")));
    assert_int_equal(call(&fixture, &missing, make_get, &(struct store_get){.object = &none, .len = 1}),
                     -ERR_NOT_FOUND);
    assert_non_null(strstr(missing.err.text, "fake://bucket/a/none: the key does not exist"));
    call_free(&c);
    call_free(&missing);
}

struct listed {
    sem_t ended;
    size_t count;
    bool complete;
};

static int on_page(void *ctx, const struct store_object *objects, size_t count, bool sorted_so_far)
{
    (void)objects, (void)sorted_so_far;
    ((struct listed *)ctx)->count += count;
    return 0;
}

static void on_listed(void *ctx, const struct err *err, uint64_t requests)
{
    struct listed *l = ctx;
    (void)requests;
    l->complete = !err;
    sem_post(&l->ended);
}

static size_t list(const char *prefix, const char *start_after)
{
    struct listed l = {0};
    struct worker *workers[] = {&fixture.worker};
    sem_init(&l.ended, 0, 0);
    struct store_listing *listing =
        store_listing_start(fixture.store, workers, 1,
                            &(struct store_listing_options){.prefix = str_of(prefix),
                                                            .start_after = str_of(start_after),
                                                            .ctx = &l,
                                                            .on_page = on_page,
                                                            .on_done = on_listed});
    sem_wait(&l.ended);
    sem_destroy(&l.ended);
    store_listing_free(listing);
    assert_true(l.complete);
    return l.count;
}

static void listing_has_every_key_once(void **state)
{
    (void)state;
    for (int i = 10; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "l/%d", i);
        assert_int_equal(put(key, "x", STORE_IF_ANY), 0);
    }
    assert_int_equal(list("l/", ""), 30);
    assert_int_equal(list("l/", "l/29"), 10);
    assert_int_equal(list("none/", ""), 0);
}

static void deleted_object_is_not_found(void **state)
{
    struct here_call deleted = {0}, again = {0};
    struct str key = STR("d");
    (void)state;
    assert_int_equal(put("d", "x", STORE_IF_ANY), 0);
    assert_int_equal(call(&fixture, &deleted, make_delete, &key), 0);
    assert_int_equal(call(&fixture, &again, make_delete, &key), 0);
    assert_int_equal(list("d", ""), 0);
    call_free(&deleted);
    call_free(&again);
}

static void uri_selects_the_backend(void **state)
{
    (void)state;
    assert_string_equal(store_scheme(fixture.store), "fake");
    assert_true(str_eq(store_bucket(fixture.store), STR("bucket")));
    assert_null(store_endpoint(fixture.store));
    assert_int_equal(store_caps(fixture.store)->creds, CREDS_NONE);
}

static int up(void **state)
{
    struct err err;
    (void)state;
    here_up(&fixture);
    store_free(fixture.store);
    return store_open(&(struct store_options){.uri = STR("fake://bucket/")}, &fixture.store, &err);
}

static int down(void **state)
{
    (void)state;
    here_down(&fixture);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uri_selects_the_backend),
        cmocka_unit_test(object_is_written_once_and_read_in_ranges),
        cmocka_unit_test(listing_has_every_key_once),
        cmocka_unit_test(deleted_object_is_not_found),
    };
    return cmocka_run_group_tests(tests, up, down);
}
