/* SPDX-License-Identifier: Apache-2.0 */
/* orders.h - the orders of this node as they were last listed or answered, by name.
 * home: any thread, under its lock. */
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

/* What the server answered to a write of ours: taken unless it is older than what is known. Of `object` as of a page,
 * metadata.managedFields go: nobody reads them, and they are half of it. */
void orders_put(struct orders *s, const char *name, json *object, bool active, uint64_t written_ns);
void orders_set_active(struct orders *s, const char *name, bool active);
size_t orders_active(struct orders *s); /* how many are */
void orders_drop(struct orders *s, const char *name);

/* A list, by one thread at a time: it begins (again: what came until then is void), its pages come, and at its end
 * those that were in none of them are dropped. */
void orders_list_begin(struct orders *s);
void orders_list_end(struct orders *s);
/* `each` is told the names of those that have changed since the last list, by whomever, or of `all`. Objects that
 * cannot be read are told to `each` with the error. ERR_NO_SPACE when there are more than ORDERS_MAX. */
must_check int orders_list_page(struct orders *s, json *items, bool all,
                                void (*each)(void *ctx, const char *name, const struct err *err), void *ctx,
                                struct err *err);
/* The names of all orders: an array of *ret_count, which the caller frees with its strings. */
char **orders_names(struct orders *s, size_t *ret_count);
bool orders_has(struct orders *s, const char *name);
