/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exit.h"
#include "cli/term.h"
#include <stdio.h>

enum exit_code exit_code_of(enum err_code code)
{
    switch (code) {
    case ERR_NOT_FOUND:
        return EXIT_NOT_FOUND;
    case ERR_DENIED:
        return EXIT_DENIED;
    case ERR_NO_SPACE:
        return EXIT_NO_SPACE;
    case ERR_CORRUPT:
    case ERR_CHANGED:
        return EXIT_MISMATCH;
    case ERR_IO:
    case ERR_TIMEOUT:
    case ERR_AGAIN:
        return EXIT_TRANSIENT;
    case ERR_CANCELLED:
        return EXIT_INTERRUPTED;
    case ERR_INVALID:
    case ERR_RANGE:
    case ERR_EXISTS:
        return EXIT_USAGE;
    case ERR_BUSY:
    case ERR_PENDING:
    case ERR_UNSUPPORTED:
    case ERR_INTERNAL:
    case ERR_ABSENT:
        return EXIT_ENVIRONMENT;
    }
    return EXIT_ENVIRONMENT;
}

enum exit_code exit_with(const struct err *err, bool json)
{
    if (json) {
        auto_sbuf b = SBUF(TERM_LINE_MAX);
        term_json_begin(&b, "error");
        term_json_error(&b, err);
        term_json_end(&b, stdout);
    } else {
        char line[ERR_LINE_MAX];
        fprintf(stderr, "cistern: %s\n", err_line(err, line, sizeof line));
    }
    return exit_code_of(err->code);
}
