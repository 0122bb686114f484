/* SPDX-License-Identifier: Apache-2.0 */
/* exit.h - maps errors to the exit codes of `cistern`. Pure. */
#pragma once

#include "util/err.h"
#include <stdbool.h>

enum exit_code {
    EXIT_DONE = 0,
    EXIT_SOME_FAILED = 1, /* the run ended; some objects failed */
    EXIT_USAGE = 2,
    EXIT_NOT_FOUND = 3, /* the source */
    EXIT_DENIED = 4,
    EXIT_TRANSIENT = 5, /* temporary errors persisted after the retries */
    EXIT_NO_SPACE = 6,
    EXIT_MISMATCH = 7,    /* checksum or generation */
    EXIT_INTERRUPTED = 8, /* resumable */
    EXIT_EMPTY = 9,       /* the source selects no object */
    EXIT_ENVIRONMENT = 10,
};

enum exit_code exit_code_of(enum err_code code);

/* Writes the whole line of err_line() to stderr as "cistern: ...", or, with `json`, one object
 * {"type":"error","time":...,"error":{"id","code","message"}} to stdout; returns exit_code_of(). */
enum exit_code exit_with(const struct err *err, bool json);
