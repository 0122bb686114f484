/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - a struct's fields and where they are in an object's JSON, as a table that is read, written and forgotten
 * by. Private to this folder. */
#pragma once

#include "util/json.h"

enum api_type {
    API_TEXT,   /* char *, owned; NULL where nothing is said */
    API_NUMBER, /* uint64_t; 0 is not written unless .always */
    API_BOOL,   /* bool; false is not written */
    API_TIME,   /* int64_t, wall clock in ns; 0: none */
    API_CHOICE, /* unsigned: 1 for the first of .choices; 0: none of them */
};

struct api_field {
    const char *path; /* "status.hydration.bytesDone" */
    enum api_type type;
    size_t offset;
    const char *choices; /* "Provisioning Listing" */
    bool always;
};

/* Absent is as zero, a choice that is not known is none; another type of value is ERR_INVALID. `object` is zeroed, or
 * cleared, before. */
must_check int api_fields_read(const json *j, const struct api_field *fields, size_t count, void *object,
                               struct err *err);
void api_fields_write(json *j, const struct api_field *fields, size_t count, const void *object);
void api_fields_clear(const struct api_field *fields, size_t count, void *object);

/* "Hydrating" of 3; NULL for 0 and for what is none. */
const char *api_choice_name(const char *choices, unsigned choice, char *buf, size_t size);
