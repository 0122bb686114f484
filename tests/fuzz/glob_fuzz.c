/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "util/glob.h"

static bool matches_framed(const char *before, struct str pattern, const char *behind, struct str text)
{
    auto_sbuf b;
    sbuf_init(&b, 1024); /* the longest pattern */
    sbuf_adds(&b, before);
    sbuf_add(&b, pattern);
    sbuf_adds(&b, behind);
    return b.overflow || glob_match(sbuf_str(&b), text);
}

/* A text matches itself, each of its characters escaped. */
static void check_escaped(struct str text)
{
    auto_sbuf b;
    sbuf_init(&b, 1024);
    for (size_t i = 0, n; i < text.len; i += n) {
        n = str_utf8_char(text, i) ? str_utf8_char(text, i) : 1;
        sbuf_addc(&b, '\\');
        sbuf_add(&b, str_sub(text, i, n));
    }
    assert(text.len == 0 || b.overflow || glob_match(sbuf_str(&b), text));
}

/* The input is a pattern, a line feed, and a text. A malformed pattern matches nothing; one that matches does so too
 * below any directory, and where more may follow. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    struct str rest = fuzz_str(bytes, len), pattern;
    if (!str_split(&rest, '\n', &pattern))
        return 0;
    bool good = glob_check(pattern, &err) == 0;
    bool matches = glob_match(pattern, rest);
    assert(good || !matches || memchr(pattern.ptr, '\0', pattern.len));
    check_escaped(rest);
    if (!matches)
        return 0;
    auto_sbuf longer;
    sbuf_init(&longer, len + 4);
    sbuf_add(&longer, rest);
    sbuf_adds(&longer, "more");
    assert(matches_framed("**/", pattern, "", rest));
    assert(matches_framed("", pattern, "**", sbuf_str(&longer)));
    return 0;
}
