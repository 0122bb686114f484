/* SPDX-License-Identifier: Apache-2.0 */
#include "api/meta.h"
#include "fields.h"
#include "util/names.h"

static const struct api_field fields[] = {
    {"metadata.name", API_TEXT, offsetof(struct api_meta, name)},
    {"metadata.namespace", API_TEXT, offsetof(struct api_meta, namespace)},
    {"metadata.uid", API_TEXT, offsetof(struct api_meta, uid)},
    {"metadata.resourceVersion", API_TEXT, offsetof(struct api_meta, resource_version)},
    {"metadata.generation", API_NUMBER, offsetof(struct api_meta, generation)},
    {"metadata.creationTimestamp", API_TIME, offsetof(struct api_meta, created_ns)},
    {"metadata.deletionTimestamp", API_TIME, offsetof(struct api_meta, deleted_ns)},
};

int api_meta_read(const json *j, struct api_meta *ret, struct err *err)
{
    struct api_meta m = {0};
    int r = api_fields_read(j, fields, countof(fields), &m, err);
    if (r == 0 && !m.name)
        r = err_set(err, ERR_INVALID, "the object has no name");
    const json *finalizers = json_at(j, "metadata.finalizers");
    for (size_t i = 0; i < json_count(finalizers); i++) {
        struct str name;
        m.is_held |= json_as_str(json_item(finalizers, i), &name) && str_eq(name, STR(NAME_FINALIZER_RELEASE));
    }
    if (r < 0)
        api_meta_done(&m);
    else
        *ret = m;
    return r;
}

void api_meta_done(struct api_meta *m)
{
    api_fields_clear(fields, countof(fields), m);
}

json *api_document(const char *kind, const struct api_meta *m)
{
    json *j = json_new_object();
    json_set_str(j, "apiVersion", STR(NAME_API));
    json_set_str(j, "kind", str_of(kind));
    json_set_str(j, "metadata.name", str_of(m->name));
    if (m->namespace)
        json_set_str(j, "metadata.namespace", str_of(m->namespace));
    if (m->uid)
        json_set_str(j, "metadata.uid", str_of(m->uid));
    return j;
}
