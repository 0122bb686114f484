/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/json_fields.h"

enum colour { COLOUR_NONE, COLOUR_RED, COLOUR_BLUE };
static const char *const colours[] = {[COLOUR_RED] = "Red", [COLOUR_BLUE] = "Blue"};

struct record {
    char *owner;
    char id[4];
    uint64_t bytes;
    int64_t offset_ns;
    unsigned project;
    int pid;
    bool fuse;
    int64_t created_ns;
    enum colour colour;
    enum err_code code;
};

#define AT(f) .offset = offsetof(struct record, f), .size = sizeof((struct record){0}.f)
static const struct json_field fields[] = {
    {"owner", JSON_TEXT, AT(owner), .max = 8},
    {"id", JSON_BUFFER, AT(id)},
    {"size.bytes", JSON_U64, AT(bytes), .flags = JSON_REQUIRED | JSON_ALWAYS},
    {"offset", JSON_I64, AT(offset_ns)},
    {"project", JSON_UINT, AT(project), .max = 100},
    {"pid", JSON_INT, AT(pid)},
    {"fuse", JSON_BOOL, AT(fuse)},
    {"createdAt", JSON_TIME, AT(created_ns)},
    {"colour", JSON_NAME, AT(colour), JSON_NAMES(colours)},
    {"code", JSON_CODE, AT(code)},
};

static int read_text(const char *text, struct record *ret, struct err *err)
{
    auto_json j = NULL;
    if (json_parse(str_of(text), "it", &j, err) < 0)
        fail_msg("%s", err->text);
    return json_fields_read(j, fields, countof(fields), ret, err);
}

static void record_written_and_read_again_is_equal(void **state)
{
    (void)state;
    struct err err;
    struct record a = {.id = "abc", .bytes = 7, .offset_ns = -3, .project = 100, .pid = -1, .fuse = true};
    struct record b = {0};
    a.owner = str_dup(STR("us"));
    a.created_ns = 1500000000000000000;
    a.colour = COLOUR_BLUE;
    a.code = ERR_BUSY;
    auto_json j = json_new_object();
    json_fields_write(j, fields, countof(fields), &a);
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text, "{\"owner\":\"us\",\"id\":\"abc\",\"size\":{\"bytes\":7},\"offset\":-3,\"project\":100,"
                              "\"pid\":-1,\"fuse\":true,\"createdAt\":\"2017-07-14T02:40:00.000Z\",\"colour\":\"Blue\","
                              "\"code\":\"BUSY\"}");
    assert_int_equal(read_text(text, &b, &err), 0);
    assert_string_equal(a.owner, b.owner);
    assert_string_equal(a.id, b.id);
    assert_true(a.bytes == b.bytes && a.offset_ns == b.offset_ns && a.project == b.project && a.pid == b.pid);
    assert_true(a.fuse == b.fuse && a.created_ns == b.created_ns && a.colour == b.colour && a.code == b.code);
    json_fields_clear(fields, countof(fields), &a);
    json_fields_clear(fields, countof(fields), &b);
    assert_null(a.owner);
}

static void zero_fields_are_written_only_if_always(void **state)
{
    (void)state;
    auto_json j = json_new_object();
    json_fields_write(j, fields, countof(fields) - 1, &(struct record){0});
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text, "{\"size\":{\"bytes\":0}}");
}

static void absent_member_keeps_the_default_unless_required(void **state)
{
    (void)state;
    struct err err;
    struct record r = {.pid = 5, .colour = COLOUR_RED};
    assert_int_equal(read_text("{\"size\":{\"bytes\":1},\"pid\":null}", &r, &err), 0);
    assert_true(r.pid == 5 && r.colour == COLOUR_RED);
    assert_int_equal(read_text("{\"size\":{}}", &r, &err), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "'size.bytes' is missing");
}

static void value_outside_its_limit_is_invalid(void **state)
{
    (void)state;
    struct err err;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"size\":{\"bytes\":\"1\"}}", "'size.bytes' is not a whole number from 0 up"},
        {"{\"size\":{\"bytes\":1},\"project\":101}", "'project' is above 100"},
        {"{\"size\":{\"bytes\":1},\"pid\":2147483648}", "'pid' is above 2147483647"},
        {"{\"size\":{\"bytes\":1},\"pid\":-2147483649}", "'pid' is above 2147483647"},
        {"{\"size\":{\"bytes\":1},\"id\":\"abcd\"}", "'id' is longer than 3 bytes"},
        {"{\"size\":{\"bytes\":1},\"owner\":\"123456789\"}", "'owner' is above 8 bytes"},
        {"{\"size\":{\"bytes\":1},\"colour\":\"Green\"}", "'colour' is 'Green', which is not known"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct record r = {0};
        assert_int_equal(read_text(cases[i].text, &r, &err), -ERR_INVALID);
        assert_string_equal(err.text, cases[i].error);
        json_fields_clear(fields, countof(fields), &r);
    }
}

static void lenient_fields_accept_what_a_newer_version_wrote(void **state)
{
    (void)state;
    struct err err;
    static const struct json_field lenient[] = {
        {"id", JSON_BUFFER, AT(id), .flags = JSON_CUT},
        {"colour", JSON_NAME, AT(colour), JSON_NAMES(colours), .flags = JSON_LENIENT},
        {"code", JSON_CODE, AT(code)},
    };
    struct record r = {.colour = COLOUR_RED};
    auto_json j = NULL;
    assert_int_equal(
        json_parse(STR("{\"id\":\"abcdef\",\"colour\":\"Green\",\"code\":\"FROM_THE_FUTURE\"}"), "it", &j, &err), 0);
    assert_int_equal(json_fields_read(j, lenient, countof(lenient), &r, &err), 0);
    assert_string_equal(r.id, "abc");
    assert_int_equal(r.colour, COLOUR_NONE);
    assert_int_equal(r.code, ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_written_and_read_again_is_equal),
        cmocka_unit_test(zero_fields_are_written_only_if_always),
        cmocka_unit_test(absent_member_keeps_the_default_unless_required),
        cmocka_unit_test(value_outside_its_limit_is_invalid),
        cmocka_unit_test(lenient_fields_accept_what_a_newer_version_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
