/* SPDX-License-Identifier: Apache-2.0 */
#include "gcs/gcs.h"
#include "unit.h"
#include <stdio.h>

struct parsed {
    struct object_page page;
    struct sbuf token;
    struct err err;
};

static int parse(struct parsed *p, const char *document, const char *after)
{
    object_page_init(&p->page);
    sbuf_init(&p->token, 4096);
    return gcs_parse_list(str_of(document), str_of(after), &p->page, &p->token, &p->err);
}

static void done(struct parsed *p)
{
    object_page_done(&p->page);
    sbuf_done(&p->token);
}

static void a_page_is_read_with_its_generations_and_checksums(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p,
                           "{\"nextPageToken\":\"t\",\"items\":[{\"name\":\"a\",\"size\":\"18446744073709551615\","
                           "\"generation\":\"171\",\"updated\":\"2026-11-21T09:30:00.250Z\",\"crc32c\":\"4waSgw==\","
                           "\"md5Hash\":\"1B2M2Y8AsgTpgAmY7PhCfg==\"},{\"name\":\"b\\u00fc/\\n\",\"size\":\"0\"}]}",
                           NULL),
                     0);
    assert_int_equal(p.page.count, 2);
    const struct store_object *o = &p.page.objects[0];
    assert_true(str_eq(o->key, STR("a")));
    assert_true(o->size_bytes == UINT64_MAX);
    assert_int_equal(o->generation, 171);
    assert_true(o->mtime_ns == INT64_C(1795253400250000000));
    assert_int_equal(o->digest.kind, HASH_CRC32C); /* the CRC, though there is an MD5 as well */
    assert_memory_equal(o->digest.bytes, "\xe3\x06\x92\x83", 4);
    assert_true(str_eq(p.page.objects[1].key, STR("b\xc3\xbc/\n")));
    assert_int_equal(p.page.objects[1].digest.kind, HASH_NONE);
    assert_string_equal(p.token.ptr, "t");
    done(&p);
}

static void an_inclusive_start_is_made_exclusive(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p,
                           "{\"items\":[{\"name\":\"a\",\"size\":\"1\"},{\"name\":\"b\",\"size\":\"1\"},{\"name\":"
                           "\"b0\",\"size\":\"1\"}]}",
                           "b"),
                     0);
    assert_int_equal(p.page.count, 1);
    assert_true(str_eq(p.page.objects[0].key, STR("b0")));
    assert_int_equal(p.token.len, 0);
    done(&p);
}

static void numbers_may_be_numbers(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, "{\"items\":[{\"name\":\"a\",\"size\":7,\"generation\":171}]}", NULL), 0);
    assert_int_equal(p.page.objects[0].size_bytes, 7);
    assert_int_equal(p.page.objects[0].generation, 171);
    done(&p);
}

static void list_with_prefixes_is_sorted(void **state)
{
    static const char *const want[] = {"a", "b/", "c"};
    struct parsed p;
    (void)state;
    assert_int_equal(
        parse(&p,
              "{\"prefixes\":[\"b/"
              "\"],\"items\":[{\"name\":\"a\",\"size\":\"1\"},{\"name\":\"c\",\"size\":\"1\",\"generation\":\"1\"}]}",
              NULL),
        0);
    assert_int_equal(p.page.count, countof(want));
    for (size_t i = 0; i < countof(want); i++)
        assert_true(str_eq(p.page.objects[i].key, str_of(want[i])));
    done(&p);
}

static void time_of_the_year_1_counts_as_unset(void **state)
{
    struct parsed p = {.err.code = 0};
    (void)state;
    assert_int_equal(
        parse(&p, "{\"items\":[{\"name\":\"a\",\"size\":\"7\",\"updated\":\"0001-01-01T00:00:00Z\"}]}", NULL), 0);
    assert_int_equal(p.page.count, 1);
    assert_true(p.page.objects[0].mtime_ns == 0);
    assert_int_equal(p.err.code, 0); /* a caller may look at it */
    done(&p);
}

static void malformed_replies_are_errors(void **state)
{
    static const char *const bad[] = {
        "",
        "[",
        "<html>",
        "{\"items\":[{}]}",
        "{\"items\":[{\"name\":\"a\"}]}",
        "{\"items\":[{\"name\":1}]}",
        "{\"items\":[{\"name\":\"a\",\"size\":\"-1\"}]}",
        "{\"items\":[{\"name\":\"a\",\"size\":\"18446744073709551616\"}]}",
        "{\"items\":[{\"name\":\"a\",\"size\":-1}]}",
        "{\"items\":[{\"name\":\"a\",\"size\":1.5}]}",
        "{\"items\":[{\"name\":\"a\",\"size\":\"\"}]}",
        "{\"items\":[{\"name\":\"a\",\"crc32c\":\"AA==\"}]}",
        "{\"items\":[{\"name\":\"a\",\"updated\":\"yesterday\"}]}",
        "{\"items\":[\"a\"]}",
        "{\"prefixes\":[1]}",
        "[]",
        "null",
        "5",
        "{\"items\":5}",
        "{\"items\":{}}",
        "{\"prefixes\":\"a\"}",
        "{\"error\":{\"code\":500}}",
        "{\"nextPageToken\":1}",
    };
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct parsed p;
        if (parse(&p, bad[i], NULL) >= 0)
            fail_msg("no error for %s", bad[i]);
        assert_int_equal(p.err.id, 1601);
        done(&p);
    }
}

static void a_document_of_nothing_is_an_empty_page(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, "{\"kind\":\"storage#objects\"}", NULL), 0);
    assert_int_equal(p.page.count, 0);
    done(&p);
}

static void object_with_a_null_size_is_refused(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, "{\"items\":[{\"name\":\"a\",\"size\":null}]}", NULL), -ERR_CORRUPT);
    done(&p);
    assert_int_equal(parse(&p, "{\"items\":[{\"name\":\"a\",\"size\":7}]}", NULL), 0);
    done(&p);
}

static void a_token_that_is_too_long_is_not_the_end(void **state)
{
    struct parsed p;
    char document[6000];
    (void)state;
    snprintf(document, sizeof document, "{\"nextPageToken\":\"%05000d\"}", 1);
    assert_int_equal(parse(&p, document, NULL), -ERR_CORRUPT);
    assert_int_equal(p.err.id, 1601);
    done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_read_with_its_generations_and_checksums),
        cmocka_unit_test(an_inclusive_start_is_made_exclusive),
        cmocka_unit_test(numbers_may_be_numbers),
        cmocka_unit_test(list_with_prefixes_is_sorted),
        cmocka_unit_test(time_of_the_year_1_counts_as_unset),
        cmocka_unit_test(malformed_replies_are_errors),
        cmocka_unit_test(a_document_of_nothing_is_an_empty_page),
        cmocka_unit_test(object_with_a_null_size_is_refused),
        cmocka_unit_test(a_token_that_is_too_long_is_not_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
