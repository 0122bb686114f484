/* SPDX-License-Identifier: Apache-2.0 */
/* What the informers know of a claim, as claim.h wants it. */
#include "private.h"
#include "util/names.h"

struct pair_search {
    struct populate *p;
    struct str uid;
    struct claim_pair *pair;
    struct err *err;
};

static int pair_found(void *ctx, struct str key, const json *claim)
{
    (void)key;
    struct pair_search *s = ctx;
    struct claim c;
    struct str uid;
    int r = claim_read(claim, &c, s->err);
    if (r < 0)
        return r;
    bool is_prime =
        str_eq(c.namespace, str_of(s->p->o.job.ns)) && claim_target_uid(c.name, &uid) && str_eq(uid, s->uid);
    if (is_prime)
        s->pair->prime_json = json_copy_of(claim);
    else if (str_eq(c.uid, s->uid))
        s->pair->target_json = json_copy_of(claim);
    return 0;
}

int claim_pair_read(struct populate *p, struct str uid, struct claim_pair *ret, struct err *err)
{
    *ret = (struct claim_pair){0};
    struct pair_search s = {p, uid, ret, err};
    int r = kube_informer_each(p->claims, INDEX_CLAIM, uid, pair_found, &s);
    if (r == 0 && ret->target_json)
        r = claim_read(ret->target_json, &ret->target, err);
    if (r == 0 && ret->prime_json)
        r = claim_read(ret->prime_json, &ret->prime, err);
    if (r < 0)
        claim_pair_done(ret);
    return r;
}

void claim_pair_done(struct claim_pair *c)
{
    json_free(c->target_json);
    json_free(c->prime_json);
    *c = (struct claim_pair){0};
}

/* ---- its volumes ------------------------------------------------------------------------------------------------- */

struct pv_search {
    struct str uid, own_namespace;
    const struct claim *prime;
    json *own, *primes, *stray; /* owned */
    struct err *err;
};

static void pv_search_done(struct pv_search *s)
{
    json_free(s->own);
    json_free(s->primes);
    json_free(s->stray);
}

static bool is_stray(const struct pv_search *s, const struct claim_pv *v)
{
    return str_eq(v->claim_namespace, s->own_namespace) && !str_eq(v->claim_uid, s->prime->uid) && !v->deleting &&
           !str_eq(v->policy, STR("Delete"));
}

static void keep_first(json **kept, const json *pv)
{
    if (!*kept)
        *kept = json_copy_of(pv);
}

static int pv_found(void *ctx, struct str key, const json *pv)
{
    (void)key;
    struct pv_search *s = ctx;
    struct claim_pv v;
    int r = claim_pv_read(pv, &v, s->err);
    if (r < 0)
        return r;
    if (str_eq(v.claim_uid, s->uid))
        keep_first(&s->own, pv);
    else if (is_stray(s, &v))
        keep_first(&s->stray, pv);
    else if (str_eq(v.name, s->prime->volume_name))
        keep_first(&s->primes, pv);
    return 0;
}

int claim_pvs_read(struct populate *p, struct str uid, const struct claim *prime, struct claim_pvs *ret,
                   struct err *err)
{
    auto_with(pv_search_done) struct pv_search s = {
        .uid = uid, .own_namespace = str_of(p->o.job.ns), .prime = prime, .err = err};
    *ret = (struct claim_pvs){0};
    int r = kube_informer_each(p->o.pvs, p->o.pvs_by_claim, uid, pv_found, &s);
    if (r < 0)
        return r;
    ret->pv_json = s.own ? take(&s.own) : take(&s.primes);
    ret->stray_json = take(&s.stray);
    if (ret->pv_json)
        r = claim_pv_read(ret->pv_json, &ret->pv, err);
    if (r == 0 && ret->stray_json)
        r = claim_pv_read(ret->stray_json, &ret->stray, err);
    if (r < 0)
        claim_pvs_done(ret);
    return r;
}

void claim_pvs_done(struct claim_pvs *v)
{
    json_free(v->pv_json);
    json_free(v->stray_json);
    *v = (struct claim_pvs){0};
}

/* ---- its source -------------------------------------------------------------------------------------------------- */

static struct str text_at(const json *j, const char *path)
{
    struct str text = STR_NULL;
    const json *value = json_at(j, path);
    return value && json_as_str(value, &text) ? text : STR_NULL;
}

static bool grants_from(const json *grant, const struct claim *target)
{
    const json *from = json_at(grant, "spec.from");
    for (size_t i = 0; i < json_count(from); i++) {
        const json *f = json_item(from, i);
        if (text_at(f, "group").len == 0 && str_eq(text_at(f, "kind"), STR("PersistentVolumeClaim")) &&
            str_eq(text_at(f, "namespace"), target->namespace))
            return true;
    }
    return false;
}

static bool grants_to(const json *grant, const struct claim *target)
{
    const json *to = json_at(grant, "spec.to");
    for (size_t i = 0; i < json_count(to); i++) {
        const json *t = json_item(to, i);
        struct str name = text_at(t, "name");
        if (str_eq(text_at(t, "group"), STR(NAME_API_GROUP)) && str_eq(text_at(t, "kind"), STR("BucketSource")) &&
            (!name.len || str_eq(name, target->source)))
            return true;
    }
    return false;
}

int source_is_granted(struct populate *p, const struct claim *target, bool *ret, struct err *err)
{
    *ret = false;
    if (!p->o.cross_namespace || str_eq(target->source_namespace, target->namespace))
        return 0;
    auto_json answer = NULL;
    struct kube_request q = {
        .verb = KUBE_LIST, .resource = &kube_reference_grants, .ns = target->source_namespace, .fence = p->o.lease};
    int r = kube_call(p->o.kube, &q, &answer, err);
    if (r < 0)
        return r == -ERR_UNSUPPORTED ? 0 : r; /* a cluster without that kind grants nothing */
    const json *items = json_at(answer, "items");
    for (size_t i = 0; i < json_count(items) && !*ret; i++)
        *ret = grants_from(json_item(items, i), target) && grants_to(json_item(items, i), target);
    return 0;
}

/* ---- its node ---------------------------------------------------------------------------------------------------- */

/* As its taints say, which the cluster's own controllers put there when a node falls silent: its status is not in the
 * copy. */
static bool is_silent(const json *node)
{
    const json *taints = json_at(node, "spec.taints");
    struct err ignored;
    struct str key;
    for (size_t i = 0; i < json_count(taints); i++)
        if (json_get_str(json_item(taints, i), "key", &key, &ignored) == 0 &&
            (str_eq(key, STR("node.kubernetes.io/unreachable")) || str_eq(key, STR("node.kubernetes.io/not-ready"))))
            return true;
    return false;
}

enum claim_node node_state(struct populate *p, struct str name)
{
    struct err ignored;
    bool cordoned = false;
    auto_json node = kube_informer_get(p->o.nodes, STR_NULL, name);
    if (!node)
        return CLAIM_NODE_GONE;
    if (is_silent(node))
        return CLAIM_NODE_UNREADY;
    if (json_opt_bool(node, "spec.unschedulable", &cordoned, &ignored) < 0)
        cordoned = false;
    return cordoned ? CLAIM_NODE_CORDONED : CLAIM_NODE_READY;
}
