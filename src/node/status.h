/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - Builds the status of a CisternVolume from the volume on the disk, and finds the events of its changes.
 * Pure. */
#pragma once

#include "action.h"

/* Sets order->status to the present state. Leaves out the conditions that the controller owns. */
void status_build(struct api_volume *order, const struct observed *f, const struct action_outcome *o, int64_t now_ns);

/* Sets only the result of the last export, at the end of a release. */
void status_build_last_export(struct api_volume *order, const struct observed *f, int64_t now_ns);

/* As status_build(), for a volume whose files on the disk cannot be read. */
void status_build_unreadable(struct api_volume *order, const struct err *why, int64_t now_ns);

/* How a status differs from the last one written. */
enum status_change {
    STATUS_SAME,
    STATUS_USAGE,    /* a few bytes more or less in a volume that is in use */
    STATUS_PROGRESS, /* counters of a hydration or an export */
    STATUS_CHANGED,  /* phase, conditions, capacity, errors: written at once */
};
enum status_change status_compare(const struct api_volume *before, const struct api_volume *now);

/* Whether a hydration, an export or a release is under way, so that the disk is read again soon. */
bool status_is_active(const struct api_volume *v);

/* A warning about a change of the status that deserves a Kubernetes event. */
struct status_event {
    const char *reason;  /* static */
    const char *message; /* a view of `now`'s, or static */
};

enum { STATUS_EVENTS_MAX = 6 };

/* Returns the number of events. */
size_t status_events(const struct api_volume *before, const struct api_volume *now,
                     struct status_event ret[STATUS_EVENTS_MAX]);
