/* SPDX-License-Identifier: Apache-2.0 */
/* percent.h - percent-encoding: all but A-Z a-z 0-9 - . _ ~, as AWS's signatures want it. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Appended to `b`. Any byte may come. */
void percent_encode(struct str s, struct sbuf *b);
void percent_encode_path(struct str s, struct sbuf *b); /* '/' stays too */

/* Undoes it, and '+' for a blank where `plus` is set (encoding-type=url). ERR_CORRUPT for a '%' that two hexadecimal
 * digits do not follow. */
must_check int percent_decode(struct str s, bool plus, struct sbuf *b, struct err *err);
