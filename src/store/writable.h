/* SPDX-License-Identifier: Apache-2.0 */
/* writable.h - Tests the right to write objects below the prefix of a store, and writes none. home: the worker's loop.
 *
 * A store that always honours conditions gets a PUT whose condition cannot hold. Any other store gets an upload that is
 * begun and aborted. Before that, an upload that does not exist is aborted: without the right to abort, none is begun.
 * Needs no rights beyond those of an export. */
#pragma once

#include "store/store.h"

enum { STORE_WRITABLE_KEY_MAX = 2048 };

struct store_writable {
    struct store *store;
    struct worker *worker;
    const char *storage_class; /* of the objects; NULL: the bucket's */
    void *ctx;
    void (*on_done)(void *ctx, const struct err *err); /* once; NULL: objects may be written */
    struct store_job *job;                             /* NULL: no request is running */
    char key[STORE_WRITABLE_KEY_MAX], upload_id[STORE_WRITABLE_KEY_MAX];
    size_t key_len;
};

/* `w` stays in place until on_done. */
void store_writable_test(struct store_writable *w);
void store_writable_cancel(struct store_writable *w); /* nothing if no request is running */
