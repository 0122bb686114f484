/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the events of a volume: to its claim and the pods that wait for it, to its PersistentVolume and to its node. */
#include "api/node.h"
#include "api/source.h"
#include "private.h"
#include "util/clock.h"
#include <stdio.h>

/* Claims that were deleted already get events, too. False: the volume has no claim. */
static bool find_claim(const struct api_volume *volume, struct kube_ref *ret)
{
    *ret = api_volume_claim(volume);
    return ret->ns.len && ret->name.len && ret->uid.len;
}

static void send_hydration(struct populate *p, struct key_state *m, const struct api_volume *volume,
                           const struct kube_ref *claim)
{
    struct populate_event events[VOLUME_EVENTS_MAX];
    size_t count = volume_events_of_hydration(volume, &m->events, clock_wall_ns(), events);
    for (size_t i = 0; i < count; i++) {
        m->pods_reason = NULL; /* it is new, though its reason may be that of the last event */
        claim_event_send(p, m, claim, &events[i]);
    }
}

static void send_deletion(struct populate *p, struct key_state *m, const struct api_volume *volume,
                          const struct kube_ref *claim)
{
    struct populate_event report;
    if (volume_event_of_deletion(volume, &m->events, &report))
        claim_event_send(p, m, claim, &report);
}

/* To the owner of the data, on the claim. Warnings also go to administrators, on the PersistentVolume; its events are
 * in namespace default. `claim` NULL: it has none. */
static void send_export(struct populate *p, struct key_state *m, const struct api_volume *volume,
                        const struct kube_ref *claim)
{
    struct populate_event report;
    if (!volume_event_of_export(volume, &m->events, &report))
        return;
    if (claim)
        populate_event_send(p, claim, &report);
    auto_json pv = kube_informer_get(p->o.pvs, STR_NULL, str_of(volume->meta.name));
    struct kube_ref about = {.resource = &kube_persistent_volumes,
                             .name = str_of(volume->meta.name),
                             .uid = json_member_str(json_at(pv, "metadata"), "uid")};
    if (pv && (report.warning || !claim))
        populate_event_send(p, &about, &report);
}

/* Only if the volume exports as its source says now. */
static void send_export_test(struct populate *p, struct key_state *m, const struct api_volume *volume,
                             const json *source_json, const struct kube_ref *claim)
{
    struct source_probe probe;
    struct populate_event report;
    char key[KEY_BYTES_MAX];
    auto_api_source s = NULL;
    if (!source_json || api_source_read(source_json, &s, ERR_IGNORED) < 0 ||
        s->meta.generation != volume->source_generation)
        return;
    snprintf(key, sizeof key, "%s/%s", s->meta.namespace, s->meta.name);
    if (source_probe_find(p, str_of(key), s->meta.generation, &probe) && probe.count > 0 && probe.answer.tried_export &&
        volume_event_of_export_test(&probe.answer.export_err, &m->events, &report))
        claim_event_send(p, m, claim, &report);
}

void volume_event_send(struct populate *p, struct key_state *m, const struct api_volume *volume,
                       const json *source_json)
{
    struct kube_ref claim;
    bool has_claim = find_claim(volume, &claim);
    if (has_claim) {
        claim_events_finish(p, m, &claim);
        send_hydration(p, m, volume, &claim);
        send_deletion(p, m, volume, &claim);
        send_export_test(p, m, volume, source_json, &claim);
    }
    send_export(p, m, volume, has_claim ? &claim : NULL);
}

void volume_event_send_queued(struct populate *p, struct key_state *m, const struct api_volume *volume)
{
    struct kube_ref claim;
    struct populate_event report = {.reason = "HydrationQueued"};
    if (!find_claim(volume, &claim))
        return;
    snprintf(report.text, sizeof report.text,
             "node %s hydrates as many volumes as populate.maxConcurrentPerNode allows, or half of them for this "
             "namespace",
             volume->node);
    claim_event_repeat(p, m, &claim, &report);
}

