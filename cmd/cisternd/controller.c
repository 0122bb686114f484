/* SPDX-License-Identifier: Apache-2.0 */
/* --role=controller: the CSI controller of all nodes, the volume populator, and the credentials broker. Every replica
 * serves calls; only the leader changes objects without a call. */
#include "api/pool.h"
#include "api/volume.h"
#include "broker/broker.h"
#include "cisternd.h"
#include "control/control.h"
#include "csi/service.h"
#include "io/guard.h"
#include "io/loop.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/lease.h"
#include "populate/populate.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/env.h"
#include "util/log.h"
#include <limits.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RELEASE_SECONDS = 3 };
enum { BY_ID = CONTROL_BY_ID, BY_NODE = CONTROL_BY_NODE, BY_CLAIM, BY_SOURCE };

struct controller_role {
    struct loop *loop; /* owned, as are all that follow */
    struct kube *kube;
    char *issuer; /* of its token; NULL: not known */
    struct kube_lease *lease;
    struct kube_events *events;
    struct kube_informer *volumes, *pvs, *pools, *nodes, *api_servers;
    struct control *control;
    struct populate *populate;
    struct broker *broker;
    struct rpc_server *csi;
    struct http_server *http;
    bool loop_runs;
    struct mail release;
    sem_t released;
    char identity[HOST_NAME_MAX + 1];
    char broker_url[300];
    struct sbuf guard; /* the administrator's lines, and the API server's address; frozen */
};

/* ---- the informers and the lease, on the loop -------------------------------------------------------------------- */

static void volume_changed(void *ctx, struct str name, const json *volume)
{
    struct controller_role *c = ctx;
    control_volume_changed(c->control, name);
    populate_volume_changed(c->populate, name, volume);
}

static void pv_changed(void *ctx, struct str, const json *pv)
{
    struct controller_role *c = ctx;
    control_pv_changed(c->control, pv);
    populate_pv_changed(c->populate, pv);
}

static void node_changed(void *ctx, struct str name, const json *)
{
    struct controller_role *c = ctx;
    control_node_changed(c->control, name);
    populate_node_changed(c->populate, name);
}

/* The kubelet updates its Node every few minutes; only a cordon matters. */
static void node_updated(void *ctx, struct str name, const json *node)
{
    if (json_bool_at(node, "spec.unschedulable"))
        node_changed(ctx, name, node);
}

/* A cluster may have thousands of large Nodes: keeps the cordon, the addresses and the kernel. */
static void strip_node(void *, json *node)
{
    static const char *const kept[] = {"status.addresses", "status.nodeInfo.kernelVersion"};
    json *values[countof(kept)];
    for (size_t i = 0; i < countof(kept); i++)
        values[i] = json_take_at(node, kept[i]);
    json_remove(node, "status");
    json_remove(node, "metadata.annotations");
    for (size_t i = 0; i < countof(kept); i++)
        if (values[i])
            json_set(node, kept[i], values[i]);
}

/* Decisions made before the first sync may be wrong: repeat them. */
static void synced(void *ctx)
{
    struct controller_role *c = ctx;
    control_lead(c->control);
    populate_lead(c->populate);
}

static void informer_failed(void *, const struct err *err, uint64_t wait_ns)
{
    log_err(LOG_WARN, "the API server cannot be watched", err, "retry_seconds", log_u64(wait_ns / NS_PER_SECOND), NULL);
}

static void started_leading(void *ctx)
{
    struct controller_role *c = ctx;
    log_event(LOG_INFO, "leading", "identity", c->identity, NULL);
    control_lead(c->control);
    populate_lead(c->populate);
}

static void stopped_leading(void *ctx)
{
    struct controller_role *c = ctx;
    log_event(LOG_INFO, "stopped leading", "identity", c->identity, NULL);
}

static void lease_failed(void *, const struct err *err)
{
    log_err(LOG_WARN, "the lease cannot be renewed", err, NULL);
}

/* ---- addresses that sources may have ----------------------------------------------------------------------------- */

