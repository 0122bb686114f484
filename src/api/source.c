/* SPDX-License-Identifier: Apache-2.0 */
#include "api/source.h"
#include "util/json_fields.h"
#include "util/names.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define AT(field) .offset = offsetof(struct api_source_status, field)

const struct kube_resource api_sources = {.group = NAME_API_GROUP,
                                          .version = NAME_API_VERSION,
                                          .plural = "bucketsources",
                                          .kind = API_SOURCE_KIND,
                                          .namespaced = true};

static const char *const phases[] = {[API_SOURCE_PENDING] = "Pending",
                                     [API_SOURCE_READY] = "Ready",
                                     [API_SOURCE_DEGRADED] = "Degraded",
                                     [API_SOURCE_SUSPENDED] = "Suspended",
                                     [API_SOURCE_INVALID] = "Invalid"};
static_assert(countof(phases) == API_SOURCE_INVALID + 1, "");

static const struct json_field fields[] = {
    {"status.phase", JSON_NAME, AT(phase), .flags = JSON_LENIENT, JSON_NAMES(phases)},
    {"status.observedGeneration", JSON_U64, AT(observed_generation)},
    {"status.firstUsedAt", JSON_TIME, AT(first_used_ns)},
    {"status.resolved.scheme", JSON_TEXT, AT(resolved.scheme)},
    {"status.resolved.bucket", JSON_TEXT, AT(resolved.bucket)},
    {"status.resolved.prefix", JSON_TEXT, AT(resolved.prefix)},
    {"status.resolved.endpoint", JSON_TEXT, AT(resolved.endpoint)},
    {"status.resolved.region", JSON_TEXT, AT(resolved.region)},
    {"status.identity.method", JSON_TEXT, AT(identity.method)},
    {"status.identity.principal", JSON_TEXT, AT(identity.principal)},
    {"status.identity.expiresAt", JSON_TIME, AT(identity.expires_ns)},
    {"status.volumes.pending", JSON_U64, AT(volumes.pending), .flags = JSON_ALWAYS},
    {"status.volumes.hydrating", JSON_U64, AT(volumes.hydrating), .flags = JSON_ALWAYS},
    {"status.volumes.ready", JSON_U64, AT(volumes.ready), .flags = JSON_ALWAYS},
    {"status.volumes.failed", JSON_U64, AT(volumes.failed), .flags = JSON_ALWAYS},
    {"status.lastError.id", JSON_TEXT, AT(error.id)},
    {"status.lastError.code", JSON_TEXT, AT(error.code)},
    {"status.lastError.object", JSON_TEXT, AT(error.object)},
    {"status.lastError.message", JSON_TEXT, AT(error.message)},
    {"status.lastError.time", JSON_TIME, AT(error.time_ns)},
    {"status.lastExport.volume", JSON_TEXT, AT(export.volume)},
    {"status.lastExport.uri", JSON_TEXT, AT(export.uri)},
    {"status.lastExport.objects", JSON_U64, AT(export.objects)},
    {"status.lastExport.bytes", JSON_U64, AT(export.bytes)},
    {"status.lastExport.time", JSON_TIME, AT(export.time_ns)},
};

static const struct json_field listing_fields[] = {
    {"status.listing.objects", JSON_U64, AT(listing.objects), .flags = JSON_ALWAYS},
    {"status.listing.bytes", JSON_U64, AT(listing.bytes), .flags = JSON_ALWAYS},
    {"status.listing.manifestDigest", JSON_TEXT, AT(listing.manifest_digest)},
    {"status.listing.listedAt", JSON_TIME, AT(listing.listed_ns)},
};

static const struct json_field detail_fields[] = {
    {"status.listing.excludedObjects", JSON_U64, AT(listing.excluded_objects), .flags = JSON_ALWAYS},
    {"status.listing.largestObjectBytes", JSON_U64, AT(listing.largest_object_bytes), .flags = JSON_ALWAYS},
    {"status.listing.seconds", JSON_U64, AT(listing.seconds), .flags = JSON_ALWAYS},
};

