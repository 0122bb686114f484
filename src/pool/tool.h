/* SPDX-License-Identifier: Apache-2.0 */
/* tool.h - Runs a program to its end. Blocking. home: any thread. The process must not ignore SIGCHLD, nor wait for
 * children that it did not start. */
#pragma once

#include "util/err.h"

/* Runs argv[0] (searched in the system's own directories only), NULL-terminated, with empty input. A status other
 * than 0 is ERR_IO, and the sentence ends in the last line of its output. */
must_check int tool_run(const char *const argv[], struct err *err);
