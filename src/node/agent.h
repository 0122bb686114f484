/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - the node's half of the orders: it keeps its CisternPools, makes, changes and releases the volumes that
 * CisternVolumes of this node ask for, and tells in their status what it sees.
 * home: any thread starts and stops it. It has a loop "loop/kube" for the API server, and threads "agent/N" for the
 * disk.
 *
 * Nothing that the kubelet asks for waits for it. While the API server is down it tries again, and what it would have
 * said is said later: all of it is on the disk. Two agents of one node (a roll) do no harm: each reads the disk anew
 * for each step, and the locks there let one of them act. */
#pragma once

#include "csi/service.h"
#include "kube/config.h"

struct agent;

struct agent_options {
    struct driver *driver;            /* borrowed */
    const struct kube_config *config; /* copied */
    const char *node;                 /* the Node object's name; copied */
    uint64_t resync_ns;               /* how often all orders are listed again for no reason; 0: 30 min */
};

must_check int agent_start(const struct agent_options *o, struct agent **ret, struct err *err);
void agent_stop(struct agent *own_a); /* NULL is fine */

/* Any thread: something about this volume is other than before. NULL: about one whose name is not known. */
void agent_touch(struct agent *a, const char *volume_name);

/* Any thread: a gauge a claim (metrics.perVolume), as Prometheus text. It reads every order: for a scrape, not more. */
void agent_write_metrics(struct agent *a, struct sbuf *b);

/* Does its loop turn? For the liveness probe: an API server that is down is no reason to say no. */
bool agent_is_alive(const struct agent *a);
