/* SPDX-License-Identifier: Apache-2.0 */
#include "util/glob.h"

/* A pattern is a list of tokens. The matcher keeps the set of all reachable tokens (Thompson's algorithm), so no
 * pattern makes it backtrack. */

enum { PATTERN_MAX = 1024 };

enum token_kind {
    TOKEN_CHAR,      /* this character */
    TOKEN_ONE,       /* ?   any but a slash */
    TOKEN_SET,       /* [..] */
    TOKEN_STAR,      /* *   any number of characters but a slash */
    TOKEN_DEEP,      /* **  any number of characters */
    TOKEN_DIRS,      /* a "**" and a slash that begin a segment: at the start of a segment of the text ... */
    TOKEN_DIRS_TAIL, /* ... and inside a segment that is skipped */
};

struct glob_token {
    enum token_kind kind;
    uint32_t c;  /* TOKEN_CHAR */
    size_t from; /* TOKEN_SET: between the brackets */
    size_t to;
};

/* The character at `i`; a byte that is not UTF-8 is a character of its own, beyond Unicode. */
static uint32_t character(struct str s, size_t *i)
{
    unsigned char lead = (unsigned char)s.ptr[*i];
    size_t len = str_utf8_char(s, *i);
    uint32_t c = len == 0 ? 0x110000U + lead : len == 1 ? lead : lead & (0x7FU >> len);
    for (size_t k = 1; k < len; k++)
        c = c << 6 | ((unsigned char)s.ptr[*i + k] & 0x3F);
    *i += len ? len : 1;
    return c;
}

/* The end of the set whose '[' is at `i`: a ']' that comes first is a member. SIZE_MAX if it is not closed. */
static size_t set_end(struct str p, size_t i)
{
    i++;
    if (i < p.len && p.ptr[i] == '!')
        i++;
    for (size_t first = i; i < p.len; i++) {
        if (p.ptr[i] == '\\')
            i++;
        else if (p.ptr[i] == ']' && i > first)
            return i;
    }
    return SIZE_MAX;
}

static uint32_t set_member(struct str p, size_t *i)
{
    if (p.ptr[*i] == '\\')
        *i += 1;
    return character(p, i);
}

static bool in_set(struct str p, const struct glob_token *t, uint32_t c)
{
    size_t i = t->from;
    bool negated = i < t->to && p.ptr[i] == '!';
    bool found = false;
    if (negated)
        i++;
    while (i < t->to && !found) {
        uint32_t low = set_member(p, &i), high = low;
        if (i + 1 < t->to && p.ptr[i] == '-') {
            i++;
            high = set_member(p, &i);
        }
        found = c >= low && c <= high;
    }
    return c != '/' && found != negated;
}

static size_t stars(struct str p, size_t at, struct glob_token *ret)
{
    if (at + 1 >= p.len || p.ptr[at + 1] != '*') {
        *ret = (struct glob_token){.kind = TOKEN_STAR};
        return at + 1;
    }
    size_t end = at;
    while (end < p.len && p.ptr[end] == '*')
        end++;
    bool segment = (at == 0 || p.ptr[at - 1] == '/') && end < p.len && p.ptr[end] == '/';
    *ret = (struct glob_token){.kind = segment ? TOKEN_DIRS : TOKEN_DEEP};
    return segment ? end + 1 : end;
}

/* Reads the token at `at`; returns where the next begins, 0 if the pattern is malformed here. */
static size_t next_token(struct str p, size_t at, struct glob_token *ret)
{
    switch (p.ptr[at]) {
    case '*':
        return stars(p, at, ret);
    case '?':
        *ret = (struct glob_token){.kind = TOKEN_ONE};
        return at + 1;
    case '[': {
        size_t end = set_end(p, at);
        *ret = (struct glob_token){.kind = TOKEN_SET, .from = at + 1, .to = end};
        return end == SIZE_MAX ? 0 : end + 1;
    }
    case '\\':
        if (++at == p.len)
            return 0;
    }
    *ret = (struct glob_token){.kind = TOKEN_CHAR, .c = character(p, &at)};
    return at;
}

