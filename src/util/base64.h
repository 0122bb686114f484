/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - RFC 4648, the padded alphabet of headers and the unpadded one of JWT. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

void base64_add(struct sbuf *b, const void *bytes, size_t len);    /* section 4, padded */
void base64url_add(struct sbuf *b, const void *bytes, size_t len); /* section 5, unpadded */

/* Reads either alphabet, padded or not, and appends to `ret`. A blank, a foreign character, a wrong length or bits left
 * over are ERR_INVALID. */
must_check int base64_parse(struct str text, struct sbuf *ret, struct err *err);
