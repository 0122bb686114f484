/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"
#include "util/clock.h"
#include <assert.h>
#include <stdio.h>

enum { CHOICE_MAX = 32 };

static void *field_of(const struct api_field *f, const void *object)
{
    return (char *)object + f->offset;
}

const char *api_choice_name(const char *choices, unsigned choice, char *buf, size_t size)
{
    struct str rest = str_of(choices), name = STR_NULL;
    for (unsigned i = 0; i < choice; i++)
        if (!str_split(&rest, ' ', &name))
            return NULL;
    if (choice == 0)
        return NULL;
    snprintf(buf, size, "%.*s", STR_FMT(name));
    return buf;
}

static unsigned choice_of(const char *choices, struct str name)
{
    struct str rest = str_of(choices), one;
    for (unsigned i = 1; str_split(&rest, ' ', &one); i++)
        if (str_eq(one, name))
            return i;
    return 0;
}

static int read_text(const struct api_field *f, const json *j, void *field, struct err *err)
{
    struct str text = STR_NULL;
    int r = json_opt_str(j, f->path, &text, err);
    if (r == 0 && f->type == API_CHOICE)
        *(unsigned *)field = choice_of(f->choices, text);
    else if (r == 0 && f->type == API_TIME)
        r = text.len ? time_parse(text, field, err) : 0;
    else if (r == 0)
        *(char **)field = text.len ? str_dup(text) : NULL;
    return r;
}

int api_fields_read(const json *j, const struct api_field *fields, size_t count, void *object, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        void *field = field_of(&fields[i], object);
        if (fields[i].type == API_NUMBER)
            r = json_opt_u64(j, fields[i].path, field, err);
        else if (fields[i].type == API_BOOL)
            r = json_opt_bool(j, fields[i].path, field, err);
        else
            r = read_text(&fields[i], j, field, err);
    }
    return r;
}

static void write_text(json *j, const char *path, const char *text)
{
    if (text)
        json_set_str(j, path, str_of(text));
}

void api_fields_write(json *j, const struct api_field *fields, size_t count, const void *object)
{
    char text[TIME_TEXT_MAX], choice[CHOICE_MAX];
    for (size_t i = 0; i < count; i++) {
        const struct api_field *f = &fields[i];
        const void *field = field_of(f, object);
        switch (f->type) {
        case API_TEXT:
            write_text(j, f->path, *(char *const *)field);
            break;
        case API_NUMBER:
            if (f->always || *(const uint64_t *)field)
                json_set_u64(j, f->path, *(const uint64_t *)field);
            break;
        case API_BOOL:
            if (*(const bool *)field)
                json_set_bool(j, f->path, true);
            break;
        case API_TIME:
            if (*(const int64_t *)field)
                json_set_str(j, f->path, str_of(time_text(*(const int64_t *)field, text)));
            break;
        case API_CHOICE:
            write_text(j, f->path, api_choice_name(f->choices, *(const unsigned *)field, choice, sizeof choice));
            break;
        }
    }
}

void api_fields_clear(const struct api_field *fields, size_t count, void *object)
{
    for (size_t i = 0; i < count; i++) {
        char **text = field_of(&fields[i], object);
        if (fields[i].type != API_TEXT)
            continue;
        free(*text);
        *text = NULL;
    }
}
