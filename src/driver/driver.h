/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - CSI for one machine: volumes in its pools, mounted by its keeper. It needs no Kubernetes; in a
 * cluster it is the node's part. home: opened and closed by main; the handlers run on the threads of rpc. */
#pragma once

#include "csi/service.h"

struct driver;

enum { DRIVER_POOLS_MAX = 64 };

struct driver_pool {
    const char *name;                       /* "default" */
    const char *path;                       /* absolute */
    bool require_mount, is_ephemeral;       /* as in pool/pool.h */
    const struct local_disks_wanted *disks; /* borrowed; as in pool/pool.h */
};

struct driver_options {
    const char *node_id; /* at most 63 bytes: it is a topology value too */
    bool is_node;        /* in a cluster: Kubernetes runs hydrations and exports, and the keeper is a pod of its own */
    const char *state_directory; /* absolute; the keeper's socket is in it */
    const char *memory;          /* a directory that outlives reboots: records which pool was at which path */
    const char *given_up;        /* UUIDs of pools that an administrator gave up, separated by commas; NULL: none */
    const char *programs;        /* directory of `cistern` and `cistern-keeper` */
    unsigned reserve_percent;
    uint64_t metrics_ns;             /* interval of the metrics of pools and volumes; 0: none */
    const struct driver_pool *pools; /* one at least */
    size_t pool_count;
    /* A volume was mounted, grown and so on; `volume_name` is CreateVolume's. On a call's thread; must not wait. May be
     * NULL. */
    void (*changed)(void *ctx, const char *volume_name);
    void *ctx;
};

/* Opens the pools and resumes earlier work: hydrations, emptying the trash, duplicates of the keeper's descriptors. A
 * pool that cannot be opened is retried; until then calls for its volumes get ERR_ABSENT. Strings are copied. */
must_check int driver_open(const struct driver_options *o, struct driver **ret, struct err *err);

/* Call it after the last reply. Mounts, their keeper and the children stay for the next driver. A keeper without a
 * mount is ended. */
void driver_close(struct driver *own_d);

/* CSI for rpc_server_start(). A node has no Controller service. */
struct csi_service *driver_service(struct driver *d);
