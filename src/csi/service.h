/* SPDX-License-Identifier: Apache-2.0 */
/* service.h - Serves CSI over gRPC for any driver: checks and decodes requests, calls the driver's functions, encodes
 * replies. The node driver and the controller implement one or both of the tables below.
 * home: frozen once initialised; the functions run on the threads of rpc. Strings of requests and of results live as
 * long as the call.
 * Code: service.c, and request.c for csi_pairs_value() and csi_volume_not_found(). controller.c and node.c have the
 * methods. */
#pragma once

#include "csi/health.h"
#include "rpc/server.h"
#include "spec/id.h"
#include "spec/spec.h"
#include <proto/csi.pb-c.h>

/* ---- types ------------------------------------------------------------------------------------------------------- */

struct csi_pair {
    const char *key, *value;
};

struct csi_pairs {
    const struct csi_pair *items;
    size_t count;
};
const char *csi_pairs_value(struct csi_pairs pairs, const char *key); /* NULL if the key is missing */

/* A topology. Without a node and without another key it matches any node. */
struct csi_place {
    const char *node;      /* NULL: the topology does not name one */
    const char *other_key; /* the first key of a topology that does not name a node */
};

struct csi_create {
    const char *name;
    struct csi_pairs parameters, mutable_parameters;
    struct spec *spec;    /* made from both lists of parameters and checked; has name and capacity */
    uint64_t limit_bytes; /* 0: no limit */
    const struct csi_place *preferred, *requisite;
    size_t preferred_count, requisite_count;
};

struct csi_volume {
    const char *id, *node;
    uint64_t capacity_bytes;
};

/* One page of a list of volumes, in the order of their ids. */
struct csi_page {
    struct volume_id after; /* list the ids above this one; empty: all */
    size_t max;
    struct volume_id next; /* set by list(): the id of this page's last volume if more follow */
    struct rpc_call *call;
    void *reply;
    void (*add)(struct csi_page *page, const struct csi_volume *v, const struct health *h);
};

struct csi_capacity {
    bool is_accessible; /* false: the topology excludes every pool */
    uint64_t available_bytes, largest_bytes;
};

/* NodeStageVolume and NodePublishVolume. */
struct csi_mount {
    const char *staging_path, *target_path; /* target_path: of a publish */
    bool read_only, is_shared, has_group;
    uint32_t group;
    struct str context; /* the SELinux label; empty: none */
};

/* ---- functions of a driver --------------------------------------------------------------------------------------- */

struct csi_controller_ops {
    bool in_cluster; /* as spec.in_cluster */
    int (*set_parameter)(struct spec *s, struct str key, struct str value, struct err *err);
    bool (*is_ready)(void *ctx); /* NULL: always */
    int (*create)(void *ctx, struct rpc_call *call, const struct csi_create *q, struct csi_volume *ret,
                  struct err *err);
    int (*delete)(void *ctx, struct rpc_call *call, const struct volume_id *id, struct err *err);
    int (*get)(void *ctx, struct rpc_call *call, const struct volume_id *id, struct csi_volume *ret,
               struct health *ret_health, struct err *err);
    int (*list)(void *ctx, struct csi_page *page, struct err *err);
    /* `where` NULL: on all nodes. */
    int (*capacity)(void *ctx, const struct spec *class, const struct csi_place *where, struct csi_capacity *ret,
                    struct err *err);
    int (*expand)(void *ctx, const struct volume_id *id, const Csi__V1__CapacityRange *range, uint64_t *ret_bytes,
                  bool *ret_on_node, struct err *err);
    int (*modify)(void *ctx, const struct volume_id *id, struct csi_pairs changes, struct err *err);
};

/* `id` is NULL if the request's id is not one of Cistern's; `err` is set already. */
struct csi_node_ops {
    int (*stage)(void *ctx, const struct volume_id *id, const struct csi_mount *q, struct err *err);
    int (*unstage)(void *ctx, const struct volume_id *id, const char *path, struct err *err);
    int (*publish)(void *ctx, struct rpc_call *call, const struct volume_id *id, const struct csi_mount *q,
                   struct err *err);
    int (*unpublish)(void *ctx, const struct volume_id *id, const char *path, struct err *err);
    int (*stats)(void *ctx, const struct volume_id *id, const char *path, Csi__V1__VolumeUsage *bytes,
                 Csi__V1__VolumeUsage *inodes, struct health *ret_health, struct err *err);
    int (*expand)(void *ctx, const struct volume_id *id, const char *path, const Csi__V1__CapacityRange *range,
                  uint64_t *ret_bytes, struct err *err);
    /* `path` "": wherever the volume is. */
    int (*health)(void *ctx, const struct volume_id *id, const char *path, struct health *ret, struct err *err);
    size_t (*pool_count)(void *ctx);
    int (*pool_health)(void *ctx, size_t pool, const char **ret_name, struct err *err);
};

enum { CSI_METHODS_MAX = 24 };

struct csi_service {
    const struct csi_controller_ops *controller; /* NULL: no Controller service */
    const struct csi_node_ops *node;             /* NULL: no Node service */
    void *ctx;                                   /* of the functions */
    const char *node_id;                         /* borrowed; of NodeGetInfo */
    int64_t volumes_max;                         /* of NodeGetInfo; 0: no limit */
    struct rpc_method
        methods[CSI_METHODS_MAX]; /* set by csi_service_init(); for rpc_options, with the service as ctx */
    size_t method_count;
};

/* Fills the table of methods. A method that is missing in it is answered UNIMPLEMENTED. */
void csi_service_init(struct csi_service *s);

/* rpc_options.answered: logs each call that failed, and at level debug every other one. */
void csi_log_call(void *ctx, const char *path, const struct err *err, uint64_t took_ns);

/* ERR_NOT_FOUND (CIS_VOLUME_NOT_FOUND) for the id as the caller wrote it. */
int csi_volume_not_found(const char *id, struct err *err);
/* ERR_PENDING for the token of a list. */
int csi_token_invalid(const char *token, struct err *err);
