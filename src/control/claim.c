/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the claim of a CreateVolume. Claims and sources are read from the API server, never from a copy: the order
 * keeps them. */
#include "claim.h"
#include "api/claim.h"
#include "api/source.h"
#include "private.h"
#include "util/clock.h"
#include "util/names.h"

static int read_source_ref(const json *claim, struct claim_words *w, struct err *err)
{
    struct str group = STR_NULL, kind = STR_NULL, name = STR_NULL, namespace = STR_NULL;
    int r = json_strings(claim, err, {"?spec.dataSourceRef.apiGroup", &group}, {"?spec.dataSourceRef.kind", &kind},
                         {"?spec.dataSourceRef.name", &name}, {"?spec.dataSourceRef.namespace", &namespace});
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
    int r = json_strings(claim, err, {"metadata.namespace", &w.namespace}, {"metadata.name", &w.name},
                         {"metadata.uid", &w.uid});
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
    /* A volume has one identity, in the source's namespace: names in a policy of another namespace cannot be
     * resolved there. */
    if (w.source.len && w.export_policy.len && !str_eq(w.source_namespace, w.namespace))
        return err_fail(
            err, ERR_DENIED, CIS_SOURCE_OTHER_NAMESPACE,
            "claim '%.*s/%.*s': its BucketSource is in another namespace, which excludes an export policy of the claim",
            STR_FMT(w.namespace), STR_FMT(w.name));
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
    bool is_eager = api_volume_choice(v, "hydration") == HYDRATION_EAGER;
    if (r == 0 && w->source.len && !w->is_populated && is_eager)
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
        /* A blank volume that is exported: it uses the policy's store and identity, and fetches nothing. */
        *ret = json_copy_of(policy);
        json_remove(*ret, "uri");
        json_remove(*ret, "sources");
        json_remove(*ret, "include");
        json_remove(*ret, "exclude");
    }
    json_set(*ret, "export", json_copy_of(exported));
    return 0;
}

/* ---- the claim --------------------------------------------------------------------------------------------------- */

static int claim_is_gone(const char *namespace, const char *name, struct err *err)
{
    return err_fail(err, ERR_NOT_FOUND, CIS_CLAIM_GONE, "claim '%s/%s': deleted", namespace, name);
}

static int get_claim(struct control *c, struct str namespace, struct str name, json **ret, struct err *err)
{
    int r = object_get(c, &kube_persistent_volume_claims, namespace, name, ret, err);
    auto_mem char *ns_text = str_dup(namespace), *name_text = str_dup(name);
    return r == -ERR_NOT_FOUND ? claim_is_gone(ns_text, name_text, err) : r;
}

static bool is_prime(const struct control *c, struct str namespace, struct str name)
{
    return str_eq(namespace, c->o.namespace) && str_starts(name, STR(NAME_PRIME_PREFIX));
}

