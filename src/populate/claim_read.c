/* SPDX-License-Identifier: Apache-2.0 */
#include "api/claim.h"
#include "claim.h"
#include "spec/spec.h"
#include "util/clock.h"
#include "util/names.h"

static int read_source(const json *pvc, struct claim *c, struct err *err)
{
    struct str group = STR_NULL, kind = STR_NULL, name = STR_NULL, from = STR_NULL;
    int r = json_strings(pvc, err, {"?spec.dataSourceRef.apiGroup", &group}, {"?spec.dataSourceRef.kind", &kind},
                         {"?spec.dataSourceRef.name", &name}, {"?spec.dataSourceRef.namespace", &from});
    if (r < 0)
        return r;
    bool is_group = str_eq(group, STR(NAME_API_GROUP)), is_kind = str_eq(kind, STR("BucketSource"));
    if (is_group && is_kind)
        c->source = name;
    else if (is_group || is_kind) { /* no other controller fills such a claim */
        c->bad_group = group;
        c->bad_kind = kind;
    }
    c->source_namespace = from.len ? from : c->namespace;
    return 0;
}

int claim_read(const json *pvc, struct claim *ret, struct err *err)
{
    struct claim c = {0};
    struct str phase = STR_NULL, deleted = STR_NULL;
    int r = json_strings(pvc, err, {"?metadata.namespace", &c.namespace}, {"?metadata.name", &c.name},
                         {"?metadata.uid", &c.uid}, {"?metadata.resourceVersion", &c.version},
                         {"?metadata.creationTimestamp", &c.created}, {"?metadata.deletionTimestamp", &deleted},
                         {"?spec.storageClassName", &c.class_name}, {"?spec.volumeName", &c.volume_name},
                         {"?status.phase", &phase});
    if (r == 0)
        r = read_source(pvc, &c, err);
    if (r < 0)
        return err_wrap(err, "claim");
    const json *annotations = json_at(pvc, "metadata.annotations");
    c.selected_node = json_member_str(annotations, CLAIM_SELECTED_NODE);
    c.provisioner = json_member_str(annotations, "volume.kubernetes.io/storage-provisioner");
    c.prime_node = json_member_str(annotations, NAME_ANNOTATION_POPULATE_NODE);
    c.made_cordoned = json_member_str(annotations, NAME_ANNOTATION_POPULATE_CORDONED).len > 0;
    if (!c.class_name.len)
        c.class_name = json_member_str(annotations, "volume.beta.kubernetes.io/storage-class");
    if (!c.source.len)
        c.annotated_source = json_member_str(annotations, NAME_ANNOTATION_SOURCE);
    c.hydration = json_member_str(annotations, NAME_ANNOTATION_HYDRATION);
    c.export_policy = json_member_str(annotations, NAME_ANNOTATION_EXPORT_POLICY);
    c.deleting = deleted.len > 0;
    c.has_finalizer = json_holds(json_at(pvc, "metadata.finalizers"), STR(NAME_FINALIZER_POPULATE));
    c.phase = str_eq(phase, STR("Bound")) ? CLAIM_BOUND : str_eq(phase, STR("Lost")) ? CLAIM_LOST : CLAIM_PENDING;
    bool has_volume = c.phase != CLAIM_PENDING || c.volume_name.len > 0;
    c.is_invalid = !has_volume && api_claim_check(pvc, &c.invalid) < 0;
    *ret = c;
    return 0;
}

int claim_pv_read(const json *pv, struct claim_pv *ret, struct err *err)
{
    struct claim_pv v = {0};
    struct str deleted = STR_NULL;
    int r = json_strings(pv, err, {"?metadata.name", &v.name}, {"?metadata.resourceVersion", &v.version},
                         {"?metadata.deletionTimestamp", &deleted}, {"?spec.claimRef.namespace", &v.claim_namespace},
                         {"?spec.claimRef.uid", &v.claim_uid}, {"?spec.persistentVolumeReclaimPolicy", &v.policy});
    if (r < 0)
        return err_wrap(err, "persistent volume");
    v.saved_policy = json_member_str(json_at(pv, "metadata.annotations"), NAME_ANNOTATION_RECLAIM_POLICY);
    v.deleting = deleted.len > 0;
    *ret = v;
    return 0;
}

