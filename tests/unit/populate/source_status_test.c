/* SPDX-License-Identifier: Apache-2.0 */
#include "source_status.h"
#include "unit.h"
#include "util/clock.h"

#define SECOND ((int64_t)NS_PER_SECOND)
#define NOW (1000 * SECOND)

static const struct source_probe_result nobody_asks = {0};

static struct api_source *source_of(const char *spec)
{
    struct err err;
    struct api_source *s = NULL;
    auto_json j = NULL;
    auto_json parsed = NULL;
    assert_int_equal(json_parse(STR("{\"apiVersion\":\"cistern.io/v1alpha1\",\"kind\":\"BucketSource\",\"metadata\":"
                                    "{\"name\":\"llama\",\"namespace\":\"train\",\"uid\":\"s1\",\"generation\":3}}"),
                                "source", &j, &err),
                     0);
    assert_int_equal(json_parse(str_of(spec), "spec", &parsed, &err), 0);
    json_set(j, "spec", take(&parsed));
    assert_int_equal(api_source_read(j, &s, &err), 0);
    return s;
}

static void add(struct api_source *s, unsigned phase, int64_t started_ns, uint64_t bytes, const char *error_id,
                int64_t error_ns)
{
    auto_api_volume v = api_volume_new();
    v->meta.created_ns = 10 * SECOND;
    v->status.phase = phase;
    v->status.hydration.started_ns = started_ns;
    v->status.hydration.bytes_total = bytes;
    v->status.hydration.objects_total = bytes / 10;
    if (error_id)
        api_faults_add(&v->status.errors, "a/b", error_id, "DENIED", "refused", 1, error_ns);
    source_status_add(s, v);
}

static void is(const struct api_source *s, const char *type, enum api_truth status)
{
    const struct api_condition *c = api_condition_find(&s->status.conditions, type);
    assert_non_null(c);
    assert_int_equal(c->status, status);
}

static void an_unused_source_is_accepted_and_pending(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/70b/\",\"endpoint\":\"http://127.0.0.1:9\"}");
    source_status_begin(s);
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_PENDING);
    assert_int_equal(s->status.observed_generation, 3);
    is(s, API_ACCEPTED, API_TRUE);
    is(s, API_READY, API_UNKNOWN);
    assert_string_equal(s->status.resolved.scheme, "s3");
    assert_string_equal(s->status.resolved.bucket, "acme");
    assert_string_equal(s->status.resolved.prefix, "llama/70b/");
    assert_string_equal(s->status.identity.method, "auto");
    assert_int_equal(s->status.first_used_ns, 0);
}

static void a_source_that_selects_its_own_exports_is_accepted_with_a_warning(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/run/\",\"export\":{\"uri\":\"s3://acme/run/out/\"}}");
    source_status_begin(s);
    source_status_end(s, &nobody_asks, NOW);
    const struct api_condition *c = api_condition_find(&s->status.conditions, API_ACCEPTED);
    assert_int_equal(c->status, API_TRUE);
    assert_string_equal(c->reason, SOURCE_EXPORTS_INTO);
    assert_non_null(strstr(c->message, "export.uri is below s3://acme/run/: later volumes are filled with"));
}

static void volumes_are_counted_and_the_last_listing_is_kept(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    source_status_begin(s);
    add(s, API_PHASE_NONE, 0, 0, NULL, 0);
    add(s, API_PHASE_READY, 20 * SECOND, 2000, NULL, 0);
    add(s, API_PHASE_HYDRATING, 30 * SECOND, 3000, NULL, 0);
    add(s, API_PHASE_LISTING, 40 * SECOND, 77, NULL, 0); /* not whole yet */
    add(s, API_PHASE_FAILED, 10 * SECOND, 1000, NULL, 0);
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.volumes.pending, 1);
    assert_int_equal(s->status.volumes.hydrating, 2);
    assert_int_equal(s->status.volumes.ready, 1);
    assert_int_equal(s->status.volumes.failed, 1);
    assert_int_equal(s->status.listing.bytes, 3000);
    assert_int_equal(s->status.suggested_bytes, source_suggested_bytes(3000));
    assert_int_equal(s->status.phase, API_SOURCE_READY);
    assert_int_equal(s->status.first_used_ns, 10 * SECOND);
    is(s, API_READY, API_TRUE);

    source_status_begin(s); /* all volumes are gone; what is known of the bucket stays */
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.volumes.ready + s->status.volumes.failed, 0);
    assert_int_equal(s->status.listing.bytes, 3000);
    is(s, API_LISTED, API_TRUE);
}

