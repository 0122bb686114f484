/* SPDX-License-Identifier: Apache-2.0 */
/* cisternd.h - the flags, and a function a role. home: the main thread. */
#pragma once

#include "cli/opt.h"
#include "csi/service.h"
#include "http/serve.h"
#include "populate/job.h"
#include "util/err.h"
#include <limits.h>
#include <signal.h>

struct controller_flags {
    const char *ns, *broker_listen, *node_account, *gke_project, *gke_provider;
    struct job_options job;
    struct opt_list audiences, trusted, allowed, denied, export_secrets;
    uint64_t drain_failing_ns, drain_volumes_max;
    uint64_t node_gone_grace_ns, tombstone_ns, sweep_ns;
    uint64_t job_ttl_seconds, job_backoff_limit, exports_max, exports_a_node_max;
    bool cross_namespace, allow_driver_identity, require_opt_in;
};

struct flags {
    bool metrics_per_volume;
    const char *role, *endpoint, *node_id, *state, *metrics, *log_format, *log_level, *programs;
    struct opt_list disks;                                   /* node */
    const char *kubeconfig;                                  /* node, controller */
    const char *node_name, *registration, *kubelet_endpoint; /* node */
    struct controller_flags controller;
    struct opt_list pools, forgotten;
    uint64_t reserve_percent, threads, metrics_interval_ns;
    bool help, version;
};
extern struct flags flags;

/* Each runs until a signal of `signals` comes, which every thread has blocked. */
must_check int role_controller(const sigset_t *signals, struct err *err);
must_check int role_node(const sigset_t *signals, struct err *err);
must_check int role_standalone(const sigset_t *signals, struct err *err);
must_check int role_uninstall(const sigset_t *signals, struct err *err); /* ends by itself */

/* ---- what roles share: share.c ----------------------------------------------------------------------------------- */

struct pools {
    char names[DRIVER_POOLS_MAX][64];
    char paths[DRIVER_POOLS_MAX][PATH_MAX];
    struct driver_pool items[DRIVER_POOLS_MAX];
};
must_check int parse_pools(struct pools *ret, struct err *err);

/* Makes or finds the arrays of --disks, and mounts each at its pool's folder: disks.c. */
must_check int ensure_disks(const struct pools *pools, struct err *err);

/* The UUIDs of --forget-pool, as driver_options have them; the caller frees. */
must_check int parse_forgotten(char **ret, struct err *err);

/* Where to remember which pool was where: in --state, unless a reboot empties that. */
const char *memory_folder(void);

/* The folder that this program is in. */
must_check int own_folder(char *buf, size_t size, struct err *err);

/* Calls Identity.Probe on our own CSI socket, as the kubelet does: for /healthz. */
bool socket_answers(struct sbuf *why);

/* --metrics; without it *ret stays as it is. `o` says what there is besides /metrics. Without an is_healthy of its own
 * /healthz is socket_answers. */
must_check int start_metrics(struct serve_options o, struct serve **ret, struct err *err);

/* "/run/cistern/csi.sock" of --endpoint. */
const char *endpoint_path(void);

void wait_for_signal(const sigset_t *signals);
