/* SPDX-License-Identifier: Apache-2.0 */
/* ls_order.h - sorts lines that arrive page by page and writes them in the order of their keys. Early lines wait in an
 * anonymous file, never in memory. home: one thread at a time. */
#pragma once

#include "util/str.h"
#include <stdio.h>

struct ls_order;
struct ls_order *ls_order_new(FILE *out);
void ls_order_free(struct ls_order *o);

/* Adds the text of a page whose first key is `key`. `is_next`: every page with smaller keys was added before. */
must_check int ls_order_add(struct ls_order *o, struct str key, struct str text, bool is_next, struct err *err);
must_check int ls_order_end(struct ls_order *o, struct err *err);
