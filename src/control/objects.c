/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the objects of the API server, and reads the informers' copies. */
#include "private.h"
#include "util/clock.h"
#include <stdio.h>

/* Part of the caller's deadline that is reserved for sending the answer. */
#define ANSWER_NS (1 * NS_PER_SECOND)
/* For a caller without a deadline, and the most that any call waits for a node. */
#define WAIT_MAX_NS (60 * NS_PER_SECOND)

enum { WITHDRAW_TRIES = 5 };

/* Every failure of the API server is retryable: the caller repeats the request, and Cistern's state does not depend on
 * it. */
static int retryable(struct err *err)
{
    if (err->code != ERR_NOT_FOUND && err->code != ERR_CANCELLED)
        err->code = ERR_AGAIN;
    return -(int)err->code;
}

int informers_have_synced(const struct control *c, struct err *err)
{
    if (kube_informer_has_synced(c->o.volumes) && kube_informer_has_synced(c->o.pools) &&
        kube_informer_has_synced(c->o.nodes))
        return 0;
    return err_fail(err, ERR_AGAIN, CIS_CONTROLLER_STARTING,
                    "controller: starting: it has not read all pools and volumes yet");
}

int object_get(struct control *c, const struct kube_resource *resource, struct str ns, struct str name, json **ret,
               struct err *err)
{
    struct kube_request q = {.verb = KUBE_GET, .resource = resource, .ns = ns, .name = name};
    return kube_call(c->o.kube, &q, ret, err) < 0 ? retryable(err) : 0;
}

int volume_get(struct control *c, const char *name, struct api_volume **ret, struct err *err)
{
    auto_json j = NULL;
    int r = object_get(c, &api_volumes, STR_NULL, str_of(name), &j, err);
    return r < 0 ? r : api_volume_read(j, ret, err);
}

struct csi_volume csi_volume_of(struct rpc_call *call, const struct api_volume *v)
{
    return (struct csi_volume){.id = rpc_dup(call, str_of(v->id.text)),
                               .node = rpc_dup(call, str_of(v->node)),
                               .capacity_bytes = v->capacity_bytes};
}

/* ---- by id ------------------------------------------------------------------------------------------------------- */

static int keep_first(void *ctx, struct str, const json *object)
{
    json **found = ctx;
    *found = json_copy_of(object);
    return -1; /* one is enough */
}

static int list_by_id(struct control *c, const char *id, json **ret, struct err *err)
{
    char selector[64];
    auto_json list = NULL;
    snprintf(selector, sizeof selector, "spec.volumeID=%s", id);
    struct kube_request q = {.verb = KUBE_LIST, .resource = &api_volumes, .field_selector = selector};
    if (kube_call(c->o.kube, &q, &list, err) < 0)
        return retryable(err);
    const json *items = json_at(list, "items");
    if (json_count(items) == 0)
        return csi_volume_not_found(id, err);
    *ret = json_copy_of(json_item(items, 0));
    return 0;
}

