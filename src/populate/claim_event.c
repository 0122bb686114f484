/* SPDX-License-Identifier: Apache-2.0 */
/* Sends events about a claim to the claim and to the pods that wait for it: people look at the pod first. */
#include "private.h"
#include "util/clock.h"

#define NO_POD_NS (2 * NS_PER_SECOND)      /* a pod is often created right after its claim; doubled up to RECHECK_NS */
#define PODS_EVERY_NS (60 * NS_PER_SECOND) /* kube_event() limits an event to one a minute, but each needs a list */

/* Returns whether the claim has one. */
static bool tell_pods(struct populate *p, const struct kube_ref *claim, const struct populate_event *what)
{
    bool found = false;
    struct err ignored; /* best effort, as all events */
    auto_json list = NULL;
    struct kube_request q = {.verb = KUBE_LIST,
                             .resource = &kube_pods,
                             .ns = claim->ns,
                             .field_selector = "status.phase=Pending",
                             .fence = p->o.lease};
    if (kube_call(p->o.kube, &q, &list, &ignored) < 0)
        return false;
    const json *pods = json_at(list, "items");
    for (size_t i = 0; i < json_count(pods); i++) {
        const json *pod = json_item(pods, i);
        struct kube_ref about = kube_ref_of(&kube_pods, pod);
        about.ns = claim->ns;
        if (!claim_is_used_by(claim->name, pod))
            continue;
        found = true;
        kube_event(p->o.events, &about, what->warning ? KUBE_WARNING : KUBE_NORMAL, what->reason, "claim %.*s: %s",
                   STR_FMT(claim->name), what->text);
    }
    return found;
}

void claim_event_send(struct populate *p, struct key_state *m, const struct kube_ref *claim,
                      const struct populate_event *what)
{
    uint64_t now_ns = clock_now_ns();
    kube_event(p->o.events, claim, what->warning ? KUBE_WARNING : KUBE_NORMAL, what->reason, "%s", what->text);
    bool is_same = m && m->pods_reason && strcmp(m->pods_reason, what->reason) == 0;
    if (is_same && now_ns < m->pods_due_ns)
        return;
    bool found = tell_pods(p, claim, what);
    if (!m)
        return;
    m->no_pod_ns = is_same && m->no_pod_ns ? min_u64(2 * m->no_pod_ns, RECHECK_NS) : NO_POD_NS;
    m->pods_reason = what->reason;
    m->pods_due_ns = now_ns + (found ? PODS_EVERY_NS : m->no_pod_ns);
}
