/* SPDX-License-Identifier: Apache-2.0 */
#include "next.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

/* A right that was granted is not known everywhere at once: so long after its first try, a source that refuses is only
 * asked again. */
#define PATIENCE_NS (300 * (int64_t)NS_PER_SECOND)

struct writer {
    struct api_volume *v;
    const struct facts *f;
    const struct outcome *o;
    int64_t now_ns;
};

#define SAY(w, type, truth, reason, ...)                                                                               \
    (void)api_condition_set(&(w)->v->status.conditions, type, truth, reason, (w)->v->meta.generation, (w)->now_ns,     \
                            __VA_ARGS__)

static void line_of(const struct err *err, char *ret)
{
    char line[ERR_LINE_MAX];
    snprintf(ret, API_MESSAGE_MAX, "%.*s", API_MESSAGE_MAX - 1, err_line(err, line, sizeof line));
}

/* Two of the types are the controller's: who writes them owns them. */
static bool is_controllers(const struct api_condition *c)
{
    return strcmp(c->type, API_DELETION_HELD) == 0 || strcmp(c->type, API_NODE_GONE) == 0;
}

static void leave_controllers(struct api_conditions *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct api_condition *item = &c->items[i];
        if (is_controllers(item)) {
            free(item->type);
            free(item->reason);
            free(item->message);
        } else
            c->items[kept++] = *item;
    }
    memset(&c->items[kept], 0, (c->count - kept) * sizeof c->items[0]); /* a place that is free holds no strings */
    c->count = kept;
}

static void set_text(char **field, const char *text)
{
    free(*field);
    *field = text ? str_dup(str_of(text)) : NULL;
}

/* ---- while it is there ------------------------------------------------------------------------------------------- */

static void add_hydration(struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    struct api_hydration *to = &w->v->status.hydration;
    free(to->manifest_digest);
    *to = (struct api_hydration){0};
    if (!h)
        return;
    *to = (struct api_hydration){.objects_total = h->objects_total,
                                 .objects_done = h->objects_done,
                                 .objects_failed = h->objects_failed,
                                 .objects_missing = h->objects_missing,
                                 .bytes_total = h->bytes_total,
                                 .bytes_done = h->bytes_done,
                                 .bytes_per_second = h->bytes_per_second,
                                 .eta_seconds = h->eta_seconds == UINT64_MAX ? 0 : h->eta_seconds,
                                 .attempt = h->attempt,
                                 .started_ns = h->started_ns,
                                 .finished_ns = h->phase == HYDRATE_DONE ? h->finished_ns : 0,
                                 .manifest_digest = h->manifest[0] ? str_dup(str_of(h->manifest)) : NULL,
                                 .has_listing = h->listing.known,
                                 .excluded_objects = h->listing.objects_excluded,
                                 .largest_object_bytes = h->listing.largest_bytes,
                                 .listing_seconds = h->listing.seconds};
}

static void add_fault(struct api_faults *to, const struct hydrate_fault *f)
{
    char id[16] = "";
    if (f->id)
        snprintf(id, sizeof id, "CIS%04u", f->id);
    api_faults_add(to, f->object, id, err_code_name(f->code), f->message, f->attempts, f->time_ns);
}

/* What went wrong is told while it is wrong. */
static void add_errors(struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    struct api_faults *to = &w->v->status.errors;
    api_faults_clear(to);
    if (!h || h->phase == HYDRATE_DONE)
        return;
    if (h->has_error)
        add_fault(to, &h->error);
    for (size_t i = 0; i < h->error_count; i++)
        add_fault(to, &h->errors[i]);
}

