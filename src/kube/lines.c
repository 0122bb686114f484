/* SPDX-License-Identifier: Apache-2.0 */
#include "lines.h"

enum { KEPT_MAX = 64 << 10 }; /* room that is worth keeping from line to line */

void lines_init(struct lines *l)
{
    sbuf_init(&l->part, LINE_MAX_BYTES);
}

void lines_done(struct lines *l)
{
    sbuf_done(&l->part);
}

void lines_clear(struct lines *l)
{
    sbuf_clear(&l->part);
    if (l->part.room > KEPT_MAX) {
        sbuf_done(&l->part);
        sbuf_init(&l->part, LINE_MAX_BYTES);
    }
}

static int end_line(struct lines *l, struct str rest, int (*on_line)(void *ctx, struct str line, struct err *err),
                    void *ctx, struct err *err)
{
    /* A line that came in one piece is not copied. */
    if (l->part.len == 0)
        return str_trim(rest).len ? on_line(ctx, str_trim(rest), err) : 0;
    sbuf_add(&l->part, rest);
    if (l->part.overflow)
        return err_set(err, ERR_CORRUPT, "a line is longer than %d bytes", LINE_MAX_BYTES);
    struct str line = str_trim(sbuf_str(&l->part));
    int r = line.len ? on_line(ctx, line, err) : 0;
    lines_clear(l);
    return r;
}

int lines_feed(struct lines *l, struct str bytes, int (*on_line)(void *ctx, struct str line, struct err *err),
               void *ctx, struct err *err)
{
    for (ssize_t end; (end = str_find(bytes, '\n')) >= 0; bytes = str_from(bytes, (size_t)end + 1)) {
        int r = end_line(l, str_sub(bytes, 0, (size_t)end), on_line, ctx, err);
        if (r < 0)
            return r;
    }
    sbuf_add(&l->part, bytes);
    if (l->part.overflow)
        return err_set(err, ERR_CORRUPT, "a line is longer than %d bytes", LINE_MAX_BYTES);
    return 0;
}
