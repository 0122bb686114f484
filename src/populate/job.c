/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"
#include "util/clock.h"
#include "util/names.h"
#include <assert.h>
#include <stdio.h>

#define SETTLE_NS (30 * NS_PER_SECOND)

enum { JOB_NAME_MAX = 64 };

static enum job_kind kind_of(struct str label, struct str purpose)
{
    if (str_eq(label, STR("hold")))
        return JOB_HOLD;
    if (!str_eq(label, STR("export")))
        return JOB_HYDRATE;
    return str_eq(purpose, STR("release")) ? JOB_EXPORT_RELEASE : JOB_EXPORT_UNPUBLISH;
}

static const char *purpose_of(enum job_kind kind)
{
    static const char *const names[] = {"hydrate", "unpublish", "release", "hold"};
    return names[kind];
}

static int read_end(const json *j, struct volume_job *ret, struct err *err)
{
    const json *conditions = json_at(j, "status.conditions");
    struct str type, status;
    for (size_t i = 0; i < json_count(conditions); i++) {
        const json *c = json_item(conditions, i);
        int r = json_strings(c, err, {"type", &type}, {"status", &status});
        if (r < 0)
            return r;
        bool ended = str_eq(type, STR("Complete")), broke = str_eq(type, STR("Failed"));
        if (!str_eq(status, STR("True")) || (!ended && !broke))
            continue;
        ret->end = ended ? JOB_ENDED : JOB_BROKE;
        return 0;
    }
    return 0;
}

int job_read(const json *j, struct volume_job *ret, struct err *err)
{
    struct volume_job job = {0};
    struct str deleted = STR_NULL;
    int r = json_strings(j, err, {"metadata.name", &job.name}, {"?metadata.uid", &job.uid},
                         {"?metadata.deletionTimestamp", &deleted});
    if (r == 0)
        r = read_end(j, &job, err);
    if (r < 0)
        return err_wrap(err, "job");
    const json *annotations = json_at(j, "metadata.annotations");
    job.order = json_member_str(annotations, JOB_ANNOTATION_ORDER);
    job.kind = kind_of(json_member_str(json_at(j, "metadata.labels"), JOB_LABEL),
                       json_member_str(annotations, JOB_ANNOTATION_PURPOSE));
    job.deleting = deleted.len > 0;
    job.lets_drain = str_eq(json_member_str(json_at(j, "metadata.labels"), JOB_LABEL_DRAIN), STR("open"));
    *ret = job;
    return 0;
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

uint64_t job_wait_ns(enum job_kind kind, unsigned failures)
{
    uint64_t cap = (kind == JOB_HYDRATE ? 60 : 300) * NS_PER_SECOND;
    return failures < 10 ? min_u64(cap, NS_PER_SECOND << failures) : cap;
}

static struct job_step with_job(const struct job_facts *f)
{
    uint64_t left = f->ended_for_ns < SETTLE_NS ? SETTLE_NS - f->ended_for_ns : 0;
    switch (f->job->end) {
    case JOB_WORKS:
        /* Labels of a pod are fixed: start another Job. */
        return (struct job_step){.action = f->lets_drain && !f->job->lets_drain ? JOB_DELETE : JOB_LEAVE};
    case JOB_ENDED:
        if (f->job->kind != f->kind)
            return (struct job_step){.action = JOB_DELETE};
        /* Wait until the node reports the result; without a report the Job was not successful. */
        return left ? (struct job_step){.action = JOB_LEAVE, .again_ns = left}
                    : (struct job_step){.action = JOB_DELETE, .failed = true};
    case JOB_BROKE:
        break;
    }
    return (struct job_step){.action = JOB_DELETE, .failed = true};
}

struct job_step job_next(const struct job_facts *f)
{
    if (f->job && f->job->deleting)
        return (struct job_step){.action = JOB_LEAVE};
    if (!f->wanted)
        return (struct job_step){.action = f->job ? JOB_DELETE : JOB_LEAVE};
    if (f->job)
        return with_job(f);
    if (f->retry_left_ns)
        return (struct job_step){.action = JOB_LEAVE, .again_ns = f->retry_left_ns};
    return (struct job_step){.action = JOB_CREATE};
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define JSON(...) #__VA_ARGS__

/* The constant part of a Job.
 * podFailurePolicy: evicted and preempted pods do not count as failures. Any other failure ends the Job, because the
 * controller decides about retries.
 * podReplacementPolicy: two pods must not work in one directory.
 * tolerations: the volume is on this node only, whatever its taints. */
static const char job_template[] = JSON({
    "apiVersion": "batch/v1", "kind": "Job",
    "spec": {
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": {"spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 10,
            "tolerations": [{"operator": "Exists"}]}}}});

