/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The agent's shared state. home: frozen once it runs, except for members with a lock. */
#pragma once

#include "api/pool.h"
#include "dir_watch.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/queue.h"
#include "node/agent.h"
#include "orders.h"
#include "status.h"
#include "util/thread.h"
#include <stdatomic.h>

#define FIELD_MANAGER "cistern-node"
#define LIST_KEY "@list"
#define POOL_KEY "@pool/" /* and its number */

/* One CisternPool of this node. */
struct agent_pool {
    struct agent *agent; /* borrowed */
    struct pool *pool;   /* borrowed */
    char name[API_POOL_NAME_MAX + 1];
    struct kube_informer *informer; /* owned */
    pthread_mutex_t lock;           /* guards the members below */
    bool exists;                    /* the object, as last seen */
    uint64_t ordered;               /* spec.volumesGeneration, as last seen */
    uint64_t listed;                /* the generation whose volumes were listed */
    uint64_t quarantined;
    char *given_up;           /* owned: the pools that an administrator gave up; NULL: none */
    struct api_pool *written; /* owned: the status as last written; NULL: not since the start */
    uint64_t written_ns;
    bool unhealthy; /* reported already */
    bool was_open;  /* when it was last reconciled */
    char *uid;      /* owned: of the object; NULL: unknown */
};

struct agent {
    struct driver *driver; /* borrowed */
    char *node;            /* owned */
    uint64_t resync_ns;
    uint64_t looked_ns;          /* when all orders were last reconciled; only under LIST_KEY */
    struct loop *loop;           /* owned */
    struct kube *kube;           /* owned */
    struct orders *orders;       /* owned */
    struct kube_queue *queue;    /* owned */
    struct dir_watch *dir_watch; /* owned */
    struct kube_events *events;  /* owned */
    struct agent_pool pools[DRIVER_POOLS_MAX];
    size_t pool_count;
    struct metric_series *lost; /* cistern_data_loss_total */
};

/* One step for one order, as kube_queue_options.reconcile. */
must_check int agent_reconcile_volume(struct agent *a, const char *name, uint64_t *again_ns, struct err *err);

void agent_volume_moved(void *ctx, const char *name); /* for dir_watch_new() */

/* pool.c */
must_check int agent_reconcile_pool(struct agent_pool *p, uint64_t *again_ns, struct err *err);
void agent_watch_pool(struct agent_pool *p); /* starts its informer */
void agent_wake_pool(struct agent_pool *p);  /* queues it */
