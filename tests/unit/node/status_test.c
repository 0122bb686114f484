/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"
#include "unit.h"

static struct api_volume *volume(const char *uuid)
{
    struct api_volume *v = api_volume_new();
    v->status.pool_uuid = str_dup(str_of(uuid));
    v->status.phase = API_PHASE_READY;
    return v;
}

static void say(struct api_volume *v, const char *type, enum api_truth truth, const char *reason)
{
    (void)!api_condition_set(&v->status.conditions, type, truth, reason, 1, 1, "because of %s", reason);
}

static void a_condition_that_became_false_is_reported_once(void **state)
{
    (void)state;
    static const struct {
        const char *type, *reason, *event;
    } cases[] = {{API_HEALTHY, API_REASON_VOLUME_LOST, "VolumeLost"},
                 {API_MOUNTED, API_REASON_MOUNTS_LOST, "MountsLost"},
                 {API_HEALTHY, API_REASON_VOLUME_FULL, "VolumeFull"},
                 {API_HEALTHY, API_REASON_UNREADABLE, "VolumeUnreadable"}};
    for (size_t i = 0; i < countof(cases); i++) {
        struct status_event events[STATUS_EVENTS_MAX];
        auto_api_volume before = volume("0123456789ab");
        auto_api_volume now = volume("0123456789ab");
        say(before, cases[i].type, API_TRUE, "Healthy");
        say(now, cases[i].type, API_FALSE, cases[i].reason);
        assert_int_equal(status_events(before, now, events), 1);
        assert_string_equal(events[0].reason, cases[i].event);
        assert_non_null(strstr(events[0].message, cases[i].reason));
        assert_int_equal(status_events(now, now, events), 0);
        assert_int_equal(status_events(now, before, events), 0);
    }
}

static void another_pool_under_a_volume_is_a_loss_that_was_made_good(void **state)
{
    (void)state;
    struct status_event events[STATUS_EVENTS_MAX];
    auto_api_volume before = volume("0123456789ab");
    auto_api_volume now = volume("ba9876543210");
    assert_int_equal(status_events(before, now, events), 1);
    assert_string_equal(events[0].reason, "VolumeLost");
    assert_non_null(strstr(events[0].message, "created again"));
    before->status.phase = API_PHASE_LOST; /* reported already */
    assert_int_equal(status_events(before, now, events), 0);
}

static struct pool *closed_pool(void)
{
    struct err err;
    struct pool *closed = NULL;
    const struct pool_options options = {.path = "/pool", .name = "default", .node = "node-1"};
    assert_int_equal(pool_new(&options, &closed, &err), 0);
    return closed;
}

/* A volume that its Job fills, with that status. */
static struct observed hydrating(struct pool *closed, struct hydrate_status *h)
{
    static struct spec spec;
    static struct volume on_disk = {.spec = &spec};
    return (struct observed){.pool = closed,
                             .id_is_of_pool = true,
                             .here = true,
                             .volume = &on_disk,
                             .has_source = true,
                             .hydrating = true,
                             .hydration = h};
}

static void a_run_that_writes_no_status_is_silent(void **state)
{
    (void)state;
    static struct hydrate_status h = {.phase = HYDRATE_FETCHING, .updated_ns = 1};
    auto_pool closed = closed_pool();
    struct observed f = hydrating(closed, &h);
    const int64_t second = 1000000000;
    const struct {
        int64_t now_ns;
        bool alive;
        const char *reason;
    } cases[] = {{59 * second, true, "Hydrating"},
                 {62 * second, true, "Silent"},
                 {-62 * second, true, "Hydrating"}, /* the clock was set back */
                 {62 * second, false, "Interrupted"}};
    for (size_t i = 0; i < countof(cases); i++) {
        auto_api_volume v = volume("0123456789ab");
        f.hydrating = cases[i].alive;
        status_build(v, &f, &(struct action_outcome){.action = ACTION_KEEP}, cases[i].now_ns);
        assert_string_equal(api_condition_find(&v->status.conditions, API_HYDRATED)->reason, cases[i].reason);
        assert_int_equal(v->status.errors.count, strcmp(cases[i].reason, "Silent") == 0);
    }
}

static void an_export_that_runs_past_its_deadline_is_stalled(void **state)
{
    (void)state;
    const int64_t second = 1000000000, minute = 60 * second;
    static struct spec spec;
    static struct volume on_disk = {.spec = &spec};
    auto_pool closed = closed_pool();
    spec.export = (struct spec_export){.uri.text = (char *)"s3://b/", .deadline_ns = (uint64_t)(5 * minute)};
    struct observed f = {.pool = closed, .id_is_of_pool = true, .here = true, .volume = &on_disk};
    const struct {
        int64_t now_ns;
        enum verdict_state state;
        const char *reason;
    } cases[] = {{6 * minute, VERDICT_RUNNING, "Exporting"}, /* it ends by itself */
                 {7 * minute + second, VERDICT_RUNNING, "ExportStalled"},
                 {-minute, VERDICT_RUNNING, "Exporting"},  /* the clock was set back */
                 {99 * minute, VERDICT_NONE, "Exporting"}, /* it begins */
                 {99 * minute, VERDICT_FAILED, "Exporting"}};
    for (size_t i = 0; i < countof(cases); i++) {
        auto_api_volume v = volume("0123456789ab");
        f.verdict = (struct verdict){.state = cases[i].state, .alive = true, .started_ns = minute};
        status_build(v, &f, &(struct action_outcome){.action = ACTION_KEEP}, cases[i].now_ns);
        assert_string_equal(api_condition_find(&v->status.conditions, API_EXPORTED)->reason, cases[i].reason);
        assert_int_equal(v->status.phase, API_PHASE_EXPORTING);
    }
}

