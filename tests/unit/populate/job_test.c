/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"
#include "unit.h"
#include "util/clock.h"

static void next_is(const struct job_facts *f, enum job_action action, bool failed)
{
    struct job_step s = job_next(f);
    assert_int_equal(s.action, action);
    assert_int_equal(s.failed, failed);
}

static void a_job_is_made_when_it_is_wanted_and_removed_when_it_is_not(void **state)
{
    (void)state;
    struct volume_job job = {.kind = JOB_HYDRATE, .end = JOB_WORKS};
    struct job_facts f = {.wanted = true};
    next_is(&f, JOB_CREATE, false);
    f.job = &job;
    next_is(&f, JOB_LEAVE, false);
    f.wanted = false;
    next_is(&f, JOB_DELETE, false);
    job.deleting = true;
    next_is(&f, JOB_LEAVE, false);
    f.wanted = true; /* not a second one beside it */
    next_is(&f, JOB_LEAVE, false);
    f.job = NULL;
    f.wanted = false;
    next_is(&f, JOB_LEAVE, false);
}

static void a_try_that_failed_is_made_again_but_not_at_once(void **state)
{
    (void)state;
    struct volume_job job = {.kind = JOB_HYDRATE, .end = JOB_BROKE};
    struct job_facts f = {.wanted = true, .job = &job};
    next_is(&f, JOB_DELETE, true);
    f.job = NULL;
    f.retry_left_ns = 3 * NS_PER_SECOND;
    struct job_step s = job_next(&f);
    assert_int_equal(s.action, JOB_LEAVE);
    assert_int_equal(s.again_ns, 3 * NS_PER_SECOND);
    f.retry_left_ns = 0;
    next_is(&f, JOB_CREATE, false);
}

static void the_wait_doubles_up_to_a_minute_or_to_five(void **state)
{
    (void)state;
    assert_int_equal(job_wait_ns(JOB_HYDRATE, 0), NS_PER_SECOND);
    assert_int_equal(job_wait_ns(JOB_HYDRATE, 1), 2 * NS_PER_SECOND);
    assert_int_equal(job_wait_ns(JOB_HYDRATE, 6), 60 * NS_PER_SECOND);
    assert_int_equal(job_wait_ns(JOB_HYDRATE, 4000000000u), 60 * NS_PER_SECOND);
    assert_int_equal(job_wait_ns(JOB_EXPORT_RELEASE, 4000000000u), 300 * NS_PER_SECOND);
}

static void a_job_that_ended_waits_for_the_nodes_word(void **state)
{
    (void)state;
    struct volume_job job = {.kind = JOB_HYDRATE, .end = JOB_ENDED};
    struct job_facts f = {.wanted = true, .ended_for_ns = 10 * NS_PER_SECOND, .job = &job};
    struct job_step s = job_next(&f);
    assert_int_equal(s.action, JOB_LEAVE);
    assert_int_equal(s.again_ns, 20 * NS_PER_SECOND);
    f.ended_for_ns = 30 * NS_PER_SECOND;
    next_is(&f, JOB_DELETE, true);
    f.wanted = false; /* the volume's status has the result */
    next_is(&f, JOB_DELETE, false);
}

static void an_export_for_release_waits_for_one_that_runs_and_follows_it(void **state)
{
    (void)state;
    struct volume_job job = {.kind = JOB_EXPORT_UNPUBLISH, .end = JOB_WORKS};
    struct job_facts f = {.wanted = true, .kind = JOB_EXPORT_RELEASE, .job = &job};
    next_is(&f, JOB_LEAVE, false);
    job.end = JOB_ENDED;
    next_is(&f, JOB_DELETE, false);
}

/* ---- the objects ------------------------------------------------------------------------------------------------- */

static const struct job_options options = {.ns = "cistern-system",
                                           .image = "cistern:1",
                                           .account = "cistern-job",
                                           .priority_class = "cistern-job",
                                           .broker_url = "https://b",
                                           .requests_cpu = "10m",
                                           .requests_memory = "64Mi",
                                           .limits_memory = "512Mi",
                                           .ttl_seconds = 300};
static const struct job_volume volume = {.id = "v1-0123456789ab-0123456789ab",
                                         .order = "pvc-1",
                                         .claim = "train/weights",
                                         .claim_uid = "u1",
                                         .node = "n1",
                                         .directory = "/pool/volumes/v1-0123456789ab-0123456789ab"};

static void has_text(const json *j, const char *path, const char *wanted)
{
    struct str text;
    struct err err;
    if (json_get_str(j, path, &text, &err) < 0)
        fail_msg("%s", err.text);
    if (!str_eq(text, str_of(wanted)))
        fail_msg("%s is '%.*s'", path, STR_FMT(text));
}

