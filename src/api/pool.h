/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - CisternPool: one a node and pool, `<node>.<pool>`. The node makes it and writes its status; the controller
 * moves spec.volumesGeneration when a volume of the pool is ordered or changed. It is the one object a node watches.
 * home: whoever owns the object; frozen where it is shared. */
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
    uint64_t volumes_generation; /* "your volumes changed" */
    char *given_up; /* annotation replace-pool: UUIDs of pools that an administrator gave up, separated by commas */
    /* status */
    uint64_t seen_volumes_generation; /* the last one whose volumes the node has listed */
    char *pool_uuid;                  /* SPEC_UUID_LEN hex digits; a new disk has another one */
    char *node_uid;                   /* of the Node object that the pool was made under */
    char *path;                       /* absolute, on the node: where Jobs find <path>/volumes/<id> */
    char *backend;                    /* "quota" "loop" */
    char *fs_type;
    uint64_t capacity_bytes, allocated_bytes, available_bytes, largest_volume_bytes;
    uint64_t volumes;
    uint64_t quarantined; /* of them: on the disk, and no CisternVolume knows them. They are kept */
    char *health;         /* "Healthy" "Unhealthy" */
    char *health_reason;  /* a sentence; NULL while healthy */
    char *agent_version;
};

must_check int api_pool_read(const json *j, struct api_pool **ret, struct err *err);
struct api_pool *api_pool_new(void);
void api_pool_free(struct api_pool *own_p);
DEFINE_AUTO(api_pool, struct api_pool, api_pool_free)
#define auto_api_pool auto_with(auto_clean_api_pool) struct api_pool *

/* "node1.default". ERR_INVALID if it is too long, or `pool` is no DNS label. */
must_check int api_pool_name(const char *node, const char *pool, char ret[API_POOL_NAME_MAX + 1], struct err *err);

/* Wakes the node of the pool of this name: after an order was written, which it is to find then. `fence` may be NULL. A
 * pool that is not there has nobody to wake: success. Blocks. */
must_check int api_pool_wake(struct kube *k, const struct kube_lease *fence, const char *name, struct err *err);

json *api_pool_json(const struct api_pool *p);        /* to be created, by the node; the caller frees */
json *api_pool_status_json(const struct api_pool *p); /* what the node applies to `status`; the caller frees */

bool api_pool_is_healthy(const struct api_pool *p);