/* A target that was deleted and made again under its name has another uid, and a prime of its own. */
static int follow_prime(struct control *c, json **prime, struct err *err)
{
    auto_json target = NULL;
    struct str name = json_member_str(json_at(*prime, "metadata"), "name");
    struct str path = json_member_str(json_at(*prime, "metadata.annotations"), NAME_ANNOTATION_POPULATE_TARGET),
               namespace;
    if (!str_split(&path, '/', &namespace) || path.len == 0)
        return err_set(err, ERR_INVALID, "claim '%.*s' has no annotation " NAME_ANNOTATION_POPULATE_TARGET,
                       STR_FMT(name));
    int r = get_claim(c, namespace, path, &target, err);
    if (r < 0)
        return r;
    struct str uid = json_member_str(json_at(target, "metadata"), "uid");
    if (!str_eq(uid, str_from(name, strlen(NAME_PRIME_PREFIX)))) {
        auto_mem char *text = str_dup(name);
        return claim_is_gone(NAME_NAMESPACE, text, err);
    }
    json_free(*prime);
    *prime = take(&target);
    return 0;
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static int get_source(struct control *c, struct str namespace, struct str name, struct api_source **ret,
                      struct err *err)
{
    auto_json j = NULL;
    auto_api_source s = NULL;
    auto_spec spec = NULL;
    int r = object_get(c, &api_sources, namespace, name, &j, err);
    if (r == -ERR_NOT_FOUND)
        return err_fail(err, ERR_NOT_FOUND, CIS_SOURCE_NOT_FOUND, "BucketSource '%.*s/%.*s': not found",
                        STR_FMT(namespace), STR_FMT(name));
    if (r == 0)
        r = api_source_read(j, &s, err);
    if (r == 0 && (r = api_source_spec(s, &spec, err)) < 0)
        err_wrap(err, "BucketSource '%.*s/%.*s'", STR_FMT(namespace), STR_FMT(name));
    if (r == 0)
        *ret = take(&s);
    return r;
}

/* From now on the source's uri cannot change. Best effort; the copy in the order counts. */
static void mark_used(struct control *c, const struct api_source *s)
{
    char text[TIME_TEXT_MAX];
    if (s->status.first_used_ns)
        return;
    auto_json patch = json_new_object();
    json_set_str(patch, "status.firstUsedAt", str_of(time_text(clock_wall_ns(), text)));
    struct kube_request q = {.verb = KUBE_MERGE_PATCH,
                             .resource = &api_sources,
                             .ns = str_of(s->meta.namespace),
                             .name = str_of(s->meta.name),
                             .subresource = "status",
                             .body = patch};
    (void)!kube_call(c->o.kube, &q, NULL, ERR_IGNORED);
}

static int parse(const struct api_source *s, json **ret, struct err *err)
{
    return s ? json_parse(str_of(s->spec), "the source", ret, err) : 0;
}

static int copy_sources(struct control *c, const struct api_source *source, const struct api_source *policy,
                        struct api_volume *v, struct err *err)
{
    auto_json from = NULL;
    auto_json to = NULL;
    auto_json merged = NULL;
    int r = parse(source, &from, err);
    if (r == 0)
        r = parse(policy, &to, err);
    if (r == 0)
        r = claim_source_merge(from, to, &merged, err);
    if (r < 0 || !merged)
        return r;
    const struct api_source *named = source ? source : policy;
    v->source = json_text(merged, 0);
    v->source_namespace = str_dup(str_of(named->meta.namespace));
    v->source_name = str_dup(str_of(named->meta.name));
    v->source_generation = named->meta.generation;
    mark_used(c, named);
    return 0;
}

static int resolve_sources(struct control *c, const struct claim_words *w, struct api_volume *v, struct err *err)
{
    auto_api_source source = NULL;
    auto_api_source policy = NULL;
    bool is_blank = api_volume_choice(v, "hydration") == HYDRATION_NONE;
    int r = w->source.len && !is_blank ? get_source(c, w->source_namespace, w->source, &source, err) : 0;
    if (r == 0 && w->export_policy.len)
        r = get_source(c, w->namespace, w->export_policy, &policy, err);
    return r < 0 ? r : copy_sources(c, source, policy, v, err);
}

/* ---- resolving a claim ------------------------------------------------------------------------------------------- */

static void name_claim(const struct claim_words *words, struct api_volume *v)
{
    v->claim_namespace = str_dup(words->namespace);
    v->claim_name = str_dup(words->name);
    v->claim_uid = str_dup(words->uid);
    v->claim_label = str_dupf("%.*s/%.*s", STR_FMT(words->namespace), STR_FMT(words->name));
}

/* A source of another namespace needs the populator's consent: the populator then creates a prime. */
static int check_namespace(const struct claim_words *words, bool by_prime, struct err *err)
{
    if (words->source.len == 0 || by_prime || str_eq(words->source_namespace, words->namespace))
        return 0;
    return err_fail(err, ERR_DENIED, CIS_SOURCE_OTHER_NAMESPACE,
                    "claim '%.*s/%.*s' names a BucketSource of another namespace", STR_FMT(words->namespace),
                    STR_FMT(words->name));
}

int claim_resolve(struct control *c, const struct csi_create *q, struct api_volume *v, struct err *err)
{
    auto_json claim = NULL;
    struct claim_words words;
    const char *namespace = csi_pairs_value(q->parameters, ORDER_CLAIM_NAMESPACE);
    const char *name = csi_pairs_value(q->parameters, ORDER_CLAIM_NAME);
    if (!namespace || !name)
        return 0;
    bool by_prime = is_prime(c, str_of(namespace), str_of(name));
    int r = get_claim(c, str_of(namespace), str_of(name), &claim, err);
    if (r < 0)
        return r;
    v->order_namespace = str_dup(str_of(namespace));
    v->order_name = str_dup(str_of(name));
    v->order_uid = text_copy(json_str_at(claim, "metadata.uid"));
    if (by_prime)
        r = follow_prime(c, &claim, err);
    if (r == 0)
        r = api_claim_check(claim, err);
    if (r == 0)
        r = claim_words_read(claim, &words, err);
    if (r == 0)
        r = check_namespace(&words, by_prime, err);
    if (r < 0)
        return r;
    name_claim(&words, v);
    r = claim_words_apply(&words, v, err);
    return r < 0 ? r : resolve_sources(c, &words, v, err);
}