static void add_export(struct writer *w)
{
    const struct verdict *e = &w->f->verdict;
    struct api_export *to = &w->v->status.export;
    int64_t last_ns = to->last_success_ns;
    *to = (struct api_export){.pending_objects = e->pending_files,
                              .pending_bytes = e->pending_bytes,
                              .done_objects = e->done_files,
                              .done_bytes = e->done_bytes,
                              .failed_objects = e->failed_files,
                              .last_success_ns = e->state == VERDICT_DONE ? e->updated_ns : last_ns};
    api_faults_clear(&w->v->status.export_failed);
    for (size_t i = 0; e->state == VERDICT_FAILED && i < e->failed_count; i++) {
        char id[16] = "";
        if (e->failed[i].err.id)
            snprintf(id, sizeof id, "CIS%04u", e->failed[i].err.id);
        api_faults_add(&w->v->status.export_failed, e->failed[i].path, id, err_code_name(e->failed[i].err.code),
                       e->failed[i].err.text, 0, e->updated_ns);
    }
}

static bool is_asked_again(const struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    bool is_refused = h && h->phase == HYDRATE_FAILED && h->has_error && h->error.code == ERR_DENIED;
    return is_refused && h->objects_done == 0 && w->now_ns < h->began_ns + PATIENCE_NS;
}

static bool has_failed(const struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    return h && h->phase == HYDRATE_FAILED && !w->f->hydrating && !is_asked_again(w);
}

static void say_hydrated(struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    if (!w->f->has_source) {
        SAY(w, API_HYDRATED, API_TRUE, "NothingToHydrate", "the volume has no source");
        SAY(w, API_VERIFIED, API_TRUE, "NothingToVerify", "the volume has no source");
        return;
    }
    if (facts_whole(w->f)) {
        SAY(w, API_HYDRATED, API_TRUE, "Complete", "every object is on the disk");
        if (w->f->volume->spec->params.verify == VERIFY_NONE)
            SAY(w, API_VERIFIED, API_FALSE, "NotAsked", "verify: none");
        else if (h->objects_size_only > 0)
            SAY(w, API_VERIFIED, API_FALSE, "SizeOnly", "%" PRIu64 " objects have no checksum in the bucket",
                h->objects_size_only);
        else
            SAY(w, API_VERIFIED, API_TRUE, "Checksums", "every object's checksum is the bucket's");
        return;
    }
    if (!h)
        SAY(w, API_HYDRATED, API_FALSE, "Waiting", "the hydration has not begun");
    else if (is_asked_again(w))
        SAY(w, API_HYDRATED, API_FALSE, "Retrying", "tried again for 5 minutes, until a new right is known: %.400s",
            h->error.message);
    else if (has_failed(w))
        SAY(w, API_HYDRATED, API_FALSE, "Failed", "%.400s", h->has_error ? h->error.message : "the hydration failed");
    else
        SAY(w, API_HYDRATED, API_FALSE, w->f->hydrating ? "Hydrating" : "Interrupted", "%s",
            w->f->hydrating ? "the data is on its way"
                            : "the hydration goes on where it stopped when its Job runs again");
    /* Behind the other: the first that is False is the one that people are shown. */
    SAY(w, API_VERIFIED, API_FALSE, "NotHydrated", "the data is not complete");
}

static void say_mounted(struct writer *w)
{
    const struct local_use *u = &w->f->use;
    if (u->mount_is_dead)
        SAY(w, API_MOUNTED, API_FALSE, API_REASON_MOUNTS_LOST,
            "the keeper has it no more: pods that have it get ENOTCONN; delete them, and they come back with its data");
    else if (u->published)
        SAY(w, API_MOUNTED, API_TRUE, "Published", "a pod has it");
    else if (u->staged)
        SAY(w, API_MOUNTED, API_TRUE, "Staged", "it is mounted for a pod");
    else
        SAY(w, API_MOUNTED, API_FALSE, "NotMounted", "no pod has it");
    set_text(&w->v->status.access, !u->staged ? NULL : !u->fuse ? "bind" : u->passthrough ? "passthrough" : "fuse");
}

/* Is an export owed at this moment, for release or for the last pod that wrote? */
static bool is_due(const struct writer *w)
{
    if (w->o->next == NEXT_RELEASE)
        return w->o->release == RELEASE_EXPORT_DUE || w->o->release == RELEASE_EXPORT_FAILED;
    return facts_owe_export(w->f);
}

