/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/clock.h"
#include "volume_events.h"

#define SECOND ((int64_t)NS_PER_SECOND)
#define MIB (UINT64_C(1) << 20)

static struct api_volume *hydrating(void)
{
    struct api_volume *v = api_volume_new();
    v->node = str_dup(STR("n1"));
    v->source = str_dup(STR("{\"uri\":\"gs://acme/llama/\"}"));
    v->status.phase = API_PHASE_HYDRATING;
    v->status.hydration = (struct api_hydration){.objects_total = 4,
                                                 .bytes_total = 100 * MIB,
                                                 .bytes_done = 61 * MIB,
                                                 .bytes_per_second = 10 * MIB,
                                                 .eta_seconds = 8,
                                                 .started_ns = 100 * SECOND};
    return v;
}

static void finish(struct api_volume *v)
{
    v->status.phase = API_PHASE_READY;
    v->status.hydration.finished_ns = 110 * SECOND;
    v->status.hydration.bytes_done = v->status.hydration.bytes_total;
    api_condition_set(&v->status.conditions, API_HYDRATED, API_TRUE, "Done", 1, 110 * SECOND, "%s", "");
    api_condition_set(&v->status.conditions, API_VERIFIED, API_TRUE, "Done", 1, 110 * SECOND, "%s", "crc32c verified");
}

static void a_hydration_sends_one_event_at_its_start_and_one_at_its_end(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r[VOLUME_EVENTS_MAX];
    memset(r, 0xff, sizeof r);
    assert_int_equal(volume_events_of_hydration(v, &m, 101 * SECOND, r), 1);
    assert_null(r[0].concerns);
    assert_string_equal(r[0].reason, "HydrationStarted");
    assert_string_equal(r[0].text, "hydrating 100 MiB in 4 objects from gs://acme/llama/ on node n1");
    assert_int_equal(volume_events_of_hydration(v, &m, 102 * SECOND, r), 0);
    assert_int_equal(volume_events_of_hydration(v, &m, 161 * SECOND, r), 1);
    assert_string_equal(r[0].reason, "HydrationProgress");
    assert_string_equal(r[0].text, "61% (61.0 MiB of 100 MiB) at 10.0 MiB/s, 8.0 s left");
    assert_int_equal(volume_events_of_hydration(v, &m, 162 * SECOND, r), 0);
    finish(v);
    assert_int_equal(volume_events_of_hydration(v, &m, 163 * SECOND, r), 1);
    assert_string_equal(r[0].reason, "HydrationFinished");
    assert_string_equal(r[0].text, "hydrated 100 MiB in 10.0 s (10.0 MiB/s), crc32c verified");
    assert_int_equal(volume_events_of_hydration(v, &m, 163 * SECOND, r), 0);
    m.finished = false;
    v->status.hydration.objects_missing = 2;
    assert_int_equal(volume_events_of_hydration(v, &m, 163 * SECOND, r), 1);
    assert_string_equal(
        r[0].text, "hydrated 100 MiB in 10.0 s (10.0 MiB/s), crc32c verified, 2 objects were deleted from the bucket");
}

static void a_listing_that_takes_long_sends_one_event_of_its_own(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r[VOLUME_EVENTS_MAX];
    v->status.phase = API_PHASE_LISTING;
    v->status.hydration.objects_total = 0;
    assert_int_equal(volume_events_of_hydration(v, &m, 104 * SECOND, r), 0);
    assert_int_equal(volume_events_of_hydration(v, &m, 105 * SECOND, r), 1);
    assert_false(r[0].warning);
    assert_string_equal(r[0].reason, "SourceListing");
    assert_string_equal(r[0].text, "listing gs://acme/llama/ on node n1: 0 objects so far");
    assert_int_equal(volume_events_of_hydration(v, &m, 106 * SECOND, r), 0);
    v->status.phase = API_PHASE_HYDRATING;
    assert_int_equal(volume_events_of_hydration(v, &m, 107 * SECOND, r), 1);
    assert_string_equal(r[0].reason, "HydrationStarted");
}