static int check_parameters(const json *class, struct err *err)
{
    auto_spec trial = spec_new();
    const json *parameters = json_at(class, "parameters");
    int r = 0;
    for (void *i = json_iter(parameters); i && r == 0; i = json_iter_next(parameters, i)) {
        struct str value;
        if (json_as_str(json_iter_value(i), &value))
            r = spec_set_parameter(trial, json_iter_key(i), value, err);
    }
    return r < 0 ? r : spec_check(trial, err);
}

int claim_class_read(const json *class, struct claim_class *ret, struct err *err)
{
    struct str provisioner = STR_NULL, mode = STR_NULL, hydration = STR_NULL;
    int r = json_strings(class, err, {"?provisioner", &provisioner}, {"?volumeBindingMode", &mode},
                         {"?parameters.hydration", &hydration});
    if (r < 0)
        return err_wrap(err, "storage class");
    *ret = (struct claim_class){.ours = str_eq(provisioner, STR(NAME_DRIVER)),
                                .waits = str_eq(mode, STR("WaitForFirstConsumer")),
                                .has_pool = true,
                                .is_blank = spec_choice("hydration", hydration) == HYDRATION_NONE};
    ret->is_invalid = ret->ours && check_parameters(class, &ret->invalid) < 0;
    return 0;
}

/* As the API server makes them: 8-4-4-4-12 hex digits. */
static bool is_uuid(struct str s)
{
    bool good = s.len == 36;
    for (size_t i = 0; i < s.len && good; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        good = dash ? s.ptr[i] == '-' : (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'f');
    }
    return good;
}

bool claim_target_uid(struct str prime_name, struct str *ret)
{
    struct str prefix = STR(NAME_PRIME_PREFIX), uid = str_from(prime_name, prefix.len);
    if (!str_starts(prime_name, prefix) || !is_uuid(uid))
        return false;
    *ret = uid;
    return true;
}

/* An ephemeral volume's claim is named after its pod and the volume. */
static bool is_ephemeral_claim(const json *volume, struct str pod, struct str claim)
{
    struct str name = json_member_str(volume, "name");
    return json_at(volume, "ephemeral") && claim.len == pod.len + 1 + name.len && str_starts(claim, pod) &&
           claim.ptr[pod.len] == '-' && str_ends(claim, name);
}

bool claim_is_used_by(struct str claim, const json *pod)
{
    const json *volumes = json_at(pod, "spec.volumes");
    struct str name = json_member_str(json_at(pod, "metadata"), "name");
    for (size_t i = 0; i < json_count(volumes); i++) {
        const json *v = json_item(volumes, i);
        if (str_eq(json_member_str(json_at(v, "persistentVolumeClaim"), "claimName"), claim) ||
            is_ephemeral_claim(v, name, claim))
            return true;
    }
    return false;
}

bool claim_pod_names_node(const json *pod)
{
    return json_str_at(pod, "spec.nodeName").len > 0;
}

static bool has_ended(const json *pod)
{
    struct str phase = json_str_at(pod, "status.phase");
    return str_eq(phase, STR("Succeeded")) || str_eq(phase, STR("Failed"));
}

static bool is_evicted(const json *pod, int64_t since_ns)
{
    int64_t created_ns = INT64_MIN;
    const json *owner = json_item(json_at(pod, "metadata.ownerReferences"), 0);
    bool is_later = time_parse(json_str_at(pod, "metadata.creationTimestamp"), &created_ns, ERR_IGNORED) == 0 &&
                    created_ns > since_ns;
    return !is_later && !str_eq(json_member_str(owner, "kind"), STR("DaemonSet"));
}

struct claim_users claim_users_of(struct str claim, const json *pods, int64_t since_ns)
{
    struct claim_users u = {0};
    const json *items = json_at(pods, "items");
    for (size_t i = 0; i < json_count(items); i++) {
        const json *pod = json_item(items, i);
        bool uses = claim_is_used_by(claim, pod) && !has_ended(pod);
        u.count += uses;
        u.evicted += uses && is_evicted(pod, since_ns);
    }
    return u;
}
