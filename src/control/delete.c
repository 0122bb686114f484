/* SPDX-License-Identifier: Apache-2.0 */
/* DeleteVolume: requests the release, which node and leader carry out. Each call reports the progress; the caller
 * repeats the call for as long as the release takes, which may be hours. */
#include "api/source.h"
#include "private.h"
#include "release.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"

#define SHORT_NS (5 * NS_PER_SECOND) /* a shorter export is not worth an error */

/* An export or a missing node may take hours. */
static bool is_settled_or_slow(const struct api_volume *v)
{
    return release_is_settled(v) || release_is_slow(v);
}

/* Is the volume deleted, or does the predicate in `ctx` hold for it? */
static bool is_gone_or(void *ctx, const json *object)
{
    bool (**is)(const struct api_volume *v) = ctx;
    auto_api_volume v = NULL;
    return !object || (api_volume_read(object, &v, ERR_IGNORED) == 0 && (*is)(v));
}

/* Unmounting and removing take seconds, on a busy machine longer. The call waits up to its deadline: every answer
 * but OK becomes a warning on the PersistentVolume. */
static int await_release(struct control *c, struct rpc_call *call, const char *name, struct api_volume **ret,
                         struct err *err)
{
    bool (*is)(const struct api_volume *v) = release_is_settled;
    int r = volume_wait(c, call, name, SHORT_NS, is_gone_or, &is, ret, err);
    if (r != -ERR_TIMEOUT)
        return r;
    is = is_settled_or_slow;
    return volume_wait(c, call, name, UINT64_MAX, is_gone_or, &is, ret, err);
}

/* The administrator's annotation counts only on the PersistentVolume of this volume, and only with the volume's id
 * as value: a copied manifest discards nothing. No pod has written to a prime's volume, because it was never
 * published. */
static int may_discard(struct control *c, const struct api_volume *v, const json *pv, bool *ret, struct err *err)
{
    struct str handle = STR_NULL, namespace = STR_NULL, name = STR_NULL;
    int r = json_strings(pv, err, {"?spec.csi.volumeHandle", &handle}, {"?spec.claimRef.namespace", &namespace},
                         {"?spec.claimRef.name", &name});
    if (r < 0)
        return r;
    struct str word = json_member_str(json_at(pv, "metadata.annotations"), NAME_ANNOTATION_DISCARD_UNEXPORTED);
    *ret = str_eq(handle, str_of(v->id.text)) &&
           (str_eq(word, handle) || (str_eq(namespace, c->o.namespace) && str_starts(name, STR(NAME_PRIME_PREFIX))));
    return 0;
}

/* Reads the PersistentVolume from the server: the caller may act on an older copy. */
static int look_at_pv(struct control *c, const struct api_volume *v, bool *ret_discard, struct err *err)
{
    auto_json pv = NULL;
    *ret_discard = v->release_discard;
    int r = object_get(c, &kube_persistent_volumes, STR_NULL, str_of(v->meta.name), &pv, err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    if (release_is_kept_by(pv))
        return err_fail(err, ERR_BUSY, CIS_VOLUME_RETAINED, "volume '%s': its PersistentVolume '%s' is kept",
                        v->id.text, v->meta.name);
    return *ret_discard ? 0 : may_discard(c, v, pv, ret_discard, err);
}

static int ask_release(struct control *c, const struct api_volume *v, struct err *err)
{
    bool discard;
    int r = look_at_pv(c, v, &discard, err);
    if (r < 0)
        return r;
    /* An earlier call may have died, or failed, after the order and before it woke the node. */
    if (v->release_requested && discard == v->release_discard)
        return api_volume_was_seen(v) ? 0 : control_wake_pool(c, v->node, v->pool, err);
    json *patch = json_new_object();
    json_set_bool(patch, "spec.release.requested", true);
    json_set_bool(patch, "spec.release.discard", discard);
    log_event(LOG_INFO, "release requested", "volume", v->id.text, "name", v->meta.name, "node", v->node, "discard",
              discard ? "true" : NULL, NULL);
    return volume_patch(c, v, patch, err);
}

/* A suspended source also holds back the export: the message says so. */
static int describe(struct control *c, const struct api_volume *v, struct err *err)
{
    auto_json source = NULL;
    int r = release_describe(v, err);
    if (!release_owes_export(v) || !v->source_name || !v->source_namespace ||
        object_get(c, &api_sources, str_of(v->source_namespace), str_of(v->source_name), &source, ERR_IGNORED) < 0 ||
        !json_bool_at(source, "spec.suspend"))
        return r;
    return err_fail(err, ERR_PENDING, CIS_SOURCE_SUSPENDED,
                    "volume '%s': its export waits: BucketSource '%s/%s' is suspended", v->id.text, v->source_namespace,
                    v->source_name);
}

static int answer(struct control *c, struct rpc_call *call, const char *name, struct err *err)
{
    auto_api_volume v = NULL;
    int r = await_release(c, call, name, &v, err);
    /* Read from the server: the informer's copy may be older. */
    if (r == -ERR_TIMEOUT || (r == 0 && !v))
        r = volume_get(c, name, &v, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0)
        return r;
    if (release_is_over(v))
        return volume_delete_order(c, v, release_is_over, err);
    /* The order of a gone node stays as a tombstone, and does not delay the PersistentVolume. */
    if (release_is_tombstone(v))
        return 0;
    r = describe(c, v, err);
    if (v->status.phase == API_PHASE_EXPORT_FAILED && r == -ERR_BUSY)
        volume_event(c, v, "ExportBlocksDelete", err);
    if (r == -ERR_ABSENT)
        volume_event(c, v, "ReleaseHeld", err);
    return r;
}

int control_delete(void *ctx, struct rpc_call *call, const struct volume_id *id, struct err *err)
{
    struct control *c = ctx;
    auto_api_volume v = NULL;
    int r = volume_find(c, id, &v, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = ask_release(c, v, err);
    return r < 0 ? r : answer(c, call, v->meta.name, err);
}
