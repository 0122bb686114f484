/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - The checks of `cistern doctor`, and how they report. home: main. */
#pragma once

#include "io/worker.h"
#include "store/store.h"
#include "util/err.h"
#include "util/macro.h"
#include <semaphore.h>
#include <stdbool.h>

enum doctor_result { DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL };

/* doctor_report.c: prints one result: the check, and a sentence with the finding and the remedy. */
void doctor_say(enum doctor_result result, const char *check, const char *fmt, ...) printf_like(3, 4);
void doctor_say_err(enum doctor_result result, const char *check, const struct err *err);
bool doctor_print_summary(void); /* true: no check failed */

/* doctor_machine.c */
void doctor_machine(void);             /* kernel, privileges, limits, io_uring */
void doctor_fuse(const char *backing); /* mounts a directory made below `backing` */
void doctor_pool(const char *text);    /* of --pool: identity, backend, free space */

/* A store under test, and the loop that sends its requests. home: main. */
struct doctor_store {
    const char *uri; /* borrowed */
    struct store *store;
    struct worker worker;
    struct thread_pool *threads;
    sem_t over; /* posted by the loop when a request has ended */
};

struct doctor_purpose {
    bool is_source, is_export;
};

/* doctor_source.c: credentials, endpoint, clock skew, and the rights of each purpose. */
void doctor_uri(const char *uri, const struct doctor_purpose *p);

/* doctor_report.c: until a request has ended; says on stderr that it waits. */
void doctor_wait(struct doctor_store *d);

/* doctor_rights.c: tries each right that a source or an export needs, by a request that needs no other right. */
void doctor_try_source(struct doctor_store *d);
void doctor_try_export(struct doctor_store *d);
