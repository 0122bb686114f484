/* SPDX-License-Identifier: Apache-2.0 */
/* web_error.h - Translates libcurl's codes into errors. home: any thread; pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <curl/curl.h>

/* The beginning of libcurl's own words for a name that was looked up in vain until the timeout. */
#define WEB_UNRESOLVED "Resolving timed out"

struct web_failure {
    CURLcode code;
    const char *detail; /* libcurl's own words; may be "" */
    const char *url;
    int sys;        /* errno of the socket, 0 if unknown */
    bool connected; /* a connection was established */
    bool has_proxy; /* the environment names one */
};

/* "scheme://host:port" of a URL without user, path and query, which may hold secrets. A view of `url`. */
struct str web_origin(const char *url);

/* Sets *err; returns -code. Sentences name the origin. */
int web_translate(const struct web_failure *f, struct err *err);
