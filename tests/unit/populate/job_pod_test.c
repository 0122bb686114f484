/* SPDX-License-Identifier: Apache-2.0 */
#include "job_pod.h"
#include "unit.h"
#include "util/clock.h"

/* Pods as kubelets of Kubernetes 1.34 report them; created at 2026-01-01T00:00:00Z. */
static const struct pod_row {
    const char *status;
    unsigned age_s;
    const char *reason, *text; /* NULL: no trouble */
} rows[] = {
    {"{\"phase\":\"Running\",\"containerStatuses\":[{\"state\":{\"running\":{}}}]}", 900, NULL, NULL},
    {"{\"phase\":\"Succeeded\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"reason\":\"Completed\"}}}]}", 9,
     NULL, NULL},
    {"{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"reason\":\"Error\",\"exitCode\":5}}}]"
     "}",
     9, NULL, NULL},
    {"{\"phase\":\"Pending\"}", 110, NULL, NULL},
    {"{\"phase\":\"Pending\"}", 130, "JobNotStarted", "two minutes on node n1: the kubelet does not answer"},
    {"{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":\"ContainerCreating\"}}}]}",
     130, "JobNotStarted", "has not started for two minutes on node n1: ContainerCreating"},
    {"{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":\"ImagePullBackOff\","
     "\"message\":"
     "\"Back-off pulling image\"}}}]}",
     1, "JobNotStarted", "does not start on node n1: ImagePullBackOff: Back-off pulling image"},
    {"{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":\"ErrImagePull\",\"message\":"
     "\"rpc error: code = Unknown desc = failed to pull and unpack image \\\"registry.example/cistern:0.1.0\\\": "
     "failed to "
     "resolve reference \\\"registry.example/cistern:0.1.0\\\": unexpected status from HEAD request to "
     "https://registry.example/v2/cistern/manifests/0.1.0: 401 Unauthorized\"}}}]}",
     1, "JobNotStarted", "0.1.0: 401 Unauthorized"},
    {"{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"reason\":\"OOMKilled\",\"exitCode\":"
     "137}}}]}",
     9, "JobFailed", "was killed on node n1: OOMKilled: an administrator can raise populate.resources.limits.memory"},
    {"{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"reason\":\"Error\",\"exitCode\":137}}}"
     "]"
     "}",
     9, "JobFailed", "was killed on node n1: its liveness probe failed, or a signal from outside"},
    {"{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"The node was low on resource: memory.\","
     "\"containerStatuses\":[{\"state\":{\"terminated\":{\"reason\":\"Error\",\"exitCode\":137}}}]}",
     9, "JobFailed", "was ended on node n1: Evicted: The node was low on resource"},
    {"{\"phase\":\"Failed\",\"reason\":\"OutOfpods\",\"message\":\"Pod was rejected: Node didn't have enough "
     "resource\"}",
     1, "JobFailed", "was ended on node n1: OutOfpods: Pod was rejected"},
};

static bool read_trouble(const char *status_text, unsigned age_s, struct populate_event *ret)
{
    struct err err;
    int64_t created_ns;
    auto_json pod = NULL;
    auto_json status = NULL;
    struct str text =
        STR("{\"metadata\":{\"creationTimestamp\":\"2026-01-01T00:00:00Z\"},\"spec\":{\"nodeName\":\"n1\"}}");
    *ret = (struct populate_event){0};
    assert_int_equal(time_parse(STR("2026-01-01T00:00:00Z"), &created_ns, &err), 0);
    assert_int_equal(json_parse(text, "pod", &pod, &err), 0);
    assert_int_equal(json_parse(str_of(status_text), "status", &status, &err), 0);
    json_set(pod, "status", json_copy_of(status));
    return job_pod_trouble(pod, created_ns + age_s * (int64_t)NS_PER_SECOND, ret);
}

static void pod_that_does_not_run_has_its_cause_and_another_has_none(void **state)
{
    (void)state;
    for (const struct pod_row *r = rows; r < rows + countof(rows); r++) {
        struct populate_event e;
        bool found = read_trouble(r->status, r->age_s, &e);
        if (found != (r->reason != NULL))
            fail_msg("%s: %d", r->status, found);
        if (!found)
            continue;
        assert_string_equal(e.reason, r->reason);
        if (!e.warning || !strstr(e.text, r->text))
            fail_msg("%s: %s", r->status, e.text);
    }
}

static uint64_t hash_of(const char *pod, const char *status, unsigned age_s)
{
    struct populate_event e;
    assert_true(read_trouble(status, age_s, &e));
    return job_pod_trouble_hash(str_of(pod), &e);
}

static void trouble_is_the_same_while_the_kubelet_alternates_its_causes(void **state)
{
    (void)state;
    static const char *const pulls =
        "{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":\"ErrImagePull\"}}}]}";
    static const char *const waits =
        "{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":\"ImagePullBackOff\"}}}]}";
    static const char *const failed = "{\"phase\":\"Failed\",\"reason\":\"OutOfpods\"}";
    uint64_t first = hash_of("pod-1", pulls, 1);
    assert_true(hash_of("pod-1", waits, 1) == first);
    assert_true(hash_of("pod-2", pulls, 1) != first);
    assert_true(hash_of("pod-1", failed, 1) != first);
    /* The kubelet reports a cause after two minutes without one. */
    assert_true(hash_of("pod-1", "{\"phase\":\"Pending\"}", 130) != first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pod_that_does_not_run_has_its_cause_and_another_has_none),
        cmocka_unit_test(trouble_is_the_same_while_the_kubelet_alternates_its_causes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
