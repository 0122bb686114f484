/* SPDX-License-Identifier: Apache-2.0 */
/* lease.h - elects one leader among replicas by a coordination.k8s.io Lease.
 * home: the client's loop. kube_lease_is_held: any thread.
 *
 * A leader has renewed the lease within `renew_deadline`. Others take it over only after it was unchanged for
 * `duration`, by their own clock. So a leader that is stopped or cut off knows that its lead has ended before another
 * begins. Clocks may differ, but must run at about the same speed. Deleting the Lease object of a leader breaks this
 * guarantee. */
#pragma once

#include "kube/client.h"
#include "util/clock.h"
#include <stdatomic.h>

struct kube_lease {
    _Atomic uint64_t held_until_ns; /* of clock_boot_ns(); 0: not held */
};

struct kube_lease_options {
    struct str ns, name;
    struct str identity;        /* unique: the pod's name and uid. At most 128 bytes */
    uint64_t duration_ns;       /* 0: 15 s. In whole seconds: the object knows no other */
    uint64_t renew_deadline_ns; /* 0: two thirds of it */
    uint64_t retry_ns; /* interval of renewals, or of reads by others; 0: a third of `duration`. A watch shows a
                          released lease at once */
    void *ctx;
    void (*on_started)(void *ctx);
    void (*on_stopped)(void *ctx);                      /* also before kube_lease_free returns, if it led */
    void (*on_leader)(void *ctx, struct str identity);  /* another one leads now; may be NULL */
    void (*on_error)(void *ctx, const struct err *err); /* a request failed; tried again. May be NULL */
};

/* The loop, or any thread before it starts. Callbacks may not free it. The client must outlive it. */
struct kube_lease *kube_lease_new(struct kube *k, const struct kube_lease_options *o);

/* Releases the lease, on the loop: stops leading at once (on_stopped), and lets another replica lead without a
 * wait. Calls on_done after the release succeeded or failed; no callback follows. kube_lease_free without it keeps
 * the lease until it expires. */
void kube_lease_release(struct kube_lease *l, void (*on_done)(void *ctx));
void kube_lease_free(struct kube_lease *l); /* NULL is fine */
DEFINE_AUTO(kube_lease, struct kube_lease, kube_lease_free)

/* Any thread. The time for which no other replica can lead, even without a renewal; 0: the lease is not held. */
static inline uint64_t kube_lease_left_ns(const struct kube_lease *l)
{
    uint64_t until = atomic_load(&l->held_until_ns), now = clock_boot_ns();
    return until > now ? until - now : 0;
}

/* It may turn false a moment before on_stopped is called. NULL: there is no election, so always true. */
static inline bool kube_lease_is_held(const struct kube_lease *l)
{
    return !l || kube_lease_left_ns(l) > 0;
}
