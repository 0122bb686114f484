/* SPDX-License-Identifier: Apache-2.0 */
/* orders.h - Caches this node's CisternVolumes (orders) by name, as last listed or received.
 * home: any thread, under its lock. */
#pragma once

#include "api/volume.h"

struct orders;

enum { ORDERS_MAX = 8192 };

struct orders *orders_new(void);
void orders_free(struct orders *own_s); /* NULL is fine */

/* The order as last seen, a copy of the caller's; NULL: unknown. */
struct api_volume *orders_get(struct orders *s, const char *name);
/* When this node last wrote its status, in clock_now_ns; 0: never. */
uint64_t orders_written_ns(struct orders *s, const char *name);

/* Stores the server's reply to a write, unless it is older than the known object. Removes metadata.managedFields from
 * `object`: unused, and half of its size. */
void orders_put(struct orders *s, const char *name, json *object, bool active, uint64_t written_ns);
void orders_set_active(struct orders *s, const char *name, bool active);
size_t orders_active(struct orders *s); /* the number of active orders */
void orders_drop(struct orders *s, const char *name);

/* A list, by one thread at a time: begin (again: pages until then are void), pages, end. The end drops orders that were
 * in no page. */
void orders_list_begin(struct orders *s);
void orders_list_end(struct orders *s);
/* Calls `each` for the orders that changed since the last list (`all`: for every order), and with an error for objects
 * that cannot be read. ERR_NO_SPACE when there are more than ORDERS_MAX. */
must_check int orders_list_page(struct orders *s, json *items, bool all,
                                void (*each)(void *ctx, const char *name, const struct err *err), void *ctx,
                                struct err *err);
/* The names of all orders; the caller frees the array and its *ret_count strings. */
char **orders_names(struct orders *s, size_t *ret_count);
bool orders_has(struct orders *s, const char *name);
