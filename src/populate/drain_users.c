/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how long a volume in use blocks the drain of its node. Pods of a DaemonSet stay on a cordoned node, and a
 * tenant may start others there again and again. An export that is due in between does not end their time. */
#include "api/node.h"
#include "private.h"
#include "util/clock.h"
#include <stdio.h>

/* For clocks that differ, and a drain that lists pods after the cordon. */
#define LATER_NS (60 * (int64_t)NS_PER_SECOND)

/* When the controller manager saw that the node is cordoned; 0: not known. */
static int64_t taint_ns(struct populate *p, const struct api_volume *volume)
{
    int64_t ns = 0;
    auto_json node = kube_informer_get(p->o.nodes, STR_NULL, str_of(volume->node));
    const json *taint = api_node_taint(node, API_NODE_UNSCHEDULABLE);
    return time_parse(json_member_str(taint, "timeAdded"), &ns, ERR_IGNORED) == 0 ? ns : 0;
}

/* The clock of an earlier leader may have been ahead. A time before `least_ns` is that of an earlier drain, which ended
 * while no controller led. */
static void begin(int64_t *since_ns, int64_t least_ns)
{
    int64_t now_ns = clock_wall_ns();
    if (!*since_ns || *since_ns > now_ns)
        *since_ns = now_ns;
    *since_ns = *since_ns < least_ns ? least_ns : *since_ns;
}

void drain_users_note(struct populate *p, struct api_volume *volume, enum claim_node node)
{
    auto_json pods = NULL;
    char selector[300];
    const struct api_conditions *all = &volume->status.conditions;
    const struct api_condition *exported = api_condition_find(all, API_EXPORTED);
    if (!p->o.drain_failing_ns || !exported || node == CLAIM_NODE_READY)
        volume->cordoned_ns = 0;
    else if (node == CLAIM_NODE_CORDONED) /* a node that became unready may still be cordoned */
        begin(&volume->cordoned_ns, taint_ns(p, volume));
    if (!volume->cordoned_ns || exported->status == API_TRUE) {
        volume->blocked_ns = 0;
        return;
    }
    if (!volume->claim_namespace || !volume->claim_name || !api_condition_is(all, API_MOUNTED, API_TRUE))
        return;
    snprintf(selector, sizeof selector, "spec.nodeName=%s", volume->node);
    struct kube_request q = {
        .verb = KUBE_LIST, .resource = &kube_pods, .ns = str_of(volume->claim_namespace), .field_selector = selector};
    if (!populate_may_list(p, q.ns) || kube_call(p->o.kube, &q, &pods, ERR_IGNORED) < 0)
        return;
    struct claim_users u = claim_users_of(str_of(volume->claim_name), pods, volume->cordoned_ns + LATER_NS);
    if (u.evicted)
        volume->blocked_ns = 0;
    else if (u.count)
        begin(&volume->blocked_ns, taint_ns(p, volume));
}

bool drain_users_stay(const struct populate *p, const struct api_volume *volume)
{
    return volume->blocked_ns && api_condition_is(&volume->status.conditions, API_MOUNTED, API_TRUE) &&
           clock_wall_ns() - volume->blocked_ns >= (int64_t)p->o.drain_failing_ns;
}
