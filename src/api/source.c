/* SPDX-License-Identifier: Apache-2.0 */
#include "api/source.h"
#include "fields.h"
#include "util/names.h"
#include <inttypes.h>
#include <stdio.h>

#define PHASES "Pending Ready Degraded Suspended Invalid"
#define AT(field) offsetof(struct api_source_status, field)

const struct kube_resource api_sources = {.group = NAME_API_GROUP,
                                          .version = NAME_API_VERSION,
                                          .plural = "bucketsources",
                                          .kind = API_SOURCE_KIND,
                                          .namespaced = true};

static const struct api_field fields[] = {
    {"status.phase", API_CHOICE, AT(phase), .choices = PHASES},
    {"status.observedGeneration", API_NUMBER, AT(observed_generation)},
    {"status.firstUsedAt", API_TIME, AT(first_used_ns)},
    {"status.resolved.scheme", API_TEXT, AT(scheme)},
    {"status.resolved.bucket", API_TEXT, AT(bucket)},
    {"status.resolved.prefix", API_TEXT, AT(prefix)},
    {"status.resolved.endpoint", API_TEXT, AT(endpoint)},
    {"status.resolved.region", API_TEXT, AT(region)},
    {"status.identity.method", API_TEXT, AT(identity_method)},
    {"status.identity.principal", API_TEXT, AT(identity_principal)},
    {"status.identity.expiresAt", API_TIME, AT(identity_expires_ns)},
    {"status.volumes.pending", API_NUMBER, AT(volumes_pending), .always = true},
    {"status.volumes.hydrating", API_NUMBER, AT(volumes_hydrating), .always = true},
    {"status.volumes.ready", API_NUMBER, AT(volumes_ready), .always = true},
    {"status.volumes.failed", API_NUMBER, AT(volumes_failed), .always = true},
    {"status.lastError.id", API_TEXT, AT(error_id)},
    {"status.lastError.code", API_TEXT, AT(error_code)},
    {"status.lastError.object", API_TEXT, AT(error_object)},
    {"status.lastError.message", API_TEXT, AT(error_message)},
    {"status.lastError.time", API_TIME, AT(error_ns)},
    {"status.lastExport.volume", API_TEXT, AT(export_volume)},
    {"status.lastExport.uri", API_TEXT, AT(export_uri)},
    {"status.lastExport.objects", API_NUMBER, AT(export_objects)},
    {"status.lastExport.bytes", API_NUMBER, AT(export_bytes)},
    {"status.lastExport.time", API_TIME, AT(export_ns)},
};

static const struct api_field listing_fields[] = {
    {"status.listing.objects", API_NUMBER, AT(objects), .always = true},
    {"status.listing.bytes", API_NUMBER, AT(bytes), .always = true},
    {"status.listing.manifestDigest", API_TEXT, AT(manifest_digest)},
    {"status.listing.listedAt", API_TIME, AT(listed_ns)},
};

static const struct api_field detail_fields[] = {
    {"status.listing.excludedObjects", API_NUMBER, AT(excluded_objects), .always = true},
    {"status.listing.largestObjectBytes", API_NUMBER, AT(largest_object_bytes), .always = true},
    {"status.listing.seconds", API_NUMBER, AT(listing_seconds), .always = true},
};

void api_source_free(struct api_source *own_s)
{
    if (!own_s)
        return;
    api_meta_done(&own_s->meta);
    free(own_s->spec);
    api_fields_clear(fields, countof(fields), &own_s->status);
    api_fields_clear(listing_fields, countof(listing_fields), &own_s->status);
    api_conditions_done(&own_s->status.conditions);
    free(own_s);
}

static int read_status(const json *j, struct api_source_status *s, struct err *err)
{
    struct str suggested = STR_NULL;
    int r = api_fields_read(j, fields, countof(fields), s, err);
    if (r == 0)
        r = api_fields_read(j, listing_fields, countof(listing_fields), s, err);
    if (r == 0)
        r = api_fields_read(j, detail_fields, countof(detail_fields), s, err);
    if (r == 0)
        r = json_opt_str(j, "status.suggestedSize", &suggested, err);
    if (r == 0 && suggested.len)
        r = str_to_bytes(suggested, &s->suggested_bytes, err);
    s->has_listing = json_at(j, "status.listing.objects") != NULL;
    s->has_listing_details = json_at(j, "status.listing.seconds") != NULL;
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

/* Whole GiB and MiB, as a person writes a claim. */
static void write_quantity(json *j, const char *path, uint64_t bytes)
{
    char text[32];
    bool is_large = bytes >= UINT64_C(10) << 30;
    unsigned shift = is_large ? 30 : 20;
    uint64_t units = (bytes >> shift) + ((bytes & ((UINT64_C(1) << shift) - 1)) != 0);
    snprintf(text, sizeof text, "%" PRIu64 "%s", units, is_large ? "Gi" : "Mi");
    json_set_str(j, path, str_of(text));
}

json *api_source_status_json(const struct api_source *source)
{
    const struct api_source_status *s = &source->status;
    char text[64];
    json *j = api_document(API_SOURCE_KIND, &source->meta);
    api_fields_write(j, fields, countof(fields), s);
    if (s->has_listing) {
        api_fields_write(j, listing_fields, countof(listing_fields), s);
        if (s->has_listing_details)
            api_fields_write(j, detail_fields, countof(detail_fields), s);
        json_set_str(j, "status.summary.size", str_of(bytes_text(s->bytes, text)));
    }
    if (s->suggested_bytes)
        write_quantity(j, "status.suggestedSize", s->suggested_bytes);
    snprintf(text, sizeof text, "%" PRIu64 "/%" PRIu64, s->volumes_ready,
             s->volumes_pending + s->volumes_hydrating + s->volumes_ready + s->volumes_failed);
    json_set_str(j, "status.summary.volumes", str_of(text));
    json_set(j, "status.conditions", api_conditions_json(&s->conditions));
    return j;
}
