/* SPDX-License-Identifier: Apache-2.0 */
/* Watches ReferenceGrants: one in the namespace of a BucketSource lets claims of another namespace name it. */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"

static bool grants_from(const json *grant, const struct claim *target)
{
    const json *from = json_at(grant, "spec.from");
    for (size_t i = 0; i < json_count(from); i++) {
        const json *f = json_item(from, i);
        if (json_str_at(f, "group").len == 0 && str_eq(json_str_at(f, "kind"), STR("PersistentVolumeClaim")) &&
            str_eq(json_str_at(f, "namespace"), target->namespace))
            return true;
    }
    return false;
}

static bool grants_to(const json *grant, const struct claim *target)
{
    const json *to = json_at(grant, "spec.to");
    for (size_t i = 0; i < json_count(to); i++) {
        const json *t = json_item(to, i);
        struct str name = json_str_at(t, "name");
        if (str_eq(json_str_at(t, "group"), STR(NAME_API_GROUP)) &&
            str_eq(json_str_at(t, "kind"), STR("BucketSource")) && (!name.len || str_eq(name, target->source)))
            return true;
    }
    return false;
}

struct grant_search {
    const struct claim *target;
    bool found;
};

static int grant_seen(void *ctx, struct str, const json *grant)
{
    struct grant_search *s = ctx;
    s->found |= grants_from(grant, s->target) && grants_to(grant, s->target);
    return 0;
}

int source_is_granted(struct populate *p, const struct claim *target, bool *ret, struct err *err)
{
    *ret = false;
    if (!p->grants || str_eq(target->source_namespace, target->namespace))
        return 0;
    if (!kube_informer_has_synced(p->grants))
        return atomic_load(&p->has_no_grants)
                   ? 0
                   : err_set(err, ERR_AGAIN, "the ReferenceGrants of the cluster are not known yet");
    struct grant_search s = {.target = target};
    (void)kube_informer_each(p->grants, 0, target->source_namespace, grant_seen, &s);
    *ret = s.found;
    return 0;
}

/* ---- the watch --------------------------------------------------------------------------------------------------- */

static void grant_changed(void *ctx, struct str, const json *grant)
{
    struct populate *p = ctx;
    kube_informer_each(p->claims, INDEX_FOREIGN, json_str_at(grant, "metadata.namespace"), populate_enqueue_claim, p);
}

/* A cluster without this kind grants nothing. The informer goes on: the kind may be installed later. */
static void watch_failed(void *ctx, const struct err *err, uint64_t wait_ns)
{
    struct populate *p = ctx;
    bool is_missing = err->code == ERR_UNSUPPORTED;
    atomic_store(&p->has_no_grants, is_missing);
    log_err(is_missing ? LOG_DEBUG : LOG_WARN, "ReferenceGrants cannot be watched", err, "retry_ms",
            log_u64(wait_ns / NS_PER_MS), NULL);
}

void grants_open(struct populate *p)
{
    if (!p->o.cross_namespace)
        return;
    p->grants = kube_informer_new(p->o.kube, &(struct kube_informer_options){.resource = &kube_reference_grants,
                                                                             .indexes = {{"metadata", "namespace"}},
                                                                             .ctx = p,
                                                                             .on_added = grant_changed,
                                                                             .on_updated = grant_changed,
                                                                             .on_deleted = grant_changed,
                                                                             .on_error = watch_failed});
}
