/* SPDX-License-Identifier: Apache-2.0 */
/* event.h - sends Kubernetes events, which `kubectl describe` shows on their object.
 * home: any thread; the client's loop sends. Best effort: no caller waits.
 *
 * A reason on an object is one event. The first occurrence is sent at once. Those of the next 60 s are counted and sent
 * together, with the last message. Beyond a limit the least recent are dropped. An event that the server could not
 * take is retried for an hour; one that it denies is dropped. After a burst of 200, the objects of a namespace get 5 a
 * second together; the others follow later. */
#pragma once

#include "kube/client.h"

struct kube_events;

struct kube_events_options {
    const char *component; /* source component: "cistern-controller". Static */
    struct str instance;   /* the pod's or node's name */
    unsigned series_max;   /* limit of recent events; 0: 4,096 */
};

enum kube_event_type { KUBE_NORMAL, KUBE_WARNING };

/* The object of an event. */
struct kube_ref {
    const struct kube_resource *resource; /* static */
    struct str ns;                        /* empty: cluster scope */
    struct str name, uid;
};

/* Views into the object, which is one of that resource. */
struct kube_ref kube_ref_of(const struct kube_resource *resource, const json *object);

struct kube_events *kube_events_new(struct kube *k, const struct kube_events_options *o);
void kube_events_free(struct kube_events *e); /* drops unsent events; NULL is fine */
DEFINE_AUTO(kube_events, struct kube_events, kube_events_free)

enum { KUBE_EVENT_MESSAGE_MAX = 1000 }; /* bytes: events.k8s.io refuses a note over 1,024 */

/* `reason` is one CamelCase word, static; the message is cut at that limit, after a whole character. */
void kube_event(struct kube_events *e, const struct kube_ref *about, enum kube_event_type type, const char *reason,
                const char *fmt, ...) printf_like(5, 6);

uint64_t kube_events_dropped(const struct kube_events *e);
