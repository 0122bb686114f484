/* SPDX-License-Identifier: Apache-2.0 */
/* informer_private.h - shared by informer.c (list, watch, resume) and informer_copy.c (updates, callbacks, lookups).
 * home: the client's loop; the copy: any, under .lock. */
#pragma once

#include "client_private.h"
#include "informer_objects.h"
#include "kube/informer.h"
#include "watch_line.h"
#include <pthread.h>

/* A thread in kube_informer_wait; on its stack. */
struct informer_waiter {
    struct list_node node;
    struct str key;
    pthread_cond_t woken;
    bool changed;
};

struct kube_informer {
    struct kube *kube; /* borrowed: it outlives us */
    struct kube_informer_options options;
    char *ns, *label_selector, *field_selector; /* owned */
    struct kube_exchange *exchange;             /* the running list or watch */
    struct timer again;                         /* the pause between them */
    struct line_splitter lines;                 /* of the watch */
    char *version;                              /* owned: version of the last object; NULL: a list is needed */
    uint64_t generation;                        /* number of the running list, or the last one */
    size_t current; /* objects of this generation; the others are removed at the end of the list */
    unsigned page_size;
    unsigned failures; /* in a row */
    unsigned useless;  /* successive watches that failed before any valid data */
    uint64_t watch_began_ns;
    bool list_failed; /* an item could not be stored, see err */
    struct err err;
    struct metric_series *over_limit; /* 1: more objects than objects_max; NULL: decides_nothing */
    struct metric_series *count;      /* objects of the copy; NULL: likewise */
    enum err_code reported_code;      /* the last reported error, and when */
    uint64_t reported_ns;
    atomic_bool synced; /* the copy has all objects */

    pthread_mutex_t lock; /* guards the fields below; the loop alone writes, and reads without it */
    struct informer_objects objects;
    struct list waiters;
};

/* informer_copy.c: the loop */
void informer_copy_begin_list(struct kube_informer *i);
must_check int informer_copy_put(struct kube_informer *i, json *tree, struct err *err); /* removes unused fields */
must_check int informer_copy_remove(struct kube_informer *i, const json *object, struct err *err);
void informer_copy_sweep(struct kube_informer *i); /* removes objects that the last list does not have */
