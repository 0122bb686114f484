/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - translates replies of the API server into results and error codes. home: any; pure. */
#pragma once

#include "util/json.h"

struct answer {
    const char *what; /* "get pods 'default/web-0'" */
    int http;         /* status */
    struct str type;  /* Content-Type */
    struct str retry; /* Retry-After */
    struct str body;
};

struct answer_outcome {
    bool unknown_to_server; /* 401 */
    bool has_retry_after;   /* the server did not process the request and says when to retry */
    uint64_t retry_after_ns;
    bool is_expired; /* 410: the requested version is too old */
};

/* 0 and the object, or the negative code. *out is set in any case. */
must_check int answer_read(const struct answer *a, json **ret, struct answer_outcome *out, struct err *err);

/* A Status object within a watch: always an error. */
int answer_of_status(const char *what, const json *status, struct answer_outcome *out, struct err *err);
