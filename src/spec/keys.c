/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"
#include "util/names.h"
#include <assert.h>

#define AT(field) .offset = offsetof(struct spec, field)

/* Allowed besides letters and digits in values that become part of a URL or of a credential request. */
#define REGION_MARKS "-"
#define SERVER_MARKS "-._~:/[]!$%&'()*+,;=@{|}^"
#define AUDIENCE_MARKS "-._:/@"
#define PROJECT_MARKS "-.:"

const struct spec_key spec_keys[] = {
    /* StorageClass parameters */
    {"pool", TYPE_TEXT, AT(params.pool), .initial = NAME_POOL_DEFAULT, .is_parameter = true},
    {"hydration", TYPE_ENUM, AT(params.hydration), .choices = "eager gate none", .is_parameter = true},
    {"access", TYPE_ENUM, AT(params.access), .choices = "auto fuse bind", .is_parameter = true},
    {"verify", TYPE_ENUM, AT(params.verify), .choices = "auto size none", .is_parameter = true},
    {"onDataLoss", TYPE_ENUM, AT(params.on_data_loss), .choices = "fail rehydrate empty",
     .cluster_only = "rehydrate empty", .change = CHANGE_FREELY, .is_parameter = true},
    {"concurrency", TYPE_COUNT, AT(params.concurrency), .least = 1, .most = 512, .initial = "64",
     .change = CHANGE_FREELY, .is_parameter = true},
    {"bandwidth", TYPE_BYTES, AT(params.bandwidth), .change = CHANGE_FREELY, .is_parameter = true},
    {"minVolumeSize", TYPE_BYTES, AT(params.min_volume_bytes), .is_parameter = true},
    {"maxVolumeSize", TYPE_BYTES, AT(params.max_volume_bytes), .is_parameter = true},
    {"directIO", TYPE_ENUM, AT(params.direct_io), .choices = "auto on off", .is_parameter = true},
    {"exportSecret", TYPE_TEXT, AT(params.export_secret), .cluster_only = ANY_VALUE, .is_parameter = true},

    /* BucketSource: what to hydrate from */
    {"uri", TYPE_URI, AT(source.uri)},
    {"endpoint", TYPE_TEXT, AT(source.endpoint), .alphabet = SERVER_MARKS},
    {"region", TYPE_TEXT, AT(source.region), .alphabet = REGION_MARKS},
    {"caBundle", TYPE_PEM, AT(source.ca_bundle)},
    {"pathStyle", TYPE_BOOL, AT(source.path_style)},
    {"serviceAccountName", TYPE_TEXT, AT(source.service_account), .cluster_only = ANY_VALUE, .alphabet = "-."},
    {"secretRef.name", TYPE_TEXT, AT(source.secret_name), .cluster_only = ANY_VALUE, .alphabet = "-."},
    {"identity.method", TYPE_ENUM, AT(source.identity),
     .choices = "auto gke wif irsa podIdentity metadata secret anonymous",
     .cluster_only = "gke wif irsa podIdentity metadata secret"},
    {"identity.audience", TYPE_TEXT, AT(source.identity_audience), .cluster_only = ANY_VALUE,
     .alphabet = AUDIENCE_MARKS},
    {"identity.provider", TYPE_TEXT, AT(source.identity_provider), .cluster_only = ANY_VALUE,
     .alphabet = AUDIENCE_MARKS},
    {"include", TYPE_PATTERNS, AT(source.include)},
    {"exclude", TYPE_PATTERNS, AT(source.exclude)},
    {"sources", TYPE_SOURCES, AT(source.sources)},
    {"requesterPays", TYPE_PAYER, AT(source.requester_pays), .alphabet = PROJECT_MARKS},
    {"consistency", TYPE_ENUM, AT(source.consistency), .choices = "pinned"},
    {"onChange", TYPE_ENUM, AT(source.on_change), .choices = "fail"},
    {"onEmpty", TYPE_ENUM, AT(source.on_empty), .choices = "fail allow"},
    {"onMissing", TYPE_ENUM, AT(source.on_missing), .choices = "fail skip"},
    {"retry.maxAttempts", TYPE_COUNT, AT(source.retry.attempts_max), .least = 1, .most = 1000, .initial = "8",
     .change = CHANGE_WITH_SOURCE},
    {"retry.maxElapsed", TYPE_DURATION, AT(source.retry.elapsed_max_ns), .initial = "30m",
     .change = CHANGE_WITH_SOURCE},
    {"retry.backoffBase", TYPE_DURATION, AT(source.retry.backoff_base_ns), .initial = "250ms",
     .change = CHANGE_WITH_SOURCE},
    {"retry.backoffCap", TYPE_DURATION, AT(source.retry.backoff_cap_ns), .initial = "32s",
     .change = CHANGE_WITH_SOURCE},
    {"layout.subPath", TYPE_PATH, AT(source.layout.sub_path)},
    {"layout.dirMode", TYPE_MODE, AT(source.layout.dir_mode), .initial = "0755"},
    {"layout.fileMode", TYPE_MODE, AT(source.layout.file_mode), .initial = "0644"},
    {"layout.uid", TYPE_COUNT, AT(source.layout.uid), .most = UINT32_MAX - 1},
    {"layout.gid", TYPE_COUNT, AT(source.layout.gid), .most = UINT32_MAX - 1},
    {"layout.stripPrefix", TYPE_BOOL, AT(source.layout.strip_prefix), .initial = "true"},
    {"priority", TYPE_PATTERNS, AT(source.priority)},
    {"sizeCheck", TYPE_BOOL, AT(source.size_check), .initial = "true"},
    {"suspend", TYPE_BOOL, AT(source.suspend), .cluster_only = ANY_VALUE},
    {"shard.index", TYPE_COUNT, AT(source.shard_index), .most = SPEC_SHARDS_MAX - 1},
    {"shard.count", TYPE_COUNT, AT(source.shard_count), .least = 1, .most = SPEC_SHARDS_MAX, .initial = "1"},

    /* BucketSource: what to export */
    {"export.uri", TYPE_URI, AT(export.uri), .least = 1},
    {"export.endpoint", TYPE_TEXT, AT(export.endpoint), .alphabet = SERVER_MARKS},
    {"export.region", TYPE_TEXT, AT(export.region), .alphabet = REGION_MARKS},
    {"export.caBundle", TYPE_PEM, AT(export.ca_bundle)},
    {"export.include", TYPE_PATTERNS, AT(export.include)},
    {"export.exclude", TYPE_PATTERNS, AT(export.exclude)},
    {"export.trigger", TYPE_FLAGS, AT(export.triggers), .choices = "OnUnpublish OnRelease Manual",
     .initial = "OnUnpublish,OnRelease"},
    {"export.select.group", TYPE_ENUM, AT(export.group), .choices = "file directory"},
    {"export.select.latest", TYPE_COUNT, AT(export.latest), .most = UINT32_MAX},
    {"export.select.every", TYPE_COUNT, AT(export.every), .most = UINT32_MAX},
    {"export.select.best.file", TYPE_PATH, AT(export.best_file)},
    {"export.select.best.key", TYPE_TEXT, AT(export.best_key)},
    {"export.select.best.order", TYPE_ENUM, AT(export.best_order), .choices = "min max"},
    {"export.select.best.count", TYPE_COUNT, AT(export.best_count), .least = 1, .most = UINT32_MAX, .initial = "1"},
    {"export.storageClass", TYPE_TEXT, AT(export.storage_class), .alphabet = "-_"},
    {"export.serviceAccountName", TYPE_TEXT, AT(export.service_account), .cluster_only = ANY_VALUE, .alphabet = "-."},
    {"export.secretRef.name", TYPE_TEXT, AT(export.secret_name), .cluster_only = ANY_VALUE, .alphabet = "-."},
    {"export.settle", TYPE_DURATION, AT(export.settle_ns), .initial = "30s"},
    {"export.marker", TYPE_PATH, AT(export.marker)},
    {"export.conflict", TYPE_ENUM, AT(export.conflict), .choices = "fail overwrite version"},
    {"export.onFailure", TYPE_ENUM, AT(export.on_failure), .choices = "Retain Discard"},
    {"export.deadline", TYPE_DURATION, AT(export.deadline_ns), .initial = "24h"},
};
const size_t spec_key_count = countof(spec_keys);

