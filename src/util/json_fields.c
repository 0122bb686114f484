/* SPDX-License-Identifier: Apache-2.0 */
#include "util/json_fields.h"
#include "util/clock.h"
#include <jansson.h>

static void *field_in(const struct json_field *f, const void *object)
{
    return (char *)object + f->offset;
}

static uint64_t max_of(const struct json_field *f)
{
    if (f->max)
        return f->max;
    return f->kind == JSON_UINT ? UINT32_MAX : f->kind == JSON_INT ? INT32_MAX : UINT64_MAX;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int check_max(const struct json_field *f, uint64_t value, const char *unit, struct err *err)
{
    uint64_t max = max_of(f);
    return value <= max ? 0 : err_set(err, ERR_INVALID, "'%s' is above %llu%s", f->path, (unsigned long long)max, unit);
}

static int read_u64(const json *j, const struct json_field *f, void *field, struct err *err)
{
    uint64_t value = 0;
    int r = json_get_u64(j, f->path, &value, err);
    if (r == 0)
        r = check_max(f, value, "", err);
    if (r < 0)
        return r;
    if (f->kind == JSON_U64)
        *(uint64_t *)field = value;
    else
        *(unsigned *)field = (unsigned)value;
    return 0;
}

static int read_int(const json *j, const struct json_field *f, void *field, struct err *err)
{
    int64_t value = 0;
    int r = json_get_i64(j, f->path, &value, err);
    if (r == 0)
        r = check_max(f, value < 0 ? -(uint64_t)value : (uint64_t)value, "", err);
    if (r < 0)
        return r;
    if (f->kind == JSON_I64)
        *(int64_t *)field = value;
    else
        *(int *)field = (int)value;
    return 0;
}

static int read_buffer(const struct json_field *f, struct str text, char *field, struct err *err)
{
    if (text.len >= f->size && !(f->flags & JSON_CUT))
        return err_set(err, ERR_INVALID, "'%s' is longer than %zu bytes", f->path, f->size - 1);
    size_t len = min_u64(text.len, f->size - 1);
    if (len)
        memcpy(field, text.ptr, len);
    field[len] = '\0';
    return 0;
}

static int read_name(const struct json_field *f, struct str name, unsigned *field, struct err *err)
{
    for (size_t i = 0; i < f->name_count; i++)
        if (f->names[i] && str_eq(name, str_of(f->names[i]))) {
            *field = (unsigned)i;
            return 0;
        }
    *field = 0;
    return f->flags & JSON_LENIENT ? 0
                                   : err_set(err, ERR_INVALID, "'%s' is '%.*s', which is not known", f->path,
                                             STR_FMT(str_sub(name, 0, 64)));
}

static int read_text(const json *j, const struct json_field *f, void *field, struct err *err)
{
    struct str text = STR_NULL;
    int r = json_get_str(j, f->path, &text, err);
    if (r < 0)
        return r;
    switch (f->kind) {
    case JSON_BUFFER:
        return read_buffer(f, text, field, err);
    case JSON_TIME:
        return text.len ? time_parse(text, field, err) : 0;
    case JSON_NAME:
        return read_name(f, text, field, err);
    case JSON_CODE:
        *(enum err_code *)field = err_code_of_name(text);
        return 0;
    default:
        r = check_max(f, text.len, " bytes", err);
        if (r == 0)
            text_set(field, text);
        return r;
    }
}

static int read_field(const json *j, const struct json_field *f, void *field, struct err *err)
{
    switch (f->kind) {
    case JSON_U64:
    case JSON_UINT:
        return read_u64(j, f, field, err);
    case JSON_I64:
    case JSON_INT:
        return read_int(j, f, field, err);
    case JSON_BOOL:
        return json_get_bool(j, f->path, field, err);
    default:
        return read_text(j, f, field, err);
    }
}

int json_fields_read(const json *j, const struct json_field *fields, size_t count, void *object, struct err *err)
{
    int r = 0;
    for (const struct json_field *f = fields; f < fields + count && r == 0; f++) {
        const json *member = json_at(j, f->path);
        bool is_absent = !member || json_is_null(member);
        if (!is_absent || f->flags & JSON_REQUIRED)
            r = read_field(j, f, field_in(f, object), err);
    }
    return r;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_text(json *j, const struct json_field *f, const char *text)
{
    if ((text && text[0]) || f->flags & JSON_ALWAYS)
        json_set_str(j, f->path, str_of(text ? text : ""));
}

static void write_u64(json *j, const struct json_field *f, uint64_t value)
{
    if (value || f->flags & JSON_ALWAYS)
        json_set_u64(j, f->path, value);
}

static void write_i64(json *j, const struct json_field *f, int64_t value)
{
    if (value || f->flags & JSON_ALWAYS)
        json_set_i64(j, f->path, value);
}

static void write_field(json *j, const struct json_field *f, const void *field)
{
    char text[TIME_TEXT_MAX];
    switch (f->kind) {
    case JSON_TEXT:
        return write_text(j, f, *(char *const *)field);
    case JSON_BUFFER:
        return write_text(j, f, field);
    case JSON_U64:
        return write_u64(j, f, *(const uint64_t *)field);
    case JSON_UINT:
        return write_u64(j, f, *(const unsigned *)field);
    case JSON_I64:
        return write_i64(j, f, *(const int64_t *)field);
    case JSON_INT:
        return write_i64(j, f, *(const int *)field);
    case JSON_BOOL:
        if (*(const bool *)field || f->flags & JSON_ALWAYS)
            json_set_bool(j, f->path, *(const bool *)field);
        return;
    case JSON_TIME:
        return write_text(j, f, *(const int64_t *)field ? time_text(*(const int64_t *)field, text) : NULL);
    case JSON_NAME:
        return write_text(j, f, *(const unsigned *)field < f->name_count ? f->names[*(const unsigned *)field] : NULL);
    case JSON_CODE:
        return write_text(j, f, err_code_name(*(const enum err_code *)field));
    }
}

void json_fields_write(json *j, const struct json_field *fields, size_t count, const void *object)
{
    for (const struct json_field *f = fields; f < fields + count; f++)
        write_field(j, f, field_in(f, object));
}

json *json_fields_list(const struct json_field *fields, size_t count, const void *items, size_t item_count,
                       size_t item_size)
{
    json *list = json_new_array();
    for (size_t i = 0; i < item_count; i++) {
        json *item = json_new_object();
        json_fields_write(item, fields, count, (const char *)items + i * item_size);
        json_append(list, item);
    }
    return list;
}

void json_fields_clear(const struct json_field *fields, size_t count, void *object)
{
    for (const struct json_field *f = fields; f < fields + count; f++) {
        if (f->kind == JSON_TEXT)
            text_set(field_in(f, object), STR_NULL);
    }
}
