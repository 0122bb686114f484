/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - what people hear of a volume that is being filled or exported, as events on its claim or on its
 * PersistentVolume, from the status that its node writes. Pure. home: any; a memo belongs to who passes it. */
#pragma once

#include "api/volume.h"

enum { REPORT_TEXT_MAX = 251, REPORTS_MAX = 4 }; /* the most that an event of ours says, and a NUL */

struct report {
    bool warning;
    const char *reason; /* static */
    char text[REPORT_TEXT_MAX];
};

/* What was told of a volume already. Zeroed at first; what happened before that is not told again. */
struct report_memo {
    bool seen, started, finished;
    int64_t progress_ns;
    int64_t fault_ns; /* the time of the last fault that was told */
    bool export_seen;
    const char *export_state; /* the last one that was told: a reason of ours; NULL: none */
    int64_t exported_ns;      /* the end of the last export that went well */
};

/* Fills `ret` and returns how many. */
size_t report_volume(const struct api_volume *v, struct report_memo *m, int64_t now_ns, struct report ret[REPORTS_MAX]);

/* That an export has begun, failed, stalled or gone well; false: nothing of it is new. One that fails or stalls is told
 * by a controller that has just begun, too: it goes on. */
bool report_export(const struct api_volume *v, struct report_memo *m, struct report *ret);

/* The reason under which a fault is told: SourceDenied, SourceNotFound, SourceTooLarge, SourceChanged, or, of another
 * one, HydrationRetrying or HydrationFailed. Static. */
const char *report_reason(const struct api_fault *f, bool failed);
