/* SPDX-License-Identifier: Apache-2.0 */
/* leave.h - what is done before Cistern is uninstalled: the controllers are stopped, and our finalizer is taken off
 * every claim, so that nothing of ours holds an object that nobody is left to let go. Volumes and their data are not
 * touched. home: any thread but the client's loop. Blocks. */
#pragma once

#include "kube/client.h"

struct leave_options {
    struct kube *kube;             /* borrowed */
    struct str namespace;          /* ours */
    uint64_t wait_ns;              /* for the controllers' end */
    void (*say)(const char *line); /* what was done, and what stays: a sentence each */
};

/* May be repeated. ERR_TIMEOUT (CIS5310): a controller still runs, and would put its finalizers on again. */
must_check int populate_leave(const struct leave_options *o, struct err *err);
