/* SPDX-License-Identifier: Apache-2.0 */
/* siblings.h - the other volumes of a pod, as they lie in the kubelet's folder. Reads folders. home: any thread.
 * While a call for one volume of a pod is under way, the kubelet neither cancels it nor calls for that volume again,
 * also if the pod is deleted. What it does then is to take the pod's other volumes away (its token, first of all),
 * which a pod that lives never sees. */
#pragma once

#include "util/str.h"

/* Does the pod whose volume is to be published at `target` have volumes there that are no driver's? Those of drivers
 * do not count: one waits for the other. False where `target` is not PODS/UID/volumes/kubernetes.io~csi/NAME/mount. */
bool siblings_are_there(const char *target);
