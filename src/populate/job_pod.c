/* SPDX-License-Identifier: Apache-2.0 */
#include "job_pod.h"
#include "util/clock.h"
#include <stdio.h>

/* Pulling the image and mounting the volumes take less on a working node. */
#define START_NS (120 * (int64_t)NS_PER_SECOND)

/* Of the kubelet's texts. Its messages end with the cause. With the longest name of a node both fit into an event. */
enum { REASON_MAX = 60, CAUSE_MAX = 600 };

enum { EXIT_KILLED = 128 + 9 };

static bool says(struct populate_event *ret, const char *reason, const char *what, const json *pod, struct str cause,
                 struct str message)
{
    *ret = (struct populate_event){.warning = true, .reason = reason};
    snprintf(ret->text, sizeof ret->text, "its Job %s node %.*s: %.*s%s%.*s", what,
             STR_FMT(json_str_at(pod, "spec.nodeName")), STR_FMT(str_cut(cause, REASON_MAX)), message.len ? ": " : "",
             STR_FMT(str_cut(message, CAUSE_MAX)));
    return true;
}

static bool waits_for_long(const json *pod, int64_t now_ns)
{
    int64_t since_ns;
    return time_parse(json_str_at(pod, "metadata.creationTimestamp"), &since_ns, ERR_IGNORED) == 0 &&
           now_ns - since_ns > START_NS;
}

static bool is_starting(struct str reason)
{
    return reason.len == 0 || str_eq(reason, STR("ContainerCreating")) || str_eq(reason, STR("PodInitializing"));
}

bool job_pod_trouble(const json *pod, int64_t now_ns, struct populate_event *ret)
{
    struct str phase = json_str_at(pod, "status.phase"), reason = json_str_at(pod, "status.reason");
    const json *state = json_at(json_item(json_at(pod, "status.containerStatuses"), 0), "state");
    struct str waits = json_str_at(state, "waiting.reason"), ended = json_str_at(state, "terminated.reason");
    if (str_eq(ended, STR("OOMKilled")))
        return says(ret, "JobFailed", "was killed on", pod, ended,
                    STR("an administrator can raise populate.resources.limits.memory"));
    if (str_eq(phase, STR("Failed")) && reason.len)
        return says(ret, "JobFailed", "was ended on", pod, reason, json_str_at(pod, "status.message"));
    uint64_t exit_code = 0;
    bool is_deleted = json_str_at(pod, "metadata.deletionTimestamp").len > 0;
    if (!is_deleted && json_opt_u64(state, "terminated.exitCode", &exit_code, ERR_IGNORED) == 0 &&
        exit_code == EXIT_KILLED)
        return says(ret, "JobFailed", "was killed on", pod, STR("its liveness probe failed, or a signal from outside"),
                    STR_NULL);
    if (!str_eq(phase, STR("Pending")))
        return false;
    if (!is_starting(waits))
        return says(ret, "JobNotStarted", "does not start on", pod, waits, json_str_at(state, "waiting.message"));
    if (!waits_for_long(pod, now_ns))
        return false;
    return says(ret, "JobNotStarted", "has not started for two minutes on", pod,
                waits.len ? waits : STR("the kubelet does not answer"), STR_NULL);
}

/* The kubelet alternates between ErrImagePull and ImagePullBackOff: the text counts only up to the cause. */
uint64_t job_pod_trouble_hash(struct str pod, const struct populate_event *trouble)
{
    struct str text = str_of(trouble->text), what = STR_NULL;
    (void)str_split(&text, ':', &what);
    return str_hash(what, str_hash(pod, 0));
}
