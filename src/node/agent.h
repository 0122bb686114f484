/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - Carries out this node's CisternVolumes (orders): creates, changes and releases volumes, and writes their
 * status and that of the node's CisternPools.
 * home: any thread starts and stops it. Its loop "loop/kube" serves the API server, its threads "agent/N" the disk.
 *
 * No call of the kubelet waits for it. While the API server is down it retries, and reports later: all state is on the
 * disk. Two agents of one node (a roll) do no harm: each reads the disk for each step, and the locks let one act. */
#pragma once

#include "driver/driver.h"
#include "kube/config.h"

struct agent;

struct agent_options {
    struct driver *driver;            /* borrowed */
    const struct kube_config *config; /* copied */
    const char *node;                 /* the Node object's name; copied */
    uint64_t resync_ns;               /* interval at which all orders are listed again; 0: 30 min */
};

must_check int agent_start(const struct agent_options *o, struct agent **ret, struct err *err);
void agent_stop(struct agent *own_a); /* NULL is fine */

/* Any thread: the state of this volume has changed. NULL: of a volume whose name is unknown. */
void agent_touch(struct agent *a, const char *volume_name);

/* Any thread: writes a gauge a claim (metrics.perVolume) as Prometheus text. Reads every order, so only for scrapes. */
void agent_write_metrics(struct agent *a, struct sbuf *b);
