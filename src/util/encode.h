/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h - base64 and percent-encoding, of headers, tokens and URLs. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

void base64_add(struct sbuf *b, const void *bytes, size_t len);    /* RFC 4648, section 4, padded: of headers */
void base64url_add(struct sbuf *b, const void *bytes, size_t len); /* section 5, unpadded: of JWT */

/* Reads either alphabet, padded or not, and appends to `ret`. False for a blank, a foreign character, a wrong length or
 * bits left over. */
must_check bool base64_parse(struct str text, struct sbuf *ret);

/* Appends `s` to `b` with all bytes encoded but A-Z a-z 0-9 - . _ ~, as AWS's signatures require. */
void percent_encode(struct str s, struct sbuf *b);
void percent_encode_path(struct str s, struct sbuf *b); /* '/' stays too */
/* Appends "name=value" of a form or a query, behind an '&' unless it is the first. */
void percent_encode_param(const char *name, struct str value, struct sbuf *b);

/* Decodes, also '+' to a blank (encoding-type=url). ERR_CORRUPT for a '%' without two hexadecimal digits. */
must_check int percent_decode(struct str s, struct sbuf *b, struct err *err);
