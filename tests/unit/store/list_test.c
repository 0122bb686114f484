/* SPDX-License-Identifier: Apache-2.0 */
#include "here.h"
#include "store/list.h"

struct seen {
    sem_t ended;
    size_t pages, objects;
    bool sorted, complete;
    int stop_with;
    char last[64];
    struct err err;
};

static int page(void *ctx, const struct store_object *objects, size_t count, bool sorted_so_far)
{
    struct seen *s = ctx;
    s->pages++;
    for (size_t i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", STR_FMT(objects[i].key));
        if (strcmp(s->last, key) >= 0)
            s->sorted = false;
        memcpy(s->last, key, sizeof key);
    }
    s->objects += count;
    s->sorted = s->sorted && sorted_so_far;
    return s->stop_with;
}

static void done(void *ctx, const struct err *err, uint64_t requests)
{
    struct seen *s = ctx;
    s->complete = !err;
    if (err)
        s->err = *err;
    else
        assert_true(requests >= s->pages);
    sem_post(&s->ended);
}

static void list(struct here *h, struct seen *s, const char *start_after, bool cancel)
{
    struct worker *workers[] = {&h->worker};
    struct store_listing_options o = {
        .start_after = str_of(start_after), .parallel = 1, .ctx = s, .on_page = page, .on_done = done};
    s->sorted = true;
    sem_init(&s->ended, 0, 0);
    struct store_listing *l = store_listing_start(h->store, workers, 1, &o);
    if (cancel)
        store_listing_cancel(l);
    sem_wait(&s->ended);
    store_listing_free(l);
    sem_destroy(&s->ended);
}

static void a_prefix_is_listed_to_its_end(void **state)
{
    struct here *h = *state;
    struct seen all = {0}, rest = {0};
    list(h, &all, NULL, false);
    assert_true(all.complete);
    assert_true(all.sorted);
    assert_int_equal(all.objects, 2500);
    assert_int_equal(all.pages, 3);
    list(h, &rest, "f1999", false);
    assert_int_equal(rest.objects, 500);
}

static void a_reader_may_stop_it(void **state)
{
    struct here *h = *state;
    struct seen stopped = {.stop_with = -ERR_NO_SPACE}, cancelled = {0};
    list(h, &stopped, NULL, false);
    assert_false(stopped.complete);
    assert_int_equal(stopped.err.code, ERR_NO_SPACE);
    assert_int_equal(stopped.pages, 1);
    list(h, &cancelled, NULL, true);
    assert_true(cancelled.complete || cancelled.err.code == ERR_CANCELLED);
}

static void pages_that_bring_nothing_have_an_end(void **state)
{
    (void)state;
    unsigned empty = 0, pages = 0;
    while (list_goes_on(&empty, 0, STR_NULL, pages % 2 ? STR("a") : STR("b")))
        pages++;
    assert_int_equal(pages, 1000);
    assert_true(list_goes_on(&empty, 1, STR("a"), STR("b")));
    assert_true(list_goes_on(&empty, 0, STR("b"), STR("c"))); /* the count begins again */
    assert_false(list_goes_on(&empty, 1, STR("c"), STR("c")));
    assert_true(list_goes_on(&empty, 1, STR_NULL, STR_NULL)); /* the last one */
}

static int up(void **state)
{
    static struct here h;
    here_up(&h);
    for (int i = 0; i < 2500; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%04d", i);
        here_file(&h, name, "");
    }
    *state = &h;
    return 0;
}

static int down(void **state)
{
    here_down(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_listed_to_its_end),
        cmocka_unit_test(a_reader_may_stop_it),
        cmocka_unit_test(pages_that_bring_nothing_have_an_end),
    };
    return cmocka_run_group_tests(tests, up, down);
}
