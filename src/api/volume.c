/* SPDX-License-Identifier: Apache-2.0 */
#include "api/volume.h"
#include "util/clock.h"
#include "util/json_fields.h"
#include "util/names.h"
#include <assert.h>
#include <stdio.h>

const struct kube_resource api_volumes = {
    .group = NAME_API_GROUP, .version = NAME_API_VERSION, .plural = "cisternvolumes", .kind = API_VOLUME_KIND};

/* ---- status ------------------------------------------------------------------------------------------------------ */

#define STATUS(field) .offset = offsetof(struct api_volume_status, field)

static const char *const phases[] = {
    [API_PHASE_PROVISIONING] = "Provisioning",  [API_PHASE_LISTING] = "Listing", [API_PHASE_HYDRATING] = "Hydrating",
    [API_PHASE_VERIFYING] = "Verifying",        [API_PHASE_READY] = "Ready",     [API_PHASE_EXPORTING] = "Exporting",
    [API_PHASE_EXPORT_FAILED] = "ExportFailed", [API_PHASE_LOST] = "Lost",       [API_PHASE_FAILED] = "Failed",
    [API_PHASE_RELEASED] = "Released",
};
static_assert(countof(phases) == API_PHASE_RELEASED + 1, "");

static const struct json_field status_fields[] = {
    {"status.phase", JSON_NAME, STATUS(phase), .flags = JSON_LENIENT, JSON_NAMES(phases)},
    {"status.observedGeneration", JSON_U64, STATUS(observed_generation)},
    {"status.capacityBytes", JSON_U64, STATUS(capacity_bytes), .flags = JSON_ALWAYS},
    {"status.usedBytes", JSON_U64, STATUS(used_bytes), .flags = JSON_ALWAYS},
    {"status.inodesUsed", JSON_U64, STATUS(inodes_used), .flags = JSON_ALWAYS},
    {"status.poolUUID", JSON_TEXT, STATUS(pool_uuid)},
    {"status.access", JSON_TEXT, STATUS(access)},
};

static const struct json_field hydration_fields[] = {
    {"status.hydration.objectsTotal", JSON_U64, STATUS(hydration.objects_total), .flags = JSON_ALWAYS},
    {"status.hydration.objectsDone", JSON_U64, STATUS(hydration.objects_done), .flags = JSON_ALWAYS},
    {"status.hydration.objectsFailed", JSON_U64, STATUS(hydration.objects_failed), .flags = JSON_ALWAYS},
    {"status.hydration.objectsMissing", JSON_U64, STATUS(hydration.objects_missing)},
    {"status.hydration.bytesTotal", JSON_U64, STATUS(hydration.bytes_total), .flags = JSON_ALWAYS},
    {"status.hydration.bytesDone", JSON_U64, STATUS(hydration.bytes_done), .flags = JSON_ALWAYS},
    {"status.hydration.bytesPerSecond", JSON_U64, STATUS(hydration.bytes_per_second), .flags = JSON_ALWAYS},
    {"status.hydration.etaSeconds", JSON_U64, STATUS(hydration.eta_seconds)},
    {"status.hydration.attempt", JSON_U64, STATUS(hydration.attempt)},
    {"status.hydration.startedAt", JSON_TIME, STATUS(hydration.started_ns)},
    {"status.hydration.finishedAt", JSON_TIME, STATUS(hydration.finished_ns)},
    {"status.hydration.manifestDigest", JSON_TEXT, STATUS(hydration.manifest_digest)},
};

/* A table of its own: no other write of the status may clear it. */
static const struct json_field commit_fields[] = {
    {"status.releaseCommitted", JSON_BOOL, STATUS(release_committed)},
};

static const struct json_field listing_fields[] = {
    {"status.hydration.listing.excludedObjects", JSON_U64, STATUS(hydration.excluded_objects), .flags = JSON_ALWAYS},
    {"status.hydration.listing.largestObjectBytes", JSON_U64, STATUS(hydration.largest_object_bytes),
     .flags = JSON_ALWAYS},
    {"status.hydration.listing.seconds", JSON_U64, STATUS(hydration.listing_seconds), .flags = JSON_ALWAYS},
};

