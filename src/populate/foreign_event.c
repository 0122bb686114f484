/* SPDX-License-Identifier: Apache-2.0 */
/* Sends failures that others report in Cistern's namespace to the claim and the pods that wait for it. Users do not see
 * that namespace. The provisioner reports about a prime claim. The Job controller reports about a pod that it may not
 * create, and the kubelet about the pod of a Job. */
#include "job.h"
#include "job_pod.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <stdio.h>

struct event_search {
    struct str uid;    /* of the object */
    struct str writer; /* the component begins with it */
    json *newest;      /* owned; NULL: none */
};

static struct str time_of(const json *event)
{
    return json_str_at(event, "lastTimestamp");
}

static int event_found(void *ctx, struct str, const json *event)
{
    struct event_search *s = ctx;
    if (!str_eq(json_str_at(event, "involvedObject.uid"), s->uid) ||
        !str_starts(json_str_at(event, "source.component"), s->writer) ||
        (s->newest && str_cmp(time_of(event), time_of(s->newest)) <= 0))
        return 0;
    json_free(s->newest);
    s->newest = json_copy_of(event);
    return 0;
}

/* The newest event about `uid` that was not sent yet. The caller frees; NULL: none. A node may write events in any
 * namespace, but only in its own name (charts/cistern/templates/admission.yaml): users must not read those in the name
 * of the controller. */
static json *find_new(struct kube_informer *events, struct str indexed, struct str uid, struct str writer,
                      uint64_t *sent)
{
    struct event_search s = {.uid = uid, .writer = writer};
    (void)kube_informer_each(events, 0, indexed, event_found, &s);
    uint64_t version = str_hash(json_str_at(s.newest, "metadata.resourceVersion"), 0);
    if (s.newest && *sent != version) {
        *sent = version;
        return s.newest;
    }
    json_free(s.newest);
    return NULL;
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
    struct str code = STR_NULL;
    (void)skip(&message, STR("Volume provisioning failed with infeasible error. Retries will be delayed. "));
    if (skip(&message, STR("rpc error: code = "))) {
        (void)str_split(&message, ' ', &code);
        (void)skip(&message, STR("desc = "));
    }
    *ret = message;
    return message.len > 0 &&
           !str_is_any(code, "ResourceExhausted", "Unavailable", "DeadlineExceeded", "Aborted", "Canceled", "NotFound");
}

void prime_event_send(struct populate *p, struct key_state *m, const struct claim_pair *c)
{
    struct str cause;
    if (!m || !c->target_json || !c->prime_json || c->prime.volume_name.len)
        return;
    auto_json event = find_new(p->prime_events, c->target.uid, c->prime.uid, STR(NAME_DRIVER), &m->foreign_events[0]);
    if (!event || !read_cause(json_str_at(event, "message"), &cause))
        return;
    m->pods_reason = NULL; /* it is new, though its reason may be that of the last event */
    const struct kube_ref about = claim_ref(&c->target);
    struct populate_event report = {.warning = true, .reason = "ProvisioningFailed"};
    snprintf(report.text, sizeof report.text, "%.*s", STR_FMT(str_cut(cause, sizeof report.text - 1)));
    claim_event_send(p, m, &about, &report);
}

/* The Job controller reports passing failures in the same way. */
static bool is_refusal(struct str message)
{
    return str_has(message, STR("is forbidden")) || str_has(message, STR("denied the request")) ||
           str_has(message, STR("is invalid"));
}

void job_event_send(struct populate *p, struct key_state *m, const struct api_volume *volume, enum job_slot slot,
                    const json *job)
{
    struct err err;
    uint64_t active = 0;
    struct str uid = json_str_at(job, "metadata.uid");
    if (!m || !uid.len || (json_opt_u64(job, "status.active", &active, ERR_IGNORED) == 0 && active > 0))
        return;
    auto_json event = find_new(p->job_events, uid, uid, STR("job-controller"), &m->foreign_events[slot]);
    struct str cause = json_str_at(event, "message");
    if (!is_refusal(cause))
        return;
    m->pods_reason = NULL; /* likewise */
    (void)skip(&cause, STR("Error creating: "));
    err_set(&err, ERR_DENIED, "%.*s", STR_FMT(cause));
    volume_event_send_refusal(p, m, volume, &err);
}

