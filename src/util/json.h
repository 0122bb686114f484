/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - parses, reads and builds JSON trees over jansson; errors name the path of the member.
 * home: a tree belongs to one thread. The tree is jansson's json_t, an incomplete type for other rooms. */
#pragma once

#include "util/err.h"
#include "util/str.h"

typedef struct json_t json; /* jansson's own tag: the one typedef, so that only util includes <jansson.h> */

/* Parses one whole document. Depth and size have ceilings; duplicate keys and trailing bytes are ERR_INVALID. `what`
 * names the document in sentences. *ret is freed with json_free. */
must_check int json_parse(struct str text, const char *what, json **ret, struct err *err);
/* The same, and a string may have a NUL ("\u0000"). For documents that hold texts of many users: one of them must not
 * hide those of the others. */
must_check int json_parse_any_text(struct str text, const char *what, json **ret, struct err *err);
void json_free(json *own_j);
DEFINE_AUTO(json, json, json_free)
#define auto_json auto_with(auto_clean_json) json *

/* Reads by path: "spec.source.uri", "items.3.name". get: absent (or null) is ERR_NOT_FOUND, another type is
 * ERR_INVALID, and the sentence holds the path. Strings are borrowed from the tree. */
must_check int json_get_str(const json *j, const char *path, struct str *ret, struct err *err);
must_check int json_get_u64(const json *j, const char *path, uint64_t *ret, struct err *err);
must_check int json_get_i64(const json *j, const char *path, int64_t *ret, struct err *err);
must_check int json_get_bool(const json *j, const char *path, bool *ret, struct err *err);
must_check int json_get_real(const json *j, const char *path, double *ret, struct err *err); /* 3 is a real too */

/* opt: a missing member is success and leaves *ret unchanged; another type is an error. */
must_check int json_opt_str(const json *j, const char *path, struct str *ret, struct err *err);
must_check int json_opt_u64(const json *j, const char *path, uint64_t *ret, struct err *err);
must_check int json_opt_i64(const json *j, const char *path, int64_t *ret, struct err *err);
must_check int json_opt_bool(const json *j, const char *path, bool *ret, struct err *err);
must_check int json_opt_list(const json *j, const char *path, const json **ret, struct err *err);

/* Several strings: json_get_str() of each, json_opt_str() of each whose path begins with '?'.
 *
 *     r = json_strings(j, err, {"metadata.name", &name}, {"?metadata.deletionTimestamp", &deleted}); */
struct json_string {
    const char *path;
    struct str *ret;
};
must_check int json_read_strings(const json *j, const struct json_string *strings, size_t count, struct err *err);
#define json_strings(j, err, ...)                                                                                      \
    json_read_strings((j), (const struct json_string[]){__VA_ARGS__},                                                  \
                      countof(((const struct json_string[]){__VA_ARGS__})), (err))

/* Structure. NULL if missing; borrowed. */
const json *json_at(const json *j, const char *path);
size_t json_count(const json *j);                   /* elements of an array, members of an object, else 0 */
const json *json_item(const json *j, size_t index); /* of an array */
char json_kind_of(const json *j); /* '{', '[', '"', '0' (a number), 't' (true or false); 'n': null or missing */
bool json_as_str(const json *j, struct str *ret);
bool json_holds(const json *j, struct str text);                  /* is it this string, or a list with it? */
struct str json_str_at(const json *j, const char *path);          /* STR_NULL if there is no string */
bool json_bool_at(const json *j, const char *path);               /* false unless it is `true` */
const json *json_member(const json *object, const char *name);    /* by its whole name, dots and all: annotations */
struct str json_member_str(const json *object, const char *name); /* STR_NULL unless it is a string */

/* for (void *i = json_iter(j); i; i = json_iter_next(j, i)) over an object's members, in their order. */
void *json_iter(const json *j);
void *json_iter_next(const json *j, void *iter);
struct str json_iter_key(void *iter);
const json *json_iter_value(void *iter);

/* Building. A new tree is the caller's; json_set* create the missing objects of a dotted path. Strings must be UTF-8:
 * other bytes are replaced by U+FFFD. Numbers above INT64_MAX are cut to it. */
json *json_new_object(void);
json *json_new_array(void);
json *json_new_str(struct str value);
json *json_new_bool(bool value);
json *json_new_null(void);
void json_set(json *j, const char *path, json *own_value);
void json_set_str(json *j, const char *path, struct str value);
/* Several strings. An empty value is omitted if its path begins with '?'.
 *
 *     json_set_strings(j, {"metadata.name", name}, {"?metadata.namespace", ns}); */
struct json_value {
    const char *path;
    struct str value;
};
void json_write_strings(json *j, const struct json_value *values, size_t count);
#define json_set_strings(j, ...)                                                                                       \
    json_write_strings((j), (const struct json_value[]){__VA_ARGS__},                                                  \
                       countof(((const struct json_value[]){__VA_ARGS__})))
void json_set_u64(json *j, const char *path, uint64_t value);
void json_set_i64(json *j, const char *path, int64_t value);
void json_set_bool(json *j, const char *path, bool value);
void json_set_member(json *object, const char *name, json *own_value); /* dots in `name` are part of it */
void json_append(json *array, json *own_value);
void json_append_str(json *array, struct str value);
void json_extend(json *array, json *own_array); /* moves the elements behind those of `array` */
void json_remove(json *j, const char *path);    /* absent is fine */
bool json_same(const json *a, const json *b);   /* the members of an object in any order; false of NULL */
json *json_copy_of(const json *j);              /* the whole tree, the caller's */
json *json_take_at(json *j, const char *path);  /* moves it out: it is the caller's; NULL if missing */

/* One line, keys in the order they were set; `indent` spaces a level when it is not 0. A double keeps 15 decimal
 * digits: 0.1 stays 0.1. The caller frees. */
char *json_text(const json *j, unsigned indent);
/* One line that parses to the same tree: with 15 digits, the largest doubles become infinite. The caller frees. */
char *json_text_exact(const json *j);