static void a_failed_test_of_the_destination_sends_an_event_for_each_reason(void **state)
{
    (void)state;
    struct populate_event_state m = {0};
    struct populate_event r;
    struct err good = {0}, denied = {0}, gone = {0};
    err_set(&denied, ERR_DENIED, "as secret a/b: 403 AccessDenied: s3:PutObject");
    err_advise_text(&denied, CIS_ACCESS_DENIED, "%s", "allow it");
    err_fail(&gone, ERR_NOT_FOUND, CIS_BUCKET_NOT_FOUND, "there is no bucket 'b'");
    assert_false(volume_event_of_export_test(&good, &m, &r));
    assert_true(volume_event_of_export_test(&denied, &m, &r));
    assert_true(r.warning);
    assert_string_equal(r.reason, "ExportDenied");
    assert_string_equal(
        r.text, "an export would fail now: as secret a/b: 403 AccessDenied: s3:PutObject (CIS1403, DENIED); allow it");
    assert_false(volume_event_of_export_test(&denied, &m, &r));
    assert_true(volume_event_of_export_test(&gone, &m, &r));
    assert_string_equal(r.reason, "ExportBucketNotFound");
    assert_false(volume_event_of_export_test(&good, &m, &r));
    assert_true(volume_event_of_export_test(&gone, &m, &r));
}

static void a_hydration_seen_only_at_its_end_sends_both_events(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r[VOLUME_EVENTS_MAX];
    v->status.phase = API_PHASE_PROVISIONING;
    assert_int_equal(volume_events_of_hydration(v, &m, 100 * SECOND, r), 0);
    finish(v);
    assert_int_equal(volume_events_of_hydration(v, &m, 101 * SECOND, r), 2);
    assert_string_equal(r[0].reason, "HydrationStarted");
    assert_string_equal(r[1].reason, "HydrationFinished");
}

static void fail_with(struct api_volume *v, const char *id, const char *message)
{
    v->status.phase = API_PHASE_FAILED;
    api_faults_clear(&v->status.errors);
    api_faults_add(&v->status.errors, "a", id, "DENIED", message, 1, 105 * SECOND);
}

static void a_fault_with_the_longest_message_keeps_all_of_it(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {.seen = true, .started = true};
    struct populate_event r[VOLUME_EVENTS_MAX];
    char message[API_MESSAGE_MAX + 1] = "", whole[VOLUME_EVENT_TEXT_MAX], name[254] = "", source[400];
    memset(message, 'm', API_MESSAGE_MAX - 1);
    message[API_MESSAGE_MAX - 1] = '.';
    memset(name, 'n', sizeof name - 1);
    snprintf(source, sizeof source, "{\"uri\":\"s3://b/\",\"serviceAccountName\":\"%s\"}", name);
    free(v->source);
    v->source = str_dup(str_of(source));
    v->source_namespace = str_dup(STR("train"));
    fail_with(v, "CIS1905", message);
    assert_int_equal(volume_events_of_hydration(v, &m, 106 * SECOND, r), 1);
    snprintf(whole, sizeof whole, "access denied for ns/train/sa/%s: %s", name, message);
    assert_string_equal(r[0].text, whole);
}

static void a_long_uri_is_cut_after_a_whole_character(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r[VOLUME_EVENTS_MAX];
    auto_sbuf source;
    sbuf_init(&source, 4096);
    sbuf_add(&source, STR("{\"uri\":\"s3://bb/"));
    for (size_t i = 0; i < 400; i++)
        sbuf_add(&source, STR("ü"));
    sbuf_add(&source, STR("\"}"));
    free(v->source);
    v->source = str_dup(sbuf_str(&source));
    assert_int_equal(volume_events_of_hydration(v, &m, 101 * SECOND, r), 1);
    assert_true(str_is_utf8(str_of(r[0].text)));
    assert_non_null(strstr(r[0].text, "üü on node n1"));
}