static void the_last_listing_and_export_are_reported_whole_or_omitted(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    auto_api_volume v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->source = str_dup(STR("{\"export\":{\"uri\":\"gs://out/run/\"}}"));
    v->status.phase = API_PHASE_READY;
    v->status.hydration = (struct api_hydration){.started_ns = 20 * SECOND,
                                                 .objects_total = 3,
                                                 .has_listing = true,
                                                 .excluded_objects = 2,
                                                 .largest_object_bytes = 70,
                                                 .listing_seconds = 1};
    v->status.export = (struct api_export){.done_objects = 4, .last_success_ns = 30 * SECOND};
    source_status_begin(s);
    source_status_add(s, v);
    source_status_end(s, &nobody_asks, NOW);
    auto_json told = api_source_status_json(s);
    auto_mem char *listing = json_text(json_at(told, "status.listing"), 0);
    assert_string_equal(listing, "{\"objects\":3,\"bytes\":0,\"listedAt\":\"1970-01-01T00:00:20.000Z\","
                                 "\"excludedObjects\":2,\"largestObjectBytes\":70,\"seconds\":1}");
    auto_mem char *last = json_text(json_at(told, "status.lastExport"), 0);
    assert_string_equal(last, "{\"volume\":\"pvc-1\",\"uri\":\"gs://out/run/\",\"objects\":4,"
                              "\"time\":\"1970-01-01T00:00:30.000Z\"}");
    v->status.hydration.started_ns++; /* a later one that was cut off and continued */
    v->status.hydration.has_listing = false;
    source_status_add(s, v);
    auto_json later = api_source_status_json(s);
    assert_null(json_at(later, "status.listing.seconds"));
}

static void identity_is_not_ready_after_any_error_of_credentials(void **state)
{
    (void)state;
    static const char *const ids[] = {"CIS1401", "CIS1403", "CIS1701", "CIS1901", "CIS1906", "CIS1911"};
    for (size_t i = 0; i < countof(ids); i++) {
        auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\",\"serviceAccountName\":\"trainer\"}");
        source_status_begin(s);
        add(s, API_PHASE_FAILED, 0, 0, ids[i], 30 * SECOND);
        source_status_end(s, &nobody_asks, NOW);
        is(s, API_IDENTITY_READY, API_FALSE);
    }
}

static void an_error_degrades_until_a_later_listing(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\",\"serviceAccountName\":\"trainer\"}");
    source_status_begin(s);
    add(s, API_PHASE_READY, 20 * SECOND, 2000, NULL, 0);
    add(s, API_PHASE_FAILED, 0, 0, "CIS1403", 30 * SECOND);
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_DEGRADED);
    is(s, API_IDENTITY_READY, API_FALSE);
    assert_string_equal(s->status.error.id, "CIS1403");
    assert_string_equal(s->status.identity.principal, "ns/train/sa/trainer");

    source_status_begin(s);
    add(s, API_PHASE_HYDRATING, 40 * SECOND, 2000, NULL, 0);
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_READY);
    is(s, API_IDENTITY_READY, API_TRUE);
    assert_null(s->status.error.id); /* a Ready source has no last error */
}