struct pod_search {
    struct str job_uid;
    struct populate_event trouble; /* .reason NULL: none */
    uint64_t hash;
};

static int pod_found(void *ctx, struct str key, const json *pod)
{
    struct pod_search *s = ctx;
    bool is_own = str_eq(json_str_at(json_item(json_at(pod, "metadata.ownerReferences"), 0), "uid"), s->job_uid);
    if (is_own && job_pod_trouble(pod, clock_wall_ns(), &s->trouble))
        s->hash = job_pod_trouble_hash(key, &s->trouble);
    return 0;
}

void job_pod_event_send(struct populate *p, struct key_state *m, const struct api_volume *volume, enum job_slot slot,
                        const json *job)
{
    struct pod_search s = {.job_uid = json_str_at(job, "metadata.uid")};
    if (!m || !s.job_uid.len)
        return;
    (void)kube_informer_each(p->job_pods, 0, str_of(volume->meta.name), pod_found, &s);
    if (!s.trouble.reason || s.hash == m->job_troubles[slot])
        return;
    m->job_troubles[slot] = s.hash;
    m->pods_reason = NULL; /* likewise */
    volume_event_send_trouble(p, m, volume, &s.trouble);
}

/* ---- the watches ------------------------------------------------------------------------------------------------- */

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

static void prime_event_changed(void *ctx, struct str, const json *event)
{
    struct str uid;
    if (read_target(event, &uid))
        populate_enqueue(ctx, 'c', uid);
}

static void job_event_changed(void *ctx, struct str, const json *event)
{
    struct populate *p = ctx;
    auto_json job = kube_informer_get(p->jobs, str_of(p->o.job.ns), json_str_at(event, "involvedObject.name"));
    struct str order = json_member_str(json_at(job, "metadata.annotations"), JOB_ANNOTATION_ORDER);
    if (order.len)
        populate_enqueue(p, 'v', order);
}

static struct str order_of(const json *pod)
{
    return json_member_str(json_at(pod, "metadata.annotations"), JOB_ANNOTATION_ORDER);
}

static void pod_changed(void *ctx, struct str, const json *pod)
{
    if (order_of(pod).len)
        populate_enqueue(ctx, 'v', order_of(pod));
}

static void trim_pod(void *, json *pod)
{
    auto_mem char *node = str_dup(json_str_at(pod, "spec.nodeName"));
    json_remove(pod, "spec");
    json_set_str(pod, "spec.nodeName", str_of(node));
}

static void watch_failed(void *, const struct err *err, uint64_t)
{
    log_err(LOG_WARN, "events of Cistern's namespace cannot be watched", err, NULL);
}

void foreign_events_open(struct populate *p)
{
    struct kube_informer_options o = {.resource = &kube_events_resource,
                                      .ns = str_of(p->o.job.ns),
                                      .field_selector =
                                          "involvedObject.kind=PersistentVolumeClaim,reason=ProvisioningFailed",
                                      .decides_nothing = true,
                                      .indexes = {{.value = index_target}},
                                      .ctx = p,
                                      .on_added = prime_event_changed,
                                      .on_updated = prime_event_changed,
                                      .on_error = watch_failed};
    p->prime_events = kube_informer_new(p->o.kube, &o);
    o.field_selector = "involvedObject.kind=Job,reason=FailedCreate";
    o.indexes[0] = (struct kube_index){"involvedObject", "uid"};
    o.on_added = o.on_updated = job_event_changed;
    p->job_events = kube_informer_new(p->o.kube, &o);
    p->job_pods = kube_informer_new(
        p->o.kube, &(struct kube_informer_options){.resource = &kube_pods,
                                                   .ns = str_of(p->o.job.ns),
                                                   .label_selector = JOB_LABEL,
                                                   .decides_nothing = true,
                                                   .indexes = {{"metadata.annotations", JOB_ANNOTATION_ORDER}},
                                                   .transform = trim_pod,
                                                   .ctx = p,
                                                   .on_added = pod_changed,
                                                   .on_updated = pod_changed,
                                                   .on_error = watch_failed});
}
