/* SPDX-License-Identifier: Apache-2.0 */
/* register.h - the kubelet learns of the driver: a socket in its folder plugins_registry, on which it asks who we are.
 * home: any thread starts and stops it; a thread "register" of its own does the rest.
 *
 * The kubelet registers whatever appears in that folder, and unregisters what disappears or is replaced: for about a
 * second it then has no driver. So while drivers overlap in a roll the new one takes the plugin's socket, which the
 * kubelet connects to for each call, and leaves the registration alone until nothing can be lost by renewing it. */
#pragma once

#include "rpc/server.h"

struct registration;

struct registration_options {
    /* Absolute: the kubelet's plugins_registry, as we see it. In ../device-plugins it makes a socket at each start. */
    const char *folder;
    const char *endpoint;                /* the plugin's socket, as the kubelet sees it */
    const struct rpc_server *plugin;     /* borrowed: who serves it */
    uint64_t (*last_call_ns)(void *ctx); /* when the kubelet last called the plugin, in clock_now_ns; 0: never */
    void *ctx;
};

/* Strings are copied. */
must_check int registration_start(const struct registration_options *o, struct registration **ret, struct err *err);

/* The registration goes if no other driver has taken the plugin's socket; else it is left for that one to renew. NULL
 * is fine. Before the plugin's server is stopped. */
void registration_stop(struct registration *own_r);

/* ---- pure -------------------------------------------------------------------------------------------------------- */

enum registration_place {
    PLACE_EMPTY,
    PLACE_OURS,
    PLACE_LIVE, /* another driver's, which answers: it and we are two pods of a roll */
    PLACE_DEAD, /* another driver's, which died or has ended */
};

enum registration_kubelet {
    KUBELET_UNKNOWN,
    KUBELET_SAME, /* it has been there since the registration was published: so it knows the driver */
    KUBELET_NEWER,
};

struct registration_view {
    enum registration_place place;
    enum registration_kubelet kubelet;
    bool refused;          /* the kubelet said no to what we published */
    unsigned refusals;     /* in a row */
    bool was_called;       /* by the kubelet, since we began */
    uint64_t quiet_ns;     /* since its last call, or since we began */
    uint64_t published_ns; /* since we published */
};

/* Is the registration to be made anew now? */
bool registration_is_due(const struct registration_view *v);
