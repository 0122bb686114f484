/* SPDX-License-Identifier: Apache-2.0 */
#include "api/node.h"
#include "unit.h"

static bool is_in(const char *topologies)
{
    struct err err;
    auto_json node = NULL;
    auto_json list = NULL;
    assert_int_equal(
        json_parse(STR("{\"metadata\": {\"labels\": {\"topology.kubernetes.io/zone\": \"a\", \"type\": \"gpu\"}}}"),
                   "node", &node, &err),
        0);
    assert_int_equal(json_parse(str_of(topologies), "topologies", &list, &err), 0);
    return api_node_is_in(node, list);
}

#define LABEL(key, values) "{\"key\": \"" key "\", \"values\": " values "}"
#define TERM(...) "{\"matchLabelExpressions\": [" __VA_ARGS__ "]}"

static void a_node_is_in_topologies_if_it_has_each_label_of_one_term(void **state)
{
    (void)state;
    assert_true(api_node_is_in(NULL, NULL));
    assert_true(is_in("[]"));
    assert_true(is_in("[" TERM(LABEL("topology.kubernetes.io/zone", "[\"b\", \"a\"]")) "]"));
    assert_false(is_in("[" TERM(LABEL("topology.kubernetes.io/zone", "[\"b\"]")) "]"));
    assert_false(is_in("[" TERM(LABEL("rack", "[\"a\"]")) "]"));
    assert_false(is_in("[" TERM(LABEL("type", "[\"gpu\"]") ", " LABEL("rack", "[\"1\"]")) "]"));
    assert_true(is_in("[" TERM(LABEL("rack", "[\"1\"]")) ", " TERM(LABEL("type", "[\"gpu\"]")) "]"));
}

static void a_node_maps_fuse_mounts_from_linux_6_12_on_or_with_an_unknown_kernel(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        bool maps;
    } rows[] = {{"6.12.0", true},  {"6.12", true},     {"6.12.1-gke", true},      {"6.13.2", true},
                {"7.0.0", true},   {"6.11.99", false}, {"6.1.0-18-amd64", false}, {"5.15.0", false},
                {"5.99.1", false}, {"", true},         {"linux", true},           {"6", true},
                {"6.x", true}};
    for (size_t i = 0; i < countof(rows); i++) {
        auto_json node = json_new_object();
        json_set_str(node, "status.nodeInfo.kernelVersion", str_of(rows[i].version));
        if (api_node_maps_fuse(node) != rows[i].maps)
            fail_msg("%s", rows[i].version);
    }
    assert_true(api_node_maps_fuse(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_maps_fuse_mounts_from_linux_6_12_on_or_with_an_unknown_kernel),
        cmocka_unit_test(a_node_is_in_topologies_if_it_has_each_label_of_one_term),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
