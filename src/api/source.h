/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - reads a BucketSource, the bucket of hydrations and exports, and writes its status. The user writes the
 * spec, the controller the status. home: the object's owner; frozen while shared. */
#pragma once

#include "api/condition.h"
#include "api/meta.h"
#include "kube/resource.h"
#include "spec/spec.h"

#define API_SOURCE_KIND "BucketSource"
extern const struct kube_resource api_sources;

enum api_source_phase {
    API_SOURCE_NONE,
    API_SOURCE_PENDING,
    API_SOURCE_READY,
    API_SOURCE_DEGRADED,
    API_SOURCE_SUSPENDED,
    API_SOURCE_INVALID,
};

#define API_ACCEPTED "Accepted"
#define API_IDENTITY_READY "IdentityReady"
#define API_REACHABLE "Reachable"
#define API_LISTED "Listed"
#define API_EXPORTABLE "Exportable"
#define API_READY "Ready"

struct api_source_resolved {
    char *scheme, *bucket, *prefix, *endpoint, *region;
};

struct api_source_identity {
    char *method, *principal;
    int64_t expires_ns; /* 0: never */
};

/* The last complete listing of a volume of this source. */
struct api_source_listing {
    bool known;
    uint64_t objects, bytes;
    char *manifest_digest;
    int64_t listed_ns;
    bool has_details; /* the next three fields are known */
    uint64_t excluded_objects, largest_object_bytes, seconds;
};

/* Volumes of this source, by phase. */
struct api_source_volumes {
    uint64_t pending, hydrating, ready, failed;
};

struct api_source_error {
    char *id, *code, *object, *message;
    int64_t time_ns;
};

struct api_source_export {
    char *volume, *uri;
    uint64_t objects, bytes;
    int64_t time_ns;
};

struct api_source_status {
    unsigned phase; /* enum api_source_phase */
    uint64_t observed_generation;
    int64_t first_used_ns; /* when a volume was first ordered; uri and layout cannot change since then */
    struct api_source_resolved resolved;
    struct api_source_identity identity;
    struct api_source_listing listing;
    uint64_t suggested_bytes; /* status.suggestedSize; 0: not known */
    struct api_source_volumes volumes;
    uint64_t exports_failed;         /* volumes whose last export failed or stalled, for the condition Ready */
    struct api_source_error error;   /* status.lastError */
    struct api_source_export export; /* status.lastExport: the last success */
    struct api_conditions conditions;
};

/* The result of a request to a source's store, besides an error. */
struct api_probe {
    bool has_identity; /* a credential was found, or none is needed */
    char method[16], principal[320];
    int64_t expires_ns;    /* 0: never */
    bool has_answered;     /* the store replied; false for a source that is only exported to */
    bool tried_export;     /* whether files may be exported was tested: export_err has the result */
    struct err export_err; /* code 0: they may be */
};

struct api_source {
    struct api_meta meta;
    char *spec; /* JSON, as the user wrote it */
    bool suspend;
    struct api_source_status status;
};

must_check int api_source_read(const json *j, struct api_source **ret, struct err *err);
void api_source_free(struct api_source *own_s);
DEFINE_AUTO(api_source, struct api_source, api_source_free)
#define auto_api_source auto_with(auto_clean_api_source) struct api_source *

/* The volume spec of this source, with all defaults. CIS_PARAMETER_UNKNOWN, CIS_PARAMETER_INVALID or
 * CIS_PARAMETER_UNSUPPORTED if this version does not support it. */
must_check int api_source_spec(const struct api_source *s, struct spec **ret, struct err *err);

enum { API_QUANTITY_MAX = 32 };
/* Whole MiB, from 10 GiB on whole GiB, rounded up, as a claim requests it: "148Gi". Returns ret. */
char *api_quantity_text(uint64_t bytes, char ret[API_QUANTITY_MAX]);

/* For the controller to apply to `status`; the caller frees. */
json *api_source_status_json(const struct api_source *s);
