/* SPDX-License-Identifier: Apache-2.0 */
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

static void forget(struct given *g)
{
    api_volume_free(g->volume);
    spec_free(g->spec);
}

static int find(const struct given *g, bool is_export, const char *scheme, bool driver, struct route *ret, size_t *n,
                struct err *err)
{
    const struct route_rules rules = {"cistern-system", driver};
    return route_find(g->volume, g->spec, is_export, scheme, &rules, ret, n, err);
}

#define GIVEN(...)                                                                                                     \
    ({                                                                                                                 \
        const char *const pairs_[][2] = {__VA_ARGS__};                                                                 \
        given(pairs_, countof(pairs_));                                                                                \
    })

static void auto_takes_the_secret_then_the_account_then_the_driver(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given both = GIVEN({"uri", "s3://b/"}, {"secretRef.name", "keys"}, {"serviceAccountName", "sa"});
    struct given account = GIVEN({"uri", "gs://b/"}, {"serviceAccountName", "sa"});
    struct given nothing = GIVEN({"uri", "gs://b/"});
    assert_int_equal(find(&both, false, "", true, r, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(r[0].kind, ROUTE_SECRET);
    assert_string_equal(r[0].ns, "team");
    assert_string_equal(r[0].scheme, "s3");
    assert_int_equal(find(&account, false, "gs", true, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_ACCOUNT);
    assert_string_equal(r[0].name, "sa");
    assert_int_equal(find(&nothing, false, "", true, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_DRIVER);
    assert_int_equal(find(&nothing, false, "", false, r, &n, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1908);
    forget(&both);
    forget(&account);
    forget(&nothing);
}

static void an_export_has_ways_left_when_its_own_is_gone(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g = GIVEN({"uri", "s3://b/"}, {"serviceAccountName", "reader"}, {"export.uri", "gs://out/"},
                           {"export.serviceAccountName", "writer"}, {"exportSecret", "last"});
    assert_int_equal(find(&g, true, "", true, r, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_string_equal(r[0].name, "writer");
    assert_string_equal(r[0].scheme, "gs");
    assert_int_equal(r[1].kind, ROUTE_SECRET);
    assert_string_equal(r[1].ns, "cistern-system");
    assert_int_equal(r[2].kind, ROUTE_DRIVER);
    assert_int_equal(find(&g, false, "", true, r, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_string_equal(r[0].name, "reader");
    forget(&g);
}

static void what_the_volume_does_not_name_is_refused(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g = GIVEN({"uri", "s3://b/"}, {"serviceAccountName", "sa"});
    assert_int_equal(find(&g, false, "gs", false, r, &n, &err), -ERR_DENIED);
    assert_int_equal(find(&g, true, "", false, r, &n, &err), -ERR_DENIED);
    forget(&g);
}

static void a_public_source_with_an_export_writes_as_somebody(void **state)
{
    (void)state;
    struct route r[ROUTES_MAX];
    struct err err;
    size_t n;
    struct given g = GIVEN({"uri", "s3://b/"}, {"identity.method", "anonymous"}, {"export.uri", "s3://out/"},
                           {"export.serviceAccountName", "writer"});
    assert_int_equal(find(&g, false, "", false, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_ANONYMOUS);
    assert_int_equal(find(&g, true, "", false, r, &n, &err), 0);
    assert_int_equal(r[0].kind, ROUTE_ACCOUNT);
    assert_string_equal(r[0].name, "writer");
    forget(&g);
}

static void ways_of_different_owners_have_different_keys(void **state)
{
    (void)state;
    struct err err;
    const struct route a = {.kind = ROUTE_ACCOUNT, .scheme = "s3", .ns = "a", .name = "b"};
    const struct route others[] = {{.kind = ROUTE_SECRET, .scheme = "s3", .ns = "a", .name = "b"},
                                   {.kind = ROUTE_ACCOUNT, .scheme = "gs", .ns = "a", .name = "b"},
                                   {.kind = ROUTE_ACCOUNT, .scheme = "s3", .ns = "b", .name = "a"},
                                   {.kind = ROUTE_ACCOUNT, .scheme = "s3", .ns = "a", .name = "b", .audience = "x"}};
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
        cmocka_unit_test(auto_takes_the_secret_then_the_account_then_the_driver),
        cmocka_unit_test(an_export_has_ways_left_when_its_own_is_gone),
        cmocka_unit_test(what_the_volume_does_not_name_is_refused),
        cmocka_unit_test(a_public_source_with_an_export_writes_as_somebody),
        cmocka_unit_test(ways_of_different_owners_have_different_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
