/* SPDX-License-Identifier: Apache-2.0 */
/* orders.h - the orders of this node as they were last listed or answered, by name. home: any thread, under its lock.
 */
#pragma once

#include "api/volume.h"

struct orders;

enum { ORDERS_MAX = 8192 };

struct orders *orders_new(void);
void orders_free(struct orders *own_s); /* NULL is fine */

/* The order as it is known: a struct of the caller's. NULL: there is none of that name. */
struct api_volume *orders_get(struct orders *s, const char *name);
/* Whenever something was written last to its status, in clock_now_ns; 0: never. */
uint64_t orders_written_ns(struct orders *s, const char *name);

/* What the server answered to a write of ours: taken unless it is older than what is known. */
void orders_put(struct orders *s, const char *name, const json *object, bool active, uint64_t written_ns);
void orders_set_active(struct orders *s, const char *name, bool active);
size_t orders_active(struct orders *s); /* how many are */
void orders_drop(struct orders *s, const char *name);

/* A list: those that are not in it are dropped; `each` is told the names of those that have changed since the last
 * list, by whomever, or of `all`. Objects that cannot be read are told to `each` with the error. ERR_NO_SPACE for more
 * than ORDERS_MAX: nothing is changed. */
must_check int orders_replace(struct orders *s, const json *items, bool all,
                              void (*each)(void *ctx, const char *name, const struct err *err), void *ctx,
                              struct err *err);
/* The names of all orders: an array of *ret_count, which the caller frees with its strings. */
char **orders_names(struct orders *s, size_t *ret_count);
bool orders_has(struct orders *s, const char *name);
