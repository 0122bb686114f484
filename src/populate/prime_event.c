/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the provisioner's failures of a prime claim to its target and the pods that wait for it: users do not see the
 * namespace of the prime. */
#include "private.h"
#include "util/log.h"
#include <stdio.h>

struct prime_event_search {
    struct str prime_uid;
    json *newest; /* owned; NULL: none */
};

static struct str time_of(const json *event)
{
    return json_str_at(event, "lastTimestamp");
}

static int event_found(void *ctx, struct str key, const json *event)
{
    struct prime_event_search *s = ctx;
    (void)key;
    if (!str_eq(json_str_at(event, "involvedObject.uid"), s->prime_uid) ||
        (s->newest && str_cmp(time_of(event), time_of(s->newest)) <= 0))
        return 0;
    json_free(s->newest);
    s->newest = json_copy_of(event);
    return 0;
}

static bool skip(struct str *s, struct str prefix)
{
    bool has = str_starts(*s, prefix);
    *s = has ? str_from(*s, prefix.len) : *s;
    return has;
}

/* The cause without the words of the provisioner and of gRPC. False: a retry may succeed, perhaps on another node,
 * which NodeFull reports. */
static bool read_cause(struct str message, struct str *ret)
{
    static const char *const passing[] = {"ResourceExhausted", "Unavailable", "DeadlineExceeded",
                                          "Aborted",           "Canceled",    "NotFound"};
    struct str code = STR_NULL;
    (void)skip(&message, STR("Volume provisioning failed with infeasible error. Retries will be delayed. "));
    if (skip(&message, STR("rpc error: code = "))) {
        (void)str_split(&message, ' ', &code);
        (void)skip(&message, STR("desc = "));
    }
    for (size_t i = 0; i < countof(passing); i++)
        if (str_eq(code, str_of(passing[i])))
            return false;
    *ret = message;
    return message.len > 0;
}

void prime_event_send(struct populate *p, struct key_state *m, const struct claim_pair *c)
{
    struct prime_event_search s = {.prime_uid = c->prime.uid};
    struct str cause;
    if (!m || !c->target_json || !c->prime_json || c->prime.volume_name.len)
        return;
    (void)kube_informer_each(p->prime_events, 0, c->target.uid, event_found, &s);
    auto_json event = s.newest;
    uint64_t version = str_hash(json_str_at(event, "metadata.resourceVersion"), 0);
    if (!event || m->prime_event == version || !read_cause(json_str_at(event, "message"), &cause))
        return;
    m->prime_event = version;
    m->pods_reason = NULL; /* it is sent once: with a new list of pods */
    const struct kube_ref about = {.resource = &kube_persistent_volume_claims,
                                   .ns = c->target.namespace,
                                   .name = c->target.name,
                                   .uid = c->target.uid};
    struct populate_event report = {.warning = true, .reason = "ProvisioningFailed"};
    snprintf(report.text, sizeof report.text, "%.*s", STR_FMT(cause));
    claim_event_send(p, m, &about, &report);
}

/* ---- the watch --------------------------------------------------------------------------------------------------- */

static bool read_target(const json *event, struct str *ret)
{
    return claim_target_uid(json_str_at(event, "involvedObject.name"), ret);
}

static void index_target(const json *event, struct sbuf *ret)
{
    struct str uid;
    if (read_target(event, &uid))
        sbuf_add(ret, uid);
}

static void event_changed(void *ctx, struct str key, const json *event)
{
    struct str uid;
    (void)key;
    if (read_target(event, &uid))
        populate_enqueue(ctx, 'c', uid);
}

static void watch_failed(void *ctx, const struct err *err, uint64_t wait_ns)
{
    (void)ctx, (void)wait_ns;
    log_err(LOG_WARN, "the provisioner's events cannot be watched", err, NULL);
}

void prime_events_open(struct populate *p)
{
    p->prime_events = kube_informer_new(
        p->o.kube, &(struct kube_informer_options){
                       .resource = &kube_events_resource,
                       .ns = str_of(p->o.job.ns),
                       .field_selector = "involvedObject.kind=PersistentVolumeClaim,reason=ProvisioningFailed",
                       .indexes = {{index_target}},
                       .ctx = p,
                       .on_added = event_changed,
                       .on_updated = event_changed,
                       .on_error = watch_failed});
}
