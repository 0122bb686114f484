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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_is_in_topologies_if_it_has_each_label_of_one_term),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
