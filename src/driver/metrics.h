/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - Metrics of pools, volumes, mounts and transfers. */
#pragma once

#include "export/verdict.h"
#include "hydrate/status.h"
#include "pool/pool.h"

struct mirror;

/* home: any thread starts and stops it. It reads the disk on a thread of its own, so that a scrape never waits for
 * a disk. It waits 10 s for a keeper that hangs, and never for a mount. Values are as old as the interval. Where
 * reading takes long they are older: the thread rests 19 times as long as it reads. */
struct driver_metrics;

/* `pools`, the keeper's socket and the mirror outlive it; the node's name is copied. The first values are there when
 * it returns. */
must_check int driver_metrics_start(const char *node, struct pool *const *pools, size_t count,
                                    const char *keeper_socket, struct mirror *mirror, uint64_t interval_ns,
                                    struct driver_metrics **ret, struct err *err);
void driver_metrics_stop(struct driver_metrics *own_g); /* waits for the running round; NULL is fine */

/* ---- transfer_metrics.c ------------------------------------------------------------------------------------------ */

/* Counters of bytes and objects that hydrations and exports moved. Their processes end with their Jobs, so the
 * counts come from the files in the volumes. home: one thread. Transfers before a volume was first read are not
 * counted, unless their run began after transfer_metrics_new(): a restarted driver counts nothing twice. */
struct transfer_metrics;

struct transfer_metrics *transfer_metrics_new(const char *node); /* the name is copied */
void transfer_metrics_free(struct transfer_metrics *own_t);      /* NULL is fine */

/* A pass over a pool's volumes, in the order of their ids. Volumes that the pass does not visit are dropped at its
 * end. */
void transfer_metrics_begin(struct transfer_metrics *t, size_t pool);
/* `h` NULL: no hydration has begun. */
void transfer_metrics_add(struct transfer_metrics *t, const struct volume *v, const struct hydrate_status *h,
                          const struct verdict *e);
void transfer_metrics_end(struct transfer_metrics *t);
