/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - logs one event as one line of key=value pairs or JSON. The CSI rooms and cmd/ log errors, once.
 * home: any thread; a line is one write(2). */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_form { LOG_TEXT, LOG_JSON };

/* Set once, by main, before the first thread. `fd` stays the caller's. */
void log_setup(int fd, enum log_level least, enum log_form form);
must_check int log_level_parse(struct str s, enum log_level *ret, struct err *err); /* debug info warn error */

/* For callers whose values cost more than the call. */
bool log_wants(enum log_level level);

/* log_event(LOG_INFO, "volume created", "volume", id, "bytes", log_u64(n), NULL): a fixed sentence, then pairs of key
 * and C string, then NULL. A NULL value is left out with its key. Values are quoted if necessary, and cut at
 * 1,024 bytes. Each line begins with time, level and thread. Never log a secret. */
void log_event(enum log_level level, const char *what, ...) __attribute__((sentinel));

/* The same with err's sentence, code and id as further pairs. */
void log_err(enum log_level level, const char *what, const struct err *err, ...) __attribute__((sentinel));

/* A number as a value, in one of this thread's eight buffers, used in turn. */
const char *log_u64(uint64_t n);
