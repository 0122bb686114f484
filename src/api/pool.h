/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - reads and writes a CisternPool: `<node>.<pool>`, one for each pool of a node. The node creates it and writes
 * its status. The controller increases spec.volumesGeneration when it orders or changes a volume of the pool. A node
 * watches only this object. home: the object's owner; frozen while shared. */
#pragma once

#include "api/meta.h"
#include "kube/client.h"
#include "kube/resource.h"

#define API_POOL_KIND "CisternPool"
extern const struct kube_resource api_pools;

enum { API_POOL_NAME_MAX = 253 };

struct api_pool {
    struct api_meta meta;
    char *node;
    char *pool;
    uint64_t volumes_generation; /* a change: the node lists its volumes */
    char *given_up; /* annotation replace-pool: UUIDs of pools that an administrator gave up, separated by commas */
    /* status */
    uint64_t seen_volumes_generation; /* the volumesGeneration whose volumes the node has listed */
    char *pool_uuid;                  /* SPEC_UUID_LEN hex digits; a new disk has another one */
    char *node_uid;                   /* the uid of the Node object for which the pool was created */
    char *path;                       /* absolute, on the node: Jobs use <path>/volumes/<id> */
    char *backend;                    /* "quota" "loop" */
    char *fs_type;
    uint64_t capacity_bytes, allocated_bytes, available_bytes, largest_volume_bytes;
    uint64_t volumes;
    uint64_t quarantined; /* volumes on the disk without a CisternVolume: they are kept */
    char *health;         /* "Healthy" "Unhealthy" */
    char *health_reason;  /* a sentence; NULL while healthy */
    char *agent_version;
};

must_check int api_pool_read(const json *j, struct api_pool **ret, struct err *err);
struct api_pool *api_pool_new(void);
void api_pool_free(struct api_pool *own_p);
DEFINE_AUTO(api_pool, struct api_pool, api_pool_free)
#define auto_api_pool auto_with(auto_clean_api_pool) struct api_pool *

/* "node1.default". ERR_INVALID if it is too long, or `pool` is not a DNS label. */
must_check int api_pool_name(const char *node, const char *pool, char ret[API_POOL_NAME_MAX + 1], struct err *err);

/* Wakes the node of this pool after an order was written. `fence` may be NULL. A missing pool is success: it has no
 * node. Blocks. */
must_check int api_pool_wake(struct kube *k, const struct kube_lease *fence, const char *node, const char *pool,
                             struct err *err);

json *api_pool_json(const struct api_pool *p);        /* to create it; the caller frees */
json *api_pool_status_json(const struct api_pool *p); /* to apply to `status`; the caller frees */

bool api_pool_is_healthy(const struct api_pool *p);
