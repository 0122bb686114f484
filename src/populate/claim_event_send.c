/* SPDX-License-Identifier: Apache-2.0 */
/* Sends events about a claim to the claim and to the pods that wait for it: people look at the pod first. */
#include "private.h"
#include "util/clock.h"
#include <assert.h>

#define NO_POD_NS (2 * NS_PER_SECOND) /* a pod is often created right after its claim; doubled up to RECHECK_NS */
/* Limits of pod lists, a second and in a burst, for all namespaces and for one. Without them, claims with mistakes
 * would use up the requests that this client may send, and valid claims would wait. */
enum { LISTS_QPS = 10, LISTS_BURST = 40, NAMESPACE_QPS = 1, NAMESPACE_BURST = 20 };
#define PODS_EVERY_NS (60 * NS_PER_SECOND) /* kube_event() limits an event to one a minute, but each needs a list */

/* The pods of a namespace that wait. A namespace may have thousands of claims with a mistake: one list serves all whose
 * event is repeated, or their lists would take all the requests that this client may send. */
struct pod_list {
    struct list_node node;
    char *ns;          /* owned */
    json *list;        /* owned */
    uint64_t taken_ns; /* monotonic: before the request */
};

static void pod_list_free(struct pod_list *own_l)
{
    free(own_l->ns);
    json_free(own_l->list);
    free(own_l);
}

void claim_events_open(struct populate *p)
{
    pthread_mutex_init(&p->pods_lock, NULL);
    rate_init(&p->lists, LISTS_QPS, LISTS_BURST);
    for (size_t i = 0; i < POD_LIST_SLOTS; i++)
        rate_init(&p->lists_of_namespace[i], NAMESPACE_QPS, NAMESPACE_BURST);
}

struct kube_ref claim_ref(const struct claim *c)
{
    return (struct kube_ref){
        .resource = &kube_persistent_volume_claims, .ns = c->namespace, .name = c->name, .uid = c->uid};
}

bool populate_may_list(struct populate *p, struct str ns)
{
    auto_lock(&p->pods_lock);
    struct rate *own = &p->lists_of_namespace[str_hash(ns, 0) % POD_LIST_SLOTS];
    uint64_t now_ns = clock_now_ns();
    if (rate_take(own, 1, now_ns) > 0)
        return false;
    bool may = rate_take(&p->lists, 1, now_ns) == 0;
    if (!may)
        rate_give_back(own, 1);
    return may;
}

void claim_events_done(struct populate *p)
{
    struct pod_list *l;
    while ((l = list_pop(&p->pod_lists, struct pod_list, node)) != NULL)
        pod_list_free(l);
    pthread_mutex_destroy(&p->pods_lock);
}

/* Sends the event to the pods in the list that use the claim; returns whether there is one. */
static bool report_by_list(struct populate *p, const json *list, const struct kube_ref *claim,
                           const struct populate_event *what)
{
    bool found = false;
    const json *pods = json_at(list, "items");
    for (size_t i = 0; i < json_count(pods); i++) {
        const json *pod = json_item(pods, i);
        struct kube_ref about = kube_ref_of(&kube_pods, pod);
        about.ns = claim->ns;
        if (!claim_is_used_by(claim->name, pod) || (what->concerns && !what->concerns(pod)))
            continue;
        found = true;
        kube_event(p->o.events, &about, what->warning ? KUBE_WARNING : KUBE_NORMAL, what->reason, "claim %.*s: %s",
                   STR_FMT(claim->name), what->text);
    }
    return found;
}

/* Like report_by_list(), with the stored list. False: it was taken before `since_ns`, or is outdated, or missing. */
static bool report_by_stored_list(struct populate *p, const struct kube_ref *claim, const struct populate_event *what,
                                  uint64_t since_ns, bool *ret_found)
{
    struct pod_list *l;
    auto_lock(&p->pods_lock);
    uint64_t now_ns = clock_now_ns();
    list_foreach (&p->pod_lists, l, node) {
        if (l->taken_ns >= since_ns && now_ns - l->taken_ns < NO_POD_NS && str_eq(str_of(l->ns), claim->ns)) {
            *ret_found = report_by_list(p, l->list, claim, what);
            return true;
        }
    }
    return false;
}

/* Replaces an older list of the namespace, and drops those that are outdated. */
static void keep_pods(struct populate *p, struct str ns, json *own_list, uint64_t taken_ns)
{
    struct pod_list *own = xcalloc(1, sizeof *own), *l;
    *own = (struct pod_list){.ns = str_dup(ns), .list = own_list, .taken_ns = taken_ns};
    auto_lock(&p->pods_lock);
    uint64_t now_ns = clock_now_ns();
    list_foreach (&p->pod_lists, l, node)
        if (now_ns - l->taken_ns >= NO_POD_NS || str_eq(str_of(l->ns), ns)) {
            list_remove(&p->pod_lists, &l->node);
            pod_list_free(l);
        }
    list_add(&p->pod_lists, &own->node);
}

