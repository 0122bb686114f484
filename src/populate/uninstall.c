/* SPDX-License-Identifier: Apache-2.0 */
#include "uninstall.h"
#include "api/volume.h"
#include "claim.h"
#include "claim_patch.h"
#include "util/clock.h"
#include <stdio.h>

#define POLL_NS (200 * NS_PER_MS)

enum { TRIES_MAX = 10, LINE_MAX_BYTES = 1024 };

static void say(const struct uninstall_options *o, const char *fmt, ...) printf_like(2, 3);
static void say(const struct uninstall_options *o, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    o->say(line);
}

static int list(const struct uninstall_options *o, const struct kube_resource *resource, struct str ns,
                const char *label_selector, json **ret, struct err *err)
{
    struct kube_request q = {.verb = KUBE_LIST, .resource = resource, .ns = ns, .label_selector = label_selector};
    return kube_call(o->kube, &q, ret, err);
}

/* ---- the controllers --------------------------------------------------------------------------------------------- */

static int stop_controllers(const struct uninstall_options *o, struct err *err)
{
    uint64_t end_ns = clock_now_ns() + o->wait_ns;
    auto_json body = json_new_object();
    json_set_u64(body, "spec.replicas", 0);
    struct kube_request q = {.verb = KUBE_MERGE_PATCH,
                             .resource = &kube_deployments,
                             .ns = o->namespace,
                             .name = STR("cistern-controller"),
                             .subresource = "scale",
                             .body = body};
    int r = kube_call(o->kube, &q, NULL, err);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return r;
    for (;; clock_sleep(POLL_NS)) {
        auto_json pods = NULL;
        r = list(o, &kube_pods, o->namespace,
                 "app.kubernetes.io/part-of=cistern,app.kubernetes.io/component=controller", &pods, err);
        if (r < 0 || json_count(json_at(pods, "items")) == 0)
            return r;
        if (clock_now_ns() >= end_ns)
            return err_fail(err, ERR_TIMEOUT, CIS_CONTROLLER_RUNNING,
                            "Deployment cistern-controller: its pods still run after scaling to 0");
    }
}

/* Objects of controllers and sidecars that Helm does not know: their locks, and the certificate of the broker with
 * its key (broker/publish.h). */
static int delete_created(const struct uninstall_options *o, struct err *err)
{
    static const struct {
        const struct kube_resource *resource;
        const char *name;
    } created[] = {{&kube_leases, "cistern-controller"},
                   {&kube_leases, "csi-cistern-io"},
                   {&kube_leases, "external-resizer-csi-cistern-io"},
                   {&kube_secrets, "cistern-broker-tls"},
                   {&kube_config_maps, "cistern-broker-ca"}};
    int r = 0;
    for (size_t i = 0; i < countof(created) && r == 0; i++) {
        struct kube_request q = {
            .verb = KUBE_DELETE, .resource = created[i].resource, .ns = o->namespace, .name = str_of(created[i].name)};
        r = kube_call(o->kube, &q, NULL, err);
        r = r == -ERR_NOT_FOUND ? 0 : r;
    }
    return r;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

/* 1: removed; 0: the claim has none. Other writers may change the list of finalizers at the same time. */
static int remove_finalizer(const struct uninstall_options *o, struct str ns, struct str name, struct err *err)
{
    int r = -ERR_INVALID;
    for (unsigned i = 0; i < TRIES_MAX && (r == -ERR_INVALID || r == -ERR_CHANGED); i++) {
        auto_json claim = NULL;
        struct kube_request q = {.verb = KUBE_GET, .resource = &kube_persistent_volume_claims, .ns = ns, .name = name};
        r = kube_call(o->kube, &q, &claim, err);
        auto_json patch = r < 0 ? NULL : claim_patch_remove_finalizer(claim);
        if (!patch)
            return r == -ERR_NOT_FOUND ? 0 : r;
        q.verb = KUBE_JSON_PATCH;
        q.body = patch;
        r = kube_call(o->kube, &q, NULL, err);
    }
    return r == -ERR_NOT_FOUND ? 0 : r < 0 ? r : 1;
}

static int remove_finalizers(const struct uninstall_options *o, struct err *err)
{
    auto_json claims = NULL;
    int r = list(o, &kube_persistent_volume_claims, STR_NULL, NULL, &claims, err);
    const json *items = json_at(claims, "items");
    for (size_t i = 0; r >= 0 && i < json_count(items); i++) {
        const json *meta = json_at(json_item(items, i), "metadata");
        auto_json patch = claim_patch_remove_finalizer(json_item(items, i));
        struct str ns = json_member_str(meta, "namespace"), name = json_member_str(meta, "name");
        r = patch ? remove_finalizer(o, ns, name, err) : 0;
        if (r > 0)
            say(o, "claim %.*s/%.*s: hydration stopped; delete the claim, or install Cistern again to resume it",
                STR_FMT(ns), STR_FMT(name));
    }
    return r < 0 ? r : 0;
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

static void say_volume(const struct uninstall_options *o, const struct api_volume *v)
{
    const struct api_condition *exported = api_condition_find(&v->status.conditions, API_EXPORTED);
    bool owes = exported && exported->status == API_FALSE;
    say(o,
        "volume %s of claim %s/%s: kept on node %s (%s)%s%s; its PersistentVolume can only be deleted while Cistern is "
        "installed",
        v->meta.name, v->claim_namespace ? v->claim_namespace : "-", v->claim_name ? v->claim_name : "-", v->node,
        api_phase_name(v->status.phase), owes ? ", not exported: " : "", owes ? exported->message : "");
}

/* A pod keeps its mount until it ends, and the mount dies with the node's pods of Cistern. A bind mount does not. */
static int say_pods(const struct uninstall_options *o, const struct api_volume *v, struct err *err)
{
    auto_json pods = NULL;
    struct kube_request q = {.verb = KUBE_LIST,
                             .resource = &kube_pods,
                             .ns = str_of(v->claim_namespace),
                             .field_selector = "status.phase=Running"};
    if (!v->claim_name || (v->status.access && strcmp(v->status.access, "bind") == 0))
        return 0;
    int r = kube_call(o->kube, &q, &pods, err);
    const json *items = json_at(pods, "items");
    for (size_t i = 0; r == 0 && i < json_count(items); i++)
        if (claim_is_used_by(str_of(v->claim_name), json_item(items, i)))
            say(o,
                "pod %s/%.*s: access to claim %s fails with ENOTCONN as soon as the node driver has stopped; the files "
                "are kept. Delete the pod now, or after Cistern is installed again",
                v->claim_namespace, STR_FMT(json_member_str(json_at(json_item(items, i), "metadata"), "name")),
                v->claim_name);
    return r;
}

static int say_volumes(const struct uninstall_options *o, struct err *err)
{
    auto_json volumes = NULL;
    int r = list(o, &api_volumes, STR_NULL, NULL, &volumes, err);
    const json *items = json_at(volumes, "items");
    for (size_t i = 0; r == 0 && i < json_count(items); i++) {
        auto_api_volume v = NULL;
        if (api_volume_read(json_item(items, i), &v, ERR_IGNORED) < 0)
            continue;
        say_volume(o, v);
        r = say_pods(o, v, err);
    }
    return r;
}

int populate_uninstall(const struct uninstall_options *o, struct err *err)
{
    int r = stop_controllers(o, err);
    if (r == 0)
        r = remove_finalizers(o, err);
    if (r == 0)
        r = delete_created(o, err);
    return r < 0 ? r : say_volumes(o, err);
}