static const struct json_field export_fields[] = {
    {"status.export.pendingObjects", JSON_U64, STATUS(export.pending_objects), .flags = JSON_ALWAYS},
    {"status.export.pendingBytes", JSON_U64, STATUS(export.pending_bytes), .flags = JSON_ALWAYS},
    {"status.export.doneObjects", JSON_U64, STATUS(export.done_objects), .flags = JSON_ALWAYS},
    {"status.export.doneBytes", JSON_U64, STATUS(export.done_bytes), .flags = JSON_ALWAYS},
    {"status.export.failedObjects", JSON_U64, STATUS(export.failed_objects), .flags = JSON_ALWAYS},
    {"status.export.lastSuccess", JSON_TIME, STATUS(export.last_success_ns)},
};

#define AT_FAULT(field) .offset = offsetof(struct api_fault, field)
#define FAULT_FIELDS(subject)                                                                                          \
    {                                                                                                                  \
        {subject, JSON_TEXT, AT_FAULT(object)}, {"id", JSON_TEXT, AT_FAULT(id)}, {"code", JSON_TEXT, AT_FAULT(code)},  \
            {"message", JSON_TEXT, AT_FAULT(message)}, {"attempts", JSON_U64, AT_FAULT(attempts)},                     \
            {"time", JSON_TIME, AT_FAULT(time_ns)},                                                                    \
    }
enum { FAULT_FIELD_COUNT = 6, NODE_SHOWN_MAX = 24 };
static const struct json_field error_fields[FAULT_FIELD_COUNT] = FAULT_FIELDS("object"),
                               failed_fields[FAULT_FIELD_COUNT] = FAULT_FIELDS("path");

const char *api_phase_name(enum api_phase p)
{
    return p < countof(phases) && phases[p] ? phases[p] : "";
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
        json_fields_clear(error_fields, FAULT_FIELD_COUNT, &f->items[--f->count]);
}

static int faults_read(const json *j, const struct json_field *rows, struct api_faults *ret, struct err *err)
{
    for (size_t i = 0; i < json_count(j) && ret->count < API_FAULTS_MAX; i++) {
        struct api_fault *fault = &ret->items[ret->count++];
        *fault = (struct api_fault){0};
        int r = json_fields_read(json_item(j, i), rows, FAULT_FIELD_COUNT, fault, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static json *faults_json(const struct api_faults *f, const struct json_field *rows)
{
    return json_fields_list(rows, FAULT_FIELD_COUNT, f->items, f->count, sizeof f->items[0]);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void status_done(struct api_volume_status *s)
{
    json_fields_clear(status_fields, countof(status_fields), s);
    json_fields_clear(hydration_fields, countof(hydration_fields), s);
    api_faults_clear(&s->errors);
    api_faults_clear(&s->export_failed);
    api_conditions_done(&s->conditions);
}

static int status_read(const json *j, struct api_volume_status *ret, struct err *err)
{
    int r = json_fields_read(j, status_fields, countof(status_fields), ret, err);
    if (r == 0)
        r = json_fields_read(j, commit_fields, countof(commit_fields), ret, err);
    if (r == 0)
        r = json_fields_read(j, hydration_fields, countof(hydration_fields), ret, err);
    if (r == 0)
        r = json_fields_read(j, listing_fields, countof(listing_fields), ret, err);
    ret->hydration.has_listing = json_at(j, "status.hydration.listing") != NULL;
    if (r == 0)
        r = json_fields_read(j, export_fields, countof(export_fields), ret, err);
    if (r == 0)
        r = faults_read(json_at(j, "status.errors"), error_fields, &ret->errors, err);
    if (r == 0)
        r = faults_read(json_at(j, "status.export.failed"), failed_fields, &ret->export_failed, err);
    return r < 0 ? r : api_conditions_read(json_at(j, "status.conditions"), &ret->conditions, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The first condition that is False. A volume that no pod uses has no problem. */
static const char *first_problem(const struct api_conditions *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].status == API_FALSE && strcmp(all->items[i].reason, API_REASON_NOT_MOUNTED) != 0)
            return all->items[i].message;
    return NULL;
}

/* A long name ends at its first dot: those of EKS have 48 characters, and a line of kubectl should fit 160 columns. */
static void write_node(json *j, const char *node)
{
    struct str name = str_of(node);
    ssize_t dot = name.len > NODE_SHOWN_MAX ? str_find(name, '.') : -1;
    if (name.len)
        json_set_str(j, "status.summary.node", dot > 0 ? str_sub(name, 0, (size_t)dot) : name);
}

/* kubectl shows a field in a column unchanged, so the formatted text is a field. */
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
    const char *problem = first_problem(&s->conditions);
    if (problem)
        json_set_str(j, "status.summary.reason", str_of(problem));
}

/* Two managers write a release that is committed: a value that one leaves out would stay as the other wrote it. */
static void write_export(json *j, const struct api_volume_status *s)
{
    bool is_final = s->release_committed && api_condition_find(&s->conditions, API_EXPORTED);
    if (is_final || s->export.pending_objects || s->export.done_objects || s->export.failed_objects)
        json_fields_write(j, export_fields, countof(export_fields), s);
    if (is_final || s->export_failed.count > 0)
        json_set(j, "status.export.failed", faults_json(&s->export_failed, failed_fields));
}

/* Writes only the conditions of these types. `other`: NULL if there is one type. */
static void write_conditions_of(json *j, const struct api_conditions *all, const char *type, const char *other)
{
    struct api_conditions own = {0}; /* borrows */
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].type, type) == 0 || (other && strcmp(all->items[i].type, other) == 0))
            own.items[own.count++] = all->items[i];
    json_set(j, "status.conditions", api_conditions_json(&own));
}

