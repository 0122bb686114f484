/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"
#include "util/clock.h"
#include "util/names.h"
#include <stdio.h>

#define SETTLE_NS (30 * NS_PER_SECOND)

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

static int read_end(const json *j, struct job *ret, struct err *err)
{
    const json *conditions = json_at(j, "status.conditions");
    struct str type, status;
    for (size_t i = 0; i < json_count(conditions); i++) {
        const json *c = json_item(conditions, i);
        int r = json_get_str(c, "type", &type, err);
        if (r == 0)
            r = json_get_str(c, "status", &status, err);
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

int job_read(const json *j, struct job *ret, struct err *err)
{
    struct job job = {0};
    struct str deleted = STR_NULL;
    int r = json_get_str(j, "metadata.name", &job.name, err);
    if (r == 0)
        r = json_opt_str(j, "metadata.uid", &job.uid, err);
    if (r == 0)
        r = json_opt_str(j, "metadata.deletionTimestamp", &deleted, err);
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
        /* Its pod's labels are for good: the next one has others. */
        return (struct job_step){.action = f->lets_drain && !f->job->lets_drain ? JOB_DELETE : JOB_LEAVE};
    case JOB_ENDED:
        if (f->job->kind != f->kind)
            return (struct job_step){.action = JOB_DELETE};
        /* The node has yet to tell what it achieved; if it tells nothing, it was not enough. */
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

#define BROKER_FOLDER "/var/run/secrets/cistern.io/broker"
#define CA_FOLDER "/var/run/secrets/cistern.io/ca"
#define VOLUME_FOLDER "/volume"

char *job_object_name(enum job_kind kind, const char *volume_id, char ret[JOB_NAME_MAX])
{
    snprintf(ret, JOB_NAME_MAX, "%s-%s", work_verb(kind), volume_id);
    return ret;
}

static void set_text(json *j, const char *path, const char *text)
{
    if (text)
        json_set_str(j, path, str_of(text));
}

static json *new_item(json *array)
{
    json *item = json_new_object();
    json_append(array, item); /* the array's, and ours to fill */
    return item;
}

static json *labels_json(const struct job_volume *v, enum job_kind kind)
{
    json *labels = json_new_object();
    json_set_member(labels, "app.kubernetes.io/name", json_new_str(STR("cistern")));
    json_set_member(labels, "app.kubernetes.io/part-of", json_new_str(STR("cistern")));
    json_set_member(labels, "app.kubernetes.io/component", json_new_str(STR("job")));
    json_set_member(labels, JOB_LABEL, json_new_str(str_of(work_verb(kind))));
    json_set_member(labels, JOB_LABEL_VOLUME, json_new_str(str_of(v->id)));
    if (v->lets_drain)
        json_set_member(labels, JOB_LABEL_DRAIN, json_new_str(STR("open")));
    if (v->claim_uid)
        json_set_member(labels, JOB_LABEL_CLAIM, json_new_str(str_of(v->claim_uid)));
    return labels;
}

static json *annotations_json(const struct job_volume *v, enum job_kind kind)
{
    json *annotations = json_new_object();
    json_set_member(annotations, JOB_ANNOTATION_ORDER, json_new_str(str_of(v->order)));
    json_set_member(annotations, JOB_ANNOTATION_PURPOSE, json_new_str(str_of(purpose_of(kind))));
    json_set_member(annotations, JOB_ANNOTATION_NODE, json_new_str(str_of(v->node)));
    if (v->claim)
        json_set_member(annotations, "cistern.io/claim", json_new_str(str_of(v->claim)));
    /* What is not in the bucket yet exists nowhere else: the node is not scaled away under an export. */
    if (kind != JOB_HYDRATE && !v->lets_drain)
        json_set_member(annotations, "cluster-autoscaler.kubernetes.io/safe-to-evict", json_new_str(STR("false")));
    return annotations;
}

static void add_env(json *container, const char *name, const char *value)
{
    json *env = (json *)json_at(container, "env");
    if (!env)
        json_set(container, "env", env = json_new_array());
    json *e = new_item(env);
    set_text(e, "name", name);
    set_text(e, "value", value);
}

static void add_mount(json *mounts, const char *name, const char *path, bool read_only)
{
    json *m = new_item(mounts);
    set_text(m, "name", name);
    set_text(m, "mountPath", path);
    if (read_only)
        json_set_bool(m, "readOnly", true);
    else /* an image that is mounted on data/ while we run is seen */
        set_text(m, "mountPropagation", "HostToContainer");
}

static json *mounts_json(void)
{
    json *mounts = json_new_array();
    add_mount(mounts, "volume", VOLUME_FOLDER, false);
    add_mount(mounts, "broker", BROKER_FOLDER, true);
    add_mount(mounts, "ca", CA_FOLDER, true);
    return mounts;
}

/* What no Job may, and what each is. */
static json *security_json(uint64_t user)
{
    json *s = json_new_object(), *drop = json_new_array();
    json_append_str(drop, STR("ALL"));
    json_set_u64(s, "runAsUser", user);
    json_set_bool(s, "allowPrivilegeEscalation", false);
    json_set_bool(s, "readOnlyRootFilesystem", true);
    json_set(s, "capabilities.drop", drop);
    json_set_str(s, "seccompProfile.type", STR("RuntimeDefault"));
    return s;
}

/* Files of a volume belong to whomever the pod runs as, so the work is root's; of root's rights it needs those over
 * files, and the read lease by which an export knows that nobody writes. Not CAP_SYS_RESOURCE: with it, a quota would
 * be no limit. */
static json *security_of_work_json(void)
{
    static const char *const capabilities[] = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "LEASE"};
    json *s = security_json(0), *add = json_new_array();
    for (size_t i = 0; i < countof(capabilities); i++)
        json_append_str(add, str_of(capabilities[i]));
    json_set(s, "capabilities.add", add);
    return s;
}

static json *command_json(enum job_kind kind)
{
    const char *words[WORK_WORDS_MAX];
    json *command = json_new_array();
    work_command(kind, "cistern", VOLUME_FOLDER, words);
    for (size_t i = 0; words[i]; i++)
        json_append_str(command, str_of(words[i]));
    return command;
}

/* Nothing is asked for: a node that is full is held as well. */
static void add_what_holds(json *c)
{
    json *s = security_json(65532);
    json_set_bool(s, "runAsNonRoot", true);
    json_set(c, "securityContext", s);
}

static void add_what_works(json *c, const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    add_env(c, "CISTERN_BROKER_URL", o->broker_url);
    add_env(c, "CISTERN_BROKER_VOLUME", v->order);
    add_env(c, "CISTERN_BROKER_FOR", work_verb(kind));
    add_env(c, "CISTERN_GUARD_FILE", CA_FOLDER "/guard"); /* missing, it closes what is always closed */
    set_text(c, "resources.requests.cpu", o->requests_cpu);
    set_text(c, "resources.requests.memory", o->requests_memory);
    set_text(c, "resources.limits.memory", o->limits_memory);
    set_text(c, "terminationMessagePolicy", "FallbackToLogsOnError");
    json_set(c, "securityContext", security_of_work_json());
    json_set(c, "volumeMounts", mounts_json());
}

static json *container_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    json *c = json_new_object();
    set_text(c, "name", work_verb(kind));
    set_text(c, "image", o->image);
    set_text(c, "imagePullPolicy", o->pull_policy);
    json_set(c, "command", command_json(kind));
    if (kind == JOB_HOLD)
        add_what_holds(c);
    else
        add_what_works(c, o, v, kind);
    return c;
}

static json *volumes_json(const struct job_volume *v)
{
    json *volumes = json_new_array();
    json *volume = new_item(volumes), *broker = new_item(volumes), *ca = new_item(volumes);
    set_text(volume, "name", "volume");
    set_text(volume, "hostPath.path", v->folder);
    set_text(volume, "hostPath.type", "Directory"); /* never make one: a volume that is gone stays gone */
    set_text(broker, "name", "broker");
    json *sources = json_new_array(), *token = new_item(sources);
    set_text(token, "serviceAccountToken.audience", NAME_AUDIENCE_BROKER);
    set_text(token, "serviceAccountToken.path", "token");
    json_set_u64(token, "serviceAccountToken.expirationSeconds", 3600);
    json_set(broker, "projected.sources", sources);
    set_text(ca, "name", "ca");
    set_text(ca, "configMap.name", "cistern-broker-ca");
    json_set_bool(ca, "configMap.optional", true); /* a public bucket, or none, needs no broker */
    return volumes;
}

/* The node is named, not scheduled: a pod that waits for its claim holds its requests already, and one that has to be
 * scheduled beside it might never fit. Whatever taints the node has: the volume is there and nowhere else. */
static json *pod_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    json *p = json_new_object(), *containers = json_new_array(), *tolerations = json_new_array();
    set_text(p, "nodeName", v->node);
    set_text(p, "restartPolicy", "Never");
    set_text(p, "serviceAccountName", o->account);
    json_set_bool(p, "automountServiceAccountToken", false);
    set_text(p, "priorityClassName", o->priority_class);
    json_set_u64(p, "terminationGracePeriodSeconds", 10);
    set_text(new_item(tolerations), "operator", "Exists");
    json_set(p, "tolerations", tolerations);
    if (o->pull_secret) {
        json *secrets = json_new_array();
        set_text(new_item(secrets), "name", o->pull_secret);
        json_set(p, "imagePullSecrets", secrets);
    }
    json_append(containers, container_json(o, v, kind));
    json_set(p, "containers", containers);
    if (kind != JOB_HOLD)
        json_set(p, "volumes", volumes_json(v));
    return p;
}