static void a_job_runs_on_the_volumes_node_in_its_directory_with_access_to_the_broker_only(void **state)
{
    (void)state;
    struct err err;
    bool mounts_token = true;
    auto_json j = job_json(&options, &volume, JOB_HYDRATE);
    has_text(j, "metadata.name", "hydrate-v1-0123456789ab-0123456789ab");
    const json *pod = json_at(j, "spec.template.spec");
    has_text(pod, "nodeName", "n1");
    has_text(pod, "restartPolicy", "Never");
    has_text(pod, "priorityClassName", "cistern-job");
    assert_int_equal(json_get_bool(pod, "automountServiceAccountToken", &mounts_token, &err), 0);
    assert_false(mounts_token);
    has_text(pod, "volumes.0.hostPath.path", "/pool/volumes/v1-0123456789ab-0123456789ab");
    has_text(pod, "volumes.0.hostPath.type", "Directory");
    has_text(pod, "volumes.1.projected.sources.0.serviceAccountToken.audience", "cistern-broker");
    has_text(pod, "containers.0.command.1", "hydrate");
    has_text(pod, "containers.0.command.4", "/volume");
    has_text(pod, "containers.0.env.1.value", "pvc-1");
    has_text(pod, "containers.0.env.3.name", "CISTERN_GUARD_FILE");
    has_text(pod, "containers.0.env.3.value", "/var/run/secrets/cistern.io/ca/guard");
    has_text(pod, "containers.0.volumeMounts.2.mountPath", "/var/run/secrets/cistern.io/ca");
    has_text(pod, "volumes.2.configMap.name", "cistern-broker-ca");
    has_text(pod, "containers.0.securityContext.capabilities.drop.0", "ALL");
    has_text(pod, "containers.0.livenessProbe.exec.command.1", "probe");
    has_text(pod, "containers.0.livenessProbe.exec.command.2", "hydrate");
    has_text(pod, "containers.0.livenessProbe.exec.command.3", "/volume");
    has_text(j, "spec.podFailurePolicy.rules.0.onPodConditions.0.type", "DisruptionTarget");
}

static void an_export_holds_its_node(void **state)
{
    (void)state;
    auto_json j = job_json(&options, &volume, JOB_EXPORT_RELEASE);
    auto_json h = job_json(&options, &volume, JOB_HYDRATE);
    const json *annotations = json_at(j, "spec.template.metadata.annotations");
    assert_true(str_eq(json_member_str(annotations, "cluster-autoscaler.kubernetes.io/safe-to-evict"), STR("false")));
    assert_true(str_eq(json_member_str(json_at(j, "spec.template.metadata.labels"), JOB_LABEL), STR("export")));
    has_text(j, "spec.template.spec.containers.0.command.6", "release");
    assert_null(json_member(json_at(h, "spec.template.metadata.annotations"),
                            "cluster-autoscaler.kubernetes.io/safe-to-evict"));
}

static void a_drain_hold_job_has_no_volume_and_no_token(void **state)
{
    (void)state;
    auto_json j = job_json(&options, &volume, JOB_HOLD);
    const json *pod = json_at(j, "spec.template.spec");
    has_text(j, "metadata.name", "hold-v1-0123456789ab-0123456789ab");
    assert_true(str_eq(json_member_str(json_at(j, "spec.template.metadata.labels"), JOB_LABEL), STR("hold")));
    assert_true(str_eq(json_member_str(json_at(j, "spec.template.metadata.annotations"),
                                       "cluster-autoscaler.kubernetes.io/safe-to-evict"),
                       STR("false")));
    has_text(pod, "nodeName", "n1");
    has_text(pod, "containers.0.command.1", "hold");
    assert_int_equal(json_count(json_at(pod, "containers.0.command")), 2);
    assert_null(json_at(pod, "volumes"));
    assert_null(json_at(pod, "containers.0.volumeMounts"));
    assert_null(json_at(pod, "containers.0.env"));
    assert_null(json_at(pod, "containers.0.resources"));
    assert_null(json_at(pod, "containers.0.livenessProbe"));
}

static void a_written_job_is_read_back_equal(void **state)
{
    (void)state;
    static const enum job_kind kinds[] = {JOB_HYDRATE, JOB_EXPORT_UNPUBLISH, JOB_EXPORT_RELEASE, JOB_HOLD};
    struct err err;
    struct volume_job job;
    for (size_t i = 0; i < countof(kinds); i++) {
        auto_json j = job_json(&options, &volume, kinds[i]);
        assert_int_equal(job_read(j, &job, &err), 0);
        assert_int_equal(job.kind, kinds[i]);
        assert_int_equal(job.end, JOB_WORKS);
        assert_true(str_eq(job.order, STR("pvc-1")));
    }
}

static void how_it_ended_is_read_from_its_conditions(void **state)
{
    (void)state;
    struct err err;
    struct volume_job job;
    auto_json j = NULL;
    assert_int_equal(
        json_parse(STR("{\"metadata\":{\"name\":\"x\"},\"status\":{\"conditions\":["
                       "{\"type\":\"FailureTarget\",\"status\":\"True\"},"
                       "{\"type\":\"Complete\",\"status\":\"False\"},"
                       "{\"type\":\"Failed\",\"status\":\"True\",\"lastTransitionTime\":\"1970-01-01T00:00:05Z\"}]}}"),
                   "job", &j, &err),
        0);
    assert_int_equal(job_read(j, &job, &err), 0);
    assert_int_equal(job.end, JOB_BROKE);
    json_set_str(j, "metadata.deletionTimestamp", STR("1970-01-01T00:00:05Z"));
    assert_int_equal(job_read(j, &job, &err), 0);
    assert_true(job.deleting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_made_when_it_is_wanted_and_removed_when_it_is_not),
        cmocka_unit_test(a_try_that_failed_is_made_again_but_not_at_once),
        cmocka_unit_test(the_wait_doubles_up_to_a_minute_or_to_five),
        cmocka_unit_test(a_job_that_ended_waits_for_the_nodes_word),
        cmocka_unit_test(an_export_for_release_waits_for_one_that_runs_and_follows_it),
        cmocka_unit_test(a_job_runs_on_the_volumes_node_in_its_directory_with_access_to_the_broker_only),
        cmocka_unit_test(an_export_holds_its_node),
        cmocka_unit_test(a_drain_hold_job_has_no_volume_and_no_token),
        cmocka_unit_test(a_written_job_is_read_back_equal),
        cmocka_unit_test(how_it_ended_is_read_from_its_conditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
