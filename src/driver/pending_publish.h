/* SPDX-License-Identifier: Apache-2.0 */
/* pending_publish.h - Makes NodePublishVolume wait until the volume is hydrated. home: the call's thread. */
#pragma once

#include "private.h"
#include "util/list.h"

/* A running NodePublishVolume. A release of the volume or an unpublish of the path cancels it. */
enum publish_state { PUBLISH_WAITING, PUBLISH_VOLUME_RELEASING, PUBLISH_TARGET_UNPUBLISHED };
struct pending_publish {
    const struct volume_id *id; /* borrowed */
    const char *target;         /* borrowed */
    enum publish_state state;
    bool is_in;
    struct list_node in_all;
};
void pending_publish_begin(struct pending_publish *w, const struct volume_id *id, const char *target);
void pending_publish_end(struct pending_publish *w); /* may run twice */
#define auto_pending_publish auto_with(pending_publish_end) struct pending_publish

/* ERR_BUSY (CIS_VOLUME_RELEASING): cancelled by a release; ERR_AGAIN (CIS_PUBLISH_CANCELLED): by an unpublish. Checked
 * again with the volume locked: a later cancellation finds the mount and removes it. */
must_check int pending_publish_check(const struct pending_publish *w, struct err *err);

/* Waits for the hydration, for 100 s or until a second before the caller's deadline; then ERR_AGAIN
 * (CIS_VOLUME_NOT_READY) with the progress. A failed hydration is reported at once (CIS_HYDRATION_FAILED) and retried.
 * Too many waiting calls get their answer at once, so that other calls find a thread (rpc_sleep_until). Cancelled by
 * pending_publish_check(), or ERR_AGAIN (CIS_PUBLISH_CANCELLED) when the pod's other volumes are removed
 * (pod_volumes_exist). */
must_check int pending_publish_wait(struct driver *d, struct rpc_call *call, const struct volume *v,
                                    const struct pending_publish *w, struct err *err);

void pending_publish_cancel_volume(const struct volume_id *id);             /* the volume is being released */
void pending_publish_cancel_target(const char *target);                     /* the path is unpublished */
int pending_publish_releasing(const struct volume_id *id, struct err *err); /* ERR_BUSY (CIS_VOLUME_RELEASING) */

/* Does the pod of `target` have other volumes in the kubelet's directory? During a call for one volume of a pod the
 * kubelet neither cancels it nor repeats it, even if the pod is deleted. It then removes the pod's other volumes, its
 * token first, which never happens to a pod that lives. Volumes of CSI drivers do not count: one waits for the other.
 * False unless `target` is PODS/UID/volumes/kubernetes.io~csi/NAME/mount. */
bool pod_volumes_exist(const char *target);
