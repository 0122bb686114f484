/* SPDX-License-Identifier: Apache-2.0 */
#include "volume_status.h"
#include "fields.h"
#include "util/clock.h"
#include <stdio.h>

#define PHASES "Provisioning Listing Hydrating Verifying Ready Lazy Exporting ExportFailed Lost Failed Released"
#define AT(field) offsetof(struct api_volume_status, field)

static const struct api_field fields[] = {
    {"status.phase", API_CHOICE, AT(phase), .choices = PHASES},
    {"status.observedGeneration", API_NUMBER, AT(observed_generation)},
    {"status.capacityBytes", API_NUMBER, AT(capacity_bytes), .always = true},
    {"status.usedBytes", API_NUMBER, AT(used_bytes), .always = true},
    {"status.inodesUsed", API_NUMBER, AT(inodes_used), .always = true},
    {"status.poolUUID", API_TEXT, AT(pool_uuid)},
    {"status.access", API_TEXT, AT(access)},
};

static const struct api_field hydration_fields[] = {
    {"status.hydration.objectsTotal", API_NUMBER, AT(hydration.objects_total), .always = true},
    {"status.hydration.objectsDone", API_NUMBER, AT(hydration.objects_done), .always = true},
    {"status.hydration.objectsFailed", API_NUMBER, AT(hydration.objects_failed), .always = true},
    {"status.hydration.objectsMissing", API_NUMBER, AT(hydration.objects_missing)},
    {"status.hydration.bytesTotal", API_NUMBER, AT(hydration.bytes_total), .always = true},
    {"status.hydration.bytesDone", API_NUMBER, AT(hydration.bytes_done), .always = true},
    {"status.hydration.bytesPerSecond", API_NUMBER, AT(hydration.bytes_per_second), .always = true},
    {"status.hydration.etaSeconds", API_NUMBER, AT(hydration.eta_seconds)},
    {"status.hydration.attempt", API_NUMBER, AT(hydration.attempt)},
    {"status.hydration.startedAt", API_TIME, AT(hydration.started_ns)},
    {"status.hydration.finishedAt", API_TIME, AT(hydration.finished_ns)},
    {"status.hydration.manifestDigest", API_TEXT, AT(hydration.manifest_digest)},
};

/* Apart from the others: no other write of the status may take it back. */
static const struct api_field commit_fields[] = {
    {"status.releaseCommitted", API_BOOL, AT(release_committed)},
};

static const struct api_field listing_fields[] = {
    {"status.hydration.listing.excludedObjects", API_NUMBER, AT(hydration.excluded_objects), .always = true},
    {"status.hydration.listing.largestObjectBytes", API_NUMBER, AT(hydration.largest_object_bytes), .always = true},
    {"status.hydration.listing.seconds", API_NUMBER, AT(hydration.listing_seconds), .always = true},
};

static const struct api_field export_fields[] = {
    {"status.export.pendingObjects", API_NUMBER, AT(export.pending_objects), .always = true},
    {"status.export.pendingBytes", API_NUMBER, AT(export.pending_bytes), .always = true},
    {"status.export.doneObjects", API_NUMBER, AT(export.done_objects), .always = true},
    {"status.export.doneBytes", API_NUMBER, AT(export.done_bytes), .always = true},
    {"status.export.failedObjects", API_NUMBER, AT(export.failed_objects), .always = true},
    {"status.export.lastSuccess", API_TIME, AT(export.last_success_ns)},
};

#define FAULT_FIELDS(subject)                                                                                          \
    {                                                                                                                  \
        {subject, API_TEXT, offsetof(struct api_fault, object)}, {"id", API_TEXT, offsetof(struct api_fault, id)},     \
            {"code", API_TEXT, offsetof(struct api_fault, code)},                                                      \
            {"message", API_TEXT, offsetof(struct api_fault, message)},                                                \
            {"attempts", API_NUMBER, offsetof(struct api_fault, attempts)},                                            \
            {"time", API_TIME, offsetof(struct api_fault, time_ns)},                                                   \
    }
enum { FAULT_FIELD_COUNT = 6 };
static const struct api_field error_fields[FAULT_FIELD_COUNT] = FAULT_FIELDS("object"),
                              failed_fields[FAULT_FIELD_COUNT] = FAULT_FIELDS("path");

