/* SPDX-License-Identifier: Apache-2.0 */
/* str.h - counted views, a builder with a ceiling, checked numbers. Bytes from outside are never C strings.
 * home: any; nothing here is shared between threads by itself.
 * Code: str.c, number.c and sbuf.c. */
#pragma once

#include "util/err.h"
#include "util/macro.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Borrowed bytes. Not terminated; any byte, NUL included. ptr may be NULL if len is 0. */
struct str {
    const char *ptr;
    size_t len;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_NULL ((struct str){NULL, 0})
/* printf("%.*s", STR_FMT(s)) */
#define STR_FMT(s) (int)(s).len, (s).ptr ? (s).ptr : ""

static inline struct str str_of(const char *c_string)
{
    return c_string ? (struct str){c_string, strlen(c_string)} : STR_NULL;
}

static inline struct str str_sub(struct str s, size_t from, size_t len)
{
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return s.ptr ? (struct str){s.ptr + from, len} : STR_NULL;
}

static inline struct str str_from(struct str s, size_t from)
{
    return str_sub(s, from, SIZE_MAX);
}

bool str_eq(struct str a, struct str b);
bool str_eq_nocase(struct str a, struct str b); /* ASCII */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
bool str_has(struct str s, struct str part);
int str_cmp(struct str a, struct str b); /* by bytes, as memcmp; a prefix sorts first */
struct str str_trim(struct str s);       /* without spaces and tabs, CR and LF at both ends */

/* Is it an item of a list such as "a, b", with ',' as `sep`? */
bool str_is_in(struct str s, struct str list, char sep);

/* str_is_any(s, "a", "b"): is it one of these? */
bool str_is_one_of(struct str s, const char *const *texts, size_t count);
#define str_is_any(s, ...)                                                                                             \
    str_is_one_of((s), (const char *const[]){__VA_ARGS__}, countof(((const char *const[]){__VA_ARGS__})))

/* Is every byte one of `chars`? Is it ASCII from '!' to '~', and none of `but`? True of an empty text. */
#define CHARS_DIGITS "0123456789"
#define CHARS_LOWER "abcdefghijklmnopqrstuvwxyz"
#define CHARS_UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
bool str_is_of(struct str s, const char *chars);
bool str_is_visible(struct str s, const char *but);

/* Position of the first `c`, or -1. */
ssize_t str_find(struct str s, char c);

/* Cuts the next field off *rest at `sep`; false at the end. Fields may be empty. */
bool str_split(struct str *rest, char sep, struct str *ret_field);

/* For tables in memory (FNV-1a, folded). Use a random seed for names of users, who could make them collide; else 0.
 * Never store it: versions may differ. */
uint64_t str_hash(struct str s, uint64_t seed);

/* A heap copy with a NUL behind it; the caller frees. Aborts when memory is out. */
char *str_dup(struct str s);
char *str_dupf(const char *fmt, ...) printf_like(1, 2); /* likewise */

/* For fields that own a text, where NULL stands for "". A copy, which is NULL of "". Are two the same? Replaces the
 * text. */
char *text_copy(struct str text);
bool text_same(const char *a, const char *b);
void text_set(char **field, struct str text);

/* Replaces the bytes that are not printable UTF-8 by '?'. */
void text_make_printable(char *text, size_t len);

/* Bytes of the well-formed UTF-8 character at `at` (which is below s.len), 0 for invalid bytes and NUL. */
size_t str_utf8_char(struct str s, size_t at);

/* The start of `s`, at most `max` bytes, without a part of a character at its end. */
struct str str_cut(struct str s, size_t max);

/* Is it well-formed UTF-8, without NUL? */
bool str_is_utf8(struct str s);

/* Whole-string numbers: sign, blank, trailing byte or overflow make them ERR_INVALID, and the sentence quotes `s`. */
must_check int str_to_u64(struct str s, uint64_t *ret, struct err *err);
must_check int str_to_i64(struct str s, int64_t *ret, struct err *err);
int hex_digit(char c); /* 0 to 15, of either case; -1: another character */

/* A quantity of bytes as Kubernetes writes it: 512, 10k, 1.5Gi, 2T, 1e6. Fractions round up. */
must_check int str_to_bytes(struct str s, uint64_t *ret, struct err *err);

/* A span of time: 250ms, 30s, 1h30m, 0. In nanoseconds. */
must_check int str_to_duration(struct str s, uint64_t *ret_ns, struct err *err);

/* ---- builder ----------------------------------------------------------------------------------------------------- */

/* A builder with a ceiling: an addition beyond it sets `overflow` and is omitted, and so are all later ones. One
 * check at the end suffices. Always NUL-terminated, so ptr may go to printf; may contain NUL bytes. */
struct sbuf {
    char *ptr; /* owned */
    size_t len;
    size_t room;
    size_t ceiling;
    bool overflow;
};

/* auto_sbuf b = SBUF(1024); */
#define SBUF(limit)                                                                                                    \
    {                                                                                                                  \
        .ceiling = (limit)                                                                                             \
    }
void sbuf_init(struct sbuf *b, size_t ceiling);
void sbuf_done(struct sbuf *b); /* may run twice */
void sbuf_clear(struct sbuf *b);
void sbuf_set(struct sbuf *b, struct str s); /* replaces the text */
void sbuf_add(struct sbuf *b, struct str s);
void sbuf_addc(struct sbuf *b, char c);
void sbuf_adds(struct sbuf *b, const char *c_string);
void sbuf_addf(struct sbuf *b, const char *fmt, ...) printf_like(2, 3);
void sbuf_add_u64(struct sbuf *b, uint64_t n);
void sbuf_add_json(struct sbuf *b, struct str s); /* quoted as in JSON; bytes that are not UTF-8 become \ufffd */
void sbuf_add_hex(struct sbuf *b, const void *bytes, size_t len);
void sbuf_cut(struct sbuf *b, size_t len); /* shortens to len */

/* Moves the text out: NULL with ERR_NO_SPACE if the ceiling was passed. The builder is empty afterwards. */
must_check int sbuf_take(struct sbuf *b, char **ret, struct err *err);

static inline struct str sbuf_str(const struct sbuf *b)
{
    return (struct str){b->ptr, b->len};
}

DEFINE_AUTO_DONE(sbuf, struct sbuf, sbuf_done)
#define auto_sbuf auto_with(auto_clean_sbuf) struct sbuf

/* "0a1b..." of `len` bytes. buf of 2 * len + 1; returns buf. */
char *hex_text(const void *bytes, size_t len, char *buf);

/* "1.5 GiB", "831 B": three digits and a binary unit, for people. buf of BYTES_TEXT_MAX; returns buf. */
enum { BYTES_TEXT_MAX = 16 };
char *bytes_text(uint64_t bytes, char *buf);

/* The number of letters to insert, drop or change between two texts (Levenshtein), of either case: for "did you mean".
 * SIZE_MAX: `b` is longer than STR_DISTANCE_MAX. */
enum { STR_DISTANCE_MAX = 63 };
size_t str_distance(struct str a, struct str b);
/* For the known name that is nearest to a mistyped one: is the distance below *least (SIZE_MAX at first), and at most
 * half the letters of `typed`? If so, *least becomes the distance. */
bool str_is_nearer(struct str known, struct str typed, size_t *least);

/* Zeroed memory for small structs. Without memory the process ends with one line: tests kill it at any point. */
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *own_p, size_t count, size_t size); /* checks count * size */
_Noreturn void out_of_memory(void);                     /* for a library that reports no memory */

/* Wipes and frees a secret text. NULL is fine. */
void secret_free(void *own_text);
DEFINE_AUTO(secret, char, secret_free)
#define auto_secret auto_with(auto_clean_secret) char *