/* A host name, such as the API server's, is not an address and adds nothing. */
static void deny(struct sbuf *lines, struct str address, uint64_t port)
{
    char text[80];
    bool is_v6 = str_find(address, ':') >= 0 && !str_starts(address, STR("["));
    if (port)
        snprintf(text, sizeof text, "%s%.*s%s:%u", is_v6 ? "[" : "", STR_FMT(str_sub(address, 0, 60)), is_v6 ? "]" : "",
                 (unsigned)port);
    else
        snprintf(text, sizeof text, "%.*s", STR_FMT(str_sub(address, 0, 60)));
    (void)!guard_add_line(lines, "deny", str_of(text), ERR_IGNORED);
}

/* Most network plugins give a bridge of the node the first address of its pods' range. The Node's status does not
 * list it. */
static void deny_bridge(struct sbuf *lines, struct str range)
{
    ssize_t slash = str_find(range, '/');
    char text[64];
    snprintf(text, sizeof text, "%.*s/%s", STR_FMT(str_sub(range, 0, slash < 0 ? 0 : (size_t)slash)),
             str_find(range, ':') < 0 ? "31" : "127");
    deny(lines, str_of(text), 0);
}

/* A kubelet writes the addresses of its own Node. Cloud providers list fewer than ten; a list without a limit could
 * fill the guard, and no source would get credentials. */
enum { NODE_ADDRESSES_MAX = 32 };

static int deny_node(void *ctx, struct str, const json *node)
{
    const json *addresses = json_at(node, "status.addresses"), *ranges = json_at(node, "spec.podCIDRs");
    for (size_t i = 0; i < json_count(ranges); i++) {
        struct str range;
        if (json_as_str(json_item(ranges, i), &range))
            deny_bridge(ctx, range);
    }
    for (size_t i = 0; i < min_u64(json_count(addresses), NODE_ADDRESSES_MAX); i++)
        deny(ctx, json_member_str(json_item(addresses, i), "address"), 0);
    return 0;
}

static int deny_api_server(void *ctx, struct str, const json *slice)
{
    const json *endpoints = json_at(slice, "endpoints"), *ports = json_at(slice, "ports");
    for (size_t i = 0; i < json_count(endpoints); i++)
        for (size_t k = 0; k < json_count(ports); k++) {
            const json *addresses = json_at(json_item(endpoints, i), "addresses");
            struct str address;
            uint64_t port = 0;
            for (size_t n = 0; n < json_count(addresses); n++)
                if (json_as_str(json_item(addresses, n), &address) &&
                    json_opt_u64(json_item(ports, k), "port", &port, ERR_IGNORED) == 0 && port)
                    deny(ctx, address, port);
        }
    return 0;
}

static bool knows_addresses(void *ctx)
{
    const struct controller_role *c = ctx;
    return kube_informer_has_synced(c->nodes) && kube_informer_has_synced(c->api_servers);
}

static bool guard_lines(void *ctx, struct sbuf *ret)
{
    struct controller_role *c = ctx;
    if (!knows_addresses(c))
        return false;
    sbuf_add(ret, sbuf_str(&c->guard));
    (void)kube_informer_each(c->nodes, -1, STR_NULL, deny_node, ret);
    (void)kube_informer_each(c->api_servers, -1, STR_NULL, deny_api_server, ret);
    return true;
}

static int add_lines(struct controller_role *c, const char *verb, const struct opt_list *values, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < values->count && r == 0; i++)
        r = guard_add_line(&c->guard, verb, str_of(values->items[i]), err);
    return r;
}

/* "https://10.96.0.1:443", as this process reaches it. */
static void deny_server(struct controller_role *c, struct str url)
{
    struct str host = str_from(url, (size_t)str_find(url, '/') + 2);
    size_t colon = host.len;
    while (colon > 0 && host.ptr[colon - 1] != ':' && host.ptr[colon - 1] != ']')
        colon--;
    uint64_t port = 443;
    bool has_port =
        colon > 0 && host.ptr[colon - 1] == ':' && str_to_u64(str_from(host, colon), &port, ERR_IGNORED) == 0;
    deny(&c->guard, has_port ? str_sub(host, 0, colon - 1) : host, port);
}

