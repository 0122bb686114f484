/* SPDX-License-Identifier: Apache-2.0 */
/* tool.h - a program run to its end. Blocking. home: any thread. The process must not ignore SIGCHLD, nor wait for
 * children that it does not know. */
#pragma once

#include "util/err.h"

/* Runs argv[0] (looked for in the system's own folders only), NULL-terminated, with its input empty. A status other
 * than 0 is ERR_IO, and the sentence ends in the last line it said. */
must_check int tool_run(const char *const argv[], struct err *err);