json *api_volume_status_json(const struct api_volume *v)
{
    const struct api_volume_status *s = &v->status;
    json *j = api_document(&api_volumes, &v->meta);
    json_fields_write(j, status_fields, countof(status_fields), s);
    if (s->hydration.attempt || s->hydration.started_ns)
        json_fields_write(j, hydration_fields, countof(hydration_fields), s);
    if (s->hydration.has_listing)
        json_fields_write(j, listing_fields, countof(listing_fields), s);
    write_export(j, s);
    if (s->errors.count > 0)
        json_set(j, "status.errors", faults_json(&s->errors, error_fields));
    write_summary(j, s);
    write_node(j, v->node);
    json_set(j, "status.conditions", api_conditions_json(&s->conditions));
    return j;
}

json *api_volume_commit_json(const struct api_volume *v)
{
    json *j = api_document(&api_volumes, &v->meta);
    json_set_str(j, "metadata.resourceVersion", str_of(v->meta.resource_version));
    json_fields_write(j, commit_fields, countof(commit_fields), &v->status);
    write_export(j, &v->status);
    write_conditions_of(j, &v->status.conditions, API_EXPORTED, NULL);
    return j;
}

json *api_volume_controller_json(const struct api_volume *v)
{
    json *j = api_document(&api_volumes, &v->meta);
    if (v->status.phase == API_PHASE_LOST)
        json_set_str(j, "status.phase", str_of(api_phase_name(API_PHASE_LOST)));
    write_node(j, v->node); /* kubectl shows it, and this node may never have written its own status */
    write_conditions_of(j, &v->status.conditions, API_DELETION_HELD, API_NODE_GONE);
    return j;
}

/* ---- spec -------------------------------------------------------------------------------------------------------- */

#define AT(field) .offset = offsetof(struct api_volume, field)

static const struct json_field fields[] = {
    {"spec.volumeID", JSON_BUFFER, .offset = offsetof(struct api_volume, id.text), .size = SPEC_ID_LEN + 1},
    {"spec.nodeName", JSON_TEXT, AT(node)},
    {"spec.pool", JSON_TEXT, AT(pool)},
    {"spec.capacityBytes", JSON_U64, AT(capacity_bytes)},
    {"spec.claimRef.namespace", JSON_TEXT, AT(claim_namespace)},
    {"spec.claimRef.name", JSON_TEXT, AT(claim_name)},
    {"spec.claimRef.uid", JSON_TEXT, AT(claim_uid)},
    {"spec.orderedBy.namespace", JSON_TEXT, AT(order_namespace)},
    {"spec.orderedBy.name", JSON_TEXT, AT(order_name)},
    {"spec.orderedBy.uid", JSON_TEXT, AT(order_uid)},
    {"spec.claim", JSON_TEXT, AT(claim_label)},
    {"spec.source.namespace", JSON_TEXT, AT(source_namespace)},
    {"spec.source.name", JSON_TEXT, AT(source_name)},
    {"spec.source.generation", JSON_U64, AT(source_generation)},
    {"spec.release.requested", JSON_BOOL, AT(release_requested)},
    {"spec.release.discard", JSON_BOOL, AT(release_discard)},
};

