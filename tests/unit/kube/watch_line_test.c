/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/informer.h"
#include "unit.h"
#include "watch_line.h"

struct seen {
    struct sbuf all;
    int answer;
};

static int saw(void *ctx, struct str line, struct err *err)
{
    struct seen *s = ctx;
    sbuf_addc(&s->all, '<');
    sbuf_add(&s->all, line);
    sbuf_addc(&s->all, '>');
    return s->answer < 0 ? err_set(err, (enum err_code) - s->answer, "no") : 0;
}

static void lines_are_whole_wherever_they_were_cut(void **state)
{
    (void)state;
    const char text[] = "one\r\n\ntwo and more\n\n\nthree\nrest";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct line_splitter l;
        struct err err;
        struct seen s = {0};
        sbuf_init(&s.all, 1000);
        line_splitter_init(&l);
        for (struct str rest = STR(text); rest.len; rest = str_from(rest, piece))
            assert_int_equal(line_splitter_feed(&l, str_sub(rest, 0, piece), saw, &s, &err), 0);
        assert_string_equal(s.all.ptr, "<one><two and more><three>");
        line_splitter_clear(&l);
        assert_int_equal(line_splitter_feed(&l, STR("x\n"), saw, &s, &err), 0);
        assert_string_equal(s.all.ptr, "<one><two and more><three><x>");
        line_splitter_done(&l);
        sbuf_done(&s.all);
    }
}

static void a_reader_that_refuses_a_line_sees_no_more(void **state)
{
    (void)state;
    struct line_splitter l;
    struct err err;
    struct seen s = {.answer = -ERR_BUSY};
    sbuf_init(&s.all, 1000);
    line_splitter_init(&l);
    assert_int_equal(line_splitter_feed(&l, STR("a\nb\n"), saw, &s, &err), -ERR_BUSY);
    assert_string_equal(s.all.ptr, "<a>");
    line_splitter_done(&l);
    sbuf_done(&s.all);
}

static void line_without_an_end_is_an_error(void **state)
{
    (void)state;
    static char block[1 << 20];
    struct line_splitter l;
    struct err err;
    struct seen s = {0};
    int r = 0;
    memset(block, 'x', sizeof block);
    line_splitter_init(&l);
    for (int i = 0; i < 8; i++)
        assert_int_equal(line_splitter_feed(&l, (struct str){block, sizeof block}, saw, &s, &err), 0);
    r = line_splitter_feed(&l, STR("one more"), saw, &s, &err);
    assert_int_equal(r, -ERR_CORRUPT);
    line_splitter_clear(&l);
    assert_true(l.part.room < 1 << 20);
    line_splitter_done(&l);
}

static void a_line_of_a_watch_is_a_type_and_an_object(void **state)
{
    (void)state;
    struct err err;
    enum watch_type type;
    json *object = NULL;
    assert_int_equal(watch_line_parse(STR("{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"n\"}}}"), &type,
                                      &object, &err),
                     0);
    assert_int_equal(type, WATCH_DELETED);
    assert_true(str_eq(json_member_str(json_at(object, "metadata"), "name"), STR("n")));
    json_free(take(&object));
    static const char *const refused[] = {"",
                                          "null",
                                          "[]",
                                          "{}",
                                          "{\"type\":\"ADDED\"}",
                                          "{\"type\":\"ADDED\",\"object\":3}",
                                          "{\"type\":\"ADDED\",\"object\":{}}",
                                          "{\"type\":7,\"object\":{\"a\":1}}",
                                          "{\"type\":\"added\",\"object\":{\"a\":1}}",
                                          "<html>"};
    for (size_t i = 0; i < countof(refused); i++)
        assert_int_equal(watch_line_parse(str_of(refused[i]), &type, &object, &err), -ERR_CORRUPT);
    assert_null(object);
}

static void an_objects_key_has_its_namespace(void **state)
{
    (void)state;
    struct err err;
    char buf[KUBE_KEY_MAX];
    struct str key = STR_NULL;
    auto_json j = json_new_object();
    json_set_str(j, "metadata.name", STR("n"));
    assert_int_equal(object_key(j, buf, &key, &err), -ERR_CORRUPT); /* no version */
    json_set_str(j, "metadata.resourceVersion", STR("7"));
    assert_int_equal(object_key(j, buf, &key, &err), 0);
    assert_true(str_eq(key, STR("n")));
    json_set_str(j, "metadata.namespace", STR("ns"));
    assert_int_equal(object_key(j, buf, &key, &err), 0);
    assert_true(str_eq(key, STR("ns/n")));
    char longest[KUBE_KEY_MAX];
    memset(longest, 'x', sizeof longest);
    json_set_str(j, "metadata.name", (struct str){longest, sizeof longest});
    assert_int_equal(object_key(j, buf, &key, &err), -ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_whole_wherever_they_were_cut),
        cmocka_unit_test(a_reader_that_refuses_a_line_sees_no_more),
        cmocka_unit_test(line_without_an_end_is_an_error),
        cmocka_unit_test(a_line_of_a_watch_is_a_type_and_an_object),
        cmocka_unit_test(an_objects_key_has_its_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
