/* SPDX-License-Identifier: Apache-2.0 */
/* cisternd.h - The flags of cisternd, and one function per role. home: the main thread. */
#pragma once

#include "cli/opt.h"
#include "driver/driver.h"
#include "http/http_server.h"
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
    uint64_t job_ttl_seconds, job_backoff_limit, exports_max, exports_a_node_max, hydrations_a_node_max;
    bool cross_namespace, allow_driver_identity, require_opt_in;
};

struct daemon_flags {
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
extern struct daemon_flags flags;

/* Each role runs until one of `signals` arrives; all threads have blocked them. */
must_check int role_controller(const sigset_t *signals, struct err *err);
must_check int role_node(const sigset_t *signals, struct err *err);
must_check int role_standalone(const sigset_t *signals, struct err *err);
must_check int role_uninstall(const sigset_t *signals, struct err *err); /* ends without a signal */

/* ---- share.c: helpers of several roles --------------------------------------------------------------------------- */

/* Opens the driver on the pools of --pool. The caller sets the fields of `o` that only one role's flags set. */
must_check int open_driver(struct driver_options o, struct driver **ret, struct err *err);

/* Serves `csi` on --endpoint. `answered` is called after each call, with answered_ctx. */
struct csi_service;
struct rpc_server;
must_check int serve_csi(struct csi_service *csi,
                         void (*answered)(void *ctx, const char *path, const struct err *err, uint64_t took_ns),
                         void *answered_ctx, struct rpc_server **ret, struct err *err);
#define SERVE_GRACE_NS (10 * NS_PER_SECOND) /* grace for running calls when the program stops */

/* Serves --metrics; without it *ret is untouched. `o` adds to /metrics. /healthz calls Identity.Probe on the CSI
 * socket, and asks every loop of the process. */
must_check int start_metrics(struct http_server_options o, struct http_server **ret, struct err *err);

/* "/run/cistern/csi.sock" of --endpoint. */
const char *endpoint_path(void);

void wait_for_signal(const sigset_t *signals);