struct api_volume *api_volume_new(void)
{
    return xcalloc(1, sizeof(struct api_volume));
}

static void parameters_clear(struct api_volume *v)
{
    while (v->parameter_count > 0) {
        struct api_parameter *p = &v->parameters[--v->parameter_count];
        free(p->key);
        free(p->value);
    }
}

void api_volume_free(struct api_volume *own_v)
{
    if (!own_v)
        return;
    api_meta_done(&own_v->meta);
    json_fields_clear(fields, countof(fields), own_v);
    parameters_clear(own_v);
    free(own_v->source);
    free(own_v->retry);
    status_done(&own_v->status);
    free(own_v);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static struct api_parameter *find(const struct api_volume *v, struct str key)
{
    for (size_t i = 0; i < v->parameter_count; i++)
        if (str_eq(str_of(v->parameters[i].key), key))
            return (struct api_parameter *)&v->parameters[i];
    return NULL;
}

const char *api_volume_parameter(const struct api_volume *v, const char *key)
{
    const struct api_parameter *p = find(v, str_of(key));
    return p ? p->value : NULL;
}

uint64_t api_volume_choice(const struct api_volume *v, const char *key)
{
    return spec_choice(key, str_of(api_volume_parameter(v, key)));
}

int api_volume_set_parameter(struct api_volume *v, struct str key, struct str value, struct err *err)
{
    struct api_parameter *p = find(v, key);
    if (!p && v->parameter_count == API_PARAMETERS_MAX)
        return err_set(err, ERR_INVALID, "there are more than %d parameters", API_PARAMETERS_MAX);
    if (!p) {
        p = &v->parameters[v->parameter_count++];
        p->key = str_dup(key);
    }
    free(p->value);
    p->value = str_dup(value);
    return 0;
}

static int parameters_read(const json *j, struct api_volume *v, struct err *err)
{
    const json *object = json_at(j, "spec.parameters");
    for (void *i = json_iter(object); i; i = json_iter_next(object, i)) {
        struct str value, key = json_iter_key(i);
        if (!json_as_str(json_iter_value(i), &value))
            return err_set(err, ERR_INVALID, "'spec.parameters.%.*s' is not a string", (int)min_u64(key.len, 60),
                           key.ptr);
        int r = api_volume_set_parameter(v, key, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

struct kube_ref api_volume_claim(const struct api_volume *v)
{
    return (struct kube_ref){.resource = &kube_persistent_volume_claims,
                             .ns = str_of(v->claim_namespace),
                             .name = str_of(v->claim_name),
                             .uid = str_of(v->claim_uid)};
}

bool api_volume_was_seen(const struct api_volume *v)
{
    return v->status.observed_generation >= v->meta.generation;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static char *read_retry(const json *j)
{
    const json *retry = json_at(j, "spec.retry");
    if (!retry)
        return NULL;
    auto_json alone = json_new_object();
    json_set(alone, "retry", json_copy_of(retry));
    return json_text(alone, 0);
}

static int check_place(const struct api_volume *v, struct err *err)
{
    struct volume_id id;
    if (!v->id.text[0] || !v->node || !v->pool)
        return err_set(err, ERR_INVALID, "'spec.volumeID', 'spec.nodeName' or 'spec.pool' is missing");
    if (!volume_id_parse(str_of(v->id.text), &id))
        return err_set(err, ERR_INVALID, "'spec.volumeID' is '%s', which is not a volume's id", v->id.text);
    return 0;
}

/* 0: not there, or invalid. */
static int64_t annotated_time(const json *j, const char *name)
{
    int64_t ns;
    struct str text = json_member_str(json_at(j, "metadata.annotations"), name);
    return text.len && time_parse(text, &ns, ERR_IGNORED) == 0 ? ns : 0;
}

static int read_all(const json *j, struct api_volume *v, struct err *err)
{
    int r = api_meta_read(j, &v->meta, err);
    if (r == 0)
        r = json_fields_read(j, fields, countof(fields), v, err);
    if (r == 0)
        r = parameters_read(j, v, err);
    if (r == 0)
        r = status_read(j, &v->status, err);
    v->failing_ns = annotated_time(j, NAME_ANNOTATION_EXPORT_FAILING_SINCE);
    v->cordoned_ns = annotated_time(j, NAME_ANNOTATION_CORDONED_SINCE);
    v->blocked_ns = annotated_time(j, NAME_ANNOTATION_DRAIN_BLOCKED_SINCE);
    v->has_exported =
        str_eq(json_member_str(json_at(j, "metadata.annotations"), NAME_ANNOTATION_HAS_EXPORTED), STR("true"));
    const json *source = json_at(j, "spec.source.spec");
    if (r == 0 && source)
        v->source = json_text(source, 0);
    if (r == 0 && source)
        v->retry = read_retry(j);
    return r == 0 ? check_place(v, err) : r;
}

struct str api_volume_pool_uuid(const struct api_volume *v)
{
    return v->status.pool_uuid ? str_of(v->status.pool_uuid) : volume_id_pool(&v->id);
}

int api_volume_read(const json *j, struct api_volume **ret, struct err *err)
{
    auto_api_volume v = api_volume_new();
    if (read_all(j, v, err) < 0)
        return err_wrap(err, "CisternVolume '%s'", v->meta.name ? v->meta.name : "?");
    *ret = take(&v);
    return 0;
}

json *api_volume_json(const struct api_volume *v)
{
    json *source = NULL, *j = api_document(&api_volumes, &v->meta), *finalizers = json_new_array();
    json *labels = json_new_object(), *parameters = json_new_object();
    json_append_str(finalizers, STR(NAME_FINALIZER_RELEASE));
    json_set(j, "metadata.finalizers", finalizers);
    /* json_set() would split keys with dots. */
    json_set_member(labels, NAME_LABEL_NODE, json_new_str(str_of(v->node)));
    json_set_member(labels, NAME_LABEL_POOL, json_new_str(str_of(v->pool)));
    json_set(j, "metadata.labels", labels);
    json_fields_write(j, fields, countof(fields), v);
    for (size_t i = 0; i < v->parameter_count; i++)
        json_set_member(parameters, v->parameters[i].key, json_new_str(str_of(v->parameters[i].value)));
    json_set(j, "spec.parameters", parameters);
    if (v->source && json_parse(str_of(v->source), "source", &source, ERR_IGNORED) == 0)
        json_set(j, "spec.source.spec", source);
    return j;
}

/* ---- the volume spec --------------------------------------------------------------------------------------------- */

static int source_to_spec(const char *text, struct spec *s, struct err *err)
{
    auto_json source = NULL;
    int r = json_parse(str_of(text), "the source", &source, err);
    return r < 0 ? r : spec_set_recorded_source(s, source, err);
}

int api_volume_spec(const struct api_volume *v, struct spec **ret, struct err *err)
{
    auto_spec s = spec_new();
    s->in_cluster = true;
    int r = 0;
    for (size_t i = 0; i < v->parameter_count && r == 0; i++)
        r = spec_set_parameter(s, str_of(v->parameters[i].key), str_of(v->parameters[i].value), err);
    if (r == 0 && v->source)
        r = source_to_spec(v->source, s, err);
    if (r == 0 && v->retry)
        r = source_to_spec(v->retry, s, err);
    if (r == 0)
        r = spec_check(s, err);
    if (r < 0)
        return r;
    s->id = v->id;
    s->name = str_dup(str_of(v->meta.name));
    s->capacity_bytes = v->capacity_bytes;
    *ret = take(&s);
    return 0;
}
