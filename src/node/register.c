/* SPDX-License-Identifier: Apache-2.0 */
#include "register.h"
#include "io/ticker.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <proto/pluginregistration.pb-c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LOOK_NS NS_PER_SECOND
/* A kubelet with pods calls more often than this; a restarted one cannot call before a new registration. */
#define QUIET_NS (10 * NS_PER_SECOND)
/* It asks once a minute for the usage of each volume in a pod. */
#define IDLE_NS (120 * NS_PER_SECOND)
#define QUIET_AT_FIRST_NS (3 * NS_PER_SECOND)
#define REFUSED_FIRST_NS (2 * NS_PER_SECOND)
#define REFUSED_LAST_NS (120 * NS_PER_SECOND)

enum { THREADS = 2 };

struct registration {
    char *path, *endpoint, *kubelet; /* owned */
    const struct rpc_server *plugin; /* borrowed */
    uint64_t (*last_call_ns)(void *ctx);
    void *ctx;
    uint64_t began_ns;
    struct rpc_server *server; /* owned; the thread's, once it runs; NULL: never published */
    uint64_t published_ns;     /* the thread's */
    unsigned refusals;         /* the thread's: in a row, as of the last publication */
    atomic_bool refused;       /* by the kubelet, the last publication */
    struct ticker *ticker;     /* owned */
};

/* ---- deciding on a registration ---------------------------------------------------------------------------------- */

bool registration_is_due(const struct registration_view *v)
{
    switch (v->place) {
    case PLACE_EMPTY:
        return true;
    case PLACE_LIVE:
        return false;
    case PLACE_DEAD:
        /* The kubelet may still know the driver by its predecessor's registration. */
        if (v->kubelet == KUBELET_NEWER)
            return true;
        if (v->kubelet == KUBELET_SAME)
            return v->quiet_ns >= IDLE_NS;
        return v->quiet_ns >= (v->was_called ? QUIET_NS : QUIET_AT_FIRST_NS);
    case PLACE_OURS:
        /* After a refusal the kubelet does not ask again by itself. */
        return v->refused && v->published_ns >=
                                 clock_doubled_ns(v->refusals ? v->refusals - 1 : 0, REFUSED_FIRST_NS, REFUSED_LAST_NS);
    }
    return false;
}

/* Whether a process accepts connections at the socket `path`. */
static bool socket_is_live(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (snprintf(a.sun_path, sizeof a.sun_path, "%s", path) >= (int)sizeof a.sun_path)
        return false;
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* EAGAIN: its backlog is full. */
    return fd >= 0 && (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 || errno == EAGAIN);
}

static enum registration_place place_of(const struct registration *r)
{
    struct stat st;
    if (lstat(r->path, &st) != 0)
        return PLACE_EMPTY;
    if (r->server && rpc_server_has_name(r->server))
        return PLACE_OURS;
    return socket_is_live(r->path) ? PLACE_LIVE : PLACE_DEAD;
}

/* Whether the kubelet started after the registration was published. A kubelet asks every socket at its start, and gets
 * no reply from a dead one. If the registration was live, the kubelet knows it: the socket's ctime records that for
 * later drivers. */
static enum registration_kubelet kubelet_state(const struct registration *r, enum registration_place place)
{
    struct stat published, started;
    if (stat(r->kubelet, &started) != 0 || lstat(r->path, &published) != 0)
        return KUBELET_UNKNOWN;
    if (time_from_spec(started.st_ctim) <= time_from_spec(published.st_ctim))
        return KUBELET_SAME;
    if ((place == PLACE_LIVE || place == PLACE_OURS) && chmod(r->path, 0600) == 0)
        return KUBELET_SAME;
    return KUBELET_NEWER;
}

/* ---- the kubelet's two calls ------------------------------------------------------------------------------------- */

static int get_info(void *ctx, struct rpc_call *call, const ProtobufCMessage *, ProtobufCMessage *reply, struct err *)
{
    static const char *const versions[] = {"1.0.0"}; /* CSI's, as kubelets ask for it: any 1.x */
    struct registration *r = ctx;
    Pluginregistration__PluginInfo *p = (Pluginregistration__PluginInfo *)reply;
    p->type = rpc_dup(call, STR("CSIPlugin"));
    p->name = rpc_dup(call, STR(NAME_DRIVER));
    p->endpoint = rpc_dup(call, str_of(r->endpoint));
    p->n_supported_versions = countof(versions);
    p->supported_versions = rpc_alloc(call, countof(versions), sizeof *p->supported_versions);
    for (size_t i = 0; i < countof(versions); i++)
        p->supported_versions[i] = rpc_dup(call, str_of(versions[i]));
    return 0;
}

