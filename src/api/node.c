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
