/* SPDX-License-Identifier: Apache-2.0 */
/* informer_private.h - what informer.c (list, watch, resume), informer_copy.c (what they bring goes into the copy and
 * is told) and informer_lookup.c (any thread) share. home: the client's loop; the copy: any, under .lock. */
#pragma once

#include "client_private.h"
#include "event_line.h"
#include "kube/informer.h"
#include "lines.h"
#include "objects.h"
#include <pthread.h>

/* A thread in kube_informer_wait; on its stack. */
struct waiter {
    struct waiter *next;
    struct str key;
    pthread_cond_t woken;
    bool changed;
};

enum informer_state { INFORMER_RESTING, INFORMER_LISTING, INFORMER_WATCHING };

struct kube_informer {
    struct kube *kube; /* borrowed: it outlives us */
    struct kube_informer_options options;
    char *ns, *label_selector, *field_selector; /* owned */
    enum informer_state state;
    struct kube_job *job; /* while LISTING or WATCHING */
    struct timer again;   /* while RESTING */
    struct timer resync;  /* a slice of it */
    size_t resync_slice;
    struct lines lines;  /* of the watch */
    char *version;       /* owned: the last one seen; NULL: a list is needed */
    uint64_t generation; /* of the list under way, or the last */
    unsigned page_size;
    unsigned failures; /* in a row */
    unsigned garbled;  /* watches in a row that brought nothing but what cannot be read */
    uint64_t watch_began_ns;
    bool list_failed; /* an item of it could not be taken: err says why */
    struct err err;
    enum err_code told_code; /* the trouble told last, and when */
    uint64_t told_ns;
    atomic_bool synced;

    pthread_mutex_t lock; /* guards what follows; the loop alone writes, and reads without it */
    struct objects objects;
    struct waiter *waiters;
};

/* informer_copy.c: the loop */
must_check int copy_put(struct kube_informer *i, json *tree, struct err *err); /* takes out of it what is not kept */
must_check int copy_remove(struct kube_informer *i, const json *object, struct err *err);
void copy_sweep(struct kube_informer *i); /* what the list of this generation has not, is gone */
void copy_resync(struct kube_informer *i, size_t slice, size_t slices);