/* Without resource requests, so that it starts on a full node, too. */
static const char hold_template[] = JSON({
    "securityContext": {"runAsUser": 65532, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "seccompProfile": {"type": "RuntimeDefault"}}});

/* securityContext: files of a volume belong to any user, so the Job runs as root. It needs the capabilities for files,
 * and LEASE for read leases, by which an export finds files that are open for writing. With SYS_RESOURCE quotas would
 * not apply.
 * mountPropagation: for a disk image that is mounted on data/ while the Job runs. */
static const char work_template[] = JSON({
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "env": [],
    "securityContext": {"runAsUser": 0,
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "LEASE"]},
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "seccompProfile": {"type": "RuntimeDefault"}},
    "volumeMounts": [
        {"name": "volume", "mountPath": "/volume", "mountPropagation": "HostToContainer"},
        {"name": "broker", "mountPath": "/var/run/secrets/cistern.io/broker", "readOnly": true},
        {"name": "ca", "mountPath": "/var/run/secrets/cistern.io/ca", "readOnly": true}]});

/* Ends a Job that has been stopped for two minutes, or stuck for ten. The probe never fails because a Job waits. */
static const char probe_template[] = JSON({
    "initialDelaySeconds": 30, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 4});

/* hostPath.type: the directory must exist, so that no Job creates a deleted volume again.
 * optional: a public bucket needs no broker. */
static const char volumes_template[] = JSON([
    {"name": "volume", "hostPath": {"type": "Directory"}},
    {"name": "broker", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]}},
    {"name": "ca", "configMap": {"name": "cistern-broker-ca", "optional": true}}]);
/* clang-format on */

static json *parsed(const char *template)
{
    struct err err;
    json *j = NULL;
    int r = json_parse(str_of(template), "template", &j, &err);
    assert(r == 0);
    return j;
}

static void set_text(json *j, const char *path, const char *text)
{
    if (text)
        json_set_str(j, path, str_of(text));
}

static void set_member(json *object, const char *name, const char *text)
{
    if (text)
        json_set_member(object, name, json_new_str(str_of(text)));
}

static json *labels_json(const struct job_volume *v, enum job_kind kind)
{
    json *labels = json_new_object();
    set_member(labels, "app.kubernetes.io/name", "cistern");
    set_member(labels, "app.kubernetes.io/part-of", "cistern");
    set_member(labels, "app.kubernetes.io/component", "job");
    set_member(labels, JOB_LABEL, job_kind_verb(kind));
    set_member(labels, JOB_LABEL_VOLUME, v->id);
    set_member(labels, JOB_LABEL_DRAIN, v->lets_drain ? "open" : NULL);
    set_member(labels, JOB_LABEL_CLAIM, v->claim_uid);
    return labels;
}