/* .choices are in the order of the enum; a flag's bit is its index. */
static_assert(BACKEND_LOOP == 2 && HYDRATION_NONE == 2 && ACCESS_BIND == 2 && VERIFY_NONE == 2, "");
static_assert(DATA_LOSS_EMPTY == 2 && DIRECT_IO_OFF == 2 && IDENTITY_ANONYMOUS == 7 && ON_MISSING_SKIP == 1, "");
static_assert(ON_EMPTY_ALLOW == 1, "");
static_assert(TRIGGER_ON_UNPUBLISH == 1 && TRIGGER_ON_RELEASE == 2 && TRIGGER_MANUAL == 4, "");
static_assert(GROUP_DIRECTORY == 1 && ORDER_MAX == 1 && CONFLICT_VERSION == 2 && ON_FAILURE_DISCARD == 1, "");

enum { NAME_LEN_MAX = 63 };

static int unknown_name(struct str name, struct err *err)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < spec_key_count; i++)
        if (str_is_nearer(str_of(spec_keys[i].name), name, &least))
            nearest = spec_keys[i].name;
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_UNKNOWN, "unknown parameter '%.*s%s%s'",
                    STR_FMT(str_sub(name, 0, NAME_LEN_MAX)), nearest ? "'; the nearest known one is '" : "",
                    nearest ? nearest : "");
}

const struct spec_key *spec_key_find(struct str name, struct err *err)
{
    for (size_t i = 0; i < spec_key_count; i++)
        if (str_eq(name, str_of(spec_keys[i].name)))
            return &spec_keys[i];
    (void)unknown_name(name, err);
    return NULL;
}
