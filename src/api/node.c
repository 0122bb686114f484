/* SPDX-License-Identifier: Apache-2.0 */
#include "api/node.h"

bool api_node_has_taint(const json *node, const char *key)
{
    const json *taints = json_at(node, "spec.taints");
    for (size_t i = 0; i < json_count(taints); i++)
        if (str_eq(json_member_str(json_item(taints, i), "key"), str_of(key)))
            return true;
    return false;
}

static bool is_value_in(struct str value, const json *values)
{
    struct str one;
    for (size_t i = 0; i < json_count(values); i++)
        if (json_as_str(json_item(values, i), &one) && str_eq(one, value))
            return true;
    return false;
}

static bool has_labels(const json *node, const json *expressions)
{
    const json *labels = json_at(node, "metadata.labels");
    for (size_t i = 0; i < json_count(expressions); i++) {
        const json *e = json_item(expressions, i);
        auto_mem char *key = str_dup(json_member_str(e, "key"));
        if (!is_value_in(json_member_str(labels, key), json_member(e, "values")))
            return false;
    }
    return true;
}

bool api_node_is_in(const json *node, const json *topologies)
{
    for (size_t i = 0; i < json_count(topologies); i++)
        if (has_labels(node, json_member(json_item(topologies, i), "matchLabelExpressions")))
            return true;
    return json_count(topologies) == 0;
}
