/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - asks the process that works on a volume whether it is stuck: it would keep the lock of the volume without
 * end. A thread of its own answers for the loops and for main. It answers also while the process waits for its store,
 * for the disk or for another program's file. home: any thread; asking blocks. */
#pragma once

#include "util/err.h"

/* Answers until the process ends. `verb` is that of its command, `dir` the directory of its volume. Does nothing if
 * another process answers for them. */
must_check int probe_serve(const char *verb, const char *dir, struct err *err);

/* From main, again and again: after the first call, main is stuck if the next one is late. */
void probe_beat(void);

/* ERR_TIMEOUT: the process has not answered for 8 s, or one of its loops or main is stuck. ERR_NOT_FOUND: none of this
 * user listens. */
must_check int probe_ask(const char *verb, const char *dir, struct err *err);