static void a_refusal_names_whom_the_bucket_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source, *text;
    } rows[] = {
        {"{\"uri\":\"s3://b/\",\"serviceAccountName\":\"trainer\"}",
         "access denied for ns/train/sa/trainer: 403 of s3://b/"},
        {"{\"uri\":\"s3://b/\",\"secretRef\":{\"name\":\"keys\"}}",
         "access denied for secret train/keys: 403 of s3://b/"},
        {"{\"uri\":\"s3://b/\",\"identity\":{\"method\":\"anonymous\"}}",
         "access denied for anonymous: 403 of s3://b/"},
        {"{\"uri\":\"s3://b/\"}", "access denied for the identity of the source: 403 of s3://b/"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        auto_api_volume v = hydrating();
        struct populate_event_state m = {.seen = true, .started = true};
        struct populate_event r[VOLUME_EVENTS_MAX];
        free(v->source);
        v->source = str_dup(str_of(rows[i].source));
        v->source_namespace = str_dup(STR("train"));
        fail_with(v, "CIS1403", "403 of s3://b/");
        assert_int_equal(volume_events_of_hydration(v, &m, 106 * SECOND, r), 1);
        assert_string_equal(r[0].reason, "SourceDenied");
        assert_string_equal(r[0].text, rows[i].text);
    }
}

static void a_source_that_is_too_large_says_how_much_to_ask_for(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {.seen = true, .started = true};
    struct populate_event r[VOLUME_EVENTS_MAX];
    v->status.hydration.bytes_total = UINT64_C(100) << 30;
    v->capacity_bytes = UINT64_C(50) << 30;
    fail_with(v, "CIS1510", "give it more space, or select less with include and exclude");
    assert_int_equal(volume_events_of_hydration(v, &m, 106 * SECOND, r), 1);
    assert_string_equal(r[0].reason, "SourceTooLarge");
    assert_string_equal(
        r[0].text,
        "gs://acme/llama/ has 100 GiB in 4 objects, the volume 50.0 GiB (CIS1510); delete this claim and create "
        "one with 106Gi: a Pending claim cannot grow. Or select less with spec.include and exclude");
}

static void a_hydration_that_ended_before_this_leader_sends_no_event(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r[VOLUME_EVENTS_MAX];
    finish(v);
    assert_int_equal(volume_events_of_hydration(v, &m, 200 * SECOND, r), 0);
}

static void a_long_hydration_event_names_the_mode_that_binds_early(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {.seen = true, .started = true};
    struct populate_event r[VOLUME_EVENTS_MAX];
    struct err err;
    assert_int_equal(volume_events_of_hydration(v, &m, (100 + 1201) * SECOND, r), 1);
    assert_non_null(strstr(r[0].text, "gate"));
    assert_int_equal(api_volume_set_parameter(v, STR("hydration"), STR("gate"), &err), 0);
    assert_int_equal(volume_events_of_hydration(v, &m, (100 + 1300) * SECOND, r), 1);
    assert_null(strstr(r[0].text, "gate"));
}

static void a_fault_sends_one_event_with_its_own_reason(void **state)
{
    (void)state;
    static const struct {
        const char *id, *reason;
    } faults[] = {{"CIS1403", "SourceDenied"},      {"CIS1905", "SourceDenied"},   {"CIS1906", "SourceDenied"},
                  {"CIS1902", "HydrationRetrying"}, {"CIS1405", "SourceNotFound"}, {"CIS1510", "SourceTooLarge"},
                  {"CIS1530", "SourceEmpty"},       {"CIS1406", "SourceEmpty"},    {"CIS1409", "SourceChanged"},
                  {"CIS1500", "HydrationRetrying"}, {NULL, "HydrationRetrying"},   {"CIS1901", "HydrationRetrying"},
                  {"CIS1911", "HydrationRetrying"}, {"CIS1404", "SourceNotFound"}, {"CIS1617", "SourceDenied"},
                  {"CIS1618", "SourceDenied"},      {"CIS1912", "SourceDenied"}};
    struct populate_event r[VOLUME_EVENTS_MAX];
    for (size_t i = 0; i < countof(faults); i++) {
        auto_api_volume v = hydrating();
        struct populate_event_state m = {.seen = true, .started = true, .progress_ns = 100 * SECOND};
        api_faults_add(&v->status.errors, "part-1", faults[i].id, "DENIED", "no", 1, 100 * SECOND);
        assert_int_equal(volume_events_of_hydration(v, &m, 101 * SECOND, r), 1);
        assert_true(r[0].warning);
        assert_string_equal(r[0].reason, faults[i].reason);
        assert_non_null(strstr(r[0].text, "no"));
        assert_int_equal(volume_events_of_hydration(v, &m, 102 * SECOND, r), 0);
    }
    struct api_fault f = {.id = (char *)"CIS1500"};
    assert_string_equal(volume_event_reason(&f, true), "HydrationFailed");
}

