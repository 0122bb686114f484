/* SPDX-License-Identifier: Apache-2.0 */
#include "api/volume.h"
#include "fields.h"
#include "util/clock.h"
#include "util/names.h"
#include "volume_status.h"
#include <stdio.h>

#define AT(field) offsetof(struct api_volume, field)

const struct kube_resource api_volumes = {
    .group = NAME_API_GROUP, .version = NAME_API_VERSION, .plural = "cisternvolumes", .kind = API_VOLUME_KIND};

static const struct api_field fields[] = {
    {"spec.volumeID", API_TEXT, AT(volume_id)},
    {"spec.nodeName", API_TEXT, AT(node)},
    {"spec.pool", API_TEXT, AT(pool)},
    {"spec.capacityBytes", API_NUMBER, AT(capacity_bytes)},
    {"spec.claimRef.namespace", API_TEXT, AT(claim_namespace)},
    {"spec.claimRef.name", API_TEXT, AT(claim_name)},
    {"spec.claimRef.uid", API_TEXT, AT(claim_uid)},
    {"spec.orderedBy.namespace", API_TEXT, AT(order_namespace)},
    {"spec.orderedBy.name", API_TEXT, AT(order_name)},
    {"spec.orderedBy.uid", API_TEXT, AT(order_uid)},
    {"spec.claim", API_TEXT, AT(claim_label)},
    {"spec.source.namespace", API_TEXT, AT(source_namespace)},
    {"spec.source.name", API_TEXT, AT(source_name)},
    {"spec.source.generation", API_NUMBER, AT(source_generation)},
    {"spec.release.requested", API_BOOL, AT(release_requested)},
    {"spec.release.discard", API_BOOL, AT(release_discard)},
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
    api_fields_clear(fields, countof(fields), own_v);
    parameters_clear(own_v);
    free(own_v->source);
    free(own_v->retry);
    api_volume_status_done(&own_v->status);
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

static int read_all(const json *j, struct api_volume *v, struct err *err)
{
    int r = api_meta_read(j, &v->meta, err);
    if (r == 0)
        r = api_fields_read(j, fields, countof(fields), v, err);
    if (r == 0)
        r = parameters_read(j, v, err);
    if (r == 0)
        r = api_volume_status_read(j, &v->status, err);
    struct str failing = json_member_str(json_at(j, "metadata.annotations"), NAME_ANNOTATION_FAILING);
    struct err ignored;
    if (failing.len && time_parse(failing, &v->failing_ns, &ignored) < 0)
        v->failing_ns = 0;
    v->has_exported =
        str_eq(json_member_str(json_at(j, "metadata.annotations"), NAME_ANNOTATION_EXPORTED), STR("true"));
    const json *source = json_at(j, "spec.source.spec");
    if (r == 0 && source)
        v->source = json_text(source, 0);
    if (r == 0 && source)
        v->retry = read_retry(j);
    if (r == 0 && (!v->volume_id || !v->node || !v->pool))
        r = err_set(err, ERR_INVALID, "'spec.volumeID', 'spec.nodeName' or 'spec.pool' is missing");
    return r;
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
    struct err ignored;
    json *source = NULL, *j = api_document(API_VOLUME_KIND, &v->meta), *finalizers = json_new_array();
    json *labels = json_new_object(), *parameters = json_new_object();
    json_append_str(finalizers, STR(NAME_FINALIZER_RELEASE));
    json_set(j, "metadata.finalizers", finalizers);
    /* Keys with dots are no paths: they are set in an object of their own. */
    json_set_member(labels, NAME_LABEL_NODE, json_new_str(str_of(v->node)));
    json_set_member(labels, NAME_LABEL_POOL, json_new_str(str_of(v->pool)));
    json_set(j, "metadata.labels", labels);
    api_fields_write(j, fields, countof(fields), v);
    for (size_t i = 0; i < v->parameter_count; i++)
        json_set_member(parameters, v->parameters[i].key, json_new_str(str_of(v->parameters[i].value)));
    json_set(j, "spec.parameters", parameters);
    if (v->source && json_parse(str_of(v->source), "source", &source, &ignored) == 0)
        json_set(j, "spec.source.spec", source);
    return j;
}

/* ---- the bridge -------------------------------------------------------------------------------------------------- */

static int source_to_spec(const char *text, struct spec *s, struct err *err)
{
    auto_json source = NULL;
    int r = json_parse(str_of(text), "the source", &source, err);
    return r < 0 ? r : spec_set_source(s, source, err);
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
    if (spec_id_is_valid(str_of(v->volume_id)))
        memcpy(s->id, v->volume_id, SPEC_ID_LEN);
    s->name = str_dup(str_of(v->meta.name));
    s->capacity_bytes = v->capacity_bytes;
    *ret = take(&s);
    return 0;
}
