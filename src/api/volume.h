/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - reads and writes a CisternVolume: the order to a node, a copy of its source, and the node's status.
 * home: the object's owner; frozen while shared. Strings are owned, NULL if missing.
 *
 * Unknown fields, perhaps of a newer version, are ignored; a known field of another type is an error. The controller
 * writes spec and finalizer, the node the status. Each uses server-side apply with a field manager of its own, so that
 * it keeps the other's conditions. */
#pragma once

#include "api/condition.h"
#include "api/meta.h"
#include "kube/resource.h"
#include "spec/spec.h"

#define API_VOLUME_KIND "CisternVolume"
extern const struct kube_resource api_volumes;

enum api_phase {
    API_PHASE_NONE, /* the node has not written a status yet */
    API_PHASE_PROVISIONING,
    API_PHASE_LISTING,
    API_PHASE_HYDRATING,
    API_PHASE_VERIFYING,
    API_PHASE_READY,
    API_PHASE_EXPORTING,     /* not staged; an export is pending or running */
    API_PHASE_EXPORT_FAILED, /* files are missing in the bucket */
    API_PHASE_LOST,          /* the node or its disk is gone */
    API_PHASE_FAILED,
    API_PHASE_RELEASED, /* removed from the node */
};

/* Types of conditions, and the reasons on which code acts. */
#define API_PROVISIONED "Provisioned"
#define API_HYDRATED "Hydrated"
#define API_VERIFIED "Verified"
#define API_MOUNTED "Mounted"
#define API_EXPORTED "Exported"
#define API_HEALTHY "Healthy"
#define API_DELETION_HELD "DeletionHeld" /* the controller's: deleted by a user, which keeps the data */
#define API_NODE_GONE "NodeGone"         /* the controller's */

#define API_REASON_NODE_FULL "NodeFull"       /* Provisioned False: RESOURCE_EXHAUSTED */
#define API_REASON_OUT_OF_RANGE "OutOfRange"  /* Provisioned False: OUT_OF_RANGE */
#define API_REASON_INVALID "Invalid"          /* Provisioned False: INVALID_ARGUMENT */
#define API_REASON_EXISTS "AlreadyExists"     /* Provisioned False: ALREADY_EXISTS */
#define API_REASON_POOL_CHANGED "PoolChanged" /* Provisioned False: the id names a former pool */

#define API_REASON_VOLUME_LOST "VolumeLost" /* Healthy and Mounted False */
#define API_REASON_POOL_ABSENT "PoolAbsent" /* the disk is missing: Healthy, Mounted False; Exported False */
#define API_REASON_NOT_MOUNTED "NotMounted" /* Mounted False: no pod uses the volume */
#define API_REASON_MOUNTS_LOST "MountsLost" /* Mounted False: no keeper has the mount */
#define API_REASON_VOLUME_FULL "VolumeFull" /* Healthy False */
#define API_REASON_UNREADABLE "Unreadable"  /* Healthy False: its record is missing or corrupt, or its disk fails */
#define API_REASON_NOTHING_WRITTEN "NothingWritten" /* Exported True: no pod could write yet */
/* Exported False: an export is to begin, runs, has not succeeded within export.deadline, or failed. */
#define API_REASON_EXPORT_DUE "ExportDue"
#define API_REASON_EXPORTING "Exporting"
#define API_REASON_EXPORT_STALLED "ExportStalled"
#define API_REASON_EXPORT_FAILED "ExportFailed"

enum { API_FAULTS_MAX = 10, API_PARAMETERS_MAX = 64 };

struct api_parameter {
    char *key, *value;
};

struct api_hydration {
    uint64_t objects_total, objects_done, objects_failed, objects_missing;
    uint64_t bytes_total, bytes_done, bytes_per_second;
    uint64_t eta_seconds; /* 0: unknown, or done */
    uint64_t attempt;
    int64_t started_ns, finished_ns;
    char *manifest_digest;
    bool has_listing; /* the next three fields are known */
    uint64_t excluded_objects, largest_object_bytes, listing_seconds;
};

struct api_export {
    uint64_t pending_objects, pending_bytes, done_objects, done_bytes, failed_objects;
    int64_t last_success_ns;
};

/* One object that failed in a hydration (`errors`) or an export (`export.failed`). */
struct api_fault {
    char *object; /* key, or path in the volume; NULL: the whole run */
    char *id;     /* as err_id_text() writes it; NULL: none */
    char *code;   /* "DENIED" */
    char *message;
    uint64_t attempts;
    int64_t time_ns;
};

