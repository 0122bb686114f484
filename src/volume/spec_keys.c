/* SPDX-License-Identifier: Apache-2.0 */
#include "spec_keys.h"

#define AT(field) .offset = offsetof(struct spec, field)

/* Besides letters and digits: of what becomes part of a URL, or of a request for somebody's credentials. */
#define REGION_MARKS "-"
#define SERVER_MARKS "-._~:/[]!$%&'()*+,;=@{|}^"
#define AUDIENCE_MARKS "-._:/@"
#define PROJECT_MARKS "-.:"

const struct spec_key spec_keys[] = {
    /* StorageClass parameters */
    {"pool", TYPE_TEXT, AT(params.pool), .initial = "default", .is_parameter = true},
    {"hydration", TYPE_ENUM, AT(params.hydration), .choices = "eager lazy gate none", .later = "lazy",
     .change = CHANGE_TO_EAGER, .is_parameter = true},
    {"access", TYPE_ENUM, AT(params.access), .choices = "auto fuse bind", .is_parameter = true},
    {"verify", TYPE_ENUM, AT(params.verify), .choices = "auto size none", .is_parameter = true},
    {"onDataLoss", TYPE_ENUM, AT(params.on_data_loss), .choices = "fail rehydrate empty", .later = "rehydrate empty",
     .cluster = "rehydrate empty", .change = CHANGE_FREELY, .is_parameter = true},
    {"concurrency", TYPE_COUNT, AT(params.concurrency), .least = 1, .most = 512, .initial = "64",
     .change = CHANGE_FREELY, .is_parameter = true},
    {"bandwidth", TYPE_BYTES, AT(params.bandwidth), .change = CHANGE_FREELY, .is_parameter = true},
    {"minVolumeSize", TYPE_BYTES, AT(params.min_volume_bytes), .is_parameter = true},
    {"maxVolumeSize", TYPE_BYTES, AT(params.max_volume_bytes), .is_parameter = true},
    {"directIO", TYPE_ENUM, AT(params.direct_io), .choices = "auto on off", .is_parameter = true},
    {"exportSecret", TYPE_TEXT, AT(params.export_secret), .later = LATER_ALL, .cluster = LATER_ALL,
     .is_parameter = true},

    /* BucketSource: what to hydrate from */
    {"uri", TYPE_TEXT, AT(source.uri)},
    {"endpoint", TYPE_TEXT, AT(source.endpoint), .alphabet = SERVER_MARKS},
    {"region", TYPE_TEXT, AT(source.region), .alphabet = REGION_MARKS},
    {"caBundle", TYPE_PEM, AT(source.ca_bundle)},
    {"pathStyle", TYPE_BOOL, AT(source.path_style)},
    {"serviceAccountName", TYPE_TEXT, AT(source.service_account), .later = LATER_ALL, .cluster = LATER_ALL,
     .alphabet = "-."},
    {"secretRef.name", TYPE_TEXT, AT(source.secret_name), .later = LATER_ALL, .cluster = LATER_ALL, .alphabet = "-."},
    {"identity.method", TYPE_ENUM, AT(source.identity),
     .choices = "auto gke wif irsa podIdentity metadata secret anonymous",
     .later = "gke wif irsa podIdentity metadata secret", .cluster = "gke wif irsa metadata secret"},
    {"identity.audience", TYPE_TEXT, AT(source.identity_audience), .later = LATER_ALL, .cluster = LATER_ALL,
     .alphabet = AUDIENCE_MARKS},
    {"identity.provider", TYPE_TEXT, AT(source.identity_provider), .later = LATER_ALL, .cluster = LATER_ALL,
     .alphabet = AUDIENCE_MARKS},
    {"include", TYPE_PATTERNS, AT(source.include)},
    {"exclude", TYPE_PATTERNS, AT(source.exclude)},
    {"sources", TYPE_SOURCES},
    {"requesterPays", TYPE_PAYER, AT(source.requester_pays), .alphabet = PROJECT_MARKS},
    {"consistency", TYPE_ENUM, AT(source.consistency), .choices = "pinned latest versions", .later = "latest versions"},
    {"maxAge", TYPE_DURATION, AT(source.max_age_ns), .later = LATER_ALL},
    {"onChange", TYPE_ENUM, AT(source.on_change), .choices = "fail relist keepOld", .later = "relist keepOld"},
    {"onMissing", TYPE_ENUM, AT(source.on_missing), .choices = "fail skip"},
    {"retry.maxAttempts", TYPE_COUNT, AT(source.retry_attempts_max), .least = 1, .most = 1000, .initial = "8",
     .change = CHANGE_WITH_SOURCE},
    {"retry.maxElapsed", TYPE_DURATION, AT(source.retry_elapsed_max_ns), .initial = "30m",
     .change = CHANGE_WITH_SOURCE},
    {"retry.backoffBase", TYPE_DURATION, AT(source.retry_backoff_base_ns), .initial = "250ms",
     .change = CHANGE_WITH_SOURCE},
    {"retry.backoffCap", TYPE_DURATION, AT(source.retry_backoff_cap_ns), .initial = "32s",
     .change = CHANGE_WITH_SOURCE},
    {"layout.subPath", TYPE_PATH, AT(source.layout_sub_path)},
    {"layout.dirMode", TYPE_MODE, AT(source.layout_dir_mode), .initial = "0755"},
    {"layout.fileMode", TYPE_MODE, AT(source.layout_file_mode), .initial = "0644"},
    {"layout.uid", TYPE_COUNT, AT(source.layout_uid), .most = UINT32_MAX - 1},
    {"layout.gid", TYPE_COUNT, AT(source.layout_gid), .most = UINT32_MAX - 1},
    {"layout.controlDir", TYPE_BOOL, AT(source.layout_control_dir), .later = LATER_ALL},
    {"layout.stripPrefix", TYPE_BOOL, AT(source.layout_strip_prefix), .initial = "true"},
    {"priority", TYPE_PATTERNS, AT(source.priority)},
    {"sizeCheck", TYPE_BOOL, AT(source.size_check), .initial = "true"},
    {"suspend", TYPE_BOOL, AT(source.suspend), .later = LATER_ALL, .cluster = LATER_ALL},
    {"shard.index", TYPE_COUNT, AT(source.shard_index), .most = SPEC_SHARDS_MAX - 1},
    {"shard.count", TYPE_COUNT, AT(source.shard_count), .least = 1, .most = SPEC_SHARDS_MAX, .initial = "1"},
    {"shard.indexFrom", TYPE_LATER},
    {"unpack", TYPE_LATER},
    {"restore.uri", TYPE_LATER},
    {"restore.pick", TYPE_LATER},
    {"restore.subPath", TYPE_LATER},
    {"restore.required", TYPE_LATER},

    /* BucketSource: what to export */
    {"export.uri", TYPE_URI, AT(export.uri)},
    {"export.endpoint", TYPE_TEXT, AT(export.endpoint), .alphabet = SERVER_MARKS},
    {"export.region", TYPE_TEXT, AT(export.region), .alphabet = REGION_MARKS},
    {"export.caBundle", TYPE_PEM, AT(export.ca_bundle)},
    {"export.include", TYPE_PATTERNS, AT(export.include)},
    {"export.exclude", TYPE_PATTERNS, AT(export.exclude)},
    {"export.trigger", TYPE_FLAGS, AT(export.triggers), .choices = "OnClose OnUnpublish OnRelease Interval Manual",
     .later = "OnClose Interval", .initial = "OnUnpublish,OnRelease"},
    {"export.select.group", TYPE_ENUM, AT(export.group), .choices = "file directory"},
    {"export.select.latest", TYPE_COUNT, AT(export.latest), .most = UINT32_MAX},
    {"export.select.every", TYPE_COUNT, AT(export.every), .most = UINT32_MAX},
    {"export.select.best.file", TYPE_PATH, AT(export.best_file)},
    {"export.select.best.key", TYPE_TEXT, AT(export.best_key)},
    {"export.select.best.order", TYPE_ENUM, AT(export.best_order), .choices = "min max"},
    {"export.select.best.count", TYPE_COUNT, AT(export.best_count), .least = 1, .most = UINT32_MAX, .initial = "1"},
    {"export.storageClass", TYPE_TEXT, AT(export.storage_class), .alphabet = "-_"},
    {"export.serviceAccountName", TYPE_TEXT, AT(export.service_account), .later = LATER_ALL, .cluster = LATER_ALL,
     .alphabet = "-."},
    {"export.secretRef.name", TYPE_TEXT, AT(export.secret_name), .later = LATER_ALL, .cluster = LATER_ALL,
     .alphabet = "-."},
    {"export.interval", TYPE_DURATION, AT(export.interval_ns), .later = LATER_ALL},
    {"export.settle", TYPE_DURATION, AT(export.settle_ns), .initial = "30s"},
    {"export.marker", TYPE_PATH, AT(export.marker)},
    {"export.conflict", TYPE_ENUM, AT(export.conflict), .choices = "fail overwrite version"},
    {"export.onFailure", TYPE_ENUM, AT(export.on_failure), .choices = "Retain Discard"},
    {"export.deadline", TYPE_DURATION, AT(export.deadline_ns), .initial = "24h"},
};
const size_t spec_key_count = countof(spec_keys);

enum { NAME_LEN_MAX = 63 };

static const char *nearest(struct str name)
{
    struct str cut = str_sub(name, 0, NAME_LEN_MAX);
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < spec_key_count; i++) {
        size_t d = spec_keys[i].type == TYPE_LATER ? SIZE_MAX : str_distance(cut, str_of(spec_keys[i].name));
        if (d < best_distance) {
            best = spec_keys[i].name;
            best_distance = d;
        }
    }
    return best;
}

const struct spec_key *spec_key_find(struct str name, struct err *err)
{
    for (size_t i = 0; i < spec_key_count; i++)
        if (str_eq(name, str_of(spec_keys[i].name)))
            return &spec_keys[i];
    err_set(err, ERR_INVALID, "unknown parameter '%.*s'", (int)min_u64(name.len, NAME_LEN_MAX),
            name.len ? name.ptr : "");
    err_advise(err, 2001, "the nearest known one is '%s'", nearest(name));
    return NULL;
}
