/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - asks the process that works on a volume for a byte. A stopped process would keep the lock of the volume
 * without end. A thread of its own answers, so that a process which waits for its store, for its turn or for another
 * program's file answers too. home: any thread; asking blocks. */
#pragma once

#include "util/err.h"

/* Answers until the process ends. `verb` is that of its command, `dir` the directory of its volume. Does nothing if
 * another process answers for them. */
must_check int probe_serve(const char *verb, const char *dir, struct err *err);

/* ERR_TIMEOUT: the process has not answered for 8 s. ERR_NOT_FOUND: none of this user listens. */
must_check int probe_ask(const char *verb, const char *dir, struct err *err);
