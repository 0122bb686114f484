/* SPDX-License-Identifier: Apache-2.0 */
/* watch_line.h - splits a watch into lines and parses each of them. home: any; pure. */
#pragma once

#include "util/json.h"

enum watch_type { WATCH_ADDED, WATCH_MODIFIED, WATCH_DELETED, WATCH_BOOKMARK, WATCH_ERROR };

/* The type and the object of a line; ERR_CORRUPT: invalid line. The caller frees *ret_object. */
must_check int watch_line_parse(struct str line, enum watch_type *ret_type, json **ret_object, struct err *err);

/* "namespace/name", or "name", in `buf` of KUBE_KEY_MAX; ERR_CORRUPT for an object without a name or a version. */
must_check int object_key(const json *object, char *buf, struct str *ret, struct err *err);

struct line_splitter {
    struct sbuf part; /* of an incomplete line */
};

enum { LINE_MAX_BYTES = 8 << 20 }; /* etcd accepts objects of 1.5 MiB; their JSON may be several times as long */

void line_splitter_init(struct line_splitter *l);
void line_splitter_done(struct line_splitter *l);  /* may run twice */
void line_splitter_clear(struct line_splitter *l); /* for a new stream */

/* Calls `on_line` with each line that `bytes` completes, without its end and in order; empty lines are skipped. A
 * negative result of on_line is returned; a line that is too long is ERR_CORRUPT. */
must_check int line_splitter_feed(struct line_splitter *l, struct str bytes,
                                  int (*on_line)(void *ctx, struct str line, struct err *err), void *ctx,
                                  struct err *err);