/* Somebody should look: nobody could write for as long as an export may take, and it has not ended well. */
static bool is_stalled(const struct writer *w)
{
    uint64_t patience_ns = min_u64(w->f->volume->spec->export.deadline_ns, INT64_MAX / 2);
    int64_t since_ns = w->f->use.unpublished_ns;
    return is_due(w) && patience_ns && since_ns && w->now_ns > since_ns + (int64_t)patience_ns;
}

static void say_exported(struct writer *w)
{
    const struct verdict *e = &w->f->verdict;
    if (!w->f->volume->spec->export.uri)
        return;
    if (e->alive)
        SAY(w, API_EXPORTED, API_FALSE, "Exporting", "files are on their way to the bucket");
    else if (is_due(w) && e->state == VERDICT_FAILED)
        SAY(w, API_EXPORTED, API_FALSE, "ExportFailed", "%" PRIu64 " files are not exported, first %.120s: %.200s",
            e->failed_files, e->failed_count ? e->failed[0].path : "?",
            e->failed_count ? e->failed[0].err.text : "the reason is not known");
    else if (is_stalled(w))
        SAY(w, API_EXPORTED, API_FALSE, "ExportStalled",
            "nothing was confirmed since export.deadline; the data is kept");
    else if (is_due(w))
        SAY(w, API_EXPORTED, API_FALSE, "ExportDue", "%s",
            w->o->next == NEXT_RELEASE ? "an export for release comes first" : "the last pod may have written");
    else if (w->f->use.writes == 0)
        SAY(w, API_EXPORTED, API_TRUE, API_REASON_NOTHING_WRITTEN, "no pod could write yet");
    else if (e->state == VERDICT_DONE && w->f->use.unpublished_ns)
        SAY(w, API_EXPORTED, API_TRUE, "Confirmed", "the bucket confirmed every file");
    else
        SAY(w, API_EXPORTED, API_FALSE, "InUse", "a pod may write");
}

static void say_healthy(struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    const struct volume_usage *u = &w->f->usage;
    char left[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX];
    if (has_failed(w))
        SAY(w, API_HEALTHY, API_FALSE, "HydrationFailed", "%.400s", h->has_error ? h->error.message : "see the Job");
    else if (w->f->verdict.state == VERDICT_FAILED && !w->f->verdict.alive)
        SAY(w, API_HEALTHY, API_FALSE, "ExportFailed", "%" PRIu64 " files are not exported",
            w->f->verdict.failed_files);
    else if (volume_usage_is_full(u))
        SAY(w, API_HEALTHY, API_FALSE, API_REASON_VOLUME_FULL, "writers get ENOSPC: %s of %s are left",
            bytes_text(u->available_bytes, left), bytes_text(u->total_bytes, total));
    else
        SAY(w, API_HEALTHY, API_TRUE, "Well", "nothing is wrong");
}

static enum api_phase phase_of(const struct writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    if (w->f->verdict.alive)
        return API_PHASE_EXPORTING;
    if (is_due(w))
        return w->f->verdict.state == VERDICT_FAILED ? API_PHASE_EXPORT_FAILED : API_PHASE_EXPORTING;
    if (facts_whole(w->f))
        return API_PHASE_READY;
    if (!h)
        return API_PHASE_PROVISIONING;
    switch (h->phase) {
    case HYDRATE_STARTING:
    case HYDRATE_LISTING:
        return API_PHASE_LISTING;
    case HYDRATE_VERIFYING:
        return API_PHASE_VERIFYING;
    case HYDRATE_FAILED:
        return has_failed(w) ? API_PHASE_FAILED : h->objects_total ? API_PHASE_HYDRATING : API_PHASE_LISTING;
    default:
        return API_PHASE_HYDRATING;
    }
}

static void tell_present(struct writer *w)
{
    struct api_volume_status *s = &w->v->status;
    s->capacity_bytes = w->f->volume->spec->capacity_bytes;
    s->used_bytes = w->f->usage.used_bytes;
    s->inodes_used = w->f->usage.used_inodes;
    set_text(&s->pool_uuid, space_uuid(w->f->space));
    add_hydration(w);
    add_errors(w);
    add_export(w);
    SAY(w, API_PROVISIONED, API_TRUE, "Made", "it is on the disk");
    say_hydrated(w);
    say_mounted(w);
    say_exported(w);
    say_healthy(w);
    s->phase = phase_of(w);
}