/* Tokens of `p`, or -1 with *ret_at where it is malformed. */
static ssize_t tokenize(struct str p, struct glob_token *tokens, size_t *ret_at)
{
    size_t count = 0;
    for (size_t at = 0, next; at < p.len; at = next) {
        next = next_token(p, at, &tokens[count]);
        *ret_at = at;
        if (next == 0)
            return -1;
        if (tokens[count++].kind == TOKEN_DIRS)
            tokens[count++] = (struct glob_token){.kind = TOKEN_DIRS_TAIL};
    }
    return (ssize_t)count;
}

int glob_check(struct str pattern, struct err *err)
{
    struct glob_token tokens[PATTERN_MAX + 1];
    size_t at;
    if (pattern.len == 0 || pattern.len > PATTERN_MAX)
        return err_set(err, ERR_INVALID, "a pattern has 1 to %d bytes, not %zu", PATTERN_MAX, pattern.len);
    if (memchr(pattern.ptr, '\0', pattern.len))
        return err_set(err, ERR_INVALID, "a pattern cannot contain a NUL byte");
    if (tokenize(pattern, tokens, &at) < 0)
        return err_set(err, ERR_INVALID, "the pattern '%.*s' is malformed at byte %zu: %s", STR_FMT(pattern), at + 1,
                       pattern.ptr[at] == '[' ? "'[' is not closed" : "nothing follows the backslash");
    return 0;
}

/* The tokens that follow token `j` after the character `c`. */
static void advance(struct str p, const struct glob_token *t, size_t j, uint32_t c, bool *next)
{
    switch (t[j].kind) {
    case TOKEN_CHAR:
        next[j + 1] |= c == t[j].c;
        return;
    case TOKEN_ONE:
        next[j + 1] |= c != '/';
        return;
    case TOKEN_SET:
        next[j + 1] |= in_set(p, &t[j], c);
        return;
    case TOKEN_STAR:
        next[j] |= c != '/';
        return;
    case TOKEN_DEEP:
        next[j] = true;
        return;
    case TOKEN_DIRS:
        next[c == '/' ? j : j + 1] = true;
        return;
    case TOKEN_DIRS_TAIL:
        next[c == '/' ? j - 1 : j] = true;
    }
}

/* Adds the tokens that need no character. False: no token is reachable. */
static bool settle(const struct glob_token *t, size_t count, bool *row)
{
    bool any = row[count];
    for (size_t j = 0; j < count; j++) {
        if (!row[j])
            continue;
        any = true;
        if (t[j].kind == TOKEN_STAR || t[j].kind == TOKEN_DEEP)
            row[j + 1] = true;
        else if (t[j].kind == TOKEN_DIRS)
            row[j + 2] = true;
    }
    return any;
}

static bool walk(struct str p, const struct glob_token *t, size_t count, struct str text)
{
    bool rows[2][PATTERN_MAX + 2], *now = rows[0], *next = rows[1];
    memset(now, 0, count + 1);
    now[0] = true;
    settle(t, count, now);
    for (size_t i = 0; i < text.len;) {
        uint32_t c = character(text, &i);
        memset(next, 0, count + 1);
        for (size_t j = 0; j < count; j++)
            if (now[j])
                advance(p, t, j, c, next);
        if (!settle(t, count, next))
            return false;
        bool *swapped = now;
        now = next;
        next = swapped;
    }
    return now[count];
}

bool glob_match(struct str pattern, struct str text)
{
    struct glob_token tokens[PATTERN_MAX + 1];
    size_t at;
    if (pattern.len == 0 || pattern.len > PATTERN_MAX)
        return false;
    ssize_t count = tokenize(pattern, tokens, &at);
    if (count < 0)
        return false;
    if (str_find(pattern, '/') < 0) {
        const char *slash = text.len ? memrchr(text.ptr, '/', text.len) : NULL;
        if (slash)
            text = str_from(text, (size_t)(slash - text.ptr) + 1);
    }
    return walk(pattern, tokens, (size_t)count, text);
}

