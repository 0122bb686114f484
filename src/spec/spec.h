/* SPDX-License-Identifier: Apache-2.0 */
/* spec.h - The specification of a volume: parsed once, stored beside it as volume.json, read again after a restart.
 * Pure. home: a struct spec belongs to one thread at a time. Strings are owned by the spec, NULL if not given.
 *
 * The names are those that users write: parameters of a StorageClass (`hydration`), fields of a BucketSource (`uri`,
 * `retry.maxAttempts`) and, below `export.`, its export policy. One table (keys.c) has every name with its type, its
 * default and whether it may change later. String maps and JSON are both read through it.
 * Code: spec.c, json.c (volume.json and the spec of a BucketSource) and served.c (what this version supports, and what
 * the export policy exports). */
#pragma once

#include "spec/id.h"
#include "util/err.h"
#include "util/json.h"
#include "util/str.h"
#include "util/uri.h"

enum {
    SPEC_VERSION = 1,          /* version of volume.json; a newer one is refused (CIS_VOLUME_RECORD_VERSION) */
    SPEC_BYTES_MIN = 16 << 20, /* minimum size of a volume: the smallest XFS file system */
    SPEC_JSON_MAX = 1 << 20,   /* bytes of volume.json */
    SPEC_LIST_MAX = 256,       /* patterns of a list */
    SPEC_PRIORITIES_MAX = 32,  /* patterns of `priority` */
    SPEC_SHARDS_MAX = 1024,
    SPEC_SOURCES_MAX = 64,   /* entries of `sources` */
    SPEC_TEXT_MAX = 4096,    /* bytes of any one string ... */
    SPEC_PEM_MAX = 32 << 10, /* ... except for a list of certificates */
};

/* How the pool limits the size of the volume: pool/disk.h. */
enum spec_backend { BACKEND_AUTO, BACKEND_QUOTA, BACKEND_LOOP };
const char *spec_backend_name(enum spec_backend b); /* "quota"; "auto" */
must_check int spec_backend_parse(struct str s, enum spec_backend *ret, struct err *err);

enum spec_hydration { HYDRATION_EAGER, HYDRATION_GATE, HYDRATION_NONE };
enum spec_access { ACCESS_AUTO, ACCESS_FUSE, ACCESS_BIND };
enum spec_verify { VERIFY_AUTO, VERIFY_SIZE, VERIFY_NONE };
enum spec_data_loss { DATA_LOSS_FAIL, DATA_LOSS_REHYDRATE, DATA_LOSS_EMPTY };
enum spec_direct_io { DIRECT_IO_AUTO, DIRECT_IO_ON, DIRECT_IO_OFF };
enum spec_identity {
    IDENTITY_AUTO,
    IDENTITY_GKE,
    IDENTITY_WIF,
    IDENTITY_IRSA,
    IDENTITY_POD,
    IDENTITY_METADATA,
    IDENTITY_SECRET,
    IDENTITY_ANONYMOUS
};
const char *spec_identity_name(enum spec_identity i); /* "podIdentity" */
enum spec_consistency { CONSISTENCY_PINNED };
enum spec_on_change { ON_CHANGE_FAIL };
enum spec_on_empty { ON_EMPTY_FAIL, ON_EMPTY_ALLOW };
enum spec_on_missing { ON_MISSING_FAIL, ON_MISSING_SKIP };
enum spec_conflict { CONFLICT_FAIL, CONFLICT_OVERWRITE, CONFLICT_VERSION };
enum spec_on_failure { ON_FAILURE_RETAIN, ON_FAILURE_DISCARD };
enum spec_group { GROUP_FILE, GROUP_DIRECTORY };
enum spec_order { ORDER_MIN, ORDER_MAX };

/* Bits of spec_export.triggers. */
enum spec_trigger { TRIGGER_ON_UNPUBLISH = 1, TRIGGER_ON_RELEASE = 2, TRIGGER_MANUAL = 4 };

struct spec_list {
    char **items; /* owned */
    size_t count;
};

/* Taken apart once, when it is set. */
struct spec_uri {
    char *text;      /* gs://b/p/, s3://b/p/, file:///d/; owned, NULL: none */
    struct uri view; /* of the text */
};

