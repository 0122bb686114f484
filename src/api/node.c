/* SPDX-License-Identifier: Apache-2.0 */
#include "api/node.h"

const json *api_node_taint(const json *node, const char *key)
{
    const json *taints = json_at(node, "spec.taints");
    for (size_t i = 0; i < json_count(taints); i++)
        if (str_eq(json_member_str(json_item(taints, i), "key"), str_of(key)))
            return json_item(taints, i);
    return NULL;
}

/* Takes the number at the front, and one character behind it: "6.12.1-gke" gives 6, then 12. False: no digit. */
static bool take_number(struct str *s, unsigned *ret)
{
    size_t digits = 0;
    *ret = 0;
    while (digits < s->len && digits < 4 && s->ptr[digits] >= '0' && s->ptr[digits] <= '9')
        *ret = 10 * *ret + (unsigned)(s->ptr[digits++] - '0');
    *s = str_from(*s, min_u64(digits + 1, s->len));
    return digits > 0;
}

bool api_node_maps_fuse(const json *node)
{
    unsigned major, minor;
    struct str version = json_str_at(node, "status.nodeInfo.kernelVersion");
    if (!take_number(&version, &major) || !take_number(&version, &minor))
        return true;
    return major > 6 || (major == 6 && minor >= 12);
}

static bool has_labels(const json *node, const json *expressions)
{
    const json *labels = json_at(node, "metadata.labels");
    for (size_t i = 0; i < json_count(expressions); i++) {
        const json *e = json_item(expressions, i);
        auto_mem char *key = str_dup(json_member_str(e, "key"));
        if (!json_holds(json_member(e, "values"), json_member_str(labels, key)))
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
