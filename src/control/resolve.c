/* SPDX-License-Identifier: Apache-2.0 */
/* The claim of a CreateVolume, as the API server has it. Read anew, never from a copy: what is copied into the order is
 * what the volume will be. */
#include "api/source.h"
#include "claim.h"
#include "private.h"
#include "util/clock.h"
#include "util/names.h"

/* ---- the claim --------------------------------------------------------------------------------------------------- */

static int claim_is_gone(const char *namespace, const char *name, struct err *err)
{
    err_set(err, ERR_NOT_FOUND, "claim '%s/%s': it is gone", namespace, name);
    return err_advise(err, 5101, "nothing is made for it");
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
    struct str path = json_member_str(json_at(*prime, "metadata.annotations"), NAME_PRIME_TARGET), namespace;
    if (!str_split(&path, '/', &namespace) || path.len == 0)
        return err_set(err, ERR_INVALID, "claim '%.*s' has no annotation " NAME_PRIME_TARGET, STR_FMT(name));
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

void claim_tell(struct control *c, const char *namespace, const char *name, const struct err *what)
{
    struct err ignored;
    char line[ERR_LINE_MAX];
    auto_json prime = NULL;
    struct str ns = STR_NULL;
    if (!c->o.events || !namespace || !name || !is_prime(c, str_of(namespace), str_of(name)) ||
        get_claim(c, str_of(namespace), str_of(name), &prime, &ignored) < 0)
        return;
    struct str target = json_member_str(json_at(prime, "metadata.annotations"), NAME_PRIME_TARGET);
    if (!str_split(&target, '/', &ns) || target.len == 0)
        return;
    const struct kube_ref about = {.resource = &kube_persistent_volume_claims,
                                   .ns = ns,
                                   .name = target,
                                   .uid = str_from(str_of(name), strlen(NAME_PRIME_PREFIX))};
    kube_event(c->o.events, &about, KUBE_WARNING, "ProvisioningFailed", "%s", err_line(what, line, sizeof line));
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static int get_source(struct control *c, struct str namespace, struct str name, struct api_source **ret,
                      struct err *err)
{
    auto_json j = NULL;
    auto_api_source s = NULL;
    auto_spec spec = NULL;
    int r = object_get(c, &api_sources, namespace, name, &j, err);
    if (r == -ERR_NOT_FOUND) {
        err_set(err, ERR_NOT_FOUND, "there is no BucketSource '%.*s/%.*s'", STR_FMT(namespace), STR_FMT(name));
        return err_advise(err, 5106, "the claim waits for it");
    }
    if (r == 0)
        r = api_source_read(j, &s, err);
    if (r == 0 && (r = api_source_spec(s, &spec, err)) < 0)
        err_wrap(err, "BucketSource '%.*s/%.*s'", STR_FMT(namespace), STR_FMT(name));
    if (r == 0)
        *ret = take(&s);
    return r;
}

/* From now on its uri does not change: what reads it later finds what the volume was made of. Best effort; the copy in
 * the order is what counts. */
static void mark_used(struct control *c, const struct api_source *s)
{
    struct err ignored;
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
    (void)!kube_call(c->o.kube, &q, NULL, &ignored);
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
    const char *hydration = api_volume_parameter(v, "hydration");
    bool is_blank = hydration && strcmp(hydration, "none") == 0;
    int r = w->source.len && !is_blank ? get_source(c, w->source_namespace, w->source, &source, err) : 0;
    if (r == 0 && w->export_policy.len)
        r = get_source(c, w->namespace, w->export_policy, &policy, err);
    return r < 0 ? r : copy_sources(c, source, policy, v, err);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static char *text_at(const json *j, const char *path)
{
    struct str text = STR_NULL;
    json_as_str(json_at(j, path), &text);
    return text.len ? str_dup(text) : NULL;
}

static void name_claim(const struct claim_words *words, struct api_volume *v)
{
    auto_sbuf label;
    sbuf_init(&label, 512);
    sbuf_addf(&label, "%.*s/%.*s", STR_FMT(words->namespace), STR_FMT(words->name));
    v->claim_namespace = str_dup(words->namespace);
    v->claim_name = str_dup(words->name);
    v->claim_uid = str_dup(words->uid);
    v->claim_label = str_dup(sbuf_str(&label));
}

/* A source of another namespace is for the populator to allow,
 * which then makes a prime; nobody else can ask for one. */
static int check_namespace(const struct control *c, const struct wish *w, const struct claim_words *words,
                           struct err *err)
{
    bool by_prime = is_prime(c, str_of(w->claim_namespace), str_of(w->claim_name));
    if (words->source.len == 0 || by_prime || str_eq(words->source_namespace, words->namespace))
        return 0;
    err_set(err, ERR_DENIED, "claim '%.*s/%.*s' names a BucketSource of another namespace", STR_FMT(words->namespace),
            STR_FMT(words->name));
    return err_advise(err, 5202, "name one of its own namespace");
}

int claim_resolve(struct control *c, struct wish *w, struct err *err)
{
    auto_json claim = NULL;
    struct claim_words words;
    if (!w->claim_namespace || !w->claim_name)
        return 0;
    int r = get_claim(c, str_of(w->claim_namespace), str_of(w->claim_name), &claim, err);
    if (r < 0)
        return r;
    w->volume->order_namespace = str_dup(str_of(w->claim_namespace));
    w->volume->order_name = str_dup(str_of(w->claim_name));
    w->volume->order_uid = text_at(claim, "metadata.uid");
    if (is_prime(c, str_of(w->claim_namespace), str_of(w->claim_name)))
        r = follow_prime(c, &claim, err);
    if (r == 0)
        r = claim_words_read(claim, &words, err);
    if (r == 0)
        r = check_namespace(c, w, &words, err);
    if (r < 0)
        return r;
    name_claim(&words, w->volume);
    r = claim_words_apply(&words, w->volume, err);
    return r < 0 ? r : resolve_sources(c, &words, w->volume, err);
}