static int notify(void *ctx, struct rpc_call *, const ProtobufCMessage *request, ProtobufCMessage *, struct err *)
{
    struct registration *r = ctx;
    const Pluginregistration__RegistrationStatus *q = (const Pluginregistration__RegistrationStatus *)request;
    if (q->plugin_registered)
        log_event(LOG_INFO, "registered with the kubelet", "endpoint", r->endpoint, NULL);
    else
        log_event(LOG_ERROR, "the kubelet refuses the driver; the registration is repeated", "endpoint", r->endpoint,
                  "why", q->error, NULL);
    atomic_store(&r->refused, !q->plugin_registered);
    return 0;
}

static const struct rpc_method methods[] = {
    {"/pluginregistration.Registration/GetInfo", &pluginregistration__info_request__descriptor,
     &pluginregistration__plugin_info__descriptor, get_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", &pluginregistration__registration_status__descriptor,
     &pluginregistration__registration_status_response__descriptor, notify},
};

/* ---- publishing -------------------------------------------------------------------------------------------------- */

/* The new socket is renamed over the old one, so that the kubelet always finds one. */
static int publish(struct registration *r, struct err *err)
{
    struct rpc_server *before = r->server;
    struct rpc_options o = {.socket_path = r->path,
                            .driver_name = "registration",
                            .threads = THREADS,
                            .methods = methods,
                            .method_count = countof(methods),
                            .ctx = r};
    r->refusals = atomic_load(&r->refused) ? r->refusals + 1 : 0;
    atomic_store(&r->refused, false);
    int e = rpc_server_start(&o, &r->server, err);
    r->published_ns = clock_now_ns();
    if (e < 0)
        return e;
    rpc_server_free(before);
    log_event(LOG_INFO, "published to the kubelet", "socket", r->path, NULL);
    return 0;
}

static void tend(struct registration *r)
{
    struct err err;
    uint64_t now_ns = clock_now_ns(), called_ns = r->last_call_ns(r->ctx);
    enum registration_place place = place_of(r);
    struct registration_view v = {.place = place,
                                  .kubelet = kubelet_state(r, place),
                                  .refused = atomic_load(&r->refused),
                                  .refusals = r->refusals + 1,
                                  .was_called = called_ns != 0,
                                  .quiet_ns = now_ns - min_u64(now_ns, max_u64(called_ns, r->began_ns)),
                                  .published_ns = now_ns - r->published_ns};
    if (registration_is_due(&v) && publish(r, &err) < 0)
        log_err(LOG_ERROR, "cannot be published to the kubelet", &err, "socket", r->path, NULL);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static uint64_t tick(void *ctx)
{
    tend(ctx);
    return LOOK_NS;
}

static void registration_free(struct registration *own_r)
{
    free(own_r->path);
    free(own_r->endpoint);
    free(own_r->kubelet);
    free(own_r);
}

int registration_start(const struct registration_options *o, struct registration **ret, struct err *err)
{
    struct registration *r = xcalloc(1, sizeof *r);
    r->kubelet = str_dupf("%s/../device-plugins/kubelet.sock", o->directory);
    r->path = str_dupf("%s/%s-reg.sock", o->directory, NAME_DRIVER);
    r->endpoint = str_dup(str_of(o->endpoint));
    r->plugin = o->plugin;
    r->last_call_ns = o->last_call_ns;
    r->ctx = o->ctx;
    r->began_ns = clock_now_ns();
    int e = ticker_start("register", tick, r, &r->ticker, err);
    if (e < 0) {
        registration_free(r);
        return e;
    }
    *ret = r;
    return 0;
}

void registration_stop(struct registration *own_r)
{
    if (!own_r)
        return;
    ticker_stop(own_r->ticker);
    /* The kubelet unregisters the driver of a removed socket, even if another process serves the plugin's socket. */
    if (own_r->server && !rpc_server_has_name(own_r->plugin))
        rpc_server_leave_name(own_r->server);
    rpc_server_free(own_r->server);
    registration_free(own_r);
}
