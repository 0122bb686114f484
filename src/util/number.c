/* SPDX-License-Identifier: Apache-2.0 */
/* Parses numbers, quantities and durations. */
#include "util/str.h"
#include <ctype.h>
#include <stdio.h>

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
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (str_to_u64(negative ? str_from(s, 1) : s, &n, ERR_IGNORED) < 0 || n > limit)
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