/* One prefix of a source. From spec_source_at() it borrows from the spec. */
struct spec_part {
    struct spec_uri uri;
    char *sub_path; /* directory in the volume; NULL: its root */
    struct spec_list include;
    struct spec_list exclude;
};

struct spec_parts {
    struct spec_part *items; /* owned */
    size_t count;
};

struct spec_params {
    char *pool;            /* "default" */
    uint64_t hydration;    /* enum spec_hydration; enums are 64-bit fields, so one setter serves them all */
    uint64_t access;       /* enum spec_access */
    uint64_t verify;       /* enum spec_verify */
    uint64_t on_data_loss; /* enum spec_data_loss */
    uint64_t concurrency;  /* 1..512 */
    uint64_t bandwidth;    /* bytes a second, 0: no limit */
    uint64_t min_volume_bytes;
    uint64_t max_volume_bytes; /* 0: none */
    uint64_t direct_io;        /* enum spec_direct_io */
    char *export_secret;
};

struct spec_retry {
    uint64_t attempts_max;
    uint64_t elapsed_max_ns;
    uint64_t backoff_base_ns;
    uint64_t backoff_cap_ns;
};

struct spec_layout {
    char *sub_path;
    uint64_t dir_mode;  /* 0755 */
    uint64_t file_mode; /* 0644 */
    uint64_t uid;       /* 0 */
    uint64_t gid;
    bool strip_prefix;
};

struct spec_source {
    struct spec_uri uri;
    char *endpoint;
    char *region;
    char *ca_bundle; /* PEM: trusted authorities instead of the system's */
    bool path_style;
    char *service_account;
    char *secret_name;
    uint64_t identity; /* enum spec_identity */
    char *identity_audience;
    char *identity_provider;
    struct spec_list include;
    struct spec_list exclude;
    struct spec_parts sources;
    char *requester_pays; /* NULL: off; "true", or the billing project */
    uint64_t consistency; /* enum spec_consistency */
    uint64_t on_change;   /* enum spec_on_change */
    uint64_t on_empty;    /* enum spec_on_empty */
    uint64_t on_missing;  /* enum spec_on_missing */
    struct spec_retry retry;
    struct spec_layout layout;
    struct spec_list priority;
    uint64_t shard_index;
    uint64_t shard_count; /* 1: all objects */
    bool size_check;
    bool suspend;
};

struct spec_export {
    struct spec_uri uri; /* none: nothing is exported */
    char *endpoint;      /* the export's own, likewise the next two: spec_export_server() has those to use */
    char *region;
    char *ca_bundle;
    struct spec_list include;
    struct spec_list exclude;
    uint64_t triggers; /* bits of enum spec_trigger; default unpublish and release */
    uint64_t group;    /* enum spec_group */
    uint64_t latest;   /* export.select.latest; 0: no such rule */
    uint64_t every;
    char *best_file; /* metrics.json; NULL: no such rule */
    char *best_key;
    uint64_t best_order; /* enum spec_order */
    uint64_t best_count;
    char *storage_class;
    char *service_account;
    char *secret_name;
    uint64_t settle_ns;
    char *marker;
    uint64_t conflict;   /* enum spec_conflict */
    uint64_t on_failure; /* enum spec_on_failure */
    uint64_t deadline_ns;
};

struct spec {
    struct volume_id id;     /* empty: pool_create_volume() makes one */
    char *name;              /* CreateVolume's */
    uint64_t capacity_bytes; /* promised */
    int64_t created_ns;      /* wall clock */
    uint64_t backend;        /* enum spec_backend; 0 until made */
    uint64_t project;        /* quota backend: its project id */
    bool takes_over;         /* its id names a lost pool, and it is created in another one; not stored */
    bool in_cluster;         /* of Kubernetes, which supports more parameters; not stored in volume.json */
    struct spec_params params;
    struct spec_source source;
    struct spec_export export;
};

struct spec *spec_new(void); /* every default in place */
void spec_free(struct spec *own_s);
DEFINE_AUTO(spec, struct spec, spec_free)
#define auto_spec auto_with(auto_clean_spec) struct spec *