const char *api_phase_name(enum api_phase p)
{
    static const char *const names[] = {
        [API_PHASE_NONE] = "",
        [API_PHASE_PROVISIONING] = "Provisioning",
        [API_PHASE_LISTING] = "Listing",
        [API_PHASE_HYDRATING] = "Hydrating",
        [API_PHASE_VERIFYING] = "Verifying",
        [API_PHASE_READY] = "Ready",
        [API_PHASE_LAZY] = "Lazy",
        [API_PHASE_EXPORTING] = "Exporting",
        [API_PHASE_EXPORT_FAILED] = "ExportFailed",
        [API_PHASE_LOST] = "Lost",
        [API_PHASE_FAILED] = "Failed",
        [API_PHASE_RELEASED] = "Released",
    };
    return p < countof(names) ? names[p] : "";
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static char *copy(const char *text)
{
    return text && text[0] ? str_dup(str_sub(str_of(text), 0, API_MESSAGE_MAX)) : NULL;
}

void api_faults_add(struct api_faults *f, const char *object, const char *id, const char *code, const char *message,
                    uint64_t attempts, int64_t time_ns)
{
    if (f->count == API_FAULTS_MAX)
        return;
    f->items[f->count++] = (struct api_fault){.object = copy(object),
                                              .id = copy(id),
                                              .code = copy(code),
                                              .message = copy(message),
                                              .attempts = attempts,
                                              .time_ns = time_ns};
}

void api_faults_clear(struct api_faults *f)
{
    while (f->count > 0)
        api_fields_clear(error_fields, FAULT_FIELD_COUNT, &f->items[--f->count]);
}

static int faults_read(const json *j, const struct api_field *rows, struct api_faults *ret, struct err *err)
{
    for (size_t i = 0; i < json_count(j) && ret->count < API_FAULTS_MAX; i++) {
        struct api_fault *fault = &ret->items[ret->count++];
        *fault = (struct api_fault){0};
        int r = api_fields_read(json_item(j, i), rows, FAULT_FIELD_COUNT, fault, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static json *faults_json(const struct api_faults *f, const struct api_field *rows)
{
    json *array = json_new_array();
    for (size_t i = 0; i < f->count; i++) {
        json *j = json_new_object();
        api_fields_write(j, rows, FAULT_FIELD_COUNT, &f->items[i]);
        json_append(array, j);
    }
    return array;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void api_volume_status_done(struct api_volume_status *s)
{
    api_fields_clear(fields, countof(fields), s);
    api_fields_clear(hydration_fields, countof(hydration_fields), s);
    api_faults_clear(&s->errors);
    api_faults_clear(&s->export_failed);
    api_conditions_done(&s->conditions);
}

int api_volume_status_read(const json *j, struct api_volume_status *ret, struct err *err)
{
    int r = api_fields_read(j, fields, countof(fields), ret, err);
    if (r == 0)
        r = api_fields_read(j, commit_fields, countof(commit_fields), ret, err);
    if (r == 0)
        r = api_fields_read(j, hydration_fields, countof(hydration_fields), ret, err);
    if (r == 0)
        r = api_fields_read(j, listing_fields, countof(listing_fields), ret, err);
    ret->hydration.has_listing = json_at(j, "status.hydration.listing") != NULL;
    if (r == 0)
        r = api_fields_read(j, export_fields, countof(export_fields), ret, err);
    if (r == 0)
        r = faults_read(json_at(j, "status.errors"), error_fields, &ret->errors, err);
    if (r == 0)
        r = faults_read(json_at(j, "status.export.failed"), failed_fields, &ret->export_failed, err);
    return r < 0 ? r : api_conditions_read(json_at(j, "status.conditions"), &ret->conditions, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* A column shows a field as it is: what people are to read there has to be one. */
static void write_summary(json *j, const struct api_volume_status *s)
{
    const struct api_hydration *h = &s->hydration;
    char text[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX + 2], left[TIME_TEXT_MAX];
    if (h->bytes_total > 0) {
        snprintf(text, sizeof text, "%u%%", (unsigned)(100.0 * (double)h->bytes_done / (double)h->bytes_total));
        json_set_str(j, "status.summary.progress", str_of(text));
        json_set_str(j, "status.summary.done", str_of(bytes_text(h->bytes_done, text)));
        json_set_str(j, "status.summary.total", str_of(bytes_text(h->bytes_total, text)));
    }
    if (h->bytes_per_second > 0 && !h->finished_ns) {
        snprintf(rate, sizeof rate, "%s/s", bytes_text(h->bytes_per_second, text));
        json_set_str(j, "status.summary.rate", str_of(rate));
    }
    if (h->eta_seconds > 0 && h->eta_seconds < UINT64_MAX / NS_PER_SECOND)
        json_set_str(j, "status.summary.eta", str_of(duration_text(h->eta_seconds * NS_PER_SECOND, left)));
    if (s->export.pending_bytes > 0)
        json_set_str(j, "status.summary.exportPending", str_of(bytes_text(s->export.pending_bytes, text)));
}

json *api_volume_status_json(const struct api_volume *v)
{
    const struct api_volume_status *s = &v->status;
    json *j = api_document(API_VOLUME_KIND, &v->meta);
    api_fields_write(j, fields, countof(fields), s);
    if (s->hydration.attempt || s->hydration.started_ns)
        api_fields_write(j, hydration_fields, countof(hydration_fields), s);
    if (s->hydration.has_listing)
        api_fields_write(j, listing_fields, countof(listing_fields), s);
    if (s->export.pending_objects || s->export.done_objects || s->export.failed_objects)
        api_fields_write(j, export_fields, countof(export_fields), s);
    if (s->export_failed.count > 0)
        json_set(j, "status.export.failed", faults_json(&s->export_failed, failed_fields));
    if (s->errors.count > 0)
        json_set(j, "status.errors", faults_json(&s->errors, error_fields));
    write_summary(j, s);
    json_set(j, "status.conditions", api_conditions_json(&s->conditions));
    return j;
}

json *api_volume_commit_json(const struct api_volume *v)
{
    json *j = api_document(API_VOLUME_KIND, &v->meta);
    json_set_str(j, "metadata.resourceVersion", str_of(v->meta.resource_version));
    json_set_bool(j, "status.releaseCommitted", true);
    return j;
}

json *api_volume_verdict_json(const struct api_volume *v)
{
    struct api_conditions own = {0}; /* borrows */
    json *j = api_document(API_VOLUME_KIND, &v->meta);
    if (v->status.phase == API_PHASE_LOST)
        json_set_str(j, "status.phase", str_of(api_phase_name(API_PHASE_LOST)));
    for (size_t i = 0; i < v->status.conditions.count; i++) {
        const struct api_condition *c = &v->status.conditions.items[i];
        if (strcmp(c->type, API_DELETION_HELD) == 0 || strcmp(c->type, API_NODE_GONE) == 0)
            own.items[own.count++] = *c;
    }
    json_set(j, "status.conditions", api_conditions_json(&own));
    return j;
}
