/* SPDX-License-Identifier: Apache-2.0 */
/* cisternd - The CSI driver: controller, node or standalone, by --role. */
#include "cisternd.h"
#include "cli/exit.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/seal.h"
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

static const struct role {
    const char *name;
    bool has_pools;
    int (*run)(const sigset_t *signals, struct err *err);
} roles[] = {
    {"controller", false, role_controller},
    {"node", true, role_node},
    {"standalone", true, role_standalone},
    {"uninstall", false, role_uninstall},
};

static const struct opt table[] = {
    {"role", 0, OPT_TEXT, &flags.role, "ROLE", "run as standalone, node, controller or uninstall (standalone)"},
    {"endpoint", 0, OPT_TEXT, &flags.endpoint, "URL", "serve CSI on unix:///PATH (unix:///run/cistern/csi.sock)"},
    {"pool", 0, OPT_LIST, &flags.pools, "[NAME=]DIR[,OPTION...]",
     "keep volumes in DIR (repeatable); OPTION: require-mount, ephemeral (NAME: default)"},
    {"forget-pool", 0, OPT_LIST, &flags.forgotten, "UUID", "give up pool UUID and delete its volumes (repeatable)"},
    {"node-id", 0, OPT_TEXT, &flags.node_id, "NAME", "identify this machine by NAME (host name)"},
    {"kubeconfig", 0, OPT_TEXT, &flags.kubeconfig, "FILE",
     "reach the API server by this kubeconfig (the pod's service account)"},
    {"disks", 0, OPT_LIST, &flags.disks, "POOL=WHICH",
     "node: build POOL from NVMe disks: model:PATTERN, path:/dev/NAME, wipe:SERIAL; or device:/dev/NAME (repeatable)"},
    {"node-name", 0, OPT_TEXT, &flags.node_name, "NAME", "node: name of this machine's Node object (required)"},
    {"kubelet-registration", 0, OPT_TEXT, &flags.registration, "DIR",
     "node: register in the kubelet's plugins_registry (none)"},
    {"kubelet-endpoint", 0, OPT_TEXT, &flags.kubelet_endpoint, "PATH",
     "node: path of the CSI socket on the host (--endpoint)"},
    {"namespace", 0, OPT_TEXT, &flags.controller.ns, "NAME",
     "controller, uninstall: namespace of Cistern and its Jobs (required)"},
    {"image", 0, OPT_TEXT, &flags.controller.job.image, "IMAGE", "controller: image of Jobs (required)"},
    {"image-pull-policy", 0, OPT_TEXT, &flags.controller.job.pull_policy, "POLICY",
     "controller: imagePullPolicy of Jobs (Kubernetes' default)"},
    {"image-pull-secret", 0, OPT_TEXT, &flags.controller.job.pull_secret, "NAME",
     "controller: imagePullSecret of Jobs (none)"},
    {"job-account", 0, OPT_TEXT, &flags.controller.job.account, "NAME",
     "controller: service account of Jobs (cistern-job)"},
    {"job-priority-class", 0, OPT_TEXT, &flags.controller.job.priority_class, "NAME",
     "controller: priorityClassName of Jobs (none)"},
    {"job-cpu", 0, OPT_TEXT, &flags.controller.job.requests_cpu, "CPU", "controller: CPU request of Jobs (100m)"},
    {"job-memory", 0, OPT_TEXT, &flags.controller.job.requests_memory, "BYTES",
     "controller: memory request of Jobs (64Mi)"},
    {"job-memory-limit", 0, OPT_TEXT, &flags.controller.job.limits_memory, "BYTES",
     "controller: memory limit of Jobs (512Mi)"},
    {"job-ttl-seconds", 0, OPT_U64, &flags.controller.job_ttl_seconds, "N",
     "controller: delete a Job N seconds after its end (3600)"},
    {"job-backoff-limit", 0, OPT_U64, &flags.controller.job_backoff_limit, "N",
     "controller: retry a failed Job's pod N times (0)"},
    {"hydrate-max-concurrent-per-node", 0, OPT_U64, &flags.controller.hydrations_a_node_max, "N",
     "controller: run at most N hydrations at once per node (0: no limit)"},
    {"export-max-concurrent", 0, OPT_U64, &flags.controller.exports_max, "N",
     "controller: run at most N exports at once (0: no limit)"},
    {"export-max-concurrent-per-node", 0, OPT_U64, &flags.controller.exports_a_node_max, "N",
     "controller: run at most N exports at once per node (0: no limit)"},
    {"drain-hold-failing", 0, OPT_DURATION, &flags.controller.drain_failing_ns, "TIME",
     "controller: block a drain for at most this long after an export failed, or for pods that it does not evict "
     "(0: no limit)"},
    {"drain-hold-volumes", 0, OPT_U64, &flags.controller.drain_volumes_max, "N",
     "controller: let at most N failing volumes per namespace block drains (0: no limit)"},
    {"node-account", 0, OPT_TEXT, &flags.controller.node_account, "NAME",
     "controller: service account of the nodes (cistern-node)"},
    {"node-gone-grace", 0, OPT_DURATION, &flags.controller.node_gone_grace_ns, "TIME",
     "controller: give up the volumes of a deleted Node after this time (10m)"},
    {"tombstone-age", 0, OPT_DURATION, &flags.controller.tombstone_ns, "TIME",
     "controller: keep CisternVolumes of released volumes of a deleted Node for this time (168h)"},
    {"sweep-interval", 0, OPT_DURATION, &flags.controller.sweep_ns, "TIME",
     "controller: look for orphaned volumes at this interval (10m)"},
    {"cross-namespace", 0, OPT_FLAG, &flags.controller.cross_namespace, NULL,
     "controller: allow sources of other namespaces (off)"},
    {"broker-listen", 0, OPT_TEXT, &flags.controller.broker_listen, "ADDR:PORT",
     "controller: serve credentials for Jobs over HTTPS (off)"},
    {"allow-driver-identity", 0, OPT_FLAG, &flags.controller.allow_driver_identity, NULL,
     "controller: use the driver's identity for sources without one (off)"},
    {"require-opt-in", 0, OPT_FLAG, &flags.controller.require_opt_in, NULL,
     "controller: require the opt-in annotation on service accounts (on; --no-require-opt-in)"},
    {"token-audience", 0, OPT_LIST, &flags.controller.audiences, "NAME",
     "controller: allow this token audience (repeatable)"},
    {"trusted-endpoint", 0, OPT_LIST, &flags.controller.trusted, "URL",
     "controller: allow tokens and roles at this server (repeatable)"},
    {"allow-address", 0, OPT_LIST, &flags.controller.allowed, "CIDR",
     "controller: allow sources at this address, even if denied (repeatable)"},
    {"deny-address", 0, OPT_LIST, &flags.controller.denied, "CIDR",
     "controller: deny sources at this address (repeatable)"},
    {"export-secret", 0, OPT_LIST, &flags.controller.export_secrets, "NAME=[URL=]PREFIX",
     "controller: export below PREFIX with this Secret of Cistern's namespace (repeatable)"},
    {"gke-project", 0, OPT_TEXT, &flags.controller.gke_project, "ID",
     "controller: GKE project (from the issuer of its own token)"},
    {"gke-identity-provider", 0, OPT_TEXT, &flags.controller.gke_provider, "URL",
     "controller: GKE identity provider (the issuer of its own token)"},
    {"state", 0, OPT_TEXT, &flags.state, "DIR",
     "keep sockets and pool records in DIR; records in /var/lib/cistern if DIR is below /run (/run/cistern)"},
    {"metrics-per-volume", 0, OPT_FLAG, &flags.metrics_per_volume, NULL,
     "node: export the progress of each claim as a metric (off)"},
    {"metrics", 0, OPT_TEXT, &flags.metrics, "ADDR:PORT", "serve /metrics and /healthz on this address (off)"},
    {"metrics-interval", 0, OPT_DURATION, &flags.metrics_interval_ns, "TIME",
     "read pools and volumes at this interval (5s)"},
    {"programs", 0, OPT_TEXT, &flags.programs, "DIR", "find cistern and cistern-keeper in DIR (cisternd's directory)"},
    {"reserve-percent", 0, OPT_U64, &flags.reserve_percent, "N", "reserve N percent of a pool's disk, 0 to 90 (5)",
     .most = 90},
    {"threads", 0, OPT_U64, &flags.threads, "N", "serve at most N calls at once, 1 to 128 (32)", .least = 1,
     .most = RPC_THREADS_MAX},
    {"log-format", 0, OPT_TEXT, &flags.log_format, "FORM", "log as text or json (text)"},
    {"log-level", 0, OPT_TEXT, &flags.log_level, "LEVEL", "log from this level: debug, info, warn or error (info)"},
    {"help", 'h', OPT_FLAG, &flags.help, NULL, "print this help"},
    {"version", 0, OPT_FLAG, &flags.version, NULL, "print the version"},
    {0},
};

