/* SPDX-License-Identifier: Apache-2.0 */
#include "util/str.h"
#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (tolower((unsigned char)a.ptr[i]) != tolower((unsigned char)b.ptr[i]))
            return false;
    return true;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq(str_sub(s, 0, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.len >= suffix.len && str_eq(str_from(s, s.len - suffix.len), suffix);
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    if (c != 0)
        return c;
    return a.len < b.len ? -1 : a.len > b.len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.len > 0 && is_blank(s.ptr[0]))
        s = str_from(s, 1);
    while (s.len > 0 && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

ssize_t str_find(struct str s, char c)
{
    const char *p = s.len ? memchr(s.ptr, c, s.len) : NULL;
    return p ? p - s.ptr : -1;
}

bool str_split(struct str *rest, char sep, struct str *ret_field)
{
    if (!rest->ptr)
        return false;
    ssize_t at = str_find(*rest, sep);
    if (at < 0) {
        *ret_field = *rest;
        *rest = STR_NULL;
        return true;
    }
    *ret_field = str_sub(*rest, 0, (size_t)at);
    *rest = str_from(*rest, (size_t)at + 1);
    return true;
}

uint64_t str_hash(struct str s, uint64_t seed)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

char *str_dup(struct str s)
{
    char *copy = xcalloc(s.len + 1, 1);
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    return copy;
}

char *str_dupf(const char *fmt, ...)
{
    char *text;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    assert(n >= 0);
    return text;
}

static int not_a_number(struct str s, const char *what, struct err *err)
{
    return err_set(err, ERR_INVALID, "'%.*s' is not %s", (int)min_u64(s.len, 64), s.ptr ? s.ptr : "", what);
}

int str_to_u64(struct str s, uint64_t *ret, struct err *err)
{
    uint64_t n = 0;
    if (s.len == 0)
        return not_a_number(s, "a whole number", err);
    for (size_t i = 0; i < s.len; i++) {
        unsigned digit = (unsigned)(unsigned char)s.ptr[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, digit, &n))
            return not_a_number(s, "a whole number from 0 to 18446744073709551615", err);
    }
    *ret = n;
    return 0;
}

int str_to_i64(struct str s, int64_t *ret, struct err *err)
{
    bool negative = s.len > 0 && s.ptr[0] == '-';
    uint64_t n;
    struct err ignored;
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (str_to_u64(negative ? str_from(s, 1) : s, &n, &ignored) < 0 || n > limit)
        return not_a_number(s, "a whole number of 64 bits", err);
    *ret = negative ? (int64_t)(0 - n) : (int64_t)n;
    return 0;
}

int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int str_hex_to_u64(struct str s, uint64_t *ret, struct err *err)
{
    uint64_t n = 0;
    if (s.len == 0 || s.len > 16)
        return not_a_number(s, "a hexadecimal number of 1 to 16 digits", err);
    for (size_t i = 0; i < s.len; i++) {
        int digit = hex_digit(s.ptr[i]);
        if (digit < 0)
            return not_a_number(s, "a hexadecimal number of 1 to 16 digits", err);
        n = n << 4 | (uint64_t)digit;
    }
    *ret = n;
    return 0;
}

/* The leading "12" or "12.345" of s as an integer and millionths: exact, unlike a double. */
static bool leading_decimal(struct str *s, uint64_t *ret_whole, uint64_t *ret_millionths)
{
    uint64_t whole = 0, millionths = 0, scale = 100000;
    size_t i = 0;
    for (; i < s->len && isdigit((unsigned char)s->ptr[i]); i++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(s->ptr[i] - '0'), &whole))
            return false;
    if (i == 0)
        return false;
    if (i < s->len && s->ptr[i] == '.') {
        size_t dot = i++;
        for (; i < s->len && isdigit((unsigned char)s->ptr[i]); i++, scale /= 10)
            millionths += (uint64_t)(s->ptr[i] - '0') * scale;
        if (i == dot + 1)
            return false;
    }
    *s = str_from(*s, i);
    *ret_whole = whole;
    *ret_millionths = millionths;
    return true;
}