struct api_faults {
    struct api_fault items[API_FAULTS_MAX];
    size_t count;
};

struct api_volume_status {
    unsigned phase; /* enum api_phase */
    uint64_t observed_generation;
    uint64_t capacity_bytes, used_bytes, inodes_used;
    struct api_hydration hydration;
    struct api_export export;
    char *pool_uuid;
    char *access;           /* "bind" "passthrough" "fuse" */
    bool release_committed; /* the node completes the release: it cannot be withdrawn */
    struct api_faults errors;
    struct api_faults export_failed;
    struct api_conditions conditions;
};

struct api_volume {
    struct api_meta meta;
    struct volume_id id;
    char *node;
    char *pool;
    uint64_t capacity_bytes;
    char *claim_namespace, *claim_name, *claim_uid; /* the target claim, never its prime; all NULL: no claim */
    char *order_namespace, *order_name, *order_uid; /* spec.orderedBy: the provisioner's claim, maybe a prime */
    char *claim_label;                              /* "train/weights", for a column */
    char *source_namespace, *source_name;           /* the BucketSource that was copied; NULL: none */
    uint64_t source_generation;
    char *source; /* JSON: its spec, as it was */
    char *retry;  /* JSON: {"retry": ...} of the source's current spec; NULL: use the copy in the order */
    struct api_parameter parameters[API_PARAMETERS_MAX];
    size_t parameter_count;
    bool release_requested;
    bool release_discard; /* files that were not exported may be deleted */
    int64_t failing_ns;   /* wall clock: when its export began to fail; 0: it does not fail */
    int64_t cordoned_ns;  /* wall clock: when its node was first seen cordoned; 0: it is not */
    int64_t blocked_ns;   /* wall clock: since when only pods use it that a drain does not evict; 0: others do */
    bool has_exported;    /* at least one of its files has reached the bucket */
    struct api_volume_status status;
};

must_check int api_volume_read(const json *j, struct api_volume **ret, struct err *err);
struct api_volume *api_volume_new(void);
/* The pool that the volume was last in; borrowed. The id names another pool if the volume was created again. */
struct str api_volume_pool_uuid(const struct api_volume *v);
void api_volume_free(struct api_volume *own_v);
DEFINE_AUTO(api_volume, struct api_volume, api_volume_free)
#define auto_api_volume auto_with(auto_clean_api_volume) struct api_volume *

struct kube_ref api_volume_claim(const struct api_volume *v); /* for events; .uid empty: it has no claim */

/* Has the node processed the current order? */
bool api_volume_was_seen(const struct api_volume *v);

/* The object to create: name, labels, finalizer, spec. The caller frees. */
json *api_volume_json(const struct api_volume *v);

/* For the node to apply to `status`: the whole status, with the texts of the columns (progress, rate, ...). The
 * caller frees. */
json *api_volume_status_json(const struct api_volume *v);

/* For the node to apply to `status` before it destroys the volume, under a field manager of its own: the release is
 * committed (v->status.release_committed), and the last export ended as `v` says. The server refuses it if the order
 * has changed since `v`. The caller frees. */
json *api_volume_commit_json(const struct api_volume *v);

/* For the controller to apply to `status`: its own conditions (types DeletionHeld and NodeGone), the name of the node
 * for kubectl, and the phase if it is Lost. The caller frees. */
json *api_volume_controller_json(const struct api_volume *v);

/* The volume spec: the struct that the standalone driver makes from CreateVolume's parameters. It is checked, but
 * may ask for features that this version lacks. CIS_PARAMETER_UNKNOWN, CIS_PARAMETER_INVALID,
 * CIS_PARAMETER_UNSUPPORTED. */
must_check int api_volume_spec(const struct api_volume *v, struct spec **ret, struct err *err);

const char *api_phase_name(enum api_phase p); /* "Hydrating"; "" for NONE */

/* The value of a parameter, or NULL. The second one reads a choice as its enum: "hydration" as enum spec_hydration. */
const char *api_volume_parameter(const struct api_volume *v, const char *key);
uint64_t api_volume_choice(const struct api_volume *v, const char *key);
/* Sets or replaces a parameter. ERR_INVALID if there are too many. */
must_check int api_volume_set_parameter(struct api_volume *v, struct str key, struct str value, struct err *err);

/* Counts a fault and keeps the first API_FAULTS_MAX; strings are copied, NULL is fine. */
void api_faults_add(struct api_faults *f, const char *object, const char *id, const char *code, const char *message,
                    uint64_t attempts, int64_t time_ns);
void api_faults_clear(struct api_faults *f);
