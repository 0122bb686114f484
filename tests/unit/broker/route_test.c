/* SPDX-License-Identifier: Apache-2.0 */
#include "io/guard.h"
#include "route.h"
#include "unit.h"

struct given {
    struct api_volume *volume;
    struct spec *spec;
};

static struct given given(const char *const pairs[][2], size_t count)
{
    struct given g = {api_volume_new(), spec_new()};
    struct err err;
    g.volume->meta.name = str_dup(STR("pvc-1"));
    g.volume->source_namespace = str_dup(STR("team"));
    for (size_t i = 0; i < count; i++)
        if (spec_set(g.spec, str_of(pairs[i][0]), str_of(pairs[i][1]), &err) < 0)
            fail_msg("%s", err.text);
    return g;
}

static void given_done(struct given *g)
{
    api_volume_free(g->volume);
    spec_free(g->spec);
}

static const struct broker_binding *bound;
static size_t bound_count;
static const struct guard *guard;

static int find(const struct given *g, bool is_export, const char *scheme, bool driver, struct route *ret, size_t *n,
                struct err *err)
{
    const struct route_rules rules = {.own_ns = "cistern-system",
                                      .allow_driver = driver,
                                      .bindings = bound,
                                      .binding_count = bound_count,
                                      .guard = guard};
    return route_find(g->volume, g->spec, is_export, creds_kind_of(str_of(scheme)), &rules, ret, n, err);
}

#define GIVEN(...)                                                                                                     \
    ({                                                                                                                 \
        const char *const pairs_[][2] = {__VA_ARGS__};                                                                 \
        given(pairs_, countof(pairs_));                                                                                \
    })

