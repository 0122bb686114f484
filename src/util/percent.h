/* SPDX-License-Identifier: Apache-2.0 */
/* percent.h - percent-encoding: all but A-Z a-z 0-9 - . _ ~, as AWS's signatures require. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Appends the encoded text to `b`. Any byte is allowed. */
void percent_encode(struct str s, struct sbuf *b);
void percent_encode_path(struct str s, struct sbuf *b); /* '/' stays too */

/* Decodes; with `plus` also '+' to a blank (encoding-type=url). ERR_CORRUPT for a '%' without two hexadecimal
 * digits. */
must_check int percent_decode(struct str s, bool plus, struct sbuf *b, struct err *err);
