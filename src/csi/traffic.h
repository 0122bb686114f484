/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - what hydrations and exports moved, as counters. Their processes end with their Jobs, and nobody scrapes
 * those: it is told from the files that they leave in their volumes.
 * home: one thread. What was moved before the first look at a volume is not counted, unless its run began after
 * traffic_new(): a driver that starts anew counts nothing twice. */
#pragma once

#include "export/verdict.h"
#include "hydrate/status.h"
#include "volume/volume.h"

struct traffic;

struct traffic *traffic_new(const char *node); /* the name is copied */
void traffic_free(struct traffic *own_t);      /* NULL is fine */

/* A round over a pool's volumes, in the order of their ids: what is not in it is forgotten at its end. */
void traffic_begin(struct traffic *t, size_t pool);
/* `h` NULL: no hydration has begun. */
void traffic_add(struct traffic *t, const struct volume *v, const struct hydrate_status *h, const struct verdict *e);
void traffic_end(struct traffic *t);
