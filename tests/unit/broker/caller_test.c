/* SPDX-License-Identifier: Apache-2.0 */
#include "caller.h"
#include "unit.h"
#include "util/clock.h"
#include "util/encode.h"
#include <stdio.h>

static const struct caller_rules rules = {{"cistern-system", 14}, {"cistern-node", 12}, {"cistern-job", 11}};
static const int64_t now = 1800000000 * (int64_t)NS_PER_SECOND;

static int looks(const char *claims)
{
    struct err err;
    auto_sbuf token;
    sbuf_init(&token, 4096);
    sbuf_adds(&token, "eyJ9.");
    base64url_add(&token, claims, strlen(claims));
    sbuf_adds(&token, ".c2ln");
    int r = caller_looks_right(sbuf_str(&token), now, &err);
    if (r < 0)
        assert_int_equal(err.id, 1902);
    return r;
}

static void token_that_is_expired_foreign_or_malformed_is_denied(void **state)
{
    (void)state;
    static const char good[] = "{\"aud\":[\"cistern-broker\"],\"exp\":1800000600}";
    struct err err;
    assert_int_equal(looks(good), 0);
    assert_int_equal(looks("{\"aud\":\"cistern-broker\",\"exp\":1800000600}"), 0);
    assert_int_equal(looks("{\"aud\":[\"cistern-broker\"],\"exp\":1799999800}"), 0); /* within the clock difference */
    assert_int_equal(looks("{\"aud\":[\"cistern-broker\"],\"exp\":1799990000}"), -ERR_DENIED);
    assert_int_equal(looks("{\"aud\":[\"other\"],\"exp\":1800000600}"), -ERR_DENIED);
    assert_int_equal(looks("{\"aud\":[1],\"exp\":1800000600}"), -ERR_DENIED);
    assert_int_equal(looks("{\"exp\":1800000600}"), -ERR_DENIED);
    assert_int_equal(looks("{\"aud\":[\"cistern-broker\"]}"), -ERR_DENIED);
    assert_int_equal(looks("[]"), -ERR_DENIED);
    assert_int_equal(caller_looks_right(STR("a.b"), now, &err), -ERR_DENIED);
    auto_sbuf unsigned_token;
    sbuf_init(&unsigned_token, 4096);
    sbuf_adds(&unsigned_token, "eyJ9.");
    base64url_add(&unsigned_token, good, strlen(good));
    assert_int_equal(caller_looks_right(sbuf_str(&unsigned_token), now, &err), -ERR_DENIED);
    sbuf_adds(&unsigned_token, ".");
    assert_int_equal(caller_looks_right(sbuf_str(&unsigned_token), now, &err), -ERR_DENIED);
    assert_int_equal(caller_looks_right(STR("...."), now, &err), -ERR_DENIED);
}

static int reading(const char *user, const char *audiences, struct caller *ret, struct err *err)
{
    char text[1024];
    auto_json j = NULL;
    snprintf(text, sizeof text,
             "{\"status\":{\"authenticated\":true,\"audiences\":%s,\"user\":{\"username\":\"%s\",\"extra\":{"
             "\"authentication.kubernetes.io/pod-name\":[\"p\"],\"authentication.kubernetes.io/pod-uid\":[\"u\"],"
             "\"authentication.kubernetes.io/node-name\":[\"node-a\"]}}}}",
             audiences, user);
    assert_int_equal(json_parse(str_of(text), "review", &j, err), 0);
    return caller_read(j, &rules, ret, err);
}

