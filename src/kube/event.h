/* SPDX-License-Identifier: Apache-2.0 */
/* event.h - events that `kubectl describe` shows on the object that they are about.
 * home: any thread tells; the client's loop sends. Best effort: nothing waits, nothing is kept for ever.
 *
 * One reason on one object makes one event: the first is sent at once, those of the next 60 s are counted into it and
 * sent together, with the last message. A ceiling of objects is remembered, oldest forgotten first; an event that
 * cannot be sent is tried again once and dropped. */
#pragma once

#include "kube/client.h"

struct kube_events;

struct kube_events_options {
    const char *component; /* "cistern-controller": who tells. Static */
    struct str instance;   /* the pod's or node's name */
    unsigned series_max;   /* remembered; 0: 1,024 */
};

enum kube_event_type { KUBE_NORMAL, KUBE_WARNING };

/* What an event is about. */
struct kube_ref {
    const struct kube_resource *resource; /* static */
    struct str ns;                        /* empty: cluster scope */
    struct str name, uid;
};

/* Views into the object, which is one of that resource. */
struct kube_ref kube_ref_of(const struct kube_resource *resource, const json *object);

struct kube_events *kube_events_new(struct kube *k, const struct kube_events_options *o);
void kube_events_free(struct kube_events *e); /* what was not sent is dropped; NULL is fine */
DEFINE_AUTO(kube_events, struct kube_events, kube_events_free)

/* `reason` is one CamelCase word, static; the message is cut at 250 bytes. */
void kube_event(struct kube_events *e, const struct kube_ref *about, enum kube_event_type type, const char *reason,
                const char *fmt, ...) printf_like(5, 6);

uint64_t kube_events_dropped(const struct kube_events *e);