/* ---- examples ---------------------------------------------------------------------------------------------------- */

static void add_times(struct sbuf *b, const char *text, unsigned times)
{
    while (times-- > 0)
        sbuf_adds(b, text);
}

/* A member of the set; of a negated set, a character that is not between the brackets. */
static bool add_member(struct str p, const struct glob_token *t, unsigned variant, struct sbuf *b)
{
    enum { PLAIN_FIRST = '0', PLAIN = 'z' - PLAIN_FIRST + 1 };
    for (unsigned i = 0; i < PLAIN; i++) {
        uint32_t c = PLAIN_FIRST + (variant + i) % PLAIN;
        if (in_set(p, t, c)) {
            sbuf_addc(b, (char)c);
            return true;
        }
    }
    for (size_t from = t->from; from < t->to;) {
        size_t at = p.ptr[from] == '\\' ? from + 1 : from, end = at;
        if (in_set(p, t, character(p, &end))) {
            sbuf_add(b, str_sub(p, at, end - at));
            return true;
        }
        from = end;
    }
    return false;
}

bool glob_example(struct str pattern, unsigned variant, struct sbuf *ret)
{
    static const char *const fills[] = {"\xEE\x80\x80", "a", "Z", "5", "_", "x"};
    static const unsigned lengths[] = {1, 0, 2, 5};
    const char *fill = fills[variant % countof(fills)];
    unsigned length = lengths[variant / countof(fills) % countof(lengths)];
    unsigned depth = variant / (countof(fills) * countof(lengths));
    struct glob_token t;
    for (size_t at = 0, next; at < pattern.len; at = next) {
        next = next_token(pattern, at, &t);
        if (next == 0 || (t.kind == TOKEN_SET && !add_member(pattern, &t, variant, ret)))
            return false;
        if (t.kind == TOKEN_CHAR)
            sbuf_add(ret, str_sub(pattern, at + (pattern.ptr[at] == '\\'), next - at - (pattern.ptr[at] == '\\')));
        else if (t.kind == TOKEN_ONE)
            sbuf_adds(ret, fill);
        else if (t.kind == TOKEN_STAR)
            add_times(ret, fill, length);
        for (unsigned i = 0; i < depth && (t.kind == TOKEN_DIRS || t.kind == TOKEN_DEEP); i++) {
            sbuf_adds(ret, fill);
            sbuf_addc(ret, '/');
        }
        if (t.kind == TOKEN_DEEP)
            add_times(ret, fill, length);
    }
    return !ret->overflow;
}

/* ---- filter ------------------------------------------------------------------------------------------------------ */

int filter_add(struct filter *f, bool exclude, struct str pattern, struct err *err)
{
    char ***list = exclude ? &f->exclude : &f->include;
    size_t *count = exclude ? &f->exclude_count : &f->include_count;
    int r = glob_check(pattern, err);
    if (r < 0)
        return r;
    if (*count == FILTER_PATTERNS_MAX)
        return err_set(err, ERR_NO_SPACE, "more than %d %s patterns", FILTER_PATTERNS_MAX,
                       exclude ? "exclude" : "include");
    *list = xrealloc(*list, *count + 1, sizeof **list);
    (*list)[(*count)++] = str_dup(pattern);
    return 0;
}

static bool any_matches(char **patterns, size_t count, struct str path)
{
    for (size_t i = 0; i < count; i++)
        if (glob_match(str_of(patterns[i]), path))
            return true;
    return false;
}

bool filter_wants(const struct filter *f, struct str path)
{
    return !any_matches(f->exclude, f->exclude_count, path) &&
           (f->include_count == 0 || any_matches(f->include, f->include_count, path));
}

static void free_patterns(char **own_patterns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(own_patterns[i]);
    free(own_patterns);
}

void filter_done(struct filter *f)
{
    free_patterns(f->include, f->include_count);
    free_patterns(f->exclude, f->exclude_count);
    *f = (struct filter){0};
}
