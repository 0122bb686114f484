/* SPDX-License-Identifier: Apache-2.0 */
/* single.h - Finds the object that a URI without a slash at its end names. It never names a prefix: a mistyped name
 * would select other objects than were meant. home: the worker's loop. */
#pragma once

#include "store/store.h"

struct store_single {
    struct store *store;
    struct worker *worker;
    void *ctx;
    /* Called once, with an error or the object, which is borrowed until it returns. Neither: no object has the
     * key. */
    void (*on_done)(void *ctx, const struct store_object *object, const struct err *err, unsigned requests);
    struct store_job *job; /* NULL: no request is running */
    unsigned requests;
};

bool store_names_object(const struct store *s);

/* `s` stays in place until on_done. */
void store_single_find(struct store_single *s);
void store_single_cancel(struct store_single *s); /* nothing if no request is running */

/* The error of a URI that selects no object, after `excluded` objects that filters left out. ERR_NOT_FOUND. */
int store_found_nothing(const struct store *s, const char *uri, uint64_t excluded, struct err *err);
