/* SPDX-License-Identifier: Apache-2.0 */
/* --role=node: the node service of CSI. Calls of the kubelet need no API server. */
#include "cisternd.h"
#include "csi/service.h"
#include "node/agent.h"
#include "node/register.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct node_role {
    struct driver *driver;             /* owned */
    struct rpc_server *plugin;         /* owned */
    struct registration *registration; /* owned */
    struct agent *agent;               /* owned */
    struct http_server *http;          /* owned */
    pthread_mutex_t lock;              /* guards .agent: calls are served before it is set and after it is cleared */
    _Atomic uint64_t called_ns;        /* by the kubelet, last: a call of the node service */
};

/* ---- the kubelet's calls ----------------------------------------------------------------------------------------- */

static void answered(void *ctx, const char *path, const struct err *err, uint64_t took_ns)
{
    struct node_role *n = ctx;
    if (str_starts(str_of(path), STR("/csi.v1.Node/"))) /* the pod's own probes call Identity */
        atomic_store(&n->called_ns, clock_now_ns());
    csi_log_call(n->driver, path, err, took_ns);
}

static uint64_t last_call_ns(void *ctx)
{
    struct node_role *n = ctx;
    return atomic_load(&n->called_ns);
}

static int start_registration(struct node_role *n, struct err *err)
{
    struct registration_options o = {.directory = flags.registration,
                                     .endpoint = flags.kubelet_endpoint ? flags.kubelet_endpoint : endpoint_path(),
                                     .plugin = n->plugin,
                                     .last_call_ns = last_call_ns,
                                     .ctx = n};
    return flags.registration ? registration_start(&o, &n->registration, err) : 0;
}

/* A call has changed a volume: its CisternVolume's status must follow. */
static void on_changed(void *ctx, const char *volume_name)
{
    struct node_role *n = ctx;
    auto_lock(&n->lock);
    if (n->agent)
        agent_touch(n->agent, volume_name);
}

/* CSI calls are served before the agent starts and after it ends. */
static int start_agent(struct node_role *n, struct err *err)
{
    auto_kube_config config = {0};
    struct agent *agent;
    struct agent_options o = {.driver = n->driver, .config = &config, .node = flags.node_name};
    int r = kube_config_load(flags.kubeconfig, &config, err);
    if (r == 0)
        r = agent_start(&o, &agent, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&n->lock);
    n->agent = agent;
    pthread_mutex_unlock(&n->lock);
    return 0;
}

static void end_agent(struct node_role *n)
{
    pthread_mutex_lock(&n->lock);
    struct agent *agent = take(&n->agent);
    pthread_mutex_unlock(&n->lock);
    agent_stop(agent);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void write_metrics(void *ctx, struct sbuf *text)
{
    struct node_role *n = ctx;
    auto_lock(&n->lock);
    if (n->agent)
        agent_write_metrics(n->agent, text);
}

static int start(struct node_role *n, struct err *err)
{
    int r = open_driver((struct driver_options){.node_id = flags.node_name,
                                                .is_node = true,
                                                .programs = "", /* a node starts none */
                                                .changed = on_changed,
                                                .ctx = n},
                        &n->driver, err);
    if (r == 0)
        r = serve_csi(driver_service(n->driver), answered, n, &n->plugin, err);
    if (r == 0)
        r = start_agent(n, err);
    if (r == 0)
        r = start_metrics(
            (struct http_server_options){.ctx = n, .metrics = flags.metrics_per_volume ? write_metrics : NULL},
            &n->http, err);
    if (r == 0)
        r = start_registration(n, err);
    return r;
}

static void stop(struct node_role *n)
{
    registration_stop(n->registration);
    rpc_server_stop(n->plugin, SERVE_GRACE_NS);
    rpc_server_free(n->plugin);
    end_agent(n);
    http_server_free(n->http);
    driver_close(n->driver);
}

int role_node(const sigset_t *signals, struct err *err)
{
    struct node_role n = {.lock = PTHREAD_MUTEX_INITIALIZER};
    if (!flags.node_name)
        return err_set(err, ERR_INVALID, "--node-name is missing: the name of this machine's Node object");
    int r = start(&n, err);
    if (r == 0) {
        log_event(LOG_INFO, "serving", "endpoint", flags.endpoint, "node", flags.node_name, "version", CISTERN_VERSION,
                  NULL);
        wait_for_signal(signals);
    }
    stop(&n);
    return r;
}