static int fail(const struct err *err, int code)
{
    char line[ERR_LINE_MAX];
    fprintf(stderr, "cisternd: %s\n", err_line(err, line, sizeof line));
    return code;
}

static void print_help(void)
{
    auto_sbuf b = SBUF(16384);
    sbuf_adds(&b,
              "Usage: cisternd --pool DIR [flags]\n\nServes CSI for the volumes of this machine, or of a cluster.\n\n"
              "  cisternd --pool /mnt/disks/cistern\n"
              "  cisternd --role=node --node-name worker-1 --pool fast=/mnt/nvme,require-mount\n\n"
              "Flags, with (default):\n");
    opt_help(table, &b);
    fputs(b.ptr, stdout);
}

static int parse_log(struct err *err)
{
    enum log_level level;
    int r = log_level_parse(str_of(flags.log_level), &level, err);
    if (r < 0)
        return r;
    bool is_json = strcmp(flags.log_format, "json") == 0;
    if (!is_json && strcmp(flags.log_format, "text") != 0)
        return err_set(err, ERR_INVALID, "--log-format is text or json, not '%s'", flags.log_format);
    log_setup(STDERR_FILENO, level, is_json ? LOG_JSON : LOG_TEXT);
    return 0;
}

static const struct role *find_role(void)
{
    for (size_t i = 0; i < countof(roles); i++)
        if (strcmp(roles[i].name, flags.role) == 0)
            return &roles[i];
    return NULL;
}

