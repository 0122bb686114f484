/* SPDX-License-Identifier: Apache-2.0 */
#include "keyspace.h"
#include <ctype.h>

/* Precise enough for a page among 10^15 keys; further positions do not change a double. */
enum { PLACES = 15 };

static size_t row_of(const struct keyspace *k, size_t at)
{
    size_t row = at > k->prefix_len ? at - k->prefix_len : 0;
    return row < KEYSPACE_POSITIONS ? row : KEYSPACE_POSITIONS - 1;
}

/* A position with one digit may have any digit, even one that the first page lacks. */
static void mark(unsigned char *set, unsigned char c)
{
    if (isdigit(c))
        memset(&set['0'], 1, 10);
    else
        set[c] = 1;
}

void keyspace_see(struct keyspace *k, struct str key)
{
    for (size_t at = k->prefix_len; at < key.len; at++) {
        unsigned char c = (unsigned char)key.ptr[at];
        if (c < ' ' || c >= 127)
            continue;
        mark(k->seen[row_of(k, at)], c);
        mark(k->anywhere, c);
    }
}

static size_t common(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
        n++;
    return n;
}

static int byte_at(struct str s, size_t at)
{
    return at < s.len ? (unsigned char)s.ptr[at] : -1;
}

/* May a key be cut before this byte? Not in the middle of a character. */
static bool is_boundary(int byte)
{
    return byte < 0x80 || byte >= 0xc0;
}

/* The middle byte of those in `set` between the two, or -1. */
static int middle(const unsigned char *set, int above, int below)
{
    int count = 0;
    for (int c = above + 1; c < below && c < 127; c++)
        count += set[c];
    int left = (count + 1) / 2;
    for (int c = above + 1; left > 0 && c < below && c < 127; c++)
        if (set[c] && --left == 0)
            return c;
    return -1;
}

static const unsigned char *set_at(const struct keyspace *k, size_t at, enum keyspace_trust trust)
{
    return trust == KEYSPACE_SEEN ? k->seen[row_of(k, at)] : k->anywhere;
}

static bool give(struct sbuf *ret, struct str head, int byte)
{
    sbuf_set(ret, head);
    if (byte >= 0)
        sbuf_addc(ret, (char)byte);
    return !ret->overflow;
}

bool keyspace_split(const struct keyspace *k, struct str after, struct str end, enum keyspace_trust trust,
                    struct sbuf *ret)
{
    size_t at = end.len ? common(after, end) : k->prefix_len;
    int below = end.len ? byte_at(end, at) : 127;
    if (at < k->prefix_len || at > after.len || below < 0)
        return false;
    int byte = middle(set_at(k, at, trust), byte_at(after, at), below);
    if (byte >= 0 && is_boundary(byte_at(after, at)))
        return give(ret, str_sub(after, 0, at), byte);
    /* No byte lies between the two. Try the first key that starts with the end's byte, if the end is longer ... */
    if (end.len > at + 1 && is_boundary(byte_at(end, at + 1)))
        return give(ret, str_sub(end, 0, at + 1), -1);
    /* ... or a greater byte at a later position: every key that starts like `after` up to here is before the end. */
    for (at++; at <= after.len; at++) {
        byte = middle(set_at(k, at, trust), byte_at(after, at), 127);
        if (byte >= 0 && is_boundary(byte_at(after, at)))
            return give(ret, str_sub(after, 0, at), byte);
    }
    return false;
}

/* How many of the bytes seen at a position are less than this one; the end of a key is the least. */
static int rank_of(const unsigned char *set, int byte, int *ret_size)
{
    int size = 0, rank = 0;
    for (int c = ' '; c < 127; c++) {
        size += set[c];
        rank += set[c] && c < byte;
    }
    *ret_size = size > 0 ? size : 1;
    return rank < *ret_size ? rank : *ret_size - 1;
}

/* The key from `at` on, as a fraction. */
static double fraction(const struct keyspace *k, struct str key, size_t at)
{
    double value = 0, unit = 1;
    for (size_t i = at; i < at + PLACES; i++) {
        int size, rank = rank_of(k->seen[row_of(k, i)], byte_at(key, i), &size);
        unit /= size;
        value += rank * unit;
    }
    return value;
}

/* The inverse: appends to `head` as many bytes as represent `value` with the precision `fine`. */
static void add_fraction(const struct keyspace *k, struct str head, double value, double fine, struct sbuf *ret)
{
    double unit = 1;
    sbuf_set(ret, head);
    for (size_t i = head.len; i < head.len + PLACES && unit > fine; i++) {
        const unsigned char *set = k->seen[row_of(k, i)];
        int size, c = ' ';
        rank_of(set, -1, &size);
        unit /= size;
        int left = (int)(value / unit);
        value -= left * unit;
        while (c < 127 && (!set[c] || left-- > 0))
            c++;
        if (c == 127)
            return;
        sbuf_addc(ret, (char)c);
    }
}

bool keyspace_ahead(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end,
                    double pages, struct sbuf *ret)
{
    size_t at = min_u64(common(first, last), from.len);
    double page = 0, target = 1;
    /* Moves left until these positions can represent the target. */
    for (at++; target >= 1 && at > k->prefix_len;) {
        at--;
        page = fraction(k, last, at) - fraction(k, first, at);
        target = fraction(k, from, at) + pages * page;
    }
    if (target >= 1 || page <= 0 || !is_boundary(byte_at(from, at)))
        return false;
    add_fraction(k, str_sub(from, 0, at), target, page / 4, ret);
    return !ret->overflow && str_cmp(sbuf_str(ret), from) > 0 && (!end.len || str_cmp(sbuf_str(ret), end) < 0);
}

double keyspace_pages(const struct keyspace *k, struct str first, struct str last, struct str from, struct str end)
{
    if (end.len && str_cmp(from, end) >= 0)
        return 0;
    /* Fractions of the range of keys with the common prefix. */
    size_t at = end.len ? min_u64(common(first, end), common(from, end)) : k->prefix_len;
    double begin = fraction(k, from, at), stop = end.len ? fraction(k, end, at) : 1;
    double page = fraction(k, last, at) - fraction(k, first, at);
    if (stop <= begin)
        return 0;
    return page > 0 ? (stop - begin) / page : 1e18;
}
