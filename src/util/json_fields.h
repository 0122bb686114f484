/* SPDX-License-Identifier: Apache-2.0 */
/* json_fields.h - reads and writes a struct's fields by a table of JSON paths: records on disk, status files, API
 * objects.
 *
 *     #define AT(f) .offset = offsetof(struct lease, f), .size = sizeof((struct lease){0}.f)
 *     static const struct json_field fields[] = {
 *         {"spec.holderIdentity", JSON_TEXT, AT(holder)},
 *         {"spec.seconds", JSON_U64, AT(seconds), .flags = JSON_REQUIRED | JSON_ALWAYS},
 *     }; */
#pragma once

#include "util/json.h"

enum json_kind {
    JSON_TEXT,   /* char *, owned; "" reads as NULL */
    JSON_BUFFER, /* char[] */
    JSON_U64,    /* uint64_t */
    JSON_I64,    /* int64_t */
    JSON_UINT,   /* unsigned, uint32_t */
    JSON_INT,    /* int, pid_t */
    JSON_BOOL,   /* bool */
    JSON_TIME,   /* int64_t, ns of the wall clock; RFC 3339 in JSON */
    JSON_NAME,   /* an enum by .names */
    JSON_CODE,   /* enum err_code by err_code_name(); an unknown name reads as ERR_INTERNAL */
};

enum json_flag {
    JSON_REQUIRED = 1, /* absent: ERR_NOT_FOUND. Else an absent member leaves the field as it is */
    JSON_ALWAYS = 2,   /* write zero, false and "" too */
    JSON_CUT = 4,      /* JSON_BUFFER: shorten a text that is too long; else it is ERR_INVALID */
    JSON_LENIENT = 8,  /* JSON_NAME: an unknown name reads as 0; else it is ERR_INVALID */
};

struct json_field {
    const char *path; /* "status.hydration.bytesDone" */
    enum json_kind kind;
    unsigned flags;
    size_t offset, size;      /* of the struct's field */
    const char *const *names; /* JSON_NAME: by value; NULL for a value that has no name */
    size_t name_count;
    uint64_t max; /* maximum of a number, and of a JSON_TEXT's bytes; 0: the limit of the type */
};

/* .names and .name_count of an array of names. */
#define JSON_NAMES(array) .names = (array), .name_count = countof(array)

/* Reads the fields into `object`, which is zeroed or has defaults. On failure it holds part of them. */
must_check int json_fields_read(const json *j, const struct json_field *fields, size_t count, void *object,
                                struct err *err);

/* Writes the fields that are not zero, or JSON_ALWAYS, into `j`. */
void json_fields_write(json *j, const struct json_field *fields, size_t count, const void *object);

/* A list of objects, one for each of the `item_count` structs of `item_size` bytes. The caller frees. */
json *json_fields_list(const struct json_field *fields, size_t count, const void *items, size_t item_count,
                       size_t item_size);

/* Frees the fields of JSON_TEXT and sets them to NULL. */
void json_fields_clear(const struct json_field *fields, size_t count, void *object);
