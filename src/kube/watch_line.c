/* SPDX-License-Identifier: Apache-2.0 */
#include "watch_line.h"
#include "kube/informer.h"
#include <stdio.h>

enum { KEPT_MAX = 64 << 10 }; /* memory that is kept from line to line */

int watch_line_parse(struct str line, enum watch_type *ret_type, json **ret_object, struct err *err)
{
    static const char *const types[] = {[WATCH_ADDED] = "ADDED",
                                        [WATCH_MODIFIED] = "MODIFIED",
                                        [WATCH_DELETED] = "DELETED",
                                        [WATCH_BOOKMARK] = "BOOKMARK",
                                        [WATCH_ERROR] = "ERROR"};
    auto_json j = NULL;
    struct err why;
    if (json_parse_any_text(line, "a line of the watch", &j, &why) < 0)
        return err_set(err, ERR_CORRUPT, "%s", why.text);
    struct str type = json_member_str(j, "type");
    auto_json object = json_take_at(j, "object");
    for (size_t i = 0; i < countof(types); i++)
        if (str_eq(type, str_of(types[i])) && json_count(object) > 0) {
            *ret_type = (enum watch_type)i;
            *ret_object = take(&object);
            return 0;
        }
    return err_set(err, ERR_CORRUPT, "a line of the watch is not an event");
}

int object_key(const json *object, char *buf, struct str *ret, struct err *err)
{
    const json *metadata = json_at(object, "metadata");
    struct str name = json_member_str(metadata, "name"), ns = json_member_str(metadata, "namespace");
    if (!name.len || !json_member_str(metadata, "resourceVersion").len || name.len + ns.len + 2 > KUBE_KEY_MAX)
        return err_set(err, ERR_CORRUPT, "an object has no name or no version");
    int n = snprintf(buf, KUBE_KEY_MAX, "%.*s%s%.*s", STR_FMT(ns), ns.len ? "/" : "", STR_FMT(name));
    *ret = (struct str){buf, (size_t)n};
    return 0;
}

/* ---- lines of a stream ------------------------------------------------------------------------------------------- */

void line_splitter_init(struct line_splitter *l)
{
    sbuf_init(&l->part, LINE_MAX_BYTES);
}

void line_splitter_done(struct line_splitter *l)
{
    sbuf_done(&l->part);
}

void line_splitter_clear(struct line_splitter *l)
{
    sbuf_clear(&l->part);
    if (l->part.room > KEPT_MAX) {
        sbuf_done(&l->part);
        sbuf_init(&l->part, LINE_MAX_BYTES);
    }
}

static int end_line(struct line_splitter *l, struct str rest,
                    int (*on_line)(void *ctx, struct str line, struct err *err), void *ctx, struct err *err)
{
    /* A line in one piece is not copied. */
    if (l->part.len == 0)
        return str_trim(rest).len ? on_line(ctx, str_trim(rest), err) : 0;
    sbuf_add(&l->part, rest);
    if (l->part.overflow)
        return err_set(err, ERR_CORRUPT, "a line is longer than %d bytes", LINE_MAX_BYTES);
    struct str line = str_trim(sbuf_str(&l->part));
    int r = line.len ? on_line(ctx, line, err) : 0;
    line_splitter_clear(l);
    return r;
}

int line_splitter_feed(struct line_splitter *l, struct str bytes,
                       int (*on_line)(void *ctx, struct str line, struct err *err), void *ctx, struct err *err)
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
