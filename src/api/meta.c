/* SPDX-License-Identifier: Apache-2.0 */
#include "api/meta.h"
#include "util/json_fields.h"
#include "util/names.h"

#define AT(field) .offset = offsetof(struct api_meta, field)
static const struct json_field fields[] = {
    {"metadata.name", JSON_TEXT, AT(name)},
    {"metadata.namespace", JSON_TEXT, AT(namespace)},
    {"metadata.uid", JSON_TEXT, AT(uid)},
    {"metadata.resourceVersion", JSON_TEXT, AT(resource_version)},
    {"metadata.generation", JSON_U64, AT(generation)},
    {"metadata.creationTimestamp", JSON_TIME, AT(created_ns)},
    {"metadata.deletionTimestamp", JSON_TIME, AT(deleted_ns)},
};

int api_meta_read(const json *j, struct api_meta *ret, struct err *err)
{
    struct api_meta m = {0};
    int r = json_fields_read(j, fields, countof(fields), &m, err);
    if (r == 0 && !m.name)
        r = err_set(err, ERR_INVALID, "the object has no name");
    m.is_held = json_holds(json_at(j, "metadata.finalizers"), STR(NAME_FINALIZER_RELEASE));
    if (r < 0)
        api_meta_done(&m);
    else
        *ret = m;
    return r;
}

void api_meta_done(struct api_meta *m)
{
    json_fields_clear(fields, countof(fields), m);
}

struct kube_ref api_ref(const struct kube_resource *resource, const struct api_meta *m)
{
    return (struct kube_ref){
        .resource = resource, .ns = str_of(m->namespace), .name = str_of(m->name), .uid = str_of(m->uid)};
}

json *api_document(const struct kube_resource *resource, const struct api_meta *m)
{
    json *j = kube_object(resource, str_of(m->namespace), str_of(m->name));
    json_set_strings(j, {"?metadata.uid", str_of(m->uid)});
    return j;
}

int api_apply_status(struct kube *k, struct kube_request q, json *own_status, json **ret, struct err *err)
{
    auto_json body = own_status;
    q.verb = KUBE_APPLY;
    q.subresource = "status";
    q.body = body;
    q.force = true;
    return kube_call(k, &q, ret, err);
}