static void auto_prefers_the_secret_then_the_account_then_the_driver(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given both = GIVEN({"uri", "s3://bucket/"}, {"secretRef.name", "keys"}, {"serviceAccountName", "sa"});
    struct given account = GIVEN({"uri", "gs://bucket/"}, {"serviceAccountName", "sa"});
    struct given nothing = GIVEN({"uri", "gs://bucket/"});
    assert_int_equal(find(&both, false, "", true, r, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(r[0].kind, ROUTE_SECRET);
    assert_string_equal(r[0].ns, "team");
    assert_int_equal(r[0].creds, CREDS_AWS);
    assert_int_equal(find(&account, false, "gs", true, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_ACCOUNT);
    assert_string_equal(r[0].name, "sa");
    assert_int_equal(find(&nothing, false, "", true, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_DRIVER);
    assert_int_equal(find(&nothing, false, "", false, r, &n, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1908);
    given_done(&both);
    given_done(&account);
    given_done(&nothing);
}

static const struct broker_binding bindings[] = {{STR("last"), STR_NULL, STR("gs://out/team/")},
                                                 {STR("last"), STR("https://minio.example:9000"), STR("s3://out")},
                                                 {STR("last"), STR_NULL, STR("s3://amazon")},
                                                 {STR("other"), STR_NULL, STR("gs://")}};

static size_t routes_of_export(const char *uri, const char *secret, const char *endpoint, bool has_exported)
{
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n = 0;
    struct given g =
        GIVEN({"uri", "s3://bucket/"}, {"secretRef.name", "reader"}, {"export.uri", uri},
              {"export.secretRef.name", "writer"}, {"export.endpoint", endpoint}, {"exportSecret", secret});
    bound = bindings;
    bound_count = countof(bindings);
    g.volume->has_exported = has_exported;
    if (find(&g, true, "", true, r, &n, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(r[0].name, "writer");
    if (n > 1)
        assert_string_equal(r[1].ns, "cistern-system");
    given_done(&g);
    bound = NULL;
    bound_count = 0;
    return n;
}

static void export_secret_applies_after_an_export_below_its_prefix_only(void **state)
{
    (void)state;
    assert_int_equal(routes_of_export("gs://out/team/run/", "last", "", true), 2);
    assert_int_equal(routes_of_export("gs://out/team/run/", "last", "https://storage.googleapis.com", true), 2);
    assert_int_equal(routes_of_export("s3://out/team", "last", "https://minio.example:9000/", true), 2);
    /* No earlier export, another prefix, another Secret, another server. */
    assert_int_equal(routes_of_export("gs://out/team/run/", "last", "", false), 1);
    assert_int_equal(routes_of_export("gs://out/team-2/run/", "last", "", true), 1);
    assert_int_equal(routes_of_export("gs://out/team", "last", "", true), 1);
    assert_int_equal(routes_of_export("gs://out/", "last", "", true), 1);
    assert_int_equal(routes_of_export("gs://out/team/run/", "another", "", true), 1);
    assert_int_equal(routes_of_export("s3://out/team/", "last", "", true), 1);
    assert_int_equal(routes_of_export("s3://out/team/", "last", "https://minio.example:9001", true), 1);
    assert_int_equal(routes_of_export("s3://out/team/", "last", "http://minio.example:9000", true), 1);
    /* A path of the endpoint precedes the bucket or the prefix. */
    assert_int_equal(routes_of_export("s3://amazon/run/", "last", "https://s3.eu-west-1.amazonaws.com", true), 2);
    assert_int_equal(routes_of_export("s3://amazon/run/", "last", "https://s3.eu-west-1.amazonaws.com/other", true), 1);
    /* A server of s3:// does not serve gs://. */
    struct given g =
        GIVEN({"uri", "s3://bucket/"}, {"endpoint", "https://minio.example:9000"}, {"secretRef.name", "reader"},
              {"export.uri", "gs://out/"}, {"export.serviceAccountName", "writer"});
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    assert_int_equal(find(&g, true, "", true, r, &n, &err), 0);
    given_done(&g);
    /* Some servers resolve "..", and leave the prefix. */
    assert_int_equal(routes_of_export("gs://out/team/../other/", "last", "", true), 1);
    assert_int_equal(routes_of_export("gs://out/team/run/..", "last", "", true), 1);
    assert_int_equal(routes_of_export("s3://out/./team/", "last", "https://minio.example:9000/", true), 1);
    assert_int_equal(routes_of_export("gs://out/team/..run/a..b/", "last", "", true), 2);
    assert_int_equal(
        routes_of_export("s3://out/team/", "last", "https://evil.example/https://minio.example:9000", true), 1);
}

/* The administrator trusts that server with the tenants' own tokens, and did not bind the Secret to it. */
static void export_secret_without_an_endpoint_is_for_the_provider_only(void **state)
{
    (void)state;
    auto_guard g = NULL;
    struct err err;
    assert_int_equal(guard_parse(STR("trust https://other.example\n"), &g, &err), 0);
    guard = g;
    assert_int_equal(routes_of_export("s3://amazon/run/", "last", "https://other.example", true), 1);
    assert_int_equal(routes_of_export("s3://amazon/run/", "last", "", true), 2);
    guard = NULL;
}

static void export_secret_is_not_used_to_read_a_source(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g = GIVEN({"uri", "gs://out/team/run/"}, {"secretRef.name", "reader"},
                           {"export.uri", "gs://out/team/run/"}, {"exportSecret", "last"});
    g.volume->has_exported = true;
    bound = bindings;
    bound_count = countof(bindings);
    assert_int_equal(find(&g, true, "", false, r, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(find(&g, false, "", false, r, &n, &err), 0);
    assert_int_equal(n, 1);
    bound = NULL;
    bound_count = 0;
    given_done(&g);
}

/* A server with the user's certificate could pass for Google's. */
static void token_of_another_owner_is_not_used_with_a_ca_bundle(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given own = GIVEN({"uri", "gs://bucket/"}, {"secretRef.name", "keys"});
    struct given driver = GIVEN({"uri", "gs://bucket/"}, {"identity.method", "metadata"});
    struct given last =
        GIVEN({"export.uri", "gs://out/team/run/"}, {"export.secretRef.name", "writer"}, {"exportSecret", "last"});
    struct given is_signed = GIVEN({"uri", "s3://bucket/"}, {"identity.method", "metadata"}); /* sends no token */
    own.spec->source.ca_bundle = str_dup(STR("a certificate"));
    is_signed.spec->source.ca_bundle = str_dup(STR("a certificate"));
    driver.spec->source.ca_bundle = str_dup(STR("a certificate"));
    last.spec->export.ca_bundle = str_dup(STR("a certificate"));
    last.volume->has_exported = true;
    bound = bindings;
    bound_count = countof(bindings);
    assert_int_equal(find(&own, false, "", true, r, &n, &err), 0);
    assert_int_equal(find(&is_signed, false, "", true, r, &n, &err), 0);
    assert_int_equal(find(&driver, false, "", true, r, &n, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1912);
    assert_int_equal(find(&last, true, "", true, r, &n, &err), 0);
    assert_int_equal(n, 1);
    free(take(&last.spec->export.ca_bundle));
    assert_int_equal(find(&last, true, "", true, r, &n, &err), 0);
    assert_int_equal(n, 2);
    bound = NULL;
    bound_count = 0;
    given_done(&own);
    given_done(&is_signed);
    given_done(&driver);
    given_done(&last);
}

static void route_find_denies_credentials_at_untrusted_endpoints(void **state)
{
    static const struct {
        const char *uri, *endpoint, *key, *value;
        bool driver, trusts;
        int code;
    } cases[] = {
        /* Requests signed with the user's own keys may go anywhere, the token of a key file may not. */
        {"s3://bucket/", "http://evil.example", "secretRef.name", "keys", false, false, 0},
        {"gs://bucket/", "https://evil.example", "secretRef.name", "keys", false, false, -ERR_DENIED},
        {"s3://bucket/", "https://evil.example", "serviceAccountName", "sa", false, false, -ERR_DENIED},
        {"gs://bucket/", "https://evil.example", "serviceAccountName", "sa", false, false, -ERR_DENIED},
        {"gs://bucket/", "http://storage.googleapis.com", "serviceAccountName", "sa", false, false, -ERR_DENIED},
        {"gs://bucket/", "https://storage.googleapis.com", "serviceAccountName", "sa", false, false, 0},
        {"s3://bucket/", "https://s3.eu-west-1.amazonaws.com", "serviceAccountName", "sa", false, false, 0},
        {"s3://bucket/", "https://evil.example", "identity.method", "metadata", true, false, -ERR_DENIED},
        {"s3://bucket/", "https://evil.example", "identity.method", "anonymous", false, false, 0},
        {"gs://bucket/", "https://minio.example:9000", "serviceAccountName", "sa", false, true, 0},
        {"s3://bucket/", "https://minio.example:9000", "serviceAccountName", "sa", false, true, 0},
        {"gs://bucket/", "https://minio.example:9000", "secretRef.name", "keys", false, true, 0},
        {"gs://bucket/", "http://minio.example:9000", "secretRef.name", "keys", false, true, -ERR_DENIED},
        {"s3://bucket/", "https://minio.example:9000", "identity.method", "metadata", true, true, -ERR_DENIED},
    };
    auto_guard g = NULL;
    struct err err;
    (void)state;
    assert_int_equal(guard_parse(STR("trust https://minio.example:9000\n"), &g, &err), 0);
    for (size_t i = 0; i < countof(cases); i++) {
        struct route r[ROUTES_MAX];
        size_t n;
        struct given one =
            GIVEN({"uri", cases[i].uri}, {"endpoint", cases[i].endpoint}, {cases[i].key, cases[i].value});
        guard = cases[i].trusts ? g : NULL;
        int code = find(&one, false, "", cases[i].driver, r, &n, &err);
        if (code != cases[i].code || (code < 0 && err.id != 1912))
            fail_msg("case %zu: %d %s", i, code, code < 0 ? err.text : "");
        given_done(&one);
    }
    guard = NULL;
}

static void route_find_denies_a_kind_that_the_volume_does_not_have(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"});
    assert_int_equal(find(&g, false, "gs", false, r, &n, &err), -ERR_DENIED);
    assert_int_equal(find(&g, true, "", false, r, &n, &err), -ERR_DENIED);
    given_done(&g);
}

static void route_of_several_sources_is_of_the_kind_that_was_asked_for(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g =
        GIVEN({"sources", "[{\"uri\":\"file:///d/\"},{\"uri\":\"s3://bucket/\"},{\"uri\":\"gs://bucket/\"}]"},
              {"serviceAccountName", "sa"});
    assert_int_equal(find(&g, false, "", false, r, &n, &err), 0);
    assert_int_equal(r[0].creds, CREDS_AWS);
    assert_int_equal(find(&g, false, "gs", false, r, &n, &err), 0);
    assert_int_equal(r[0].creds, CREDS_GOOGLE);
    given_done(&g);
}

static void export_of_a_public_source_uses_its_own_account(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g = GIVEN({"uri", "s3://bucket/"}, {"identity.method", "anonymous"}, {"export.uri", "s3://out/"},
                           {"export.serviceAccountName", "writer"});
    assert_int_equal(find(&g, false, "", false, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_ANONYMOUS);
    assert_int_equal(find(&g, true, "", false, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_ACCOUNT);
    assert_string_equal(r[0].name, "writer");
    given_done(&g);
}

static struct route route_of(const struct given *g, bool is_export, bool driver)
{
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    if (find(g, is_export, "", driver, r, &n, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(n, 1);
    return r[0];
}

static void is_denied(const struct given *g, bool is_export)
{
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    assert_int_equal(find(g, is_export, "", false, r, &n, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1908);
}

static void route_of_an_account_has_the_namespace_of_the_source_and_the_region_of_the_server(void **state)
{
    (void)state;
    struct given g = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"region", "eu-west-1"},
                           {"export.uri", "s3://out/"}, {"export.region", "us-east-1"});
    struct given secret = GIVEN({"uri", "s3://bucket/"}, {"secretRef.name", "keys"});
    g.volume->claim_namespace = str_dup(STR("another"));
    assert_string_equal(route_of(&g, false, false).ns, "team");
    assert_string_equal(route_of(&g, false, false).region, "eu-west-1");
    assert_string_equal(route_of(&g, true, false).region, "us-east-1");
    free(take(&g.volume->source_namespace));
    assert_string_equal(route_of(&g, false, false).ns, "another");
    free(take(&g.volume->claim_namespace));
    is_denied(&g, false);
    free(take(&secret.volume->source_namespace));
    is_denied(&secret, false);
    given_done(&g);
    given_done(&secret);
}

static void identity_method_must_suit_the_store_and_the_fields(void **state)
{
    (void)state;
    struct given gke_of_s3 = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "gke"});
    struct given irsa_of_gs = GIVEN({"uri", "gs://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "irsa"});
    struct given no_secret =
        GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "secret"});
    struct given driver = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "metadata"});
    struct given no_account = GIVEN({"uri", "s3://bucket/"}, {"secretRef.name", "keys"}, {"identity.method", "irsa"});
    struct given *const all[] = {&gke_of_s3, &irsa_of_gs, &no_secret, &driver, &no_account};
    for (size_t i = 0; i < countof(all); i++)
        is_denied(all[i], false);
    assert_int_equal(route_of(&driver, false, true).kind, ROUTE_DRIVER);
    for (size_t i = 0; i < countof(all); i++)
        given_done(all[i]);
}

static void identity_of_an_export_precedes_the_sources(void **state)
{
    (void)state;
    struct given secret = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "irsa"},
                                {"export.uri", "s3://out/"}, {"export.secretRef.name", "writer"});
    struct given irsa = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "irsa"},
                              {"export.uri", "s3://out/"}, {"export.serviceAccountName", "writer"});
    struct given driver = GIVEN({"uri", "s3://bucket/"}, {"identity.method", "metadata"}, {"export.uri", "s3://out/"},
                                {"export.serviceAccountName", "writer"});
    struct given public = GIVEN({"uri", "s3://bucket/"}, {"serviceAccountName", "sa"}, {"identity.method", "anonymous"},
                                {"export.uri", "s3://out/"});
    assert_int_equal(route_of(&secret, true, false).kind, ROUTE_SECRET);
    assert_string_equal(route_of(&secret, true, false).name, "writer");
    assert_int_equal(route_of(&irsa, true, false).method, IDENTITY_IRSA);
    assert_string_equal(route_of(&irsa, true, false).name, "writer");
    assert_int_equal(route_of(&driver, true, true).kind, ROUTE_ACCOUNT);
    assert_int_equal(route_of(&driver, true, true).method, IDENTITY_AUTO);
    assert_int_equal(route_of(&public, true, false).kind, ROUTE_ACCOUNT);
    assert_string_equal(route_of(&public, true, false).name, "sa");
    given_done(&secret);
    given_done(&irsa);
    given_done(&driver);
    given_done(&public);
}

static void binding_of_an_export_secret_is_a_name_and_a_prefix_in_a_bucket(void **state)
{
    static const char *const bad[] = {"",
                                      "last",
                                      "=gs://out/",
                                      "last=",
                                      "last=gs://",
                                      "last=gs:///",
                                      "last=out/",
                                      "last=file:///mnt/x",
                                      "last=https://minio.example:9000",
                                      "last=https://minio.example:9000=",
                                      "last=ftp://x/"};
    struct broker_binding b;
    struct err err;
    (void)state;
    assert_int_equal(broker_binding_parse(STR("last=gs://out/team/"), &b, &err), 0);
    assert_true(str_eq(b.secret, STR("last")) && b.endpoint.len == 0 && str_eq(b.prefix, STR("gs://out/team/")));
    assert_int_equal(broker_binding_parse(STR("last=https://minio.example:9000=s3://out"), &b, &err), 0);
    assert_true(str_eq(b.endpoint, STR("https://minio.example:9000")) && str_eq(b.prefix, STR("s3://out")));
    for (size_t i = 0; i < countof(bad); i++)
        if (broker_binding_parse(str_of(bad[i]), &b, &err) != -ERR_INVALID)
            fail_msg("'%s' passed", bad[i]);
}

static void route_key_differs_for_different_identities(void **state)
{
    (void)state;
    struct err err;
    const struct route a = {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "a", .name = "b"};
    const struct route others[] = {
        {.kind = ROUTE_SECRET, .creds = CREDS_AWS, .ns = "a", .name = "b"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_GOOGLE, .ns = "a", .name = "b"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "b", .name = "a"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "a", .name = "c"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "c", .name = "b"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "a", .name = "b", .method = IDENTITY_IRSA},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "a", .name = "b", .audience = "x"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "a", .name = "b", .provider = "x"},
        {.kind = ROUTE_ACCOUNT, .creds = CREDS_AWS, .ns = "a", .name = "b", .region = "x"}};
    auto_sbuf first;
    sbuf_init(&first, ROUTE_KEY_MAX);
    assert_int_equal(route_key(&a, &first, &err), 0);
    for (size_t i = 0; i < countof(others); i++) {
        auto_sbuf b;
        sbuf_init(&b, ROUTE_KEY_MAX);
        assert_int_equal(route_key(&others[i], &b, &err), 0);
        assert_string_not_equal(b.ptr, first.ptr);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_prefers_the_secret_then_the_account_then_the_driver),
        cmocka_unit_test(export_secret_applies_after_an_export_below_its_prefix_only),
        cmocka_unit_test(export_secret_without_an_endpoint_is_for_the_provider_only),
        cmocka_unit_test(export_secret_is_not_used_to_read_a_source),
        cmocka_unit_test(token_of_another_owner_is_not_used_with_a_ca_bundle),
        cmocka_unit_test(route_find_denies_credentials_at_untrusted_endpoints),
        cmocka_unit_test(route_find_denies_a_kind_that_the_volume_does_not_have),
        cmocka_unit_test(route_of_several_sources_is_of_the_kind_that_was_asked_for),
        cmocka_unit_test(export_of_a_public_source_uses_its_own_account),
        cmocka_unit_test(route_of_an_account_has_the_namespace_of_the_source_and_the_region_of_the_server),
        cmocka_unit_test(identity_method_must_suit_the_store_and_the_fields),
        cmocka_unit_test(identity_of_an_export_precedes_the_sources),
        cmocka_unit_test(binding_of_an_export_secret_is_a_name_and_a_prefix_in_a_bucket),
        cmocka_unit_test(route_key_differs_for_different_identities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
