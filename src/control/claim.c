/* SPDX-License-Identifier: Apache-2.0 */
/* Pure: what a claim says. */
#include "claim.h"
#include "api/source.h"
#include "util/names.h"

static int read_source_ref(const json *claim, struct claim_words *w, struct err *err)
{
    struct str group = STR_NULL, kind = STR_NULL, name = STR_NULL, namespace = STR_NULL;
    int r = json_opt_str(claim, "spec.dataSourceRef.apiGroup", &group, err);
    if (r == 0)
        r = json_opt_str(claim, "spec.dataSourceRef.kind", &kind, err);
    if (r == 0)
        r = json_opt_str(claim, "spec.dataSourceRef.name", &name, err);
    if (r == 0)
        r = json_opt_str(claim, "spec.dataSourceRef.namespace", &namespace, err);
    if (r < 0 || !str_eq(group, STR(NAME_API_GROUP)) || !str_eq(kind, STR(API_SOURCE_KIND)))
        return r;
    w->source = name;
    w->source_namespace = namespace.len ? namespace : w->namespace;
    w->is_populated = true;
    return 0;
}

int claim_words_read(const json *claim, struct claim_words *ret, struct err *err)
{
    struct claim_words w = {0};
    int r = json_get_str(claim, "metadata.namespace", &w.namespace, err);
    if (r == 0)
        r = json_get_str(claim, "metadata.name", &w.name, err);
    if (r == 0)
        r = json_get_str(claim, "metadata.uid", &w.uid, err);
    if (r == 0)
        r = read_source_ref(claim, &w, err);
    if (r < 0)
        return r;
    const json *annotations = json_at(claim, "metadata.annotations");
    struct str named = json_member_str(annotations, NAME_ANNOTATION_SOURCE);
    if (named.len && !w.is_populated) {
        w.source = named;
        w.source_namespace = w.namespace;
    }
    w.hydration = json_member_str(annotations, NAME_ANNOTATION_HYDRATION);
    w.on_data_loss = json_member_str(annotations, NAME_ANNOTATION_ON_DATA_LOSS);
    w.export_policy = json_member_str(annotations, NAME_ANNOTATION_EXPORT_POLICY);
    /* The volume's one identity is of the source's namespace: what a policy of another names is not to be looked for
     * there. */
    if (w.source.len && w.export_policy.len && !str_eq(w.source_namespace, w.namespace)) {
        err_set(err, ERR_DENIED,
                "claim '%.*s/%.*s' has a BucketSource of another namespace and an export policy of its own",
                STR_FMT(w.namespace), STR_FMT(w.name));
        return err_advise(err, 5202, "let the source say what is exported, or name one of the claim's own namespace");
    }
    *ret = w;
    return 0;
}

static int set(struct api_volume *v, const char *key, struct str value, const char *annotation, struct err *err)
{
    auto_spec trial = spec_new();
    if (value.len == 0)
        return 0;
    trial->in_cluster = true;
    int r = spec_set_parameter(trial, str_of(key), value, err);
    if (r == 0)
        r = spec_check_served(trial, err);
    if (r < 0)
        return err_wrap(err, "annotation %s", annotation);
    return api_volume_set_parameter(v, str_of(key), value, err);
}

int claim_words_apply(const struct claim_words *w, struct api_volume *v, struct err *err)
{
    int r = set(v, "hydration", w->hydration, NAME_ANNOTATION_HYDRATION, err);
    if (r == 0)
        r = set(v, "onDataLoss", w->on_data_loss, NAME_ANNOTATION_ON_DATA_LOSS, err);
    const char *hydration = api_volume_parameter(v, "hydration");
    if (r == 0 && w->source.len && !w->is_populated && (!hydration || strcmp(hydration, "eager") == 0))
        r = api_volume_set_parameter(v, STR("hydration"), STR("gate"), err);
    return r;
}

int claim_source_merge(const json *source, const json *policy, json **ret, struct err *err)
{
    *ret = NULL;
    const json *exported = policy ? json_at(policy, "export") : NULL;
    if (policy && !exported)
        return err_set(err, ERR_INVALID, "the BucketSource of the export policy has no 'export'");
    if (source)
        *ret = json_copy_of(source);
    if (!exported)
        return 0;
    if (!*ret) {
        /* A blank volume that is exported: the policy's own store and identity, and nothing to fetch. */
        *ret = json_copy_of(policy);
        json_remove(*ret, "uri");
        json_remove(*ret, "sources");
        json_remove(*ret, "include");
        json_remove(*ret, "exclude");
    }
    json_set(*ret, "export", json_copy_of(exported));
    return 0;
}