static bool scaled(uint64_t whole, uint64_t millionths, uint64_t unit, uint64_t *ret)
{
    unsigned __int128 n = (unsigned __int128)whole * unit + ((unsigned __int128)millionths * unit + 999999) / 1000000;
    if (n > UINT64_MAX)
        return false;
    *ret = (uint64_t)n;
    return true;
}

static bool bytes_unit(struct str suffix, uint64_t *ret)
{
    static const struct {
        const char *name;
        uint64_t unit;
    } units[] = {
        {"", 1},
        {"k", 1000},
        {"K", 1000},
        {"M", 1000000},
        {"G", 1000000000},
        {"T", 1000000000000},
        {"P", 1000000000000000},
        {"Ki", 1ULL << 10},
        {"Mi", 1ULL << 20},
        {"Gi", 1ULL << 30},
        {"Ti", 1ULL << 40},
        {"Pi", 1ULL << 50},
        {"e3", 1000},
        {"e6", 1000000},
        {"e9", 1000000000},
        {"e12", 1000000000000},
    };
    for (size_t i = 0; i < countof(units); i++)
        if (str_eq(suffix, str_of(units[i].name))) {
            *ret = units[i].unit;
            return true;
        }
    return false;
}

int str_to_bytes(struct str s, uint64_t *ret, struct err *err)
{
    struct str rest = s;
    uint64_t whole, millionths, unit;
    if (!leading_decimal(&rest, &whole, &millionths) || !bytes_unit(rest, &unit) ||
        !scaled(whole, millionths, unit, ret))
        return not_a_number(s, "a quantity of bytes, such as 512, 10G or 1.5Gi", err);
    return 0;
}

static bool duration_unit(struct str *rest, uint64_t *ret)
{
    static const struct {
        const char *name;
        uint64_t unit;
    } units[] = {{"ms", 1000000}, {"us", 1000}, {"ns", 1}, {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000}};
    for (size_t i = 0; i < countof(units); i++)
        if (str_starts(*rest, str_of(units[i].name))) {
            *rest = str_from(*rest, strlen(units[i].name));
            *ret = units[i].unit;
            return true;
        }
    return false;
}

int str_to_duration(struct str s, uint64_t *ret_ns, struct err *err)
{
    static const char what[] = "a span of time, such as 250ms, 30s or 1h30m";
    struct str rest = s;
    uint64_t total = 0;
    if (str_eq(s, STR("0"))) {
        *ret_ns = 0;
        return 0;
    }
    do {
        uint64_t whole, millionths, unit, part;
        if (!leading_decimal(&rest, &whole, &millionths) || !duration_unit(&rest, &unit) ||
            !scaled(whole, millionths, unit, &part) || __builtin_add_overflow(total, part, &total))
            return not_a_number(s, what, err);
    } while (rest.len > 0);
    *ret_ns = total;
    return 0;
}

/* ---- builder ----------------------------------------------------------------------------------------------------- */

void sbuf_init(struct sbuf *b, size_t ceiling)
{
    *b = (struct sbuf){.ceiling = ceiling};
}

void sbuf_done(struct sbuf *b)
{
    free(b->ptr);
    *b = (struct sbuf){.ceiling = b->ceiling};
}

void sbuf_clear(struct sbuf *b)
{
    b->len = 0;
    b->overflow = false;
    if (b->ptr)
        b->ptr[0] = '\0';
}

/* Makes room for `more` bytes and a NUL. False beyond the ceiling, and from then on. */
static bool sbuf_grow(struct sbuf *b, size_t more)
{
    if (b->overflow || more > b->ceiling - b->len) {
        b->overflow = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need > b->room) {
        size_t room = b->room ? b->room : 64;
        while (room < need)
            room *= 2;
        b->ptr = xrealloc(b->ptr, room, 1);
        b->room = room;
    }
    return true;
}