static int parse_flags(int argc, char **argv, struct err *err)
{
    int r = opt_parse(table, NULL, false, &argc, argv, err);
    if (r < 0 || flags.help || flags.version)
        return r;
    if (argc > 1)
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", argv[1]);
    if (strncmp(flags.endpoint, "unix://", 7) != 0)
        return err_set(err, ERR_INVALID, "--endpoint '%s' is not unix:///PATH", flags.endpoint);
    const struct role *role = find_role();
    if (!role)
        return err_set(err, ERR_INVALID, "--role is standalone, node, controller or uninstall, not '%s'", flags.role);
    if (role->has_pools && (flags.pools.count == 0 || flags.pools.count > DRIVER_POOLS_MAX))
        return err_set(err, ERR_INVALID, "--pool must be given 1 to %d times", DRIVER_POOLS_MAX);
    if (flags.metrics_interval_ns < 10 * NS_PER_MS)
        return err_set(err, ERR_INVALID, "--metrics-interval must be at least 10ms");
    return parse_log(err);
}

int main(int argc, char **argv)
{
    struct err err;
    sigset_t signals;
    seal_process(); /* memory and environment may hold credentials */
    if (parse_flags(argc, argv, &err) < 0)
        return fail(&err, EXIT_USAGE);
    if (flags.help || flags.version) {
        flags.help ? print_help() : (void)puts(CISTERN_VERSION);
        return 0;
    }
    /* Before the first thread: all inherit the mask. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Few of the many threads work at a time, but each arena would keep its peak. */
    mallopt(M_ARENA_MAX, 2);
    return find_role()->run(&signals, &err) < 0 ? fail(&err, EXIT_ENVIRONMENT) : 0;
}