/* ---- while it is not --------------------------------------------------------------------------------------------- */

static void tell_lost(struct writer *w)
{
    const char *was = w->v->volume_id && strlen(w->v->volume_id) > 3 ? w->v->volume_id + 3 : "?";
    w->v->status.phase = API_PHASE_LOST;
    SAY(w, API_MOUNTED, API_FALSE, API_REASON_VOLUME_LOST, "its disk is gone");
    SAY(w, API_HEALTHY, API_FALSE, API_REASON_VOLUME_LOST,
        "pool '%s' on node '%s': uuid %s where %.*s was, or the volume's folder is gone; its data is lost: set "
        "onDataLoss: "
        "rehydrate, or delete the claim (CIS3001)",
        w->v->pool, w->v->node, w->f->space ? space_uuid(w->f->space) : "none", SPEC_UUID_LEN, was);
}

/* Its phase stays what it was last: nothing has happened to it that anybody could see. */
static void tell_absent(struct writer *w)
{
    char last[SPEC_UUID_LEN + 1] = "?", why[ERR_TEXT_MAX];
    const struct api_volume *v = w->v;
    if (v->status.pool_uuid)
        snprintf(last, sizeof last, "%s", v->status.pool_uuid);
    else if (v->volume_id && spec_id_is_valid(str_of(v->volume_id)))
        snprintf(last, sizeof last, "%.*s", SPEC_UUID_LEN, v->volume_id + 3);
    if (w->f->space)
        snprintf(why, sizeof why, "pool '%s' is %s now", v->pool, space_uuid(w->f->space));
    else
        snprintf(why, sizeof why, "%s", w->f->absence.text);
    SAY(w, API_MOUNTED, API_FALSE, API_REASON_POOL_ABSENT, "its pool is not here");
    SAY(w, API_HEALTHY, API_FALSE, API_REASON_POOL_ABSENT,
        "pool %s is not on node '%s': %.300s; the volume is kept: mount its disk, or give the pool up (CIS3001)", last,
        v->node, why);
}

/* The disk may come back with what nobody exported. */
static void tell_held(struct writer *w)
{
    tell_absent(w);
    w->v->status.phase = API_PHASE_LOST; /* no export can be made of it now */
    SAY(w, API_EXPORTED, API_FALSE, API_REASON_POOL_ABSENT,
        "its release is held: its disk is not on node %s, and it may hold files that are not exported; mount the disk "
        "again, or give them up with the annotation cistern.io/discard-unexported (CIS3023)",
        w->v->node);
}

static void tell_released(struct writer *w)
{
    w->v->status.phase = API_PHASE_RELEASED;
    SAY(w, API_MOUNTED, API_FALSE, "Released", "nothing of it is left on the node");
    if (!w->f->here || !w->f->volume->spec->export.uri)
        return;
    add_export(w);
    if (w->f->verdict.state == VERDICT_DONE && w->f->verdict.writes == w->f->use.writes)
        SAY(w, API_EXPORTED, API_TRUE, "Confirmed", "the bucket confirmed every file");
    else if (w->f->use.writes > 0)
        SAY(w, API_EXPORTED, API_FALSE, "Discarded", "it was released without an export, as was asked");
}

static void tell_failure(struct writer *w)
{
    char line[API_MESSAGE_MAX];
    const char *reason = refusal_reason(w->o->failure);
    line_of(w->o->failure, line);
    if (w->o->next == NEXT_TAKE_OVER) {
        tell_lost(w);
        SAY(w, API_HEALTHY, API_FALSE, API_REASON_VOLUME_LOST, "it cannot be made anew: %.480s", line);
        return;
    }
    w->v->status.phase = reason ? API_PHASE_FAILED : API_PHASE_PROVISIONING;
    if (reason)
        SAY(w, API_PROVISIONED, API_FALSE, reason, "%s", line);
    else
        SAY(w, API_PROVISIONED, API_UNKNOWN, "Trying", "%s", line);
}