/* One pair of a string map (CreateVolume's parameters). A list is `a,b` or a JSON array; `sources` is a JSON array of
 * objects. All errors are ERR_INVALID: an unknown key (CIS_PARAMETER_UNKNOWN, with the nearest name), a bad value
 * (CIS_PARAMETER_INVALID), such as a URI that no store takes. Keys below csi.storage.k8s.io/ are ignored, but fstype
 * must be empty. */
must_check int spec_set(struct spec *s, struct str key, struct str value, struct err *err);

/* The same for StorageClass parameters alone, where fields of BucketSource have no place (CIS_PARAMETER_UNKNOWN). */
must_check int spec_set_parameter(struct spec *s, struct str key, struct str value, struct err *err);

/* Reads the spec of a BucketSource into `source` and `export`. An unknown field is ERR_INVALID too: the volume would
 * lack what it asks for. CIS_PARAMETER_UNKNOWN, CIS_PARAMETER_INVALID. */
must_check int spec_set_source(struct spec *s, const json *source, struct err *err);

/* The same for a copy in an existing CisternVolume: fields that earlier versions accepted are ignored, and URIs that
 * they accepted are read. */
must_check int spec_set_recorded_source(struct spec *s, const json *source, struct err *err);

/* The same for an existing volume (VolumeAttributesClass): only keys that may change, and only to values that are
 * supported here. */
must_check int spec_modify(struct spec *s, struct str key, struct str value, struct err *err);

/* The enum that a text of `key` chooses: "gate" of "hydration" is HYDRATION_GATE. Any other text, or none, is the
 * default: 0. */
uint64_t spec_choice(const char *key, struct str text);

/* Keys that an existing volume takes over from its order at any time: concurrency, bandwidth, onDataLoss, and
 * `retry`, which is copied from its BucketSource. Not hydration. */
bool spec_follows(const struct spec *s, const struct spec *order);
void spec_follow(struct spec *s, const struct spec *order);

/* {"retry": {...}} with all fields, as spec_set_source() reads it. The caller frees. */
json *spec_retry_json(const struct spec *s);

/* Checks rules over several keys: `uri` or `sources`, bounds in order, the fields that an export needs. */
must_check int spec_check(const struct spec *s, struct err *err);

/* ERR_INVALID (CIS_PARAMETER_UNSUPPORTED) names the first value that is not supported here, in or outside a
 * cluster. Checked when a volume is created; an existing volume may come from another version. */
must_check int spec_check_served(const struct spec *s, struct err *err);

/* ERR_INVALID (CIS_EXPORT_POLICY_EMPTY): the policy would let the volume be deleted although it exports no file. Part
 * of spec_check_served(). */
must_check int spec_check_owed(const struct spec *s, struct err *err);

/* The URI of the source below which the export writes files that the source selects: later volumes would get them, too.
 * NULL: none. Borrowed. A guess: of all paths that a pattern of the export matches, one is tried. */
const char *spec_exports_into(const struct spec *s);

/* The first key whose value differs, or NULL if parameters, source and export are the same. Static string. */
const char *spec_difference(const struct spec *a, const struct spec *b);

/* Does a volume of this spec get files from its source? */
bool spec_is_hydrated(const struct spec *s);

/* The prefixes to hydrate: `uri` with its include and exclude, or `sources`. 0 for a blank volume. */
size_t spec_source_count(const struct spec *s);
struct spec_part spec_source_at(const struct spec *s, size_t index); /* borrowed */

/* The server of export.uri. A field that the export does not set is the source's if both URIs have the same scheme, or
 * the source has no URI: a server of s3:// does not serve gs://. The texts are borrowed. */
struct spec_server {
    const char *endpoint, *region, *ca_bundle; /* NULL: the provider's, or the system's certificates */
};
struct spec_server spec_export_server(const struct spec *s);

/* volume.json. Reading is strict, except for URIs that earlier versions accepted: an unknown key, a missing one or a
 * wrong type is ERR_CORRUPT (CIS_VOLUME_RECORD_CORRUPT), a newer format ERR_UNSUPPORTED (CIS_VOLUME_RECORD_VERSION). */
char *spec_to_json(const struct spec *s); /* the caller frees */
must_check int spec_from_json(struct str text, const char *what, struct spec **ret, struct err *err);
