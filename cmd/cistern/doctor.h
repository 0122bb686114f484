/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - what the parts of `cistern doctor` share. home: main. */
#pragma once

#include "util/err.h"
#include "util/macro.h"
#include <stdbool.h>

enum doctor_result { DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL };

/* One line of the list: what was looked at, and a sentence with what was found and, unless it passed, what to do. */
void doctor_say(enum doctor_result result, const char *check, const char *fmt, ...) printf_like(3, 4);

/* The same for what went wrong on the way: the whole line of `err`. */
void doctor_say_err(enum doctor_result result, const char *check, const struct err *err);

void doctor_machine(void);             /* kernel, privileges, limits, io_uring */
void doctor_fuse(const char *backing); /* a tiny mount of a folder made below `backing` */
void doctor_pool(const char *text);    /* of --pool: identity, backend, free space */
void doctor_source(const char *uri);   /* endpoint, its clock against ours, a page of the listing */
