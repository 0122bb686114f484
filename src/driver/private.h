/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The state of the driver. Private to this room. home: frozen once open; the parts have locks of their
 * own. */
#pragma once

#include "csi/service.h"
#include "driver/driver.h"
#include "driver/volumes.h"
#include "driver_keeper.h"
#include "jobs.h"
#include "metrics.h"
#include "pool/pool.h"
#include "pool/record.h"
#include "util/clock.h"
#include "volume_lock.h"
#include <pthread.h>

struct driver {
    struct csi_service service;
    bool is_node;
    void (*changed)(void *ctx, const char *volume_name); /* may be NULL */
    void *ctx;
    char *node_id;                        /* owned */
    char *programs;                       /* owned */
    char *keeper_socket;                  /* owned */
    char *given_up;                       /* owned */
    struct pool *pools[DRIVER_POOLS_MAX]; /* owned; open or not */
    size_t pool_count;
    pthread_mutex_t opening; /* guards .open_errors and the steps after the opening of a pool */
    struct err *open_errors; /* owned; the last logged error of each pool */
    struct ticker *opener;   /* owned */
    struct volume_locks locks;
    struct jobs *jobs;              /* owned; NULL: Kubernetes runs them */
    struct ticker *trash;           /* owned; empties the pools' trash */
    struct mirror *mirror;          /* owned */
    struct driver_keeper *keeper;   /* owned */
    struct driver_metrics *metrics; /* owned; NULL: no metrics */
};

/* ---- finding volumes: find.c ------------------------------------------------------------------------------------- */

/* ERR_NOT_FOUND: no such volume, or its pool was given up. ERR_ABSENT (CIS_POOL_ABSENT): its pool is not open.
 * ERR_CORRUPT: its record cannot be read. */
must_check int driver_find(struct driver *d, const struct volume_id *id, struct pool **ret_pool, struct volume **ret,
                           struct err *err);
/* The same with the volume locked for this call; ERR_PENDING if it is locked. The caller releases `lock`. */
must_check int driver_lock_volume(struct driver *d, const struct volume_id *id, struct volume_lock *lock,
                                  struct pool **ret_pool, struct volume **ret, struct err *err);
/* May the mounts of a volume be removed after this failure to find it or to read its record? On a node, if it is not
 * there: a pod that still has them must be able to end. Also if its disk failed, so that it can be unmounted. */
bool driver_may_unmount_unrecorded(const struct driver *d, const struct err *err);
/* The time of an unpublish that ends now. Later than the start of each earlier export, also if the clock was set back:
 * an export that began before did not see all that the pod wrote. */
int64_t driver_unpublished_now_ns(const struct volume *v);
/* Writes the record of a volume after an unmount. Succeeds if the disk failed: what the record still names is not
 * mounted, as after a reboot. */
must_check int driver_record_unmounted(const struct volume *v, const struct record *r, struct err *err);
/* The open pool that contains volumes of this id, or NULL. */
struct pool *driver_pool_of(struct driver *d, const struct volume_id *id);
/* By the pool's name; ERR_INVALID lists the names. */
must_check int driver_pool_get(struct driver *d, const char *name, struct pool **ret, struct err *err);

/* ---- progress.c: the state in a volume's files; home: any thread ------------------------------------------------- */

void volume_health(const struct volume *v, struct health *ret);

/* Is every byte of the source on the disk, or has the volume no source? */
bool volume_is_hydrated(const struct volume *v);
/* The same. If not, *ret_text (HEALTH_TEXT_MAX) has the progress, and *ret_failed is true if the last run failed. */
bool volume_read_progress(const struct volume *v, char *ret_text, bool *ret_failed);

/* Requests a job. On a node Kubernetes runs the jobs: there it only reports whether the job runs. */
must_check int driver_request_job(struct driver *d, const struct volume *v, enum job_kind kind, bool fresh,
                                  struct driver_job_view *ret, struct err *err);
void driver_volume_changed(struct driver *d, const struct volume *v);

/* ---- release: release.c ------------------------------------------------------------------------------------------ */

/* May the volume be staged or published now? ERR_BUSY (CIS_VOLUME_RELEASING) while its order requests its release;
 * ERR_PENDING while its last export runs. Without orders a mount withdraws the release: then have->release is set,
 * and the caller writes it before the mount. */
must_check int driver_admit(struct driver *d, const struct volume *v, struct record *have, struct err *err);

/* ERR_BUSY (CIS_VOLUME_IN_USE): a pod still uses it. */
must_check int driver_check_unpublished(const struct volume_id *id, const struct record *record, struct err *err);

/* ---- CSI --------------------------------------------------------------------------------------------------------- */

extern const struct csi_controller_ops driver_controller_ops; /* controller.c */
extern const struct csi_node_ops driver_node_ops;             /* node.c */

int driver_delete(void *ctx, struct rpc_call *call, const struct volume_id *id, struct err *err); /* release.c */
/* For a volume without a readable record: an existing mount stays, a new one is refused because nothing could
 * record it. */
must_check int driver_check_without_record(const struct volume_id *id, const char *path, bool *ret_mounted,
                                           struct err *err);
/* ERR_BUSY unless the volume is staged with the group and the SELinux label of the request. */
must_check int driver_check_view(const struct volume_id *id, const struct record *have, const struct csi_mount *q,
                                 struct err *err);
#define DRIVER_UNMOUNT_NS (2 * NS_PER_SECOND)
int driver_stage(void *ctx, const struct volume_id *id, const struct csi_mount *q, struct err *err); /* stage.c */
int driver_unstage(void *ctx, const struct volume_id *id, const char *path, struct err *err);
int driver_publish(void *ctx, struct rpc_call *call, const struct volume_id *id, const struct csi_mount *q,
                   struct err *err); /* publish.c */
int driver_unpublish(void *ctx, const struct volume_id *id, const char *path, struct err *err);
