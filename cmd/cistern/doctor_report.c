/* SPDX-License-Identifier: Apache-2.0 */
#include "cistern.h"
#include "cli/term.h"
#include "doctor.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>

enum { REPORT_SECONDS = 4 }; /* of a wait */

static unsigned counts[DOCTOR_FAIL + 1];

static void print_line(enum doctor_result result, const char *check, const char *text)
{
    static const char *const names[] = {"pass", "warn", "fail"};
    counts[result]++;
    if (globals.json) {
        auto_sbuf b = SBUF(TERM_LINE_MAX);
        term_json_begin(&b, "check");
        term_json_str(&b, "check", str_of(check));
        term_json_str(&b, "result", str_of(names[result]));
        term_json_str(&b, "message", str_of(text));
        term_json_end(&b, stdout);
    } else if (!globals.quiet || result == DOCTOR_FAIL) {
        printf("%s  %-12s %s\n", names[result], check, text);
        fflush(stdout);
    }
}

void doctor_say(enum doctor_result result, const char *check, const char *fmt, ...)
{
    char text[ERR_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_line(result, check, text);
}

void doctor_say_err(enum doctor_result result, const char *check, const struct err *err)
{
    char line[ERR_LINE_MAX];
    print_line(result, check, err_line(err, line, sizeof line));
}

bool doctor_print_summary(void)
{
    bool passed = counts[DOCTOR_FAIL] == 0;
    if (!globals.json) {
        printf("%u passed, %u warned, %u failed\n", counts[DOCTOR_PASS], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
        return passed;
    }
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    term_json_begin(&b, "summary");
    term_json_u64(&b, "pass", counts[DOCTOR_PASS]);
    term_json_u64(&b, "warn", counts[DOCTOR_WARN]);
    term_json_u64(&b, "fail", counts[DOCTOR_FAIL]);
    term_json_end(&b, stdout);
    return passed;
}

void doctor_wait(struct doctor_store *d)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    for (until.tv_sec += REPORT_SECONDS; sem_clockwait(&d->over, CLOCK_MONOTONIC, &until) != 0;)
        if (errno == ETIMEDOUT) {
            until.tv_sec += REPORT_SECONDS;
            if (!globals.quiet && !globals.json)
                fprintf(stderr, "cistern: waiting for an answer to '%s'\n", d->uri);
        }
}