static void review_of_another_account_is_denied(void **state)
{
    (void)state;
    struct caller c;
    struct err err;
    const char *ours = "[\"cistern-broker\"]";
    assert_int_equal(reading("system:serviceaccount:cistern-system:cistern-job", ours, &c, &err), 0);
    assert_int_equal(c.kind, CALLER_JOB);
    assert_string_equal(c.node, "node-a");
    assert_string_equal(c.pod_uid, "u");
    assert_int_equal(reading("system:serviceaccount:cistern-system:cistern-node", ours, &c, &err), 0);
    assert_int_equal(c.kind, CALLER_NODE);
    assert_int_equal(reading("system:serviceaccount:cistern-system:cistern-node:x", ours, &c, &err), -ERR_DENIED);
    assert_int_equal(reading("system:serviceaccount:other:cistern-node", ours, &c, &err), -ERR_DENIED);
    assert_int_equal(reading("cistern-node", ours, &c, &err), -ERR_DENIED);
    assert_int_equal(reading("system:admin", ours, &c, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1903);
}

static void review_without_the_audience_is_denied(void **state)
{
    (void)state;
    struct caller c;
    struct err err;
    assert_int_equal(reading("system:serviceaccount:cistern-system:cistern-job", "[]", &c, &err), -ERR_DENIED);
    assert_int_equal(reading("system:serviceaccount:cistern-system:cistern-job", "null", &c, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1902);
}

static void review_without_authentication_is_denied(void **state)
{
    (void)state;
    static const char *const answers[] = {"false", "\"true\"", "null"};
    for (size_t i = 0; i < countof(answers); i++) {
        char text[512];
        struct caller c;
        struct err err;
        auto_json j = NULL;
        snprintf(text, sizeof text,
                 "{\"status\":{\"authenticated\":%s,\"audiences\":[\"cistern-broker\"],\"user\":{\"username\":"
                 "\"system:serviceaccount:cistern-system:cistern-job\"}}}",
                 answers[i]);
        assert_int_equal(json_parse(str_of(text), "review", &j, &err), 0);
        assert_int_equal(caller_read(j, &rules, &c, &err), -ERR_DENIED);
        assert_int_equal(err.id, 1902);
    }
}

static json *review_of_user(const char *user, const char *node)
{
    json *j = json_new_object(), *audiences = json_new_array(), *nodes = json_new_array(), *extra = json_new_object();
    json_append_str(audiences, STR("cistern-broker"));
    json_append_str(nodes, str_of(node));
    json_set_member(extra, "authentication.kubernetes.io/node-name", nodes);
    json_set_bool(j, "status.authenticated", true);
    json_set(j, "status.audiences", audiences);
    json_set_str(j, "status.user.username", str_of(user));
    json_set(j, "status.user.extra", extra);
    return j;
}

/* A name that is cut could be another one's. */
static void names_of_a_review_are_whole_or_missing(void **state)
{
    (void)state;
    struct caller c;
    struct err err;
    char user[2000], name[1000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(user, sizeof user, "system:serviceaccount:cistern-system:%s", name);
    const struct caller_rules long_name = {STR("cistern-system"), STR("cistern-node"), str_of(name)};
    const struct caller_rules no_name = {STR("cistern-system"), STR("cistern-node"), STR_NULL};
    auto_json of_long = review_of_user(user, "node-a");
    assert_int_equal(caller_read(of_long, &long_name, &c, &err), -ERR_DENIED);
    auto_json of_no_account = review_of_user("system:serviceaccount:cistern-system:", "node-a");
    assert_int_equal(caller_read(of_no_account, &no_name, &c, &err), -ERR_DENIED);
    auto_json long_node = review_of_user("system:serviceaccount:cistern-system:cistern-node", name);
    assert_int_equal(caller_read(long_node, &rules, &c, &err), 0);
    assert_string_equal(c.node, "");
}

static struct api_volume *volume(void)
{
    struct api_volume *v = api_volume_new();
    v->meta.name = str_dup(STR("pvc-1"));
    v->id = (struct volume_id){"v1-aaaaaaaaaaaa-bbbbbbbbbbbb"};
    v->node = str_dup(STR("node-a"));
    return v;
}

static const char *group = "batch/v1";

static json *pod(const char *kind, const char *name, const char *controller, const char *node)
{
    char text[512];
    json *j = NULL;
    struct err err;
    snprintf(text, sizeof text,
             "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"name\":\"%s\","
             "\"controller\":%s}]},\"spec\":{\"nodeName\":\"%s\"}}",
             group, kind, name, controller, node);
    assert_int_equal(json_parse(str_of(text), "pod", &j, &err), 0);
    return j;
}

static int may(const char *kind, const char *name, const char *controller, const char *node, bool is_export)
{
    const struct caller job = {.kind = CALLER_JOB, .node = "node-a", .pod = "p", .pod_uid = "u"};
    struct err err;
    auto_api_volume v = volume();
    auto_json p = pod(kind, name, controller, node);
    int r = caller_may(&job, v, is_export, p, &err);
    if (r < 0)
        assert_int_equal(err.id, 1903);
    return r;
}

static void job_is_found_by_the_controller_reference_of_its_pod(void **state)
{
    (void)state;
    assert_int_equal(may("Job", "hydrate-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "true", "node-a", false), 0);
    assert_int_equal(may("Job", "export-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "true", "node-a", true), 0);
    assert_int_equal(may("Job", "hydrate-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "true", "node-a", true), -ERR_DENIED);
    assert_int_equal(may("Job", "hydrate-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "false", "node-a", false), -ERR_DENIED);
    assert_int_equal(may("ReplicaSet", "hydrate-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "true", "node-a", false), -ERR_DENIED);
    assert_int_equal(may("Job", "hydrate-v1-aaaaaaaaaaaa-cccccccccccc", "true", "node-a", false), -ERR_DENIED);
    assert_int_equal(may("Job", "hydrate-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "true", "node-b", false), -ERR_DENIED);
    group = "batch.evil.example/v1";
    assert_int_equal(may("Job", "hydrate-v1-aaaaaaaaaaaa-bbbbbbbbbbbb", "true", "node-a", false), -ERR_DENIED);
    group = "batch/v1";
}

static void token_of_another_node_or_without_pod_is_denied(void **state)
{
    (void)state;
    struct err err;
    auto_api_volume v = volume();
    struct caller node = {.kind = CALLER_NODE, .node = "node-a", .pod = "p", .pod_uid = "u"};
    assert_int_equal(caller_may(&node, v, true, NULL, &err), 0);
    snprintf(node.node, sizeof node.node, "%s", "node-b");
    assert_int_equal(caller_may(&node, v, true, NULL, &err), -ERR_DENIED);
    snprintf(node.node, sizeof node.node, "%s", "");
    assert_int_equal(caller_may(&node, v, true, NULL, &err), -ERR_DENIED);
    snprintf(node.node, sizeof node.node, "%s", "node-a");
    node.pod_uid[0] = '\0';
    assert_int_equal(caller_may(&node, v, true, NULL, &err), -ERR_DENIED);
    snprintf(node.pod_uid, sizeof node.pod_uid, "u");
    node.pod[0] = '\0';
    assert_int_equal(caller_may(&node, v, true, NULL, &err), -ERR_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_that_is_expired_foreign_or_malformed_is_denied),
        cmocka_unit_test(review_of_another_account_is_denied),
        cmocka_unit_test(review_without_the_audience_is_denied),
        cmocka_unit_test(review_without_authentication_is_denied),
        cmocka_unit_test(names_of_a_review_are_whole_or_missing),
        cmocka_unit_test(job_is_found_by_the_controller_reference_of_its_pod),
        cmocka_unit_test(token_of_another_node_or_without_pod_is_denied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
