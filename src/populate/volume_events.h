/* SPDX-License-Identifier: Apache-2.0 */
/* volume_events.h - events on a claim or PersistentVolume about the hydration and export of its volume, made from the
 * status that the node writes. Pure. home: any; the state belongs to the caller. */
#pragma once

#include "api/volume.h"
#include "kube/event.h"

enum { VOLUME_EVENT_TEXT_MAX = KUBE_EVENT_MESSAGE_MAX + 1, VOLUME_EVENTS_MAX = 4 };

struct populate_event {
    bool warning;
    const char *reason;                /* static */
    bool (*concerns)(const json *pod); /* such pods get it, and their claim; NULL: all that wait for the claim */
    char text[VOLUME_EVENT_TEXT_MAX];
};

/* Which events of a volume were sent. Zeroed at first: events of the time before are not repeated, but for
 * those of a state that lasts. */
struct populate_event_state {
    bool seen, listing, started, finished, deletion;
    int64_t progress_ns;
    int64_t fault_ns; /* time of the last reported fault */
    bool export_seen;
    const char *export_state; /* reason of the last export event; NULL: none */
    int64_t exported_ns;      /* end of the last successful export */
    bool exports_into;        /* of a source */
    const char *export_test;  /* reason of the last event about a test of the destination; NULL: it was good */
};

/* How long a listing may take without an event. */
#define VOLUME_LISTING_NS (5 * NS_PER_SECOND)

/* Fills `ret` and returns the number of events. */
size_t volume_events_of_hydration(const struct api_volume *v, struct populate_event_state *m, int64_t now_ns,
                                  struct populate_event ret[VOLUME_EVENTS_MAX]);

/* The CisternVolume was deleted by hand. False: it was not, or that is not new. */
bool volume_event_of_deletion(const struct api_volume *v, struct populate_event_state *m, struct populate_event *ret);

/* An export started, failed, stalled or succeeded; false: nothing is new. A new controller reports a failed or stalled
 * export again, because it goes on. */
bool volume_event_of_export(const struct api_volume *v, struct populate_event_state *m, struct populate_event *ret);

/* The destination of exports was tested and would refuse them: found long before the first export. `result` has code 0
 * if it would not. False: nothing is new. */
bool volume_event_of_export_test(const struct err *result, struct populate_event_state *m, struct populate_event *ret);

/* The label `reason` of cistern_claim_failing; NULL: the volume does not fail. Static. */
const char *volume_failure(const struct api_volume *v);

/* SourceDenied, SourceNotFound, SourceEmpty, SourceTooLarge, SourceChanged; for other faults HydrationRetrying or
 * HydrationFailed. Static. */
const char *volume_event_reason(const struct api_fault *f, bool failed);
