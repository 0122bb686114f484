/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - a work queue: keys of objects to be looked at, each by one thread at a time, again until it succeeds.
 * home: any thread adds; the queue's own threads run `reconcile`, which may wait.
 *
 * A key that is added while it waits is there once; one that is added while it is worked on comes again afterwards. A
 * failure brings it back after an exponential back-off of its own, success forgets that. Due keys are taken in the
 * order in which they became due. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct kube_queue;

struct kube_queue_options {
    const char *name;         /* of the threads, at most 11 bytes: "populate" gives "populate/0". Static */
    unsigned threads;         /* 0: 1 */
    unsigned keys_max;        /* known at once; 0: 100,000. A key more is refused, see kube_queue_add */
    uint64_t backoff_base_ns; /* 0: 50 ms */
    uint64_t backoff_cap_ns;  /* 0: 60 s */
    void *ctx;
    /* Brings the world nearer to what the object named `key` wants; from scratch each time, knowing nothing of why it
     * was called. 0: done; with *again_ns set, it is called again after that. Negative: again after the back-off. */
    int (*reconcile)(void *ctx, struct str key, uint64_t *again_ns, struct err *err);
    /* What failed: to be logged there. `attempt` counts from 1. On the queue's thread; may be NULL. */
    void (*on_failure)(void *ctx, struct str key, const struct err *err, unsigned attempt, uint64_t wait_ns);
};

must_check int kube_queue_new(const struct kube_queue_options *o, struct kube_queue **ret, struct err *err);
void kube_queue_free(struct kube_queue *q); /* begins nothing more, waits for what runs; NULL is fine */
DEFINE_AUTO(kube_queue, struct kube_queue, kube_queue_free)
#define auto_kube_queue auto_with(auto_clean_kube_queue) struct kube_queue *

/* Due now, whatever delay or back-off it had. False: keys_max is reached (or the key is empty, or longer than 512
 * bytes) and it was not taken: only a resync will bring it. */
bool kube_queue_add(struct kube_queue *q, struct str key);
/* Due after `delay_ns`, or earlier if it is due earlier. */
bool kube_queue_add_after(struct kube_queue *q, struct str key, uint64_t delay_ns);

size_t kube_queue_length(struct kube_queue *q); /* keys known: due, delayed and worked on */
