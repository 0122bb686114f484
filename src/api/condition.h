/* SPDX-License-Identifier: Apache-2.0 */
/* condition.h - reads, sets and writes the conditions of an object's status.
 * home: the object's owner. Strings are owned. */
#pragma once

#include "util/err.h"
#include "util/json.h"

enum { API_CONDITIONS_MAX = 16, API_MESSAGE_MAX = 512 };

enum api_truth { API_UNKNOWN, API_TRUE, API_FALSE };

struct api_condition {
    char *type;            /* "Provisioned" */
    enum api_truth status; /* "Unknown", "True", "False" */
    char *reason;          /* for example "NodeFull"; empty only in a condition that another program wrote */
    char *message;         /* for people; at most API_MESSAGE_MAX bytes */
    int64_t since_ns;      /* wall clock: when `status` last changed */
    uint64_t observed_generation;
};

struct api_conditions {
    struct api_condition items[API_CONDITIONS_MAX];
    size_t count;
};

/* NULL if missing. */
const struct api_condition *api_condition_find(const struct api_conditions *c, const char *type);
bool api_condition_is(const struct api_conditions *c, const char *type, enum api_truth status);
/* True if the condition has this status and this reason. */
bool api_condition_says(const struct api_conditions *c, const char *type, enum api_truth status, const char *reason);

/* Sets a condition; its time changes only with its status. True if it must be written: a member other than the
 * generation changed. If all API_CONDITIONS_MAX are in use, a new type takes the place of another program's. */
bool api_condition_set(struct api_conditions *c, const char *type, enum api_truth status, const char *reason,
                       uint64_t generation, int64_t now_ns, const char *fmt, ...) printf_like(7, 8);

/* Reads `status.conditions`, at most API_CONDITIONS_MAX. A condition without type or status is ERR_INVALID. */
must_check int api_conditions_read(const json *j, struct api_conditions *ret, struct err *err);
json *api_conditions_json(const struct api_conditions *c); /* an array; the caller frees */
void api_conditions_done(struct api_conditions *c);        /* may run twice */