static int begin_guard(struct controller_role *c, const char *server, struct err *err)
{
    sbuf_init(&c->guard, GUARD_TEXT_MAX);
    deny_server(c, str_of(server));
    int r = add_lines(c, "trust", &flags.controller.trusted, err);
    if (r == 0)
        r = add_lines(c, "allow", &flags.controller.allowed, err);
    return r < 0 ? r : add_lines(c, "deny", &flags.controller.denied, err);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static int connect_kube(struct controller_role *c, struct err *err)
{
    auto_kube_config config = {0};
    struct kube_options o = {.qps = 50, .burst = 100, .field_manager = "cistern-controller"};
    int r = kube_config_load(flags.kubeconfig, &config, err);
    if (r == 0)
        r = loop_new("loop/0", &c->loop, err);
    if (r == 0)
        r = kube_new(c->loop, &config, &o, &c->kube, err);
    c->issuer = r == 0 ? kube_config_issuer(&config) : NULL;
    return r < 0 ? err_wrap(err, "API server") : begin_guard(c, config.server, err);
}

static void watch_objects(struct controller_role *c)
{
    struct kube_informer_options volumes = {.resource = &api_volumes,
                                            .indexes = {[BY_ID] = {"spec", "volumeID"},
                                                        [BY_NODE] = {"spec", "nodeName"},
                                                        [BY_CLAIM] = {"spec.claimRef", "uid"},
                                                        [BY_SOURCE] = {.value = populate_index_source}},
                                            .ctx = c,
                                            .on_added = volume_changed,
                                            .on_updated = volume_changed,
                                            .on_deleted = volume_changed,
                                            .on_synced = synced,
                                            .on_error = informer_failed};
    struct kube_informer_options pvs = {.resource = &kube_persistent_volumes,
                                        .indexes = {{.value = populate_index_pv}},
                                        .ctx = c,
                                        .on_added = pv_changed,
                                        .on_updated = pv_changed,
                                        .on_deleted = pv_changed,
                                        .on_error = informer_failed};
    struct kube_informer_options pools = {
        .resource = &api_pools, .indexes = {{"spec", "pool"}}, .ctx = c, .on_error = informer_failed};
    struct kube_informer_options nodes = {.resource = &kube_nodes,
                                          .transform = strip_node,
                                          .ctx = c,
                                          .on_added = node_changed,
                                          .on_updated = node_updated,
                                          .on_deleted = node_changed,
                                          .on_synced = synced,
                                          .on_error = informer_failed};
    c->volumes = kube_informer_new(c->kube, &volumes);
    c->pvs = kube_informer_new(c->kube, &pvs);
    c->pools = kube_informer_new(c->kube, &pools);
    struct kube_informer_options api_servers = {.resource = &kube_endpoint_slices,
                                                .ns = STR("default"),
                                                .field_selector = "metadata.name=kubernetes",
                                                .ctx = c,
                                                .on_error = informer_failed};
    c->nodes = kube_informer_new(c->kube, &nodes);
    c->api_servers = kube_informer_new(c->kube, &api_servers);
}

static void make_lease(struct controller_role *c)
{
    struct kube_lease_options o = {.ns = str_of(flags.controller.ns),
                                   .name = STR("cistern-controller"),
                                   .identity = str_of(c->identity),
                                   .ctx = c,
                                   .on_started = started_leading,
                                   .on_stopped = stopped_leading,
                                   .on_error = lease_failed};
    struct kube_events_options e = {.component = "cistern-controller", .instance = str_of(c->identity)};
    c->lease = kube_lease_new(c->kube, &o);
    c->events = kube_events_new(c->kube, &e);
}

static int open_control(struct controller_role *c, struct err *err)
{
    struct control_options o = {.kube = c->kube,
                                .lease = c->lease,
                                .events = c->events,
                                .volumes = c->volumes,
                                .pvs = c->pvs,
                                .pools = c->pools,
                                .nodes = c->nodes,
                                .namespace = str_of(flags.controller.ns),
                                .node_gone_grace_ns = flags.controller.node_gone_grace_ns,
                                .tombstone_ns = flags.controller.tombstone_ns,
                                .sweep_ns = flags.controller.sweep_ns};
    return control_open(&o, &c->control, err);
}

static int probe(void *ctx, const struct api_source *s, struct api_probe *ret, struct err *err)
{
    struct controller_role *c = ctx;
    return broker_probe(c->broker, s, ret, err);
}

static int open_populate(struct controller_role *c, struct err *err)
{
    snprintf(c->broker_url, sizeof c->broker_url, "https://cistern-broker.%s.svc", flags.controller.ns);
    struct populate_options o = {
        .kube = c->kube,
        .lease = c->lease,
        .events = c->events,
        .volumes = c->volumes,
        .volumes_by_claim = BY_CLAIM,
        .volumes_by_source = BY_SOURCE,
        .volumes_by_node = CONTROL_BY_NODE,
        .pvs = c->pvs,
        .pools = c->pools,
        .nodes = c->nodes,
        .cross_namespace = flags.controller.cross_namespace,
        .job = flags.controller.job,
        .exports_max = (unsigned)min_u64(flags.controller.exports_max, UINT32_MAX),
        .exports_a_node_max = (unsigned)min_u64(flags.controller.exports_a_node_max, UINT32_MAX),
        .hydrations_a_node_max = (unsigned)min_u64(flags.controller.hydrations_a_node_max, UINT32_MAX),
        .drain_failing_ns = flags.controller.drain_failing_ns,
        .drain_volumes_max = flags.controller.drain_volumes_max,
        .ctx = c,
        .may_probe = knows_addresses,
        .probe = c->broker ? probe : NULL};
    o.job.ns = flags.controller.ns;
    o.job.broker_url = c->broker_url;
    o.job.ttl_seconds = (unsigned)flags.controller.job_ttl_seconds;
    o.job.backoff_limit = (unsigned)flags.controller.job_backoff_limit;
    return populate_new(&o, &c->populate, err);
}

static void broker_answered(void *, const struct broker_event *e)
{
    char caller[256], pod[256], volume[256], purpose[32], method[32], principal[256];
    snprintf(caller, sizeof caller, "%.*s", STR_FMT(e->caller));
    snprintf(pod, sizeof pod, "%.*s", STR_FMT(e->pod));
    snprintf(volume, sizeof volume, "%.*s", STR_FMT(e->volume));
    snprintf(purpose, sizeof purpose, "%.*s", STR_FMT(e->purpose));
    snprintf(method, sizeof method, "%.*s", STR_FMT(e->method));
    snprintf(principal, sizeof principal, "%.*s", STR_FMT(e->principal));
    if (e->err)
        log_err(LOG_WARN, "credential refused", e->err, "caller", caller, "pod", pod, "volume", volume, "for", purpose,
                NULL);
    else
        log_event(LOG_INFO, "credential issued", "caller", caller, "pod", pod, "volume", volume, "for", purpose,
                  "method", method, "principal", principal, NULL);
}

static void broker_trouble(void *, const char *what, const struct err *err)
{
    log_err(LOG_WARN, what, err, NULL);
}

static int add_bindings(struct broker_options *o, struct err *err)
{
    const struct opt_list *given = &flags.controller.export_secrets;
    int r = 0;
    for (; r == 0 && o->binding_count < given->count && o->binding_count < BROKER_BINDINGS_MAX; o->binding_count++)
        r = broker_binding_parse(str_of(given->items[o->binding_count]), &o->bindings[o->binding_count], err);
    return r;
}

static int open_broker(struct controller_role *c, struct err *err)
{
    struct broker_options o = {.listen = flags.controller.broker_listen,
                               .ns = str_of(flags.controller.ns),
                               .node_account = str_of(flags.controller.node_account),
                               .job_account = str_of(flags.controller.job.account),
                               .allow_driver_identity = flags.controller.allow_driver_identity,
                               .require_opt_in = flags.controller.require_opt_in,
                               .issuer = c->issuer,
                               .gke_project = flags.controller.gke_project,
                               .gke_provider = flags.controller.gke_provider,
                               .lease = c->lease,
                               .ctx = c,
                               .guard_lines = guard_lines,
                               .on_call = broker_answered,
                               .on_error = broker_trouble};
    for (; o.audience_count < flags.controller.audiences.count && o.audience_count < BROKER_AUDIENCES_MAX;
         o.audience_count++)
        o.audiences[o.audience_count] = flags.controller.audiences.items[o.audience_count];
    int r = add_bindings(&o, err);
    if (r < 0)
        return r;
    return flags.controller.broker_listen ? broker_new(c->loop, c->kube, &o, &c->broker, err) : 0;
}

/* An unreachable API server does not fail the start. */
static int start(struct controller_role *c, struct err *err)
{
    const char *pod = env_get("POD_NAME");
    if (pod)
        snprintf(c->identity, sizeof c->identity, "%s", pod);
    else
        gethostname(c->identity, sizeof c->identity - 1);
    if (!c->identity[0])
        return err_set(err, ERR_INVALID, "POD_NAME is not set, and this machine has no name: leases need one");
    int r = connect_kube(c, err);
    if (r < 0)
        return r;
    make_lease(c);
    watch_objects(c);
    r = open_control(c, err);
    if (r == 0)
        r = open_broker(c, err);
    if (r == 0)
        r = open_populate(c, err);
    if (r == 0)
        r = loop_start(c->loop, err);
    c->loop_runs = r == 0;
    if (r == 0)
        r = start_metrics((struct http_server_options){0}, &c->http, err);
    return r == 0 ? serve_csi(control_service(c->control), csi_log_call, NULL, &c->csi, err) : r;
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

static void lease_released(void *ctx)
{
    struct controller_role *c = ctx;
    sem_post(&c->released);
}

static void release_lease(struct mail *m)
{
    struct controller_role *c = container_of(m, struct controller_role, release);
    kube_lease_release(c->lease, lease_released);
}

/* Another replica can then lead at once, without waiting for the lease to expire. */
static void release_leadership(struct controller_role *c)
{
    struct timespec until = time_to_spec((int64_t)(clock_now_ns() + RELEASE_SECONDS * NS_PER_SECOND));
    loop_post(c->loop, &c->release);
    while (sem_clockwait(&c->released, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
        ;
}

/* First cancels requests to the API server; then joins the threads, while the loop that they use still runs. */
static void stop(struct controller_role *c)
{
    if (c->loop_runs)
        release_leadership(c);
    rpc_server_stop(c->csi, SERVE_GRACE_NS);
    if (c->kube)
        kube_stop(c->kube);
    control_stop(c->control);
    if (c->populate)
        populate_stop(c->populate);
    if (c->broker)
        broker_stop(c->broker);
    if (c->loop)
        loop_stop_and_join(c->loop);
    rpc_server_free(c->csi);
    http_server_free(c->http);
    broker_free(c->broker);
    populate_free(c->populate);
    control_free(c->control);
    free(c->issuer);
    kube_informer_free(c->volumes);
    kube_informer_free(c->pvs);
    kube_informer_free(c->pools);
    kube_informer_free(c->nodes);
    kube_informer_free(c->api_servers);
    kube_events_free(c->events);
    kube_lease_free(c->lease);
    kube_free(c->kube);
    loop_free(c->loop);
    sbuf_done(&c->guard);
}

int role_controller(const sigset_t *signals, struct err *err)
{
    struct controller_role c = {.release = {.deliver = release_lease}};
    sem_init(&c.released, 0, 0);
    if (!flags.controller.ns || !flags.controller.job.image)
        return err_set(err, ERR_INVALID, "--namespace and --image are required");
    int r = start(&c, err);
    if (r == 0) {
        log_event(LOG_INFO, "serving", "endpoint", flags.endpoint, "namespace", flags.controller.ns, "version",
                  CISTERN_VERSION, NULL);
        wait_for_signal(signals);
    }
    stop(&c);
    return r;
}