static void condition_reasons_say_what_the_store_said(void **state)
{
    (void)state;
    static const struct {
        enum err_id id;
        const char *condition, *reason;
    } rows[] = {{CIS_BUCKET_NOT_FOUND, API_REACHABLE, "BucketNotFound"},
                {CIS_STORE_UNREACHABLE, API_REACHABLE, "Unreachable"},
                {CIS_ADDRESS_BLOCKED, API_REACHABLE, "EndpointDenied"},
                {CIS_CREDENTIAL_NOT_FOR_ENDPOINT, API_REACHABLE, "EndpointDenied"},
                {CIS_ACCESS_DENIED, API_IDENTITY_READY, "Denied"},
                {CIS_SOURCE_EMPTY, API_LISTED, "SourceEmpty"},
                {CIS_KEY_NOT_FOUND, API_LISTED, "SourceEmpty"}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct err err;
        auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
        (void)!err_set(&err, ERR_NOT_FOUND, "no");
        (void)!err_advise_text(&err, rows[i].id, "do");
        const struct source_probe_result p = {.state = SOURCE_PROBED, .err = &err, .time_ns = 100 * SECOND};
        source_status_begin(s);
        source_status_end(s, &p, NOW);
        is(s, rows[i].condition, API_FALSE);
        assert_string_equal(api_condition_find(&s->status.conditions, rows[i].condition)->reason, rows[i].reason);
        assert_string_equal(api_condition_find(&s->status.conditions, API_READY)->reason, rows[i].reason);
    }
}

static void too_large_source_still_suggests_a_size(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    auto_api_volume v = api_volume_new();
    v->status.phase = API_PHASE_FAILED;
    v->status.hydration = (struct api_hydration){
        .started_ns = 20 * SECOND, .objects_total = 3, .bytes_total = UINT64_C(100) << 30, .has_listing = true};
    api_faults_add(&v->status.errors, NULL, "CIS1510", "NO_SPACE", "no", 1, 30 * SECOND);
    source_status_begin(s);
    source_status_add(s, v);
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_DEGRADED);
    assert_int_equal(s->status.suggested_bytes, source_suggested_bytes(UINT64_C(100) << 30));
    assert_string_equal(api_condition_find(&s->status.conditions, API_READY)->reason, "SourceTooLarge");
}

static void a_spec_that_is_not_served_is_invalid_and_says_why(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\",\"consistency\":\"versions\"}");
    source_status_begin(s);
    source_status_end(s, &nobody_asks, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_INVALID);
    is(s, API_ACCEPTED, API_FALSE);
    is(s, API_READY, API_FALSE);
    assert_non_null(strstr(api_condition_find(&s->status.conditions, API_ACCEPTED)->message, "consistency"));
    assert_non_null(strstr(s->status.error.message, "consistency")); /* the column LASTERROR */
}

static struct source_probe_result answered(int64_t time_ns)
{
    return (struct source_probe_result){.state = SOURCE_PROBED,
                                        .answer = {.has_identity = true,
                                                   .has_answered = true,
                                                   .method = "irsa",
                                                   .principal = "arn:aws:iam::1:role/reader",
                                                   .expires_ns = 5000 * SECOND},
                                        .time_ns = time_ns};
}

static void a_source_that_answers_is_ready_before_any_volume_of_it(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\",\"serviceAccountName\":\"trainer\"}");
    struct source_probe_result p = answered(100 * SECOND);
    source_status_begin(s);
    source_status_end(s, &p, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_READY);
    is(s, API_IDENTITY_READY, API_TRUE);
    is(s, API_REACHABLE, API_TRUE);
    is(s, API_LISTED, API_UNKNOWN); /* one key does not count as a listing */
    is(s, API_READY, API_TRUE);
    assert_string_equal(s->status.identity.method, "irsa");
    assert_string_equal(s->status.identity.principal, "arn:aws:iam::1:role/reader");
    assert_int_equal(s->status.identity.expires_ns, 5000 * SECOND);
}