int volume_find(struct control *c, const struct volume_id *id, struct api_volume **ret, struct err *err)
{
    auto_json j = NULL;
    (void)kube_informer_each(c->o.volumes, CONTROL_BY_ID, str_of(id->text), keep_first, &j);
    int r = j ? 0 : list_by_id(c, id->text, &j, err);
    return r < 0 ? r : api_volume_read(j, ret, err);
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

int control_cached_pool(struct control *c, const char *node, const char *pool, struct api_pool **ret, struct err *err)
{
    char name[API_POOL_NAME_MAX + 1];
    *ret = NULL;
    int r = api_pool_name(node, pool, name, err);
    if (r < 0)
        return r;
    auto_json machine = kube_informer_get(c->o.nodes, STR_NULL, str_of(node));
    auto_json j = machine ? kube_informer_get(c->o.pools, STR_NULL, str_of(name)) : NULL;
    return j ? api_pool_read(j, ret, err) : 0;
}

int control_wake_pool(struct control *c, const char *node, const char *pool, struct err *err)
{
    return api_pool_wake(c->o.kube, NULL, node, pool, err) < 0 ? retryable(err) : 0;
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

int volume_patch(struct control *c, const struct api_volume *v, json *own_patch, struct err *err)
{
    auto_json patch = own_patch;
    struct kube_request q = {
        .verb = KUBE_MERGE_PATCH, .resource = &api_volumes, .name = str_of(v->meta.name), .body = patch};
    json_set_str(patch, "metadata.uid", str_of(v->meta.uid));
    if (kube_call(c->o.kube, &q, NULL, err) < 0)
        return retryable(err);
    /* The order is written before the node is woken. */
    return control_wake_pool(c, v->node, v->pool, err);
}

/* The finalizer is removed only from the object as it was read: a node that has begun work has changed the object.
 * Then the object is deleted. A crash in between leaves an object without finalizer, which the sweep removes. */
static int delete_order_once(struct control *c, const struct api_volume *v, struct err *err)
{
    auto_json patch = json_new_object();
    json_set(patch, "metadata.finalizers", json_new_array());
    json_set_str(patch, "metadata.uid", str_of(v->meta.uid));
    json_set_str(patch, "metadata.resourceVersion", str_of(v->meta.resource_version));
    struct kube_request q = {
        .verb = KUBE_MERGE_PATCH, .resource = &api_volumes, .name = str_of(v->meta.name), .body = patch};
    int r = v->meta.is_held ? kube_call(c->o.kube, &q, NULL, err) : 0;
    if (r == -ERR_NOT_FOUND || r == -ERR_CHANGED)
        return r == -ERR_CHANGED ? r : 0;
    if (r < 0)
        return retryable(err);
    struct kube_request gone = {
        .verb = KUBE_DELETE, .resource = &api_volumes, .name = str_of(v->meta.name), .uid = str_of(v->meta.uid)};
    r = kube_call(c->o.kube, &gone, NULL, err);
    /* An object with another uid is a successor: this one is deleted. */
    return r == 0 || r == -ERR_NOT_FOUND || r == -ERR_CHANGED ? 0 : retryable(err);
}

int volume_delete_order(struct control *c, const struct api_volume *v, bool (*is_over)(const struct api_volume *v),
                        struct err *err)
{
    int r = delete_order_once(c, v, err);
    /* A call, the leader or the node changed it: read it again. */
    for (int tries = 0; r == -ERR_CHANGED && tries < WITHDRAW_TRIES; tries++) {
        auto_api_volume now = NULL;
        r = volume_get(c, v->meta.name, &now, err);
        if (r == -ERR_NOT_FOUND || (r == 0 && strcmp(now->meta.uid, v->meta.uid) != 0))
            return 0;
        if (r == 0)
            r = is_over(now) ? delete_order_once(c, now, err) : -ERR_CHANGED;
    }
    if (r != -ERR_CHANGED)
        return r;
    return err_fail(err, ERR_PENDING, CIS_VOLUME_STEP_PENDING,
                    "volume '%s': its CisternVolume changed while it was being deleted", v->meta.name);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

int volume_wait(struct control *c, struct rpc_call *call, const char *name, uint64_t wait_ns,
                bool (*is)(void *ctx, const json *object), void *ctx, struct api_volume **ret, struct err *err)
{
    uint64_t now = clock_now_ns(), deadline = rpc_deadline_ns(call);
    uint64_t left = deadline > now + ANSWER_NS ? deadline - now - ANSWER_NS : 0;
    auto_json j = NULL;
    *ret = NULL;
    wait_ns = min_u64(wait_ns, min_u64(left, WAIT_MAX_NS));
    int r = kube_informer_wait(c->o.volumes, str_of(name), wait_ns, is, ctx, &j, err);
    if (r == 0 && j)
        r = api_volume_read(j, ret, err);
    return r;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void volume_event(struct control *c, const struct api_volume *v, const char *reason, const struct err *what)
{
    char line[ERR_LINE_MAX];
    auto_json pv = NULL;
    struct kube_ref claim = api_volume_claim(v);
    if (!c->o.events)
        return;
    err_line(what, line, sizeof line);
    if (object_get(c, &kube_persistent_volumes, STR_NULL, str_of(v->meta.name), &pv, ERR_IGNORED) == 0) {
        struct kube_ref ref = kube_ref_of(&kube_persistent_volumes, pv);
        kube_event(c->o.events, &ref, KUBE_WARNING, reason, "%s", line);
    }
    if (v->claim_uid)
        kube_event(c->o.events, &claim, KUBE_WARNING, reason, "%s", line);
}
