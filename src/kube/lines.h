/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - a stream that comes in pieces, cut anywhere, as lines. home: any; pure. */
#pragma once

#include "util/str.h"

struct lines {
    struct sbuf part; /* of a line whose end has not come */
};

enum { LINE_MAX_BYTES = 8 << 20 }; /* etcd takes objects of 1.5 MiB; JSON may be several times that */

void lines_init(struct lines *l);
void lines_done(struct lines *l);  /* may run twice */
void lines_clear(struct lines *l); /* another stream begins */

/* Gives every line that `bytes` ends (without its end, empty ones not at all) to `on_line`, in order. A negative answer
 * of on_line ends it and is returned; a line that is too long is ERR_CORRUPT. */
must_check int lines_feed(struct lines *l, struct str bytes,
                          int (*on_line)(void *ctx, struct str line, struct err *err), void *ctx, struct err *err);