static void a_refusal_is_one_error_however_often_it_is_heard(void **state)
{
    (void)state;
    struct err err;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    struct source_probe_result p = answered(100 * SECOND);
    err_set(&err, ERR_DENIED, "as reader: 403");
    (void)!err_advise_text(&err, 1403, "grant it");
    p.err = &err;
    p.answer.has_answered = false;
    for (int i = 0; i < 3; i++) {
        p.time_ns += 60 * SECOND;
        source_status_begin(s);
        source_status_end(s, &p, NOW);
    }
    assert_int_equal(s->status.phase, API_SOURCE_DEGRADED);
    assert_int_equal(s->status.error.time_ns, 160 * SECOND);
    assert_string_equal(s->status.error.id, "CIS1403");
    is(s, API_IDENTITY_READY, API_FALSE);
    is(s, API_REACHABLE, API_TRUE); /* it answered, though not as one would like */
    is(s, API_READY, API_FALSE);
    p = answered(400 * SECOND);
    source_status_begin(s);
    source_status_end(s, &p, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_READY);
    assert_null(s->status.error.id); /* a Ready source has no last error */
}

static void source_is_not_ready_while_exports_of_its_volumes_fail(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://bucket/\",\"export\":{\"uri\":\"s3://out/\"}}");
    const struct source_probe_result answered = {
        .state = SOURCE_PROBED, .answer = {.has_answered = true}, .time_ns = 5};
    static const char *const reasons[] = {"ExportFailed", "ExportStalled", "Exporting"};
    source_status_begin(s);
    for (size_t i = 0; i < countof(reasons); i++) {
        struct api_volume v = {.status.phase = API_PHASE_EXPORT_FAILED};
        api_condition_set(&v.status.conditions, API_EXPORTED, API_FALSE, reasons[i], 1, 1, "%s", "");
        source_status_add(s, &v);
        api_conditions_done(&v.status.conditions);
    }
    source_status_end(s, &answered, 10);
    const struct api_condition *ready = api_condition_find(&s->status.conditions, API_READY);
    assert_int_equal(ready->status, API_FALSE);
    assert_string_equal(ready->reason, "ExportFailed");
    assert_non_null(strstr(ready->message, "exports of 2 volumes failed"));
    assert_int_equal(s->status.phase, API_SOURCE_DEGRADED);
    source_status_begin(s);
    source_status_end(s, &answered, 11);
    assert_int_equal(api_condition_find(&s->status.conditions, API_READY)->status, API_TRUE);
    assert_int_equal(s->status.phase, API_SOURCE_READY);
}

static void identity_follows_the_spec_though_the_store_denies_both(void **state)
{
    (void)state;
    struct err err;
    auto_api_source before = source_of("{\"uri\":\"s3://acme/llama/\",\"serviceAccountName\":\"trainer\"}");
    auto_api_source after = source_of("{\"uri\":\"s3://acme/llama/\",\"secretRef\":{\"name\":\"keys\"}}");
    struct source_probe_result p = {.state = SOURCE_PROBED, .err = &err, .time_ns = 100 * SECOND};
    err_set(&err, ERR_DENIED, "no right");
    source_status_begin(before);
    source_status_end(before, &p, NOW);
    assert_string_equal(before->status.identity.principal, "ns/train/sa/trainer");
    struct api_source_status was = after->status; /* the same object, changed by its user */
    after->status = before->status;
    before->status = was;
    after->meta.generation = 4;
    source_status_begin(after);
    source_status_end(after, &p, NOW);
    assert_string_equal(after->status.identity.method, "secret");
    assert_string_equal(after->status.identity.principal, "ns/train/secret/keys");
}

static void an_answer_does_not_hide_a_volume_that_fails(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    struct source_probe_result p = answered(400 * SECOND);
    source_status_begin(s);
    add(s, API_PHASE_FAILED, 0, 0, "CIS1422", 30 * SECOND);
    source_status_end(s, &p, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_DEGRADED);
    is(s, API_REACHABLE, API_TRUE);
    source_status_begin(s); /* it was deleted */
    source_status_end(s, &p, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_READY);
}