/* The same with a new list. False: the limits do not allow it, or it failed. */
static bool report_by_new_list(struct populate *p, const struct kube_ref *claim, const struct populate_event *what,
                               bool *ret_found)
{
    uint64_t now_ns = clock_now_ns();
    json *list = NULL;
    struct kube_request q = {.verb = KUBE_LIST,
                             .resource = &kube_pods,
                             .ns = claim->ns,
                             .field_selector = "status.phase=Pending",
                             .fence = p->o.lease};
    if (!populate_may_list(p, claim->ns) || kube_call(p->o.kube, &q, &list, ERR_IGNORED) < 0)
        return false;
    *ret_found = report_by_list(p, list, claim, what);
    keep_pods(p, claim->ns, list, now_ns);
    return true;
}

/* A list of the time before `since_ns` may lack a pod, and is enough only if it has one. False: no list was enough. */
static bool report_to_pods(struct populate *p, const struct kube_ref *claim, const struct populate_event *what,
                           uint64_t since_ns, bool *ret_found)
{
    return report_by_stored_list(p, claim, what, since_ns, ret_found) ||
           report_by_new_list(p, claim, what, ret_found) ||
           (report_by_stored_list(p, claim, what, 0, ret_found) && *ret_found);
}

void populate_event_send(struct populate *p, const struct kube_ref *about, const struct populate_event *what)
{
    kube_event(p->o.events, about, what->warning ? KUBE_WARNING : KUBE_NORMAL, what->reason, "%s", what->text);
}

/* False: the pods could not be listed, or not now. */
static bool send(struct populate *p, struct key_state *m, const struct kube_ref *claim,
                 const struct populate_event *what)
{
    uint64_t now_ns = clock_now_ns(), most_ns = what->concerns ? PODS_EVERY_NS : RECHECK_NS;
    bool found = false, is_same = m && m->pods_reason && strcmp(m->pods_reason, what->reason) == 0;
    if (is_same && now_ns < m->pods_due_ns)
        return true;
    bool has_looked = report_to_pods(p, claim, what, is_same ? 0 : now_ns, &found);
    if (found || !what->concerns)
        populate_event_send(p, claim, what);
    if (!m)
        return has_looked;
    m->pod_looks = is_same ? m->pod_looks + 1 : 0;
    m->pods_reason = what->reason;
    m->pods_due_ns = now_ns + (found ? PODS_EVERY_NS : clock_doubled_ns(m->pod_looks, NO_POD_NS, most_ns));
    return has_looked;
}

bool claim_event_send_if_found(struct populate *p, const struct kube_ref *claim, const struct populate_event *what)
{
    assert(what->concerns);
    return send(p, NULL, claim, what);
}

void claim_event_repeat(struct populate *p, struct key_state *m, const struct kube_ref *claim,
                        const struct populate_event *what)
{
    (void)send(p, m, claim, what);
}

/* ---- events that are not repeated -------------------------------------------------------------------------------- */

enum { UNLISTED_MAX = 4 }; /* of a key: its newest */

/* An event whose pods were not listed yet. */
struct unlisted_event {
    struct list_node node;
    uint64_t since_ns;
    struct populate_event what;
};

static void drop_first(struct key_state *m)
{
    free(list_pop(&m->unlisted, struct unlisted_event, node));
    m->unlisted_count--;
}

void claim_event_send(struct populate *p, struct key_state *m, const struct kube_ref *claim,
                      const struct populate_event *what)
{
    uint64_t now_ns = clock_now_ns();
    if (send(p, m, claim, what) || !m)
        return;
    if (m->unlisted_count == UNLISTED_MAX)
        drop_first(m);
    struct unlisted_event *u = xcalloc(1, sizeof *u);
    *u = (struct unlisted_event){.since_ns = now_ns, .what = *what};
    list_add(&m->unlisted, &u->node);
    m->unlisted_count++;
}

void claim_events_finish(struct populate *p, struct key_state *m, const struct kube_ref *claim)
{
    bool found = false;
    while (m->unlisted_count > 0) {
        const struct unlisted_event *u = list_first(&m->unlisted, struct unlisted_event, node);
        if (!report_to_pods(p, claim, &u->what, u->since_ns, &found))
            return;
        drop_first(m);
    }
}

void claim_events_drop(struct key_state *m)
{
    while (m->unlisted_count > 0)
        drop_first(m);
}
