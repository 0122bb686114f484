/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"
#include "unit.h"

static void assert_http(const struct kube_request *r, const char *method, const char *url, const char *body)
{
    struct kube_http_request h;
    struct err err;
    if (kube_http_request_make(&h, "https://h", r, "me", &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(h.method, method);
    assert_string_equal(h.url.ptr, url);
    if (body)
        assert_string_equal(h.body, body);
    else
        assert_null(h.body);
    kube_http_request_done(&h);
}

static void an_objects_path_follows_from_its_resource(void **state)
{
    (void)state;
    auto_json body = json_new_object();
    json_set_bool(body, "b", true);
    assert_http(&(struct kube_request){.resource = &kube_pods, .ns = STR("n"), .name = STR("p")}, "GET",
                "https://h/api/v1/namespaces/n/pods/p", NULL);
    assert_http(&(struct kube_request){.resource = &kube_storage_classes, .name = STR("p")}, "GET",
                "https://h/apis/storage.k8s.io/v1/storageclasses/p", NULL);
    assert_http(&(struct kube_request){.verb = KUBE_CREATE, .resource = &kube_pods, .ns = STR("n"), .body = body},
                "POST", "https://h/api/v1/namespaces/n/pods?fieldManager=me", "{\"b\":true}");
    assert_http(&(struct kube_request){.verb = KUBE_APPLY,
                                       .resource = &kube_nodes,
                                       .name = STR("p"),
                                       .subresource = "status",
                                       .body = body,
                                       .field_manager = "a b",
                                       .force = true},
                "PATCH", "https://h/api/v1/nodes/p/status?fieldManager=a%20b&force=true", "{\"b\":true}");
    assert_http(&(struct kube_request){.verb = KUBE_LIST,
                                       .resource = &kube_pods,
                                       .label_selector = "a/b in (c,d)",
                                       .field_selector = "spec.nodeName=x&y"},
                "GET",
                "https://h/api/v1/pods?labelSelector=a%2Fb%20in%20%28c%2Cd%29&fieldSelector=spec.nodeName%3Dx%26y",
                NULL);
}

static void a_delete_carries_its_preconditions(void **state)
{
    (void)state;
    assert_http(&(struct kube_request){.verb = KUBE_DELETE,
                                       .resource = &kube_nodes,
                                       .name = STR("p"),
                                       .uid = STR("u"),
                                       .resource_version = STR("7"),
                                       .propagation = KUBE_FOREGROUND},
                "DELETE", "https://h/api/v1/nodes/p",
                "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"propagationPolicy\":\"Foreground\","
                "\"preconditions\":{\"uid\":\"u\",\"resourceVersion\":\"7\"}}");
}

static void name_that_changes_the_path_is_refused(void **state)
{
    (void)state;
    auto_json body = json_new_object();
    const struct kube_request refused[] = {
        {.resource = &kube_pods, .ns = STR("n"), .name = STR("..")},
        {.resource = &kube_pods, .ns = STR("n"), .name = STR("a/b")},
        {.resource = &kube_pods, .ns = STR("n"), .name = STR("a%2Fb")},
        {.resource = &kube_pods, .ns = STR("n")},
        {.resource = &kube_pods, .ns = STR(".."), .name = STR("a")},
        {.resource = &kube_pods, .name = STR("a")},
        {.resource = &kube_nodes, .ns = STR("n"), .name = STR("a")},
        {.resource = &kube_nodes, .name = STR("a"), .body = body},
        {.verb = KUBE_CREATE, .resource = &kube_nodes},
        {.verb = KUBE_CREATE, .resource = &kube_nodes, .name = STR("a"), .body = body},
        {.verb = KUBE_LIST, .resource = &kube_nodes, .name = STR("a")},
        {.verb = KUBE_MERGE_PATCH, .resource = &kube_nodes, .name = STR("a")},
    };
    for (size_t i = 0; i < countof(refused); i++) {
        struct kube_http_request h;
        struct err err;
        if (kube_http_request_make(&h, "https://h", &refused[i], "me", &err) != -ERR_INVALID)
            fail_msg("request %zu was taken", i);
        kube_http_request_done(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_objects_path_follows_from_its_resource),
        cmocka_unit_test(a_delete_carries_its_preconditions),
        cmocka_unit_test(name_that_changes_the_path_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
