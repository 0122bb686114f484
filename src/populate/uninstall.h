/* SPDX-License-Identifier: Apache-2.0 */
/* uninstall.h - prepares the removal of Cistern: stops the controllers and removes the finalizer from every claim,
 * which no process could do afterwards. Volumes and their data are kept. home: any thread but the client's loop.
 * Blocks. */
#pragma once

#include "kube/client.h"

struct uninstall_options {
    struct kube *kube;             /* borrowed */
    struct str namespace;          /* Cistern's */
    uint64_t wait_ns;              /* for the end of the controllers */
    void (*say)(const char *line); /* gets a sentence for each action, and for each object that is kept */
};

/* May be repeated. ERR_TIMEOUT (CIS_CONTROLLER_RUNNING): a controller still runs and would add its finalizers again. */
must_check int populate_uninstall(const struct uninstall_options *o, struct err *err);