static void a_run_that_begins_does_not_take_the_error_of_the_last_run_for_its_own(void **state)
{
    (void)state;
    static struct hydrate_status h = {.has_error = true, .error = {.code = ERR_NO_SPACE, .message = "no space"}};
    auto_pool closed = closed_pool();
    const struct observed f = hydrating(closed, &h);
    static const struct {
        enum hydrate_phase phase;
        const char *reason;
    } cases[] = {{HYDRATE_LISTING, "Retrying"}, {HYDRATE_FETCHING, "Retrying"}, {HYDRATE_FAILED, "Hydrating"}};
    for (size_t i = 0; i < countof(cases); i++) {
        auto_api_volume v = volume("0123456789ab");
        h.phase = cases[i].phase;
        status_build(v, &f, &(struct action_outcome){.action = ACTION_KEEP}, 1);
        assert_string_equal(api_condition_find(&v->status.conditions, API_HYDRATED)->reason, cases[i].reason);
    }
}

static void a_run_that_was_stopped_has_listed_only_what_it_found(void **state)
{
    (void)state;
    static struct hydrate_status h = {.phase = HYDRATE_STOPPED};
    auto_pool closed = closed_pool();
    struct observed f = hydrating(closed, &h);
    f.hydrating = false;
    for (uint64_t found = 0; found < 2; found++) {
        auto_api_volume v = volume("0123456789ab");
        h.objects_total = found;
        status_build(v, &f, &(struct action_outcome){.action = ACTION_KEEP}, 1);
        assert_int_equal(v->status.phase, found ? API_PHASE_HYDRATING : API_PHASE_LISTING);
    }
}

static void a_complete_run_of_no_object_says_so(void **state)
{
    (void)state;
    static struct hydrate_status h = {.phase = HYDRATE_DONE};
    auto_pool closed = closed_pool();
    const struct observed f = hydrating(closed, &h);
    auto_api_volume v = volume("0123456789ab");
    status_build(v, &f, &(struct action_outcome){.action = ACTION_KEEP}, 1);
    const struct api_condition *c = api_condition_find(&v->status.conditions, API_HYDRATED);
    assert_int_equal(c->status, API_TRUE);
    assert_string_equal(c->message, "the source, or this shard of it, has no object");
}

static void a_stopped_run_of_a_volume_that_was_deleted_by_hand_does_not_resume(void **state)
{
    (void)state;
    static struct hydrate_status h = {.phase = HYDRATE_STOPPED};
    auto_pool closed = closed_pool();
    struct observed f = hydrating(closed, &h);
    auto_api_volume v = volume("0123456789ab");
    f.hydrating = false;
    v->meta.deleted_ns = 1;
    status_build(v, &f, &(struct action_outcome){.action = ACTION_KEEP}, 1);
    assert_non_null(strstr(api_condition_find(&v->status.conditions, API_HYDRATED)->message, "delete the claim"));
}

static void a_disk_that_fails_keeps_the_phase_and_the_export(void **state)
{
    (void)state;
    static const struct {
        enum api_phase was, is;
        enum err_code code;
    } cases[] = {{API_PHASE_READY, API_PHASE_READY, ERR_IO},
                 {API_PHASE_EXPORTING, API_PHASE_EXPORTING, ERR_IO},
                 {API_PHASE_EXPORT_FAILED, API_PHASE_EXPORT_FAILED, ERR_CORRUPT},
                 {API_PHASE_READY, API_PHASE_FAILED, ERR_CORRUPT}};
    for (size_t i = 0; i < countof(cases); i++) {
        struct err why;
        auto_api_volume v = volume("0123456789ab");
        v->status.phase = cases[i].was;
        err_set(&why, cases[i].code, "cannot read");
        status_build_unreadable(v, &why, 1);
        assert_int_equal(v->status.phase, cases[i].is);
        assert_true(api_condition_says(&v->status.conditions, API_HEALTHY, API_FALSE, API_REASON_UNREADABLE));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_fails_keeps_the_phase_and_the_export),
        cmocka_unit_test(a_condition_that_became_false_is_reported_once),
        cmocka_unit_test(another_pool_under_a_volume_is_a_loss_that_was_made_good),
        cmocka_unit_test(a_run_that_writes_no_status_is_silent),
        cmocka_unit_test(an_export_that_runs_past_its_deadline_is_stalled),
        cmocka_unit_test(a_run_that_begins_does_not_take_the_error_of_the_last_run_for_its_own),
        cmocka_unit_test(a_run_that_was_stopped_has_listed_only_what_it_found),
        cmocka_unit_test(a_complete_run_of_no_object_says_so),
        cmocka_unit_test(a_stopped_run_of_a_volume_that_was_deleted_by_hand_does_not_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
