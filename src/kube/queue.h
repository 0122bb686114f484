/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - a work queue of keys: each is reconciled by one thread at a time, and retried until it succeeds.
 * home: any thread adds; the queue's own threads run `reconcile`, which may wait.
 *
 * A key that is added while it waits is queued once. A key that is added while it runs is queued again. A failed key is
 * retried after an exponential back-off, which success resets. Keys run in the order in which they become due. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct kube_queue;

struct kube_queue_options {
    const char *name;         /* of the threads, at most 11 bytes: "populate" gives "populate/0". Static */
    unsigned threads;         /* 0: 1 */
    unsigned keys_max;        /* limit of known keys; 0: 100,000. Further keys are refused, see kube_queue_add */
    uint64_t backoff_base_ns; /* 0: 50 ms */
    uint64_t backoff_cap_ns;  /* 0: 60 s */
    void *ctx;
    /* Reconciles the object `key` with its desired state, without knowing why it was called. 0: done; *again_ns: call
     * it again after that. Negative: call it again after the back-off. */
    int (*reconcile)(void *ctx, struct str key, uint64_t *again_ns, struct err *err);
    /* Logs a failure. `attempt` counts from 1. On the queue's thread; may be NULL. */
    void (*on_failure)(void *ctx, struct str key, const struct err *err, unsigned attempt, uint64_t wait_ns);
};

must_check int kube_queue_new(const struct kube_queue_options *o, struct kube_queue **ret, struct err *err);
/* Waits for running keys; no other starts, and keys that are added from then on stay where they are. May run twice;
 * NULL is fine. */
void kube_queue_stop(struct kube_queue *q);
void kube_queue_free(struct kube_queue *q); /* stops it, too; NULL is fine */
DEFINE_AUTO(kube_queue, struct kube_queue, kube_queue_free)
#define auto_kube_queue auto_with(auto_clean_kube_queue) struct kube_queue *

/* Makes the key due now, whatever its delay or back-off. False if it was refused: keys_max is reached, or the key
 * is empty or longer than 512 bytes. Only the next change of its object adds it again. */
bool kube_queue_add(struct kube_queue *q, struct str key);
/* Makes the key due after `delay_ns`, unless it is due earlier. */
bool kube_queue_add_after(struct kube_queue *q, struct str key, uint64_t delay_ns);

size_t kube_queue_length(struct kube_queue *q); /* keys known: due, delayed and worked on */
