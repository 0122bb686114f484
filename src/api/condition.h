/* SPDX-License-Identifier: Apache-2.0 */
/* condition.h - status.conditions: what is true of an object, since when, and why.
 * home: whoever owns the object. Strings are owned. */
#pragma once

#include "util/err.h"
#include "util/json.h"

enum { API_CONDITIONS_MAX = 16, API_MESSAGE_MAX = 512 };

enum api_truth { API_UNKNOWN, API_TRUE, API_FALSE };

struct api_condition {
    char *type;            /* "Provisioned" */
    enum api_truth status; /* "Unknown", "True", "False" */
    char *reason;          /* "NodeFull"; never empty where it is written */
    char *message;         /* for people; at most API_MESSAGE_MAX bytes */
    int64_t since_ns;      /* of the last change of status; wall clock */
    uint64_t observed_generation;
};

struct api_conditions {
    struct api_condition items[API_CONDITIONS_MAX];
    size_t count;
};

/* NULL if there is none of this type. */
const struct api_condition *api_condition_find(const struct api_conditions *c, const char *type);
bool api_condition_is(const struct api_conditions *c, const char *type, enum api_truth status);
/* Is it of this status and for this reason? */
bool api_condition_says(const struct api_conditions *c, const char *type, enum api_truth status, const char *reason);

/* Puts a condition, whose time moves only if its status does. True if anything but the generation is other than before,
 * so that it is worth writing. One more than API_CONDITIONS_MAX types is an assertion: types are constants. */
bool api_condition_set(struct api_conditions *c, const char *type, enum api_truth status, const char *reason,
                       uint64_t generation, int64_t now_ns, const char *fmt, ...) printf_like(7, 8);

/* Of `status.conditions`. More than we can hold are left out; one without type or status is ERR_INVALID. */
must_check int api_conditions_read(const json *j, struct api_conditions *ret, struct err *err);
json *api_conditions_json(const struct api_conditions *c); /* an array; the caller frees */
void api_conditions_done(struct api_conditions *c);        /* may run twice */
