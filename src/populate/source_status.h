/* SPDX-License-Identifier: Apache-2.0 */
/* source_status.h - computes the status of a BucketSource from its volumes and from the last probe of its store. Pure.
 * home: the owner of the source.
 *
 * Call source_status_begin, source_status_add for each volume, then source_status_end. The last listing, error and
 * export are kept after their volume was deleted. */
#pragma once

#include "api/source.h"
#include "api/volume.h"

/* The last probe of the store, see api_probe. */
struct source_probe_result {
    enum { SOURCE_NOT_PROBED, SOURCE_PROBE_DUE, SOURCE_PROBED } state; /* probes are off; not yet; done */
    struct api_probe answer;
    const struct err *err; /* borrowed; NULL: the probe succeeded */
    int64_t time_ns;
};

void source_status_begin(struct api_source *s);
void source_status_add(struct api_source *s, const struct api_volume *v);
/* While a probe is due, earlier conditions of this generation are kept. */
void source_status_end(struct api_source *s, const struct source_probe_result *p, int64_t now_ns);

/* Reason of the condition Accepted that is True: the source selects what it exports. */
#define SOURCE_EXPORTS_INTO "ExportsIntoSource"

/* Of the condition Exportable that is False, and of events: ExportDenied, ExportBucketNotFound, ExportUnreachable or
 * ExportRefused. Static. */
const char *source_export_reason(const struct err *err);

/* Recommended size of a claim: the bytes, 5 % for the file system, and 1 GiB. */
uint64_t source_suggested_bytes(uint64_t bytes);