/* A pod that was evicted or preempted is no failure; everything else ends the Job, so that it is we who decide when to
 * try again. No second pod before the first one's end: two would meet in one folder. */
static json *failure_policy_json(void)
{
    json *policy = json_new_object(), *rules = json_new_array(), *conditions = json_new_array();
    json *rule = new_item(rules), *condition = new_item(conditions);
    set_text(condition, "type", "DisruptionTarget");
    set_text(condition, "status", "True");
    set_text(rule, "action", "Ignore");
    json_set(rule, "onPodConditions", conditions);
    json_set(policy, "rules", rules);
    return policy;
}

json *job_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind)
{
    char name[JOB_NAME_MAX];
    json *j = json_new_object();
    set_text(j, "apiVersion", "batch/v1");
    set_text(j, "kind", "Job");
    set_text(j, "metadata.name", job_object_name(kind, v->id, name));
    set_text(j, "metadata.namespace", o->ns);
    json_set(j, "metadata.labels", labels_json(v, kind));
    json_set(j, "metadata.annotations", annotations_json(v, kind));
    json_set_u64(j, "spec.backoffLimit", o->backoff_limit);
    json_set_u64(j, "spec.ttlSecondsAfterFinished", o->ttl_seconds);
    set_text(j, "spec.podReplacementPolicy", "Failed");
    json_set(j, "spec.podFailurePolicy", failure_policy_json());
    json_set(j, "spec.template.metadata.labels", labels_json(v, kind));
    json_set(j, "spec.template.metadata.annotations", annotations_json(v, kind));
    json_set(j, "spec.template.spec", pod_json(o, v, kind));
    return j;
}
