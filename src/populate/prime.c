/* SPDX-License-Identifier: Apache-2.0 */
#include "prime.h"
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

json *prime_json(const json *target, struct str own_namespace, bool node_is_cordoned)
{
    static const char *const same[] = {
        "spec.accessModes", "spec.resources",  "spec.storageClassName",          "spec.volumeMode",
        "spec.selector",    "metadata.labels", "spec.volumeAttributesClassName",
    };
    struct claim t = {0};
    struct err ignored;
    char text[TEXT_MAX];
    json *j = json_new_object();
    /* It was read before, or nobody would ask for its prime. */
    if (claim_read(target, &t, &ignored) < 0)
        return j;
    json_set_str(j, "apiVersion", STR("v1"));
    json_set_str(j, "kind", STR("PersistentVolumeClaim"));
    for (size_t i = 0; i < countof(same); i++)
        copy_field(j, target, same[i]);
    /* A class that only the old annotation names. */
    json_set_str(j, "spec.storageClassName", t.class_name);
    json_set_str(j, "metadata.namespace", own_namespace);
    snprintf(text, sizeof text, NAME_PRIME_PREFIX "%.*s", STR_FMT(t.uid));
    json_set_str(j, "metadata.name", str_of(text));
    json *annotations = json_new_object();
    set_member_str(annotations, CLAIM_SELECTED_NODE, t.selected_node);
    set_member_str(annotations, NAME_PRIME_NODE, t.selected_node);
    snprintf(text, sizeof text, "%.*s/%.*s", STR_FMT(t.namespace), STR_FMT(t.name));
    set_member_str(annotations, NAME_PRIME_TARGET, str_of(text));
    if (node_is_cordoned)
        set_member_str(annotations, NAME_PRIME_CORDONED, STR("true"));
    json_set(j, "metadata.annotations", annotations);
    return j;
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

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

static struct str text_at(const json *j, const char *path)
{
    struct str text = STR_NULL;
    const json *value = json_at(j, path);
    return value && json_as_str(value, &text) ? text : STR_NULL;
}

/* Two who append to one list at once may not undo each other's: the list must still be the one that was seen. Where
 * there is none, a test cannot say so, but the version can. */
json *target_guard_patch(const json *target)
{
    json *patch = patch_of(text_at(target, "metadata.uid"));
    const json *there = json_at(target, "metadata.finalizers");
    if (json_count(there) > 0) {
        add_operation(patch, "test", "/metadata/finalizers", json_copy_of(there));
        add_operation(patch, "add", "/metadata/finalizers/-", json_new_str(STR(NAME_FINALIZER_POPULATE)));
        return patch;
    }
    json *list = json_new_array();
    json_append_str(list, STR(NAME_FINALIZER_POPULATE));
    add_operation(patch, "test", "/metadata/resourceVersion",
                  json_new_str(text_at(target, "metadata.resourceVersion")));
    add_operation(patch, "add", "/metadata/finalizers", list);
    return patch;
}

json *target_unguard_patch(const json *target)
{
    const json *list = json_at(target, "metadata.finalizers");
    struct str name;
    char path[64];
    for (size_t i = 0; i < json_count(list); i++)
        if (json_as_str(json_item(list, i), &name) && str_eq(name, STR(NAME_FINALIZER_POPULATE))) {
            json *patch = patch_of(text_at(target, "metadata.uid"));
            snprintf(path, sizeof path, "/metadata/finalizers/%zu", i);
            add_operation(patch, "test", path, json_new_str(name));
            add_operation(patch, "remove", path, NULL);
            return patch;
        }
    return NULL;
}

json *target_select_patch(const json *target, struct str node)
{
    json *patch = patch_of(text_at(target, "metadata.uid"));
    add_operation(patch, "test", "/metadata/resourceVersion",
                  json_new_str(text_at(target, "metadata.resourceVersion")));
    if (!json_at(target, "metadata.annotations"))
        add_operation(patch, "add", "/metadata/annotations", json_new_object());
    add_operation(patch, "add", SELECTED_NODE_POINTER, json_new_str(node));
    return patch;
}

json *target_unselect_patch(const struct claim *target)
{
    json *patch = patch_of(target->uid);
    add_operation(patch, "test", SELECTED_NODE_POINTER, json_new_str(target->selected_node));
    add_operation(patch, "remove", SELECTED_NODE_POINTER, NULL);
    return patch;
}

/* ---- the volume -------------------------------------------------------------------------------------------------- */

json *pv_keep_patch(const struct claim_pv *pv)
{
    json *j = json_new_object(), *annotations = json_new_object();
    json_set_str(j, "metadata.resourceVersion", pv->version);
    set_member_str(annotations, NAME_PV_RECLAIM, pv->policy);
    json_set(j, "metadata.annotations", annotations);
    json_set_str(j, "spec.persistentVolumeReclaimPolicy", STR("Delete"));
    return j;
}

/* The claimRef, the policy of the class and the word that it was only kept change in one write: a controller that dies
 * leaves a volume that is the prime's and goes with it, or one that is the user's and stays as the class says. */
json *pv_hand_over_patch(const struct claim_pv *pv, const struct claim *target)
{
    char from[TEXT_MAX];
    json *j = json_new_object(), *annotations = json_new_object();
    json_set_str(j, "metadata.resourceVersion", pv->version);
    snprintf(from, sizeof from, "%.*s/%.*s", STR_FMT(target->source_namespace), STR_FMT(target->source));
    set_member_str(annotations, NAME_PV_POPULATED, str_of(from));
    json_set_member(annotations, NAME_PV_RECLAIM, json_new_null());
    json_set(j, "metadata.annotations", annotations);
    if (pv->kept.len)
        json_set_str(j, "spec.persistentVolumeReclaimPolicy", pv->kept);
    json_set_str(j, "spec.claimRef.apiVersion", STR("v1"));
    json_set_str(j, "spec.claimRef.kind", STR("PersistentVolumeClaim"));
    json_set_str(j, "spec.claimRef.namespace", target->namespace);
    json_set_str(j, "spec.claimRef.name", target->name);
    json_set_str(j, "spec.claimRef.uid", target->uid);
    json_set_str(j, "spec.claimRef.resourceVersion", target->version);
    return j;
}
