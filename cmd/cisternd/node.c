/* SPDX-License-Identifier: Apache-2.0 */
/* --role=node: the node's half of CSI. What the kubelet asks for needs no API server. */
#include "cisternd.h"
#include "contract/request.h"
#include "node/agent.h"
#include "node/register.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRACE_NS (10 * NS_PER_SECOND)

struct node {
    struct driver *driver;             /* owned */
    struct rpc_server *plugin;         /* owned */
    struct registration *registration; /* owned */
    struct agent *agent;               /* owned */
    struct serve *http;                /* owned */
    pthread_mutex_t lock;              /* guards .agent, which calls may come before and after */
    _Atomic uint64_t called_ns;        /* by the kubelet, last */
};

/* ---- what the kubelet calls -------------------------------------------------------------------------------------- */

static void answered(void *ctx, const char *path, const struct err *err, uint64_t took_ns)
{
    struct node *n = ctx;
    atomic_store(&n->called_ns, clock_now_ns());
    call_answered(n->driver, path, err, took_ns);
}

static uint64_t last_call_ns(void *ctx)
{
    struct node *n = ctx;
    return atomic_load(&n->called_ns);
}

static int start_plugin(struct node *n, struct err *err)
{
    struct rpc_options o = {.socket_path = endpoint_path(),
                            .driver_name = NAME_DRIVER,
                            .threads = (unsigned)flags.threads,
                            .ctx = n->driver,
                            .answered = answered,
                            .answered_ctx = n};
    o.methods = driver_methods(n->driver, &o.method_count);
    return rpc_server_start(&o, &n->plugin, err);
}

static int start_registration(struct node *n, struct err *err)
{
    struct registration_options o = {.folder = flags.registration,
                                     .endpoint = flags.kubelet_endpoint ? flags.kubelet_endpoint : endpoint_path(),
                                     .plugin = n->plugin,
                                     .last_call_ns = last_call_ns,
                                     .ctx = n};
    return flags.registration ? registration_start(&o, &n->registration, err) : 0;
}

/* A call has changed a volume: its order's status is to say so. */
static void on_changed(void *ctx, const char *volume_name)
{
    struct node *n = ctx;
    pthread_mutex_lock(&n->lock);
    if (n->agent)
        agent_touch(n->agent, volume_name);
    pthread_mutex_unlock(&n->lock);
}

/* Calls are served before and after it lives. */
static int start_agent(struct node *n, struct err *err)
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

static void end_agent(struct node *n)
{
    pthread_mutex_lock(&n->lock);
    struct agent *agent = take(&n->agent);
    pthread_mutex_unlock(&n->lock);
    agent_stop(agent);
}

/* ---- liveness ---------------------------------------------------------------------------------------------------- */

/* Only what a restart of this process would mend: an API server that is down is not such a thing. Nor is a keeper that
 * is down: then we hold the only copy of the mounts' descriptors, and a restart would lose them. */
static bool is_healthy(void *ctx, struct sbuf *why)
{
    struct node *n = ctx;
    if (!socket_answers(why))
        return false;
    pthread_mutex_lock(&n->lock);
    bool alive = !n->agent || agent_is_alive(n->agent);
    pthread_mutex_unlock(&n->lock);
    if (!alive)
        sbuf_adds(why, "the loop of the agent does not turn");
    return alive;
}

static void write_metrics(void *ctx, struct sbuf *text)
{
    struct node *n = ctx;
    pthread_mutex_lock(&n->lock);
    if (n->agent)
        agent_write_metrics(n->agent, text);
    pthread_mutex_unlock(&n->lock);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int start(struct node *n, struct err *err)
{
    struct pools pools;
    auto_mem char *forgotten = NULL;
    int r = parse_pools(&pools, err);
    if (r == 0)
        r = parse_forgotten(&forgotten, err);
    if (r == 0)
        r = ensure_disks(&pools, err);
    if (r == 0 && mkdir(flags.state, 0700) != 0 && errno != EEXIST)
        r = err_sys(err, errno, "cannot make the folder '%s'", flags.state);
    if (r < 0)
        return r;
    struct driver_options o = {.node_id = flags.node_name,
                               .is_node = true,
                               .state_folder = flags.state,
                               .memory = memory_folder(),
                               .given_up = forgotten,
                               .programs = "", /* a node starts none */
                               .reserve_percent = (unsigned)flags.reserve_percent,
                               .gauges_ns = flags.metrics ? flags.metrics_interval_ns : 0,
                               .pools = pools.items,
                               .pool_count = flags.pools.count,
                               .changed = on_changed,
                               .ctx = n};
    r = driver_open(&o, &n->driver, err);
    if (r == 0)
        r = start_plugin(n, err);
    if (r == 0)
        r = start_agent(n, err);
    if (r == 0)
        r = start_metrics((struct serve_options){.ctx = n,
                                                 .is_healthy = is_healthy,
                                                 .metrics = flags.metrics_per_volume ? write_metrics : NULL},
                          &n->http, err);
    if (r == 0)
        r = start_registration(n, err);
    return r;
}

static void stop(struct node *n)
{
    registration_stop(n->registration);
    rpc_server_stop(n->plugin, GRACE_NS);
    rpc_server_free(n->plugin);
    end_agent(n);
    serve_free(n->http);
    driver_close(n->driver);
}

int role_node(const sigset_t *signals, struct err *err)
{
    struct node n = {.lock = PTHREAD_MUTEX_INITIALIZER};
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