void status_build(struct api_volume *order, const struct facts *f, const struct outcome *o, int64_t now_ns)
{
    struct writer w = {.v = order, .f = f, .o = o, .now_ns = now_ns};
    leave_controllers(&order->status.conditions);
    order->status.observed_generation = order->meta.generation;
    if (o->next == NEXT_RELEASE && !o->failure && o->release == RELEASE_GONE)
        tell_released(&w);
    else if (o->next == NEXT_RELEASE && !o->failure && o->release == RELEASE_HELD)
        tell_held(&w);
    else if (f->here)
        tell_present(&w);
    else if (o->next == NEXT_ABSENT || (o->failure && o->failure->code == ERR_ABSENT))
        tell_absent(&w);
    else if (o->failure)
        tell_failure(&w);
    else if (o->next == NEXT_LOST)
        tell_lost(&w);
}

void status_build_unreadable(struct api_volume *order, const struct err *why, int64_t now_ns)
{
    char line[API_MESSAGE_MAX];
    struct writer w = {.v = order, .now_ns = now_ns};
    leave_controllers(&order->status.conditions);
    order->status.observed_generation = order->meta.generation;
    order->status.phase = API_PHASE_FAILED;
    line_of(why, line);
    SAY(&w, API_HEALTHY, API_FALSE, API_REASON_UNREADABLE, "%s", line);
}

/* ---- is it worth a write? ---------------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool conditions_same(const struct api_conditions *a, const struct api_conditions *b)
{
    size_t ours = 0;
    for (size_t i = 0; i < a->count; i++)
        ours += !is_controllers(&a->items[i]);
    if (ours != b->count)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        const struct api_condition *x = &b->items[i], *y = api_condition_find(a, x->type);
        if (!y || x->status != y->status || !same_text(x->reason, y->reason) || !same_text(x->message, y->message))
            return false;
    }
    return true;
}

static bool faults_same(const struct api_faults *a, const struct api_faults *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!same_text(a->items[i].object, b->items[i].object) || !same_text(a->items[i].message, b->items[i].message))
            return false;
    return true;
}

static bool progress_same(const struct api_volume_status *a, const struct api_volume_status *b)
{
    const struct api_hydration *h = &a->hydration, *k = &b->hydration;
    const struct api_export *e = &a->export, *f = &b->export;
    return h->objects_done == k->objects_done && h->bytes_done == k->bytes_done && h->bytes_total == k->bytes_total &&
           h->objects_total == k->objects_total && h->attempt == k->attempt && h->objects_failed == k->objects_failed &&
           e->pending_bytes == f->pending_bytes && e->pending_objects == f->pending_objects &&
           e->done_bytes == f->done_bytes && e->done_objects == f->done_objects;
}

enum status_change status_compare(const struct api_volume *before, const struct api_volume *now)
{
    const struct api_volume_status *a = &before->status, *b = &now->status;
    if (a->phase != b->phase || a->observed_generation != b->observed_generation ||
        a->capacity_bytes != b->capacity_bytes || !same_text(a->pool_uuid, b->pool_uuid) ||
        !same_text(a->access, b->access) || !conditions_same(&a->conditions, &b->conditions) ||
        !faults_same(&a->errors, &b->errors) || !faults_same(&a->export_failed, &b->export_failed))
        return STATUS_TOLD;
    if (!progress_same(a, b))
        return STATUS_PROGRESS;
    return a->used_bytes == b->used_bytes && a->inodes_used == b->inodes_used ? STATUS_SAME : STATUS_USAGE;
}

bool status_is_active(const struct api_volume *v)
{
    switch (v->status.phase) {
    case API_PHASE_READY:
    case API_PHASE_LOST:
    case API_PHASE_RELEASED:
        return v->release_requested && v->status.phase == API_PHASE_READY;
    default:
        return true;
    }
}