static json *annotations_json(const struct job_volume *v, enum job_kind kind)
{
    json *annotations = json_new_object();
    set_member(annotations, JOB_ANNOTATION_ORDER, v->order);
    set_member(annotations, JOB_ANNOTATION_PURPOSE, purpose_of(kind));
    set_member(annotations, JOB_ANNOTATION_NODE, v->node);
    set_member(annotations, JOB_ANNOTATION_CLAIM, v->claim);
    /* Files that are not exported exist only on the node: the autoscaler must not delete it. */
    if (kind != JOB_HYDRATE && !v->lets_drain)
        set_member(annotations, "cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
    return annotations;
}

static json *new_item(json *array)
{
    json *item = json_new_object();
    json_append(array, item); /* the array owns it */
    return item;
}

static void add_env(json *env, const char *name, const char *value)
{
    json *e = new_item(env);
    set_text(e, "name", name);
    set_text(e, "value", value);
}

static json *words_json(const char *const *words)
{
    json *array = json_new_array();
    for (size_t i = 0; words[i]; i++)
        json_append_str(array, str_of(words[i]));
    return array;
}

static json *container_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    const char *words[JOB_KIND_WORDS_MAX];
    json *c = parsed(kind == JOB_HOLD ? hold_template : work_template);
    job_kind_command(kind, "cistern", "/volume", words);
    json_set(c, "command", words_json(words));
    set_text(c, "name", job_kind_verb(kind));
    set_text(c, "image", o->image);
    set_text(c, "imagePullPolicy", o->pull_policy);
    if (kind == JOB_HOLD)
        return c;
    json *probe = parsed(probe_template);
    json_set(probe, "exec.command",
             words_json((const char *[]){"cistern", "probe", job_kind_verb(kind), "/volume", NULL}));
    json_set(c, "livenessProbe", probe);
    json *env = (json *)json_at(c, "env");
    add_env(env, "CISTERN_BROKER_URL", o->broker_url);
    add_env(env, "CISTERN_BROKER_VOLUME", v->order);
    add_env(env, "CISTERN_BROKER_FOR", job_kind_verb(kind));
    /* If the file is missing, the default addresses are blocked. */
    add_env(env, "CISTERN_GUARD_FILE", "/var/run/secrets/cistern.io/ca/guard");
    set_text(c, "resources.requests.cpu", o->requests_cpu);
    set_text(c, "resources.requests.memory", o->requests_memory);
    set_text(c, "resources.limits.memory", o->limits_memory);
    return c;
}

/* nodeName bypasses the scheduler: the pod that waits for the claim has reserved its resources, and the Job might not
 * fit beside it. */
static void fill_pod(json *p, const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    json *containers = json_new_array();
    set_text(p, "nodeName", v->node);
    set_text(p, "serviceAccountName", o->account);
    set_text(p, "priorityClassName", o->priority_class);
    json_append(containers, container_json(o, v, kind));
    json_set(p, "containers", containers);
    if (o->pull_secret) {
        json *secrets = json_new_array();
        set_text(new_item(secrets), "name", o->pull_secret);
        json_set(p, "imagePullSecrets", secrets);
    }
    if (kind == JOB_HOLD)
        return;
    json *volumes = parsed(volumes_template);
    set_text((json *)json_item(volumes, 0), "hostPath.path", v->directory);
    set_text((json *)json_at(volumes, "1.projected.sources.0.serviceAccountToken"), "audience", NAME_AUDIENCE_BROKER);
    json_set(p, "volumes", volumes);
}

json *job_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    char name[JOB_NAME_MAX];
    json *j = parsed(job_template);
    snprintf(name, sizeof name, "%s-%s", job_kind_verb(kind), v->id);
    set_text(j, "metadata.name", name);
    set_text(j, "metadata.namespace", o->ns);
    json_set(j, "metadata.labels", labels_json(v, kind));
    json_set(j, "metadata.annotations", annotations_json(v, kind));
    json_set_u64(j, "spec.backoffLimit", o->backoff_limit);
    json_set_u64(j, "spec.ttlSecondsAfterFinished", o->ttl_seconds);
    json_set(j, "spec.template.metadata.labels", labels_json(v, kind));
    json_set(j, "spec.template.metadata.annotations", annotations_json(v, kind));
    fill_pod((json *)json_at(j, "spec.template.spec"), o, v, kind);
    return j;
}
