/* SPDX-License-Identifier: Apache-2.0 */
#include "register.h"
#include "io/ticker.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <fcntl.h>
#include <proto/pluginregistration.pb-c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LOOK_NS NS_PER_SECOND
/* A restarted kubelet cannot call before a new registration. */
#define QUIET_NS (10 * NS_PER_SECOND)
/* It asks for the usage of each volume in a pod, 60 to 120 s after the last time. */
#define IDLE_NS (180 * NS_PER_SECOND)
/* A kubelet that began to ask before the publication registers the driver, and finds then that the socket is a new one:
 * it unregisters the driver, and asks again within about 3 s. */
#define SETTLED_NS (10 * NS_PER_SECOND)
#define QUIET_AT_FIRST_NS (3 * NS_PER_SECOND)
#define REFUSED_FIRST_NS (2 * NS_PER_SECOND)
#define REFUSED_LAST_NS (120 * NS_PER_SECOND)

enum {
    THREADS = 2,
    MODE_CONFIRMED = 0700, /* of a socket by which a kubelet has registered the driver; a new one has 0600 */
};

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
    _Atomic uint64_t asked_ns; /* the kubelet's last call of the server; 0: never */
    /* The kubelet that registered the driver and has not asked again, or REGISTRATION_UNCONFIRMED. */
    _Atomic int64_t confirmed_by;
    struct ticker *ticker; /* owned */
};

/* ---- deciding on a registration ---------------------------------------------------------------------------------- */

enum registration_confirmed registration_confirmation(enum registration_place place, int64_t by, int64_t running)
{
    if (by == REGISTRATION_UNCONFIRMED)
        return CONFIRMED_NO;
    if (place == PLACE_OURS) /* a kubelet that was restarted asks there by itself */
        return CONFIRMED_YES;
    if (running == REGISTRATION_UNSEEN)
        return CONFIRMED_ONCE;
    return by == running ? CONFIRMED_YES : CONFIRMED_NO;
}

bool registration_is_due(const struct registration_view *v)
{
    switch (v->place) {
    case PLACE_EMPTY:
        return true;
    case PLACE_LIVE:
        return false;
    case PLACE_DEAD:
        /* The kubelet may still know the driver by its predecessor's registration. */
        if (v->confirmed == CONFIRMED_NO)
            return true;
        if (v->confirmed == CONFIRMED_YES)
            return v->quiet_ns >= IDLE_NS;
        return v->quiet_ns >= (v->was_called ? QUIET_NS : QUIET_AT_FIRST_NS);
    case PLACE_OURS:
        /* After a refusal the kubelet does not ask again by itself. */
        if (v->refused)
            return v->published_ns >=
                   clock_doubled_ns(v->refusals ? v->refusals - 1 : 0, REFUSED_FIRST_NS, REFUSED_LAST_NS);
        return v->confirmed == CONFIRMED_NO && min_u64(v->quiet_ns, v->published_ns) >= IDLE_NS;
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
    /* In case of doubt it is live: its backlog may be full, or no descriptor free here. */
    return fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) == 0 || errno != ECONNREFUSED;
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

/* The kubelet that runs, by the mtime of the socket that it makes at its start. In seconds: some file systems have no
 * finer times. */
static int64_t running_kubelet(const struct registration *r)
{
    struct stat st;
    return stat(r->kubelet, &st) == 0 ? st.st_mtim.tv_sec : REGISTRATION_UNSEEN;
}

/* A confirmation is recorded for later drivers: by the mode of the registration's socket, and the kubelet by its mtime.
 * Returns the kubelet, or REGISTRATION_UNCONFIRMED. */
static int64_t recorded_confirmation(const char *path)
{
    struct stat st;
    bool is_confirmed = lstat(path, &st) == 0 && (st.st_mode & ALLPERMS) == MODE_CONFIRMED;
    return is_confirmed ? st.st_mtim.tv_sec : REGISTRATION_UNCONFIRMED;
}

/* If this fails, the next driver publishes again. */
static void record_confirmation(const char *path, int64_t kubelet)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = kubelet}};
    if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0)
        (void)chmod(path, MODE_CONFIRMED);
}

static void record_if_settled(const struct registration *r, int64_t running)
{
    int64_t by = atomic_load(&r->confirmed_by);
    if (by == running && by != recorded_confirmation(r->path) && clock_now_ns() >= r->asked_ns + SETTLED_NS)
        record_confirmation(r->path, by);
}

/* ---- the kubelet's two calls ------------------------------------------------------------------------------------- */

static int get_info(void *ctx, struct rpc_call *call, const ProtobufCMessage *, ProtobufCMessage *reply, struct err *)
{
    static const char *const versions[] = {"1.0.0"}; /* CSI's, as kubelets ask for it: any 1.x */
    struct registration *r = ctx;
    Pluginregistration__PluginInfo *p = (Pluginregistration__PluginInfo *)reply;
    atomic_store(&r->asked_ns, clock_now_ns());
    atomic_store(&r->confirmed_by, REGISTRATION_UNCONFIRMED);
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
    atomic_store(&r->asked_ns, clock_now_ns());
    atomic_store(&r->refused, !q->plugin_registered);
    atomic_store(&r->confirmed_by, q->plugin_registered ? running_kubelet(r) : REGISTRATION_UNCONFIRMED);
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
    uint64_t asked_ns = atomic_load(&r->asked_ns);
    bool was_refused = atomic_exchange(&r->refused, false);
    atomic_store(&r->confirmed_by, REGISTRATION_UNCONFIRMED);
    int e = rpc_server_start(&o, &r->server, err);
    r->published_ns = clock_now_ns();
    if (e < 0) {
        if (atomic_load(&r->asked_ns) == asked_ns) /* else the server before was asked */
            atomic_store(&r->refused, was_refused);
        return e;
    }
    r->refusals = was_refused ? r->refusals + 1 : 0;
    rpc_server_free(before);
    log_event(LOG_INFO, "published to the kubelet", "socket", r->path, NULL);
    return 0;
}

static void tend(struct registration *r)
{
    struct err err;
    enum registration_place place = place_of(r);
    int64_t running = running_kubelet(r);
    int64_t by = place == PLACE_OURS ? atomic_load(&r->confirmed_by) : recorded_confirmation(r->path);
    uint64_t now_ns = clock_now_ns(), called_ns = r->last_call_ns(r->ctx);
    uint64_t quiet_since_ns = max_u64(r->began_ns, max_u64(called_ns, atomic_load(&r->asked_ns)));
    struct registration_view v = {.place = place,
                                  .confirmed = registration_confirmation(place, by, running),
                                  .refused = atomic_load(&r->refused),
                                  .refusals = r->refusals + 1,
                                  .was_called = called_ns != 0,
                                  .quiet_ns = now_ns - min_u64(now_ns, quiet_since_ns),
                                  .published_ns = now_ns - r->published_ns};
    if (place == PLACE_OURS)
        record_if_settled(r, running);
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
    r->confirmed_by = REGISTRATION_UNCONFIRMED;
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
    else if (!own_r->server && rpc_server_has_name(own_r->plugin) && place_of(own_r) == PLACE_DEAD)
        (void)unlink(own_r->path);
    rpc_server_free(own_r->server);
    registration_free(own_r);
}
