/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - what the handlers share. home: frozen once open; the parts have locks of their own. */
#pragma once

#include "claims.h"
#include "contract/caps.h"
#include "contract/request.h"
#include "gauges.h"
#include "jobs.h"
#include "keeping.h"
#include "service.h"
#include "trash.h"
#include "volume/record.h"
#include "volume/space.h"
#include <pthread.h>

struct driver {
    bool is_node;
    void (*changed)(void *ctx, const char *volume_name); /* NULL: nobody wants to know */
    void *ctx;
    char *node_id;                          /* owned */
    char *programs;                         /* owned */
    char *keeper_socket;                    /* owned */
    char *given_up;                         /* owned */
    struct space *spaces[DRIVER_POOLS_MAX]; /* owned; open or not */
    size_t space_count;
    pthread_mutex_t opening; /* guards .trouble, and what follows the opening of a pool */
    struct err *trouble;     /* owned; of each pool, the last that was logged */
    struct ticker *opener;   /* owned */
    struct claims claims;
    struct jobs *jobs;       /* owned; NULL: Kubernetes runs them */
    struct trash *trash;     /* owned */
    struct mirror *mirror;   /* owned */
    struct keeping *keeping; /* owned */
    struct gauges *gauges;   /* owned; NULL: nobody scrapes */
};

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* By a call's volume_id. ERR_INVALID: it says none. ERR_NOT_FOUND (CIS2110): no such volume, or one of a pool that was
 * given up. ERR_ABSENT (CIS3001): the id is of a pool that is not open here. ERR_CORRUPT: it is here, and its record
 * cannot be read. */
must_check int driver_find(struct driver *d, const char *id, struct space **ret_space, struct volume **ret,
                           struct err *err);
/* On a node: after this failure of driver_find, may the volume's mounts be removed without its record? A pod that still
 * has them must be able to end. */
bool driver_may_clear(const struct driver *d, int r);
/* The volume for this call alone: as driver_find, or ERR_PENDING. `claim` is given back by the caller. */
must_check int driver_claim(struct driver *d, const char *id, struct claim *claim, struct space **ret_space,
                            struct volume **ret, struct err *err);
/* Asks for a job; on a node only tells how it is, since Kubernetes runs it. */
must_check int driver_want_job(struct driver *d, const struct volume *v, enum job_kind kind, bool fresh,
                               struct job_view *ret, struct err *err);
void driver_tell(struct driver *d, const struct volume *v); /* that something about it changed */
/* Tries to open a pool that is not. On a node `w` may be NULL: then only one that is there already is opened. */
must_check int driver_open_pool(struct driver *d, struct space *s, const struct space_witness *w, struct err *err);
/* The open pool whose volumes have ids like this one, or NULL. */
struct space *driver_space_of(struct driver *d, const char *id);
/* By the name that users give it: ERR_INVALID names those that there are. */
must_check int driver_space_named(struct driver *d, const char *name, struct space **ret, struct err *err);

/* ---- release: release.c ------------------------------------------------------------------------------------------ */

/* May the volume be staged or published now? ERR_BUSY (CIS3022) while its order asks for its release; ERR_PENDING while
 * its last export runs. Without orders a mount withdraws the release: have->release says so, and is to be written
 * before the mount is made. */
must_check int driver_admit(struct driver *d, const struct volume *v, struct record *have, struct err *err);
int driver_is_released(const char *id, struct err *err); /* ERR_BUSY (CIS3022) */

/* ---- topology --------------------------------------------------------------------------------------------------- */

bool topology_is_here(const struct driver *d, const Csi__V1__Topology *t);

/* The volume as the contract shows it. */
Csi__V1__Volume *volume_message(struct driver *d, struct rpc_call *call, const char *id, uint64_t capacity_bytes);

/* ---- handlers, by file ------------------------------------------------------------------------------------------- */

HANDLER(identity_capabilities); /* service.c */

HANDLER(controller_create); /* controller.c */
HANDLER(controller_validate);
HANDLER(controller_expand);
HANDLER(controller_modify);
HANDLER(controller_delete); /* release.c */
HANDLER(controller_list);   /* list.c */
HANDLER(controller_get);
HANDLER(controller_capacity);
HANDLER(controller_list_health);
HANDLER(controller_get_health);

HANDLER(node_stage); /* stage.c */
HANDLER(node_unstage);
HANDLER(node_publish); /* publish.c */
HANDLER(node_unpublish);
HANDLER(node_stats); /* node.c */
HANDLER(node_expand);
HANDLER(node_health);
HANDLER(node_storage_health);
HANDLER(node_capabilities);
HANDLER(node_info);