static void a_denied_endpoint_names_the_policy_and_no_identity(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event r[VOLUME_EVENTS_MAX];
    struct populate_event_state m = {.seen = true, .started = true, .progress_ns = 100 * SECOND};
    api_faults_add(&v->status.errors, NULL, "CIS1617", "DENIED", "let an administrator add it", 1, 100 * SECOND);
    assert_int_equal(volume_events_of_hydration(v, &m, 101 * SECOND, r), 1);
    assert_string_equal(r[0].text, "denied by the administrator's policy: let an administrator add it");
    v->status.phase = API_PHASE_FAILED;
    assert_string_equal(volume_failure(v), "HydrationFailed"); /* the credentials are not the cause */
}

static void volume_failure_names_the_cause_for_alerts(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    assert_null(volume_failure(v));
    v->status.phase = API_PHASE_FAILED;
    assert_string_equal(volume_failure(v), "HydrationFailed");
    fail_with(v, "CIS1403", "403 of s3://b/");
    assert_string_equal(volume_failure(v), "CredentialsRefused");
    api_faults_clear(&v->status.errors);
    v->status.phase = API_PHASE_EXPORT_FAILED;
    static const char *const exports[] = {"ExportFailed", "ExportStalled"};
    for (size_t i = 0; i < countof(exports); i++) {
        api_condition_set(&v->status.conditions, API_EXPORTED, API_FALSE, exports[i], 1, 110 * SECOND, "%s", "no");
        assert_string_equal(volume_failure(v), exports[i]);
    }
    api_condition_set(&v->status.conditions, API_EXPORTED, API_FALSE, "InUse", 1, 110 * SECOND, "%s", "");
    assert_null(volume_failure(v));
}

static void an_empty_shard_sends_a_warning_unless_its_source_may_be_empty(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        uint64_t objects;
        size_t events;
    } cases[] = {{"{\"uri\":\"s3://b/\",\"shard\":{\"index\":3,\"count\":4}}", 0, 3},
                 {"{\"uri\":\"s3://b/\",\"shard\":{\"index\":3,\"count\":4}}", 1, 2},
                 {"{\"uri\":\"s3://b/\",\"shard\":{\"index\":3,\"count\":4},\"onEmpty\":\"allow\"}", 0, 2},
                 {"{\"uri\":\"s3://b/\",\"onEmpty\":\"allow\"}", 0, 2}};
    for (size_t i = 0; i < countof(cases); i++) {
        auto_api_volume v = hydrating();
        struct populate_event_state m = {.seen = true};
        struct populate_event r[VOLUME_EVENTS_MAX];
        free(v->source);
        v->source = str_dup(str_of(cases[i].source));
        v->status.hydration.objects_total = cases[i].objects;
        finish(v);
        assert_int_equal(volume_events_of_hydration(v, &m, 200 * SECOND, r), cases[i].events);
        if (cases[i].events < 3)
            continue;
        assert_true(r[2].warning);
        assert_string_equal(r[2].reason, "ShardEmpty");
        assert_non_null(strstr(r[2].text, "set shard.count of the BucketSource to at most the number of objects"));
    }
}

static void a_volume_that_is_deleted_by_hand_sends_one_event(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r;
    v->meta.name = str_dup(STR("pvc-1"));
    assert_false(volume_event_of_deletion(v, &m, &r));
    v->meta.deleted_ns = 120 * SECOND;
    assert_true(volume_event_of_deletion(v, &m, &r));
    assert_true(r.warning);
    assert_string_equal(r.text, "CisternVolume pvc-1 was deleted by hand, which ends its hydration: delete the claim "
                                "and create it again");
    assert_false(volume_event_of_deletion(v, &m, &r));
    finish(v);
    m.deletion = false;
    assert_true(volume_event_of_deletion(v, &m, &r));
    assert_non_null(strstr(r.text, "which releases nothing: delete the claim"));
    m.deletion = false;
    v->release_requested = true;
    assert_false(volume_event_of_deletion(v, &m, &r));
}

