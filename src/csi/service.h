/* SPDX-License-Identifier: Apache-2.0 */
/* service.h - CSI for one machine: volumes in its pools, mounted by its keeper; all of it without any Kubernetes, or
 * the node's half of it in a cluster.
 * home: opened and closed by main; the handlers run on the threads of rpc. */
#pragma once

#include "rpc/server.h"

struct driver;

enum { DRIVER_POOLS_MAX = 64 };

struct driver_pool {
    const char *name;                 /* "default" */
    const char *path;                 /* absolute */
    bool require_mount, is_ephemeral; /* as in space.h */
};

struct driver_options {
    const char *node_id; /* at most 63 bytes: it is a topology value too */
    bool is_node;        /* of a cluster: Kubernetes runs hydrations and exports, and the keeper is a pod of its own */
    const char *state_folder; /* absolute; the keeper's socket is in it */
    const char *memory;       /* a directory that outlives reboots: which pool was where */
    const char *given_up;     /* UUIDs of pools that an administrator gave up, separated by commas; NULL: none */
    const char *programs;     /* folder of `cistern` and `cistern-keeper` */
    unsigned reserve_percent;
    uint64_t gauges_ns; /* read the metrics of pools and volumes anew so often, since somebody scrapes them; 0: never */
    const struct driver_pool *pools; /* one at least */
    size_t pool_count;
    /* Something about the volume of this name (CreateVolume's) is other than before: it was mounted, grown and so on.
     * On a call's thread; must not wait. NULL: nobody wants to know. */
    void (*changed)(void *ctx, const char *volume_name);
    void *ctx;
};

/* Opens the pools and takes up what was under way: hydrations go on, deleted volumes are freed, and the keeper's
 * descriptors are held in duplicate. A pool that is not here is tried again until it is; its volumes are answered
 * ERR_ABSENT until then. Strings are copied. */
must_check int driver_open(const struct driver_options *o, struct driver **ret, struct err *err);

/* After the last call was answered. Mounts, their keeper and the children stay: the next driver finds them. A keeper
 * without a mount is ended. */
void driver_close(struct driver *own_d);

/* The table for rpc_options.methods; its ctx is the driver. A node has no Controller service. */
const struct rpc_method *driver_methods(const struct driver *d, size_t *ret_count);
