/* SPDX-License-Identifier: Apache-2.0 */
/* event_line.h - one line of a watch. home: any; pure. */
#pragma once

#include "util/json.h"

enum watch_type { WATCH_ADDED, WATCH_MODIFIED, WATCH_DELETED, WATCH_BOOKMARK, WATCH_ERROR };

/* The type and the object of a line; ERR_CORRUPT for what is no such line. *ret_object is the caller's. */
must_check int event_line_parse(struct str line, enum watch_type *ret_type, json **ret_object, struct err *err);

/* "namespace/name", or "name", in `buf` of KUBE_KEY_MAX; ERR_CORRUPT for an object without a name or a version. */
must_check int object_key(const json *object, char *buf, struct str *ret, struct err *err);
