/* SPDX-License-Identifier: Apache-2.0 */
/* register.h - Registers the driver with the kubelet, by a socket in its directory plugins_registry.
 * home: any thread starts and stops it; its own thread "register" does the rest.
 *
 * The kubelet registers sockets that appear there, and unregisters sockets that are removed or replaced: then it has no
 * driver for about a second. In a roll the new driver takes the plugin's socket, to which the kubelet connects for each
 * call. It renews a registration that the running kubelet is recorded to know only when no call can be lost by that. */
#pragma once

#include "rpc/server.h"

struct registration;

struct registration_options {
    /* Absolute: the kubelet's plugins_registry, as this process sees it. The kubelet creates a socket in
     * ../device-plugins at each start. */
    const char *directory;
    const char *endpoint;                /* the plugin's socket, as the kubelet sees it */
    const struct rpc_server *plugin;     /* borrowed: its server */
    uint64_t (*last_call_ns)(void *ctx); /* the kubelet's last call of the node service, in clock_now_ns; 0: never */
    void *ctx;
};

/* Strings are copied. */
must_check int registration_start(const struct registration_options *o, struct registration **ret, struct err *err);

/* Removes the registration, also one of an earlier driver, unless another driver has taken the plugin's socket. NULL is
 * fine. Before the plugin's server is stopped. */
void registration_stop(struct registration *own_r);

/* ---- pure -------------------------------------------------------------------------------------------------------- */

enum registration_place {
    PLACE_EMPTY,
    PLACE_OURS,
    PLACE_LIVE, /* another driver's registration, which replies: the other pod of a roll */
    PLACE_DEAD, /* of a driver that has exited */
};

/* Whether the kubelet has registered the driver by this socket. */
enum registration_confirmed {
    CONFIRMED_NO,
    CONFIRMED_ONCE, /* a kubelet has; whether it still runs cannot be seen */
    CONFIRMED_YES,
};

enum {
    REGISTRATION_UNCONFIRMED = -1, /* no kubelet */
    REGISTRATION_UNSEEN = 0,       /* a kubelet whose own socket is missing */
};

/* `by`: the kubelet that confirmed the registration at `place`, as the time in seconds at which it started. `running`:
 * the kubelet that runs now. */
enum registration_confirmed registration_confirmation(enum registration_place place, int64_t by, int64_t running);

struct registration_view {
    enum registration_place place;
    enum registration_confirmed confirmed;
    bool refused;          /* by the kubelet, the last publication */
    unsigned refusals;     /* in a row */
    bool was_called;       /* by the kubelet, since the start */
    uint64_t quiet_ns;     /* since its last call of the node service or the registration, or since the start */
    uint64_t published_ns; /* since the publication */
};

/* Whether to publish the registration again now. */
bool registration_is_due(const struct registration_view *v);
