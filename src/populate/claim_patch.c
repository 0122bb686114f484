/* SPDX-License-Identifier: Apache-2.0 */
#include "claim_patch.h"
#include "kube/resource.h"
#include "util/names.h"
#include <stdio.h>

enum { TEXT_MAX = 1024 };

#define SELECTED_NODE_POINTER "/metadata/annotations/volume.kubernetes.io~1selected-node"

static void set_member_str(json *object, const char *name, struct str value)
{
    json_set_member(object, name, json_new_str(value));
}

static void copy_field(json *to, const json *from, const char *path)
{
    const json *value = json_at(from, path);
    if (value)
        json_set(to, path, json_copy_of(value));
}

json *claim_patch_prime(const json *target, struct str own_namespace, bool node_is_cordoned)
{
    static const char *const same[] = {
        "spec.accessModes", "spec.resources",  "spec.storageClassName",          "spec.volumeMode",
        "spec.selector",    "metadata.labels", "spec.volumeAttributesClassName",
    };
    struct claim t = {0};
    char text[TEXT_MAX];
    (void)!claim_read(target, &t, ERR_IGNORED); /* the caller has read it before: this cannot fail */
    snprintf(text, sizeof text, NAME_PRIME_PREFIX "%.*s", STR_FMT(t.uid));
    json *j = kube_object(&kube_persistent_volume_claims, own_namespace, str_of(text));
    for (size_t i = 0; i < countof(same); i++)
        copy_field(j, target, same[i]);
    /* The class, if only the beta annotation names it. */
    json_set_str(j, "spec.storageClassName", t.class_name);
    json *annotations = json_new_object();
    set_member_str(annotations, CLAIM_SELECTED_NODE, t.selected_node);
    set_member_str(annotations, NAME_ANNOTATION_POPULATE_NODE, t.selected_node);
    snprintf(text, sizeof text, "%.*s/%.*s", STR_FMT(t.namespace), STR_FMT(t.name));
    set_member_str(annotations, NAME_ANNOTATION_POPULATE_TARGET, str_of(text));
    if (node_is_cordoned)
        set_member_str(annotations, NAME_ANNOTATION_POPULATE_CORDONED, STR("true"));
    json_set(j, "metadata.annotations", annotations);
    return j;
}

/* ---- patches of the target --------------------------------------------------------------------------------------- */

static void add_operation(json *patch, const char *op, const char *path, json *own_value)
{
    json *o = json_new_object();
    json_set_str(o, "op", str_of(op));
    json_set_str(o, "path", str_of(path));
    if (own_value)
        json_set(o, "value", own_value);
    json_append(patch, o);
}

static json *patch_of(struct str uid)
{
    json *patch = json_new_array();
    add_operation(patch, "test", "/metadata/uid", json_new_str(uid));
    return patch;
}

/* Another writer may change the list at the same time: the patch tests that it is unchanged. The absence of a list
 * cannot be tested, so the resourceVersion is. */
json *claim_patch_add_finalizer(const json *target)
{
    json *patch = patch_of(json_str_at(target, "metadata.uid"));
    const json *there = json_at(target, "metadata.finalizers");
    if (json_count(there) > 0) {
        add_operation(patch, "test", "/metadata/finalizers", json_copy_of(there));
        add_operation(patch, "add", "/metadata/finalizers/-", json_new_str(STR(NAME_FINALIZER_POPULATE)));
        return patch;
    }
    json *list = json_new_array();
    json_append_str(list, STR(NAME_FINALIZER_POPULATE));
    add_operation(patch, "test", "/metadata/resourceVersion",
                  json_new_str(json_str_at(target, "metadata.resourceVersion")));
    add_operation(patch, "add", "/metadata/finalizers", list);
    return patch;
}

json *claim_patch_remove_finalizer(const json *target)
{
    const json *list = json_at(target, "metadata.finalizers");
    struct str name;
    char path[64];
    for (size_t i = 0; i < json_count(list); i++)
        if (json_as_str(json_item(list, i), &name) && str_eq(name, STR(NAME_FINALIZER_POPULATE))) {
            json *patch = patch_of(json_str_at(target, "metadata.uid"));
            snprintf(path, sizeof path, "/metadata/finalizers/%zu", i);
            add_operation(patch, "test", path, json_new_str(name));
            add_operation(patch, "remove", path, NULL);
            return patch;
        }
    return NULL;
}

json *claim_patch_select(const json *target, struct str node)
{
    json *patch = patch_of(json_str_at(target, "metadata.uid"));
    add_operation(patch, "test", "/metadata/resourceVersion",
                  json_new_str(json_str_at(target, "metadata.resourceVersion")));
    if (!json_at(target, "metadata.annotations"))
        add_operation(patch, "add", "/metadata/annotations", json_new_object());
    add_operation(patch, "add", SELECTED_NODE_POINTER, json_new_str(node));
    return patch;
}

json *claim_patch_unselect(const struct claim *target)
{
    json *patch = patch_of(target->uid);
    add_operation(patch, "test", SELECTED_NODE_POINTER, json_new_str(target->selected_node));
    add_operation(patch, "remove", SELECTED_NODE_POINTER, NULL);
    return patch;
}

/* ---- patches of the volume --------------------------------------------------------------------------------------- */

json *claim_patch_save_policy(const struct claim_pv *pv)
{
    json *j = json_new_object(), *annotations = json_new_object();
    json_set_str(j, "metadata.resourceVersion", pv->version);
    set_member_str(annotations, NAME_ANNOTATION_RECLAIM_POLICY, pv->policy);
    json_set(j, "metadata.annotations", annotations);
    json_set_str(j, "spec.persistentVolumeReclaimPolicy", STR("Delete"));
    return j;
}

/* claimRef, policy and annotation change in one write. So the volume is the prime's, and is deleted with it; or it is
 * the user's, and has the policy of the class. */
json *claim_patch_hand_over(const struct claim_pv *pv, const struct claim *target)
{
    char from[TEXT_MAX];
    json *j = json_new_object(), *annotations = json_new_object();
    json_set_str(j, "metadata.resourceVersion", pv->version);
    snprintf(from, sizeof from, "%.*s/%.*s", STR_FMT(target->source_namespace), STR_FMT(target->source));
    set_member_str(annotations, NAME_ANNOTATION_POPULATED_FROM, str_of(from));
    json_set_member(annotations, NAME_ANNOTATION_RECLAIM_POLICY, json_new_null());
    json_set(j, "metadata.annotations", annotations);
    if (pv->saved_policy.len)
        json_set_str(j, "spec.persistentVolumeReclaimPolicy", pv->saved_policy);
    json_set_strings(j, {"spec.claimRef.apiVersion", STR("v1")}, {"spec.claimRef.kind", STR("PersistentVolumeClaim")},
                     {"spec.claimRef.namespace", target->namespace}, {"spec.claimRef.name", target->name},
                     {"spec.claimRef.uid", target->uid}, {"spec.claimRef.resourceVersion", target->version});
    return j;
}