void sbuf_add(struct sbuf *b, struct str s)
{
    if (!sbuf_grow(b, s.len))
        return;
    if (s.len)
        memcpy(b->ptr + b->len, s.ptr, s.len);
    b->len += s.len;
    b->ptr[b->len] = '\0';
}

void sbuf_addc(struct sbuf *b, char c)
{
    if (!sbuf_grow(b, 1))
        return;
    b->ptr[b->len++] = c;
    b->ptr[b->len] = '\0';
}

void sbuf_adds(struct sbuf *b, const char *c_string)
{
    sbuf_add(b, str_of(c_string));
}

void sbuf_addf(struct sbuf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    assert(n >= 0);
    if (sbuf_grow(b, (size_t)n)) {
        vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void sbuf_add_u64(struct sbuf *b, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    sbuf_add(b, (struct str){digits + at, sizeof digits - at});
}

char *hex_text(const void *bytes, size_t len, char *buf)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i++) {
        buf[2 * i] = "0123456789abcdef"[p[i] >> 4];
        buf[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
    }
    buf[2 * len] = '\0';
    return buf;
}

void sbuf_add_json(struct sbuf *b, struct str s)
{
    sbuf_addc(b, '"');
    for (size_t i = 0, n; i < s.len; i += n ? n : 1) {
        unsigned char c = (unsigned char)s.ptr[i];
        n = str_utf8_char(s, i);
        if (c < ' ' || c == 0x7F)
            sbuf_addf(b, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            sbuf_addf(b, "\\%c", c);
        else if (n == 0)
            sbuf_adds(b, "\\ufffd");
        else
            sbuf_add(b, str_sub(s, i, n));
    }
    sbuf_addc(b, '"');
}

void sbuf_add_hex(struct sbuf *b, const void *bytes, size_t len)
{
    if (!sbuf_grow(b, 2 * len))
        return;
    hex_text(bytes, len, b->ptr + b->len);
    b->len += 2 * len;
}

void sbuf_cut(struct sbuf *b, size_t len)
{
    assert(len <= b->len);
    b->len = len;
    if (b->ptr)
        b->ptr[len] = '\0';
}

int sbuf_take(struct sbuf *b, char **ret, struct err *err)
{
    if (b->overflow)
        return err_set(err, ERR_NO_SPACE, "a text is longer than its ceiling of %zu bytes", b->ceiling);
    *ret = b->ptr ? take(&b->ptr) : str_dup(STR_NULL);
    sbuf_done(b);
    return 0;
}

char *bytes_text(uint64_t bytes, char *buf)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t u = 0;
    double n = (double)bytes;
    while (n >= 999.5 && u + 1 < countof(units)) {
        n /= 1024;
        u++;
    }
    snprintf(buf, BYTES_TEXT_MAX, u == 0 || n >= 99.95 ? "%.0f %s" : n >= 9.995 ? "%.1f %s" : "%.2f %s", n, units[u]);
    return buf;
}

size_t str_distance(struct str a, struct str b)
{
    size_t row[STR_DISTANCE_MAX + 1];
    if (b.len > STR_DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            bool equal = tolower((unsigned char)a.ptr[i - 1]) == tolower((unsigned char)b.ptr[j - 1]);
            size_t best = min_u64(min_u64(row[j], row[j - 1]) + 1, diagonal + !equal);
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b.len];
}

bool str_is_nearer(struct str a, struct str b, size_t *least)
{
    size_t d = str_distance(a, b);
    if (d >= *least)
        return false;
    *least = d;
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void out_of_memory(void)
{
    static const char line[] = "cistern: out of memory\n";
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    abort();
}

void *xcalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xrealloc(void *own_p, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        out_of_memory();
    void *p = realloc(own_p, total ? total : 1);
    if (!p)
        out_of_memory();
    return p;
}

void secret_free(void *own_text)
{
    if (own_text)
        explicit_bzero(own_text, strlen(own_text));
    free(own_text);
}