void volume_event_send_trouble(struct populate *p, struct key_state *m, const struct api_volume *volume,
                               const struct populate_event *trouble)
{
    struct kube_ref claim;
    if (find_claim(volume, &claim))
        claim_event_send(p, m, &claim, trouble);
}

void volume_event_send_refusal(struct populate *p, struct key_state *m, const struct api_volume *volume,
                               const struct err *why)
{
    struct kube_ref claim;
    struct populate_event report = {.warning = true, .reason = "JobRefused"};
    if ((why->code != ERR_DENIED && why->code != ERR_INVALID) || !find_claim(volume, &claim))
        return;
    snprintf(report.text, sizeof report.text, "an administrator must admit Jobs of Cistern: %s", why->text);
    claim_event_send(p, m, &claim, &report);
}

static bool is_in_user_namespace(const json *pod)
{
    bool host_users = true;
    return json_opt_bool(pod, "spec.hostUsers", &host_users, ERR_IGNORED) == 0 && !host_users;
}

/* False: the pods could not be listed. */
static bool report_user_namespace(struct populate *p, const struct api_volume *volume)
{
    struct kube_ref claim;
    struct err err;
    char line[ERR_LINE_MAX];
    struct populate_event report = {
        .warning = true, .reason = "UserNamespaceUnsupported", .concerns = is_in_user_namespace};
    if (api_volume_choice(volume, "access") == ACCESS_BIND || !find_claim(volume, &claim))
        return true;
    auto_json node = kube_informer_get(p->o.nodes, STR_NULL, str_of(volume->node));
    if (!node || api_node_maps_fuse(node))
        return true;
    (void)err_fail(&err, ERR_UNSUPPORTED, CIS_USER_NAMESPACE_UNSUPPORTED,
                   "hostUsers: false: Linux %.*s of node %s cannot map a FUSE mount, and the container will not start",
                   STR_FMT(json_str_at(node, "status.nodeInfo.kernelVersion")), volume->node);
    snprintf(report.text, sizeof report.text, "%s", err_line(&err, line, sizeof line));
    return claim_event_send_if_found(p, &claim, &report);
}

bool volume_event_send_user_namespace(struct populate *p, struct key_state *m, const struct api_volume *volume)
{
    bool is_mounted = api_condition_is(&volume->status.conditions, API_MOUNTED, API_TRUE);
    bool is_seen = m->users == (is_mounted ? USERS_MOUNTED : USERS_UNMOUNTED);
    if (!is_seen && !report_user_namespace(p, volume))
        return false;
    m->users = is_mounted ? USERS_MOUNTED : USERS_UNMOUNTED;
    return true;
}

void volume_event_send_drain(struct populate *p, const struct api_volume *volume)
{
    char bytes[BYTES_TEXT_MAX];
    struct kube_ref node = {.resource = &kube_nodes, .name = str_of(volume->node), .uid = str_of(volume->node)};
    const char *claim = volume->claim_label ? volume->claim_label : "unknown";
    if (api_condition_is(&volume->status.conditions, API_MOUNTED, API_TRUE)) {
        kube_event(
            p->o.events, &node, KUBE_WARNING, "DrainNotHeld",
            "volume %s (claim %s): a drain no longer waits for it: pods that a drain does not evict use it for longer "
            "than export.drainHold. Delete these pods; files that are not exported are lost with the node",
            volume->id.text, claim);
        return;
    }
    kube_event(p->o.events, &node, KUBE_WARNING, "DrainNotHeld",
               "volume %s (claim %s): a drain no longer waits for it: its export fails for longer than "
               "export.drainHold; %s in %llu files are lost with the node; see kubectl get civ -l cistern.io/node=%s "
               "-o wide",
               volume->id.text, claim, bytes_text(volume->status.export.pending_bytes, bytes),
               (unsigned long long)volume->status.export.pending_objects, volume->node);
}