void api_source_free(struct api_source *own_s)
{
    if (!own_s)
        return;
    api_meta_done(&own_s->meta);
    free(own_s->spec);
    json_fields_clear(fields, countof(fields), &own_s->status);
    json_fields_clear(listing_fields, countof(listing_fields), &own_s->status);
    api_conditions_done(&own_s->status.conditions);
    free(own_s);
}

static int read_status(const json *j, struct api_source_status *s, struct err *err)
{
    struct str suggested = STR_NULL;
    int r = json_fields_read(j, fields, countof(fields), s, err);
    if (r == 0)
        r = json_fields_read(j, listing_fields, countof(listing_fields), s, err);
    if (r == 0)
        r = json_fields_read(j, detail_fields, countof(detail_fields), s, err);
    if (r == 0)
        r = json_opt_str(j, "status.suggestedSize", &suggested, err);
    if (r == 0 && suggested.len)
        r = str_to_bytes(suggested, &s->suggested_bytes, err);
    s->listing.known = json_at(j, "status.listing.objects") != NULL;
    s->listing.has_details = json_at(j, "status.listing.seconds") != NULL;
    return r < 0 ? r : api_conditions_read(json_at(j, "status.conditions"), &s->conditions, err);
}

int api_source_read(const json *j, struct api_source **ret, struct err *err)
{
    auto_api_source s = xcalloc(1, sizeof *s);
    const json *spec = json_at(j, "spec");
    int r = api_meta_read(j, &s->meta, err);
    if (r == 0)
        r = json_opt_bool(j, "spec.suspend", &s->suspend, err);
    if (r == 0)
        r = read_status(j, &s->status, err);
    if (r == 0 && !spec)
        r = err_set(err, ERR_INVALID, "'spec' is missing");
    if (r < 0)
        return err_wrap(err, "BucketSource '%s'", s->meta.name ? s->meta.name : "?");
    s->spec = json_text(spec, 0);
    *ret = take(&s);
    return 0;
}

int api_source_spec(const struct api_source *s, struct spec **ret, struct err *err)
{
    auto_json j = NULL;
    auto_spec spec = spec_new();
    spec->in_cluster = true;
    int r = json_parse(str_of(s->spec), "the spec", &j, err);
    if (r == 0)
        r = spec_set_source(spec, j, err);
    if (r == 0)
        r = spec_check(spec, err);
    if (r == 0)
        r = spec_check_served(spec, err);
    if (r == 0)
        *ret = take(&spec);
    return r;
}

char *api_quantity_text(uint64_t bytes, char ret[API_QUANTITY_MAX])
{
    bool is_large = bytes >= UINT64_C(10) << 30;
    unsigned shift = is_large ? 30 : 20;
    uint64_t units = (bytes >> shift) + ((bytes & ((UINT64_C(1) << shift) - 1)) != 0);
    snprintf(ret, API_QUANTITY_MAX, "%" PRIu64 "%s", units, is_large ? "Gi" : "Mi");
    return ret;
}

json *api_source_status_json(const struct api_source *source)
{
    const struct api_source_status *s = &source->status;
    char text[64], quantity[API_QUANTITY_MAX];
    json *j = api_document(&api_sources, &source->meta);
    json_fields_write(j, fields, countof(fields), s);
    if (s->listing.known) {
        json_fields_write(j, listing_fields, countof(listing_fields), s);
        if (s->listing.has_details)
            json_fields_write(j, detail_fields, countof(detail_fields), s);
        json_set_str(j, "status.summary.size", str_of(bytes_text(s->listing.bytes, text)));
    }
    if (s->suggested_bytes)
        json_set_str(j, "status.suggestedSize", str_of(api_quantity_text(s->suggested_bytes, quantity)));
    snprintf(text, sizeof text, "%" PRIu64 "/%" PRIu64, s->volumes.ready,
             s->volumes.pending + s->volumes.hydrating + s->volumes.ready + s->volumes.failed);
    json_set_str(j, "status.summary.volumes", str_of(text));
    json_set(j, "status.conditions", api_conditions_json(&s->conditions));
    return j;
}