static void a_blank_volume_sends_no_event(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r[VOLUME_EVENTS_MAX];
    free(v->source);
    v->source = NULL;
    assert_int_equal(volume_events_of_hydration(v, &m, 200 * SECOND, r), 0);
}

static void an_export_sends_events_when_it_starts_and_succeeds(void **state)
{
    (void)state;
    auto_api_volume v = hydrating();
    struct populate_event_state m = {0};
    struct populate_event r;
    assert_false(volume_event_of_export(v, &m, &r));
    api_condition_set(&v->status.conditions, API_EXPORTED, API_FALSE, "Exporting", 1, 100 * SECOND, "%s", "");
    v->status.export = (struct api_export){.pending_objects = 3, .pending_bytes = 3 << 20};
    assert_true(volume_event_of_export(v, &m, &r));
    assert_string_equal(r.reason, "ExportStarted");
    assert_string_equal(r.text, "exporting 3.00 MiB in 3 files from node n1");
    assert_false(volume_event_of_export(v, &m, &r));
    api_condition_set(&v->status.conditions, API_EXPORTED, API_FALSE, "ExportFailed", 1, 101 * SECOND, "%s", "2 files");
    assert_true(volume_event_of_export(v, &m, &r));
    assert_string_equal(r.reason, "ExportFailed");
    assert_string_equal(r.text, "node n1: 2 files");
    assert_true(r.warning);
    assert_false(volume_event_of_export(v, &m, &r));
    api_condition_set(&v->status.conditions, API_EXPORTED, API_FALSE, "ExportStalled", 1, 101 * SECOND, "%s", "late");
    assert_true(volume_event_of_export(v, &m, &r));
    assert_string_equal(r.reason, "ExportStalled");
    struct populate_event_state new_leader = {0};
    assert_true(volume_event_of_export(v, &new_leader, &r)); /* it still fails, and a new leader reports it again */
    assert_string_equal(r.reason, "ExportStalled");
    api_condition_set(&v->status.conditions, API_EXPORTED, API_TRUE, "Confirmed", 1, 102 * SECOND, "%s", "");
    v->status.export = (struct api_export){.done_objects = 3, .done_bytes = 3 << 20, .last_success_ns = 102 * SECOND};
    assert_true(volume_event_of_export(v, &m, &r));
    assert_string_equal(r.reason, "ExportFinished");
    assert_string_equal(r.text, "exported 3.00 MiB in 3 files, all confirmed by the bucket");
    assert_false(volume_event_of_export(v, &m, &r));
    m = (struct populate_event_state){0}; /* what a controller finds when it begins is not news */
    assert_false(volume_event_of_export(v, &m, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hydration_sends_one_event_at_its_start_and_one_at_its_end),
        cmocka_unit_test(a_listing_that_takes_long_sends_one_event_of_its_own),
        cmocka_unit_test(a_failed_test_of_the_destination_sends_an_event_for_each_reason),
        cmocka_unit_test(a_hydration_seen_only_at_its_end_sends_both_events),
        cmocka_unit_test(a_refusal_names_whom_the_bucket_refused),
        cmocka_unit_test(a_fault_with_the_longest_message_keeps_all_of_it),
        cmocka_unit_test(a_long_uri_is_cut_after_a_whole_character),
        cmocka_unit_test(a_source_that_is_too_large_says_how_much_to_ask_for),
        cmocka_unit_test(a_hydration_that_ended_before_this_leader_sends_no_event),
        cmocka_unit_test(a_long_hydration_event_names_the_mode_that_binds_early),
        cmocka_unit_test(a_fault_sends_one_event_with_its_own_reason),
        cmocka_unit_test(a_denied_endpoint_names_the_policy_and_no_identity),
        cmocka_unit_test(volume_failure_names_the_cause_for_alerts),
        cmocka_unit_test(an_empty_shard_sends_a_warning_unless_its_source_may_be_empty),
        cmocka_unit_test(a_volume_that_is_deleted_by_hand_sends_one_event),
        cmocka_unit_test(a_blank_volume_sends_no_event),
        cmocka_unit_test(an_export_sends_events_when_it_starts_and_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
