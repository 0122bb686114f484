/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the orders of this node as they were last listed or answered, by name. home: any thread, under its lock. */
#pragma once

#include "api/volume.h"

struct store;

enum { STORE_MAX = 8192 };

struct store *store_new(void);
void store_free(struct store *own_s); /* NULL is fine */

/* The order as it is known: a struct of the caller's. NULL: there is none of that name. */
struct api_volume *store_get(struct store *s, const char *name);
/* Whenever something was written last to its status, in clock_now_ns; 0: never. */
uint64_t store_written_ns(struct store *s, const char *name);

/* What the server answered to a write of ours: taken unless it is older than what is known. */
void store_put(struct store *s, const char *name, const json *object, bool active, uint64_t written_ns);
void store_set_active(struct store *s, const char *name, bool active);
size_t store_active(struct store *s); /* how many are */
void store_drop(struct store *s, const char *name);

/* A list: those that are not in it are dropped, `each` is told the names of all that are. Objects that cannot be read
 * are told to `each` with the error. ERR_NO_SPACE for more than STORE_MAX: nothing is changed. */
must_check int store_replace(struct store *s, const json *items,
                             void (*each)(void *ctx, const char *name, const struct err *err), void *ctx,
                             struct err *err);
/* The names of all orders: an array of *ret_count, which the caller frees with its strings. */
char **store_names(struct store *s, size_t *ret_count);
bool store_has(struct store *s, const char *name);
