/* SPDX-License-Identifier: Apache-2.0 */
/* cisternd - the driver: what it is to be is --role. */
#include "cisternd.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/seal.h"
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_ENVIRONMENT = 10 };

struct flags flags = {
    .role = "standalone",
    .endpoint = "unix:///run/cistern/csi.sock",
    .state = "/run/cistern",
    .log_format = "text",
    .log_level = "info",
    .reserve_percent = 5,
    .metrics_interval_ns = 5 * NS_PER_SECOND,
    .controller = {
        .node_account = "cistern-node",
        .job = {.account = "cistern-job", .requests_cpu = "100m", .requests_memory = "64Mi", .limits_memory = "512Mi"},
        .require_opt_in = true,
        .job_ttl_seconds = 3600,
        .job_backoff_limit = 0}};

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
    {"role", 0, OPT_TEXT, &flags.role, "ROLE", "standalone, or in Kubernetes: node, controller, uninstall"},
    {"endpoint", 0, OPT_TEXT, &flags.endpoint, "URL", "unix:///PATH of the CSI socket"},
    {"pool", 0, OPT_LIST, &flags.pools, "[NAME=]DIR[,OPTION...]",
     "a folder for volumes; may be given again; NAME is 'default'; OPTION is require-mount or ephemeral"},
    {"forget-pool", 0, OPT_LIST, &flags.forgotten, "UUID",
     "give up the pool UUID: a new one may take its place, and its volumes count as deleted; may be given again"},
    {"node-id", 0, OPT_TEXT, &flags.node_id, "NAME", "of this machine; its host name"},
    {"kubeconfig", 0, OPT_TEXT, &flags.kubeconfig, "FILE", "in Kubernetes: how to reach the API server; as a pod does"},
    {"disks", 0, OPT_LIST, &flags.disks, "POOL=WHICH",
     "node: make the pool of NVMe disks: model:PATTERN, path:/dev/NAME, wipe:SERIAL"},
    {"node-name", 0, OPT_TEXT, &flags.node_name, "NAME", "node: of this machine's Node object"},
    {"kubelet-registration", 0, OPT_TEXT, &flags.registration, "DIR", "node: the kubelet's plugins_registry"},
    {"kubelet-endpoint", 0, OPT_TEXT, &flags.kubelet_endpoint, "PATH", "node: the CSI socket as the kubelet sees it"},
    {"namespace", 0, OPT_TEXT, &flags.controller.ns, "NAME", "controller, uninstall: ours, where Jobs run"},
    {"image", 0, OPT_TEXT, &flags.controller.job.image, "IMAGE", "controller: of Jobs"},
    {"image-pull-policy", 0, OPT_TEXT, &flags.controller.job.pull_policy, "POLICY", "controller: of Jobs"},
    {"image-pull-secret", 0, OPT_TEXT, &flags.controller.job.pull_secret, "NAME", "controller: of Jobs"},
    {"job-account", 0, OPT_TEXT, &flags.controller.job.account, "NAME",
     "controller: Jobs' service account; cistern-job"},
    {"job-priority-class", 0, OPT_TEXT, &flags.controller.job.priority_class, "NAME", "controller: of Jobs"},
    {"job-cpu", 0, OPT_TEXT, &flags.controller.job.requests_cpu, "CPU", "controller: what Jobs request; 100m"},
    {"job-memory", 0, OPT_TEXT, &flags.controller.job.requests_memory, "BYTES", "controller: what Jobs request; 64Mi"},
    {"job-memory-limit", 0, OPT_TEXT, &flags.controller.job.limits_memory, "BYTES", "controller: Jobs' limit; 512Mi"},
    {"job-ttl-seconds", 0, OPT_U64, &flags.controller.job_ttl_seconds, "N",
     "controller: a Job is kept after its end; 3600"},
    {"job-backoff-limit", 0, OPT_U64, &flags.controller.job_backoff_limit, "N",
     "controller: pods of one Job that may fail; 0"},
    {"export-max-concurrent", 0, OPT_U64, &flags.controller.exports_max, "N",
     "controller: exports at once; 0: any number"},
    {"export-max-concurrent-per-node", 0, OPT_U64, &flags.controller.exports_a_node_max, "N",
     "controller: exports at once on one node; 0: any number"},
    {"drain-hold-failing", 0, OPT_DURATION, &flags.controller.drain_failing_ns, "TIME",
     "controller: how long a volume holds its node after its export began to fail; 0: for ever"},
    {"drain-hold-volumes", 0, OPT_U64, &flags.controller.drain_volumes_max, "N",
     "controller: volumes of a namespace that fail and hold their nodes; 0: any number"},
    {"node-account", 0, OPT_TEXT, &flags.controller.node_account, "NAME",
     "controller: nodes' service account; cistern-node"},
    {"node-gone-grace", 0, OPT_DURATION, &flags.controller.node_gone_grace_ns, "TIME",
     "controller: after which volumes of a Node that was deleted are lost; 10m"},
    {"tombstone-age", 0, OPT_DURATION, &flags.controller.tombstone_ns, "TIME",
     "controller: how long such volumes are remembered; 168h"},
    {"sweep-interval", 0, OPT_DURATION, &flags.controller.sweep_ns, "TIME",
     "controller: how often volumes that nobody has any more are looked for; 10m"},
    {"cross-namespace", 0, OPT_FLAG, &flags.controller.cross_namespace, NULL,
     "controller: sources of other namespaces"},
    {"broker-listen", 0, OPT_TEXT, &flags.controller.broker_listen, "ADDR:PORT",
     "controller: credentials for Jobs, HTTPS"},
    {"allow-driver-identity", 0, OPT_FLAG, &flags.controller.allow_driver_identity, NULL,
     "controller: sources that name no identity use its own"},
    {"require-opt-in", 0, OPT_FLAG, &flags.controller.require_opt_in, NULL,
     "controller: service accounts must allow it (on; --no-require-opt-in)"},
    {"token-audience", 0, OPT_LIST, &flags.controller.audiences, "NAME",
     "controller: may be asked for; may be given again"},
    {"trusted-endpoint", 0, OPT_LIST, &flags.controller.trusted, "URL",
     "controller: tokens and roles may be used at this server too; may be given again"},
    {"allow-address", 0, OPT_LIST, &flags.controller.allowed, "CIDR",
     "controller: sources may lead there, whatever is denied; may be given again"},
    {"deny-address", 0, OPT_LIST, &flags.controller.denied, "CIDR",
     "controller: sources may not lead there; may be given again"},
    {"export-secret", 0, OPT_LIST, &flags.controller.export_secrets, "NAME=[URL=]PREFIX",
     "controller: exports below PREFIX may go on with this Secret of ours; may be given again"},
    {"gke-project", 0, OPT_TEXT, &flags.controller.gke_project, "ID",
     "controller: the metadata server's, if it is not given"},
    {"gke-identity-provider", 0, OPT_TEXT, &flags.controller.gke_provider, "URL", "controller: the same"},
    {"state", 0, OPT_TEXT, &flags.state, "DIR",
     "for sockets; which pool is where is remembered there too, or in /var/lib/cistern if DIR is below /run; "
     "/run/cistern"},
    {"metrics-per-volume", 0, OPT_FLAG, &flags.metrics_per_volume, NULL,
     "node: a gauge a claim among the metrics: how much of it is hydrated"},
    {"metrics", 0, OPT_TEXT, &flags.metrics, "ADDR:PORT", "serve /metrics and /healthz there"},
    {"metrics-interval", 0, OPT_DURATION, &flags.metrics_interval_ns, "TIME",
     "pools and volumes are read so often; 5s"},
    {"programs", 0, OPT_TEXT, &flags.programs, "DIR", "where cistern and cistern-keeper are; beside cisternd"},
    {"reserve-percent", 0, OPT_U64, &flags.reserve_percent, "N", "of a pool's disk, never given to volumes; 5"},
    {"threads", 0, OPT_U64, &flags.threads, "N", "calls served at once; 32"},
    {"log-format", 0, OPT_TEXT, &flags.log_format, "FORM", "text or json"},
    {"log-level", 0, OPT_TEXT, &flags.log_level, "LEVEL", "debug, info, warn or error"},
    {"help", 'h', OPT_FLAG, &flags.help, NULL, "this text"},
    {"version", 0, OPT_FLAG, &flags.version, NULL, "the version"},
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
    auto_sbuf b;
    sbuf_init(&b, 16384);
    sbuf_adds(&b, "Usage: cisternd --pool DIR [flags]\n\nServes CSI for the volumes of this machine.\n\n");
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
    int r = opt_parse(table, false, &argc, argv, err);
    if (r < 0 || flags.help || flags.version)
        return r;
    if (argc > 1)
        return err_set(err, ERR_INVALID, "what is '%s'? There are only flags here", argv[1]);
    if (strncmp(flags.endpoint, "unix://", 7) != 0)
        return err_set(err, ERR_INVALID, "--endpoint '%s' is not unix:///PATH", flags.endpoint);
    const struct role *role = find_role();
    if (!role)
        return err_set(err, ERR_INVALID, "--role is standalone, node, controller or uninstall, not '%s'", flags.role);
    if (role->has_pools && (flags.pools.count == 0 || flags.pools.count > DRIVER_POOLS_MAX))
        return err_set(err, ERR_INVALID, "--pool must be given once at least, and %d times at most", DRIVER_POOLS_MAX);
    if (flags.reserve_percent > 90 || flags.threads > RPC_THREADS_MAX)
        return err_set(err, ERR_INVALID, "--reserve-percent is 0 to 90, --threads 1 to %d", RPC_THREADS_MAX);
    if (flags.metrics_interval_ns < 10 * NS_PER_MS)
        return err_set(err, ERR_INVALID, "--metrics-interval is 10ms at least");
    return parse_log(err);
}

int main(int argc, char **argv)
{
    struct err err;
    sigset_t signals;
    seal_process(); /* the controller holds what its broker gives; what the others inherit, nobody knows */
    if (parse_flags(argc, argv, &err) < 0)
        return fail(&err, EXIT_USAGE);
    if (flags.help || flags.version) {
        flags.help ? print_help() : (void)puts(CISTERN_VERSION);
        return 0;
    }
    /* Before the first thread, so that all of them leave these to us. A child that ends is told by its descriptor. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Of our many threads few work at a time: with a heap for each, each would keep what it once needed. */
    mallopt(M_ARENA_MAX, 2);
    return find_role()->run(&signals, &err) < 0 ? fail(&err, EXIT_ENVIRONMENT) : 0;
}
