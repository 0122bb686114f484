/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - The checks of `cistern doctor`, and how they report. home: main. */
#pragma once

#include "util/err.h"
#include "util/macro.h"
#include <stdbool.h>

enum doctor_result { DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL };

/* doctor_report.c: prints one result: the check, and a sentence with the finding and the remedy. */
void doctor_say(enum doctor_result result, const char *check, const char *fmt, ...) printf_like(3, 4);
void doctor_say_err(enum doctor_result result, const char *check, const struct err *err);
void doctor_print_summary(void);
bool doctor_has_failed(void);

/* doctor_machine.c */
void doctor_machine(void);             /* kernel, privileges, limits, io_uring */
void doctor_fuse(const char *backing); /* mounts a directory made below `backing` */
void doctor_pool(const char *text);    /* of --pool: identity, backend, free space */

/* doctor_source.c */
void doctor_source(const char *uri); /* endpoint, clock skew, one page of the listing */