static void a_probe_result_stays_until_the_next_leader_has_probed(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    struct source_probe_result p = answered(100 * SECOND), due = {.state = SOURCE_PROBE_DUE};
    source_status_begin(s);
    source_status_end(s, &due, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_PENDING);
    source_status_begin(s);
    source_status_end(s, &p, NOW);
    source_status_begin(s);
    source_status_end(s, &due, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_READY);
    assert_string_equal(s->status.identity.method, "irsa");
    s->meta.generation++; /* what was found was of another one */
    source_status_begin(s);
    source_status_end(s, &due, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_PENDING);
    s->suspend = true;
    source_status_begin(s);
    source_status_end(s, &due, NOW);
    assert_int_equal(s->status.phase, API_SOURCE_SUSPENDED);
}

/* Version 0.1 wrote the reasons NotTried and Answered. */
static void reason_of_previous_version_is_replaced_by_next_write(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://acme/llama/\"}");
    (void)!api_condition_set(&s->status.conditions, API_REACHABLE, API_UNKNOWN, "NotTried", 3, NOW - SECOND, "%s", "");
    (void)!api_condition_set(&s->status.conditions, API_READY, API_TRUE, "Answered", 3, NOW - SECOND, "%s", "");
    source_status_begin(s);
    source_status_end(s, &nobody_asks, NOW);
    assert_true(api_condition_says(&s->status.conditions, API_REACHABLE, API_UNKNOWN, "Pending"));
    assert_int_equal(api_condition_find(&s->status.conditions, API_REACHABLE)->since_ns, NOW - SECOND);
    struct source_probe_result reached = answered(NOW);
    source_status_end(s, &reached, NOW);
    assert_true(api_condition_says(&s->status.conditions, API_REACHABLE, API_TRUE, "Reachable"));
    assert_true(api_condition_says(&s->status.conditions, API_READY, API_TRUE, "Ready"));
    assert_int_equal(s->status.conditions.count, 5);
}

static void the_size_to_ask_for_has_room_and_no_overflow(void **state)
{
    (void)state;
    assert_int_equal(source_suggested_bytes(0), 1 << 30);
    assert_int_equal(source_suggested_bytes(UINT64_C(100) << 30), UINT64_C(106) << 30);
    assert_int_equal(source_suggested_bytes(UINT64_MAX), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unused_source_is_accepted_and_pending),
        cmocka_unit_test(a_source_that_selects_its_own_exports_is_accepted_with_a_warning),
        cmocka_unit_test(volumes_are_counted_and_the_last_listing_is_kept),
        cmocka_unit_test(the_last_listing_and_export_are_reported_whole_or_omitted),
        cmocka_unit_test(identity_is_not_ready_after_any_error_of_credentials),
        cmocka_unit_test(an_error_degrades_until_a_later_listing),
        cmocka_unit_test(condition_reasons_say_what_the_store_said),
        cmocka_unit_test(too_large_source_still_suggests_a_size),
        cmocka_unit_test(a_spec_that_is_not_served_is_invalid_and_says_why),
        cmocka_unit_test(a_source_that_answers_is_ready_before_any_volume_of_it),
        cmocka_unit_test(a_refusal_is_one_error_however_often_it_is_heard),
        cmocka_unit_test(source_is_not_ready_while_exports_of_its_volumes_fail),
        cmocka_unit_test(identity_follows_the_spec_though_the_store_denies_both),
        cmocka_unit_test(an_answer_does_not_hide_a_volume_that_fails),
        cmocka_unit_test(a_probe_result_stays_until_the_next_leader_has_probed),
        cmocka_unit_test(reason_of_previous_version_is_replaced_by_next_write),
        cmocka_unit_test(the_size_to_ask_for_has_room_and_no_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
