/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - what the parts of the agent share. home: frozen once it runs, but for what guards itself. */
#pragma once

#include "api/pool.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/queue.h"
#include "next.h"
#include "node/agent.h"
#include "notify.h"
#include "orders.h"
#include <pthread.h>
#include <stdatomic.h>

#define FIELD_MANAGER "cistern-node"
#define LIST_KEY "@list"
#define POOL_KEY "@pool/" /* and its number */

/* One CisternPool of ours. */
struct agent_pool {
    struct agent *agent; /* borrowed */
    struct space *space; /* borrowed */
    char name[API_POOL_NAME_MAX + 1];
    struct kube_informer *informer; /* owned */
    pthread_mutex_t lock;           /* guards what follows */
    bool exists;                    /* the object does, as far as we know */
    uint64_t ordered;               /* spec.volumesGeneration, as last seen */
    uint64_t listed;                /* the one whose volumes were listed */
    uint64_t quarantined;
    char *given_up;           /* owned: the pools that an administrator gave up, as last seen; NULL: none */
    struct api_pool *written; /* owned: the status as we wrote it last; NULL: not since we began */
    uint64_t written_ns;
    bool ailing; /* it was logged */
    char *uid;   /* owned: of the object; NULL: not known yet */
};

struct agent {
    struct driver *driver; /* borrowed */
    char *node;            /* owned */
    uint64_t resync_ns;
    uint64_t looked_ns;         /* when all orders were looked at last; one thread at a time works at LIST_KEY */
    struct loop *loop;          /* owned */
    struct kube *kube;          /* owned */
    struct orders *orders;      /* owned */
    struct kube_queue *queue;   /* owned */
    struct notify *notify;      /* owned */
    struct kube_events *events; /* owned */
    struct agent_pool pools[DRIVER_POOLS_MAX];
    size_t pool_count;
    struct timer beat;
    _Atomic uint64_t beat_ns;
    struct metric_series *lost; /* cistern_data_loss_total */
};

/* One step for one order: volumes.c. As kube_queue_options.reconcile. */
must_check int reconcile_volume(struct agent *a, const char *name, uint64_t *again_ns, struct err *err);

void volume_moved(void *ctx, const char *name); /* as notify_new() wants it */

/* A warning on the order and on its claim. Best effort. */
void volume_warn(struct agent *a, const struct api_volume *v, const char *reason, const char *message);

/* Which pool the API server says was at this one's place. */
struct witness {
    char *uuid;     /* owned; NULL: none was */
    char *who;      /* owned; names it */
    char *given_up; /* owned; NULL: none was */
};
void witness_done(struct witness *w); /* may run twice */
/* Blocks. `orders_too`: they are asked where the CisternPool names none. */
must_check int witness_ask(struct agent_pool *p, bool orders_too, struct witness *ret, struct err *err);

/* pool.c */
must_check int reconcile_pool(struct agent_pool *p, uint64_t *again_ns, struct err *err);
void pool_watch(struct agent_pool *p);                           /* starts its informer */
void pool_wake(struct agent_pool *p);                            /* its object is to be looked at */
void pool_found(struct agent_pool *p, const struct api_meta *m); /* its object is there */
