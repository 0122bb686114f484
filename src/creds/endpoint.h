/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h - "https://host:port/path" taken apart. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Views into the text. */
struct endpoint {
    bool tls;
    struct str authority; /* host, and the port unless it is the scheme's default: as in the Host header */
    struct str host;
    struct str path; /* without a trailing '/'; may be empty */
};

must_check int endpoint_parse(struct str text, struct endpoint *ret, struct err *err);
bool endpoint_is_address(struct str host); /* an IPv4 or [IPv6] address */
