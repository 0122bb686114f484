/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

/* A new permission takes a while to reach every server of a store: for this time a denied source counts as retrying. */
#define DENIED_RETRY_NS (300 * (int64_t)NS_PER_SECOND)

/* A hydration writes its status each second. One that is stopped, or whose disk does not answer, writes none. */
#define SILENT_NS (60 * (int64_t)NS_PER_SECOND)
#define SILENT_TEXT "its Job has written no status for a minute: it is stopped or stuck, or waits for the disk"

/* An export ends itself at its deadline, and cancels its requests first. */
#define END_NS (60 * (int64_t)NS_PER_SECOND)

struct status_writer {
    struct api_volume *v;
    const struct observed *f;
    const struct action_outcome *o;
    int64_t now_ns;
};

#define SET(w, type, truth, reason, ...)                                                                               \
    (void)api_condition_set(&(w)->v->status.conditions, type, truth, reason, (w)->v->meta.generation, (w)->now_ns,     \
                            __VA_ARGS__)

static void line_of(const struct err *err, char *ret)
{
    char line[ERR_LINE_MAX];
    snprintf(ret, API_MESSAGE_MAX, "%.*s", API_MESSAGE_MAX - 1, err_line(err, line, sizeof line));
}

/* The controller owns these two types. */
static bool is_controllers(const struct api_condition *c)
{
    return strcmp(c->type, API_DELETION_HELD) == 0 || strcmp(c->type, API_NODE_GONE) == 0;
}

static void drop_controllers_conditions(struct api_conditions *c)
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
    memset(&c->items[kept], 0, (c->count - kept) * sizeof c->items[0]); /* a free item holds no strings */
    c->count = kept;
}

/* ---- while it is present ----------------------------------------------------------------------------------------- */

static void add_hydration(struct status_writer *w)
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
    char id[ERR_ID_TEXT_MAX];
    api_faults_add(to, f->object, err_id_text(f->id, id), err_code_name(f->code), f->message, f->attempts, f->time_ns);
}

static bool is_silent(const struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    return h && w->f->hydrating && h->phase < HYDRATE_DONE && w->now_ns - h->updated_ns > SILENT_NS;
}

/* Errors are listed until the hydration succeeds. */
static void add_errors(struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    struct api_faults *to = &w->v->status.errors;
    api_faults_clear(to);
    if (!h || h->phase == HYDRATE_DONE)
        return;
    if (is_silent(w))
        api_faults_add(to, "", "", err_code_name(ERR_TIMEOUT), SILENT_TEXT, 0, h->updated_ns);
    if (h->has_error)
        add_fault(to, &h->error);
    for (size_t i = 0; i < h->error_count; i++)
        add_fault(to, &h->errors[i]);
}

static void add_export(struct status_writer *w)
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
        char id[ERR_ID_TEXT_MAX];
        const struct err *err = &e->failed[i].err;
        api_faults_add(&w->v->status.export_failed, e->failed[i].path, err_id_text(err->id, id),
                       err_code_name(err->code), err->text, 0, e->updated_ns);
    }
}

static bool is_retrying_denied(const struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    bool is_refused = h && h->phase == HYDRATE_FAILED && h->has_error && h->error.code == ERR_DENIED;
    return is_refused && h->objects_done == 0 && w->now_ns < h->began_ns + DENIED_RETRY_NS;
}

static bool has_failed(const struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    return h && h->phase == HYDRATE_FAILED && !w->f->hydrating && !is_retrying_denied(w);
}

static const char *complete_text(const struct hydrate_status *h)
{
    return h->objects_total > 0 ? "every object is on the disk" : "the source, or this shard of it, has no object";
}

static void set_hydrated(struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    if (!w->f->has_source) {
        SET(w, API_HYDRATED, API_TRUE, "NothingToHydrate", "the volume has no source");
        SET(w, API_VERIFIED, API_TRUE, "NothingToVerify", "the volume has no source");
        return;
    }
    if (observed_whole(w->f)) {
        SET(w, API_HYDRATED, API_TRUE, "Complete", "%s", complete_text(h));
        if (w->f->volume->spec->params.verify == VERIFY_NONE)
            SET(w, API_VERIFIED, API_FALSE, "VerificationDisabled", "the source has verify: none");
        else if (h->objects_size_only > 0)
            SET(w, API_VERIFIED, API_FALSE, "SizeOnly", "%" PRIu64 " objects have no checksum in the bucket",
                h->objects_size_only);
        else
            SET(w, API_VERIFIED, API_TRUE, "Checksums", "every object has the checksum of the bucket");
        return;
    }
    if (!h)
        SET(w, API_HYDRATED, API_FALSE, "Waiting", "the hydration has not started");
    else if (is_retrying_denied(w))
        SET(w, API_HYDRATED, API_FALSE, "Retrying",
            "access denied; retried for 5 minutes because a new permission takes time: %.400s", h->error.message);
    else if (has_failed(w))
        SET(w, API_HYDRATED, API_FALSE, "Failed", "%.400s", h->has_error ? h->error.message : "the hydration failed");
    else if (!w->f->hydrating)
        SET(w, API_HYDRATED, API_FALSE, "Interrupted", "%s",
            w->v->meta.deleted_ns ? "the CisternVolume was deleted by hand: delete the claim and create it again"
                                  : "the hydration resumes when its Job runs again");
    else if (is_silent(w))
        SET(w, API_HYDRATED, API_FALSE, "Silent", "%s", SILENT_TEXT);
    else if (h->has_error && h->phase < HYDRATE_DONE) /* a later phase: the status is that of the previous run */
        SET(w, API_HYDRATED, API_FALSE, "Retrying", "no request succeeds: %.400s", h->error.message);
    else
        SET(w, API_HYDRATED, API_FALSE, "Hydrating", "objects are being %s",
            h->phase < HYDRATE_FETCHING ? "listed" : "downloaded");
    /* After Hydrated: kubectl shows the first condition that is False. */
    SET(w, API_VERIFIED, API_FALSE, "NotHydrated", "the hydration is not complete");
}

static void set_mounted(struct status_writer *w)
{
    const struct volume_use *u = &w->f->use;
    if (u->mount_is_dead)
        SET(w, API_MOUNTED, API_FALSE, API_REASON_MOUNTS_LOST,
            "the mount is gone and pods get ENOTCONN; delete the pods of this volume, their replacements mount it "
            "again");
    else if (u->published)
        SET(w, API_MOUNTED, API_TRUE, "Published", "a pod uses the volume");
    else if (u->staged)
        SET(w, API_MOUNTED, API_TRUE, "Staged", "the volume is mounted for a pod");
    else
        SET(w, API_MOUNTED, API_FALSE, API_REASON_NOT_MOUNTED, "no pod uses the volume");
    const char *access = !u->staged ? NULL : !u->fuse ? "bind" : u->passthrough ? "passthrough" : "fuse";
    text_set(&w->v->status.access, str_of(access));
}

/* Whether an export is due now, for release or after the last pod with write access. */
static bool is_due(const struct status_writer *w)
{
    if (w->o->action == ACTION_RELEASE)
        return w->o->release == RELEASE_EXPORT_DUE || w->o->release == RELEASE_EXPORT_FAILED;
    return observed_owe_export(w->f);
}

static bool is_past_deadline(const struct status_writer *w, int64_t since_ns)
{
    uint64_t deadline_ns = min_u64(w->f->volume->spec->export.deadline_ns, INT64_MAX / 2);
    return deadline_ns && since_ns && w->now_ns > since_ns + (int64_t)deadline_ns;
}

/* The export deadline has passed since the last pod with write access, without a successful export. */
static bool is_stalled(const struct status_writer *w)
{
    return is_due(w) && is_past_deadline(w, w->f->use.unpublished_ns);
}

static void set_exporting(struct status_writer *w)
{
    const struct verdict *e = &w->f->verdict;
    if (e->state == VERDICT_RUNNING && is_past_deadline(w, e->started_ns + END_NS))
        SET(w, API_EXPORTED, API_FALSE, API_REASON_EXPORT_STALLED,
            "the export still runs after export.deadline; the data is kept on the node");
    else
        SET(w, API_EXPORTED, API_FALSE, API_REASON_EXPORTING, "files are being uploaded to the bucket");
}

/* Whether the bucket has all that pods wrote: by the export for release, or the one after the last pod with write
 * access. */
static bool is_confirmed(const struct observed *f)
{
    bool is_for_release = f->verdict.state == VERDICT_DONE && f->verdict.writes == f->use.writes;
    return is_for_release || observed_is_exported(f);
}

static void set_discarded(struct status_writer *w)
{
    SET(w, API_EXPORTED, API_FALSE, "Discarded",
        "files that are not exported are deleted with the volume, as requested");
}

/* Of a release that needs no other export. */
static void set_last_export(struct status_writer *w)
{
    const struct api_conditions *said = &w->v->status.conditions;
    if (!w->f->here) {
        /* Its disk is missing, and an administrator gave it up. */
        if (w->v->release_discard && api_condition_is(said, API_EXPORTED, API_FALSE))
            set_discarded(w);
        return;
    }
    if (!w->f->volume->spec->export.uri.text)
        return;
    add_export(w);
    if (w->f->use.writes > 0 && is_confirmed(w->f))
        SET(w, API_EXPORTED, API_TRUE, "Confirmed", "the bucket confirmed every file");
    else if (w->f->use.writes > 0)
        set_discarded(w);
}

static void set_exported(struct status_writer *w)
{
    const struct verdict *e = &w->f->verdict;
    if (!w->f->volume->spec->export.uri.text)
        return;
    if (e->alive)
        set_exporting(w);
    else if (is_due(w) && e->state == VERDICT_FAILED)
        SET(w, API_EXPORTED, API_FALSE, API_REASON_EXPORT_FAILED,
            "%" PRIu64 " files are not exported, first %.120s: %.200s", verdict_missing_files(e),
            e->failed_count ? e->failed[0].path : "?",
            e->failed_count ? e->failed[0].err.text : "the cause is unknown");
    else if (is_stalled(w))
        SET(w, API_EXPORTED, API_FALSE, API_REASON_EXPORT_STALLED,
            "no export succeeded within export.deadline; the data is kept on the node");
    else if (is_due(w))
        SET(w, API_EXPORTED, API_FALSE, API_REASON_EXPORT_DUE, "%s",
            w->o->action == ACTION_RELEASE ? "the volume is exported before its release"
                                           : "a pod may have written since the last export");
    else if (w->v->status.release_committed)
        set_last_export(w);
    else if (w->f->use.writes == 0)
        SET(w, API_EXPORTED, API_TRUE, API_REASON_NOTHING_WRITTEN, "no pod has had write access yet");
    else if (e->state == VERDICT_DONE && w->f->use.unpublished_ns)
        SET(w, API_EXPORTED, API_TRUE, "Confirmed", "the bucket confirmed every file");
    else
        SET(w, API_EXPORTED, API_FALSE, "InUse", "a pod has write access");
}

static void set_healthy(struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    const struct volume_usage *u = &w->f->usage;
    char left[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX];
    if (has_failed(w))
        SET(w, API_HEALTHY, API_FALSE, "HydrationFailed", "%.400s", h->has_error ? h->error.message : "see the Job");
    else if (w->f->verdict.state == VERDICT_FAILED && !w->f->verdict.alive)
        SET(w, API_HEALTHY, API_FALSE, "ExportFailed", "%" PRIu64 " files are not exported",
            verdict_missing_files(&w->f->verdict));
    else if (volume_usage_is_full(u))
        SET(w, API_HEALTHY, API_FALSE, API_REASON_VOLUME_FULL, "writers get ENOSPC: %s of %s are left",
            bytes_text(u->available_bytes, left), bytes_text(u->total_bytes, total));
    else
        SET(w, API_HEALTHY, API_TRUE, "Healthy", "no problem was found");
}

static enum api_phase phase_of(const struct status_writer *w)
{
    const struct hydrate_status *h = w->f->hydration;
    if (w->f->verdict.alive)
        return API_PHASE_EXPORTING;
    if (is_due(w))
        return w->f->verdict.state == VERDICT_FAILED ? API_PHASE_EXPORT_FAILED : API_PHASE_EXPORTING;
    if (observed_whole(w->f))
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
    case HYDRATE_STOPPED:
        return has_failed(w) ? API_PHASE_FAILED : h->objects_total ? API_PHASE_HYDRATING : API_PHASE_LISTING;
    default:
        return API_PHASE_HYDRATING;
    }
}

static enum api_phase set_present(struct status_writer *w)
{
    struct api_volume_status *s = &w->v->status;
    s->capacity_bytes = w->f->volume->spec->capacity_bytes;
    s->used_bytes = w->f->usage.used_bytes;
    s->inodes_used = w->f->usage.used_inodes;
    text_set(&s->pool_uuid, str_of(pool_uuid(w->f->pool)));
    add_hydration(w);
    add_errors(w);
    add_export(w);
    SET(w, API_PROVISIONED, API_TRUE, "Provisioned", "the volume exists on its node");
    set_hydrated(w);
    set_mounted(w);
    set_exported(w);
    set_healthy(w);
    return phase_of(w);
}

/* ---- while it is absent ------------------------------------------------------------------------------------------ */

static void set_from_err(struct status_writer *w, const char *type, const char *reason, const struct err *err)
{
    char line[API_MESSAGE_MAX];
    line_of(err, line);
    SET(w, type, API_FALSE, reason, "%s", line);
}

static enum api_phase set_lost(struct status_writer *w)
{
    struct err err;
    struct str old_uuid = volume_id_pool(&w->v->id);
    const char *uuid = w->f->pool ? pool_uuid(w->f->pool) : "none";
    if (str_eq(old_uuid, str_of(uuid)))
        err_set(&err, ERR_ABSENT, "pool '%s' on node '%s' no longer has the directory of the volume: the data is lost",
                w->v->pool, w->v->node);
    else
        err_set(&err, ERR_ABSENT, "pool '%s' on node '%s' was replaced: its UUID was %.*s and is %s: the data is lost",
                w->v->pool, w->v->node, STR_FMT(old_uuid), uuid);
    err_advise(&err, CIS_VOLUME_DATA_LOST);
    SET(w, API_MOUNTED, API_FALSE, API_REASON_VOLUME_LOST, "the data of the volume is lost");
    set_from_err(w, API_HEALTHY, API_REASON_VOLUME_LOST, &err);
    return API_PHASE_LOST;
}

/* Keeps the last phase: no event has changed it. */
static enum api_phase set_absent(struct status_writer *w)
{
    char why[ERR_TEXT_MAX];
    struct err err;
    const struct api_volume *v = w->v;
    if (w->f->pool)
        snprintf(why, sizeof why, "pool '%s' is %s now", v->pool, pool_uuid(w->f->pool));
    else
        snprintf(why, sizeof why, "%s", w->f->absence.text);
    err_set(&err, ERR_ABSENT, "pool %.*s is not on node '%s': %.200s; the volume is kept",
            STR_FMT(api_volume_pool_uuid(v)), v->node, why);
    err_advise(&err, CIS_POOL_ABSENT);
    SET(w, API_MOUNTED, API_FALSE, API_REASON_POOL_ABSENT, "the pool is not on this node");
    set_from_err(w, API_HEALTHY, API_REASON_POOL_ABSENT, &err);
    return v->status.phase;
}

/* The disk may come back with files that were not exported. */
static enum api_phase set_release_held(struct status_writer *w)
{
    struct err err;
    (void)set_absent(w);
    err_set(&err, ERR_ABSENT, "the release waits: the disk is not on node %s and may have files that are not exported",
            w->v->node);
    err_advise(&err, CIS_RELEASE_HELD, w->v->meta.name, w->v->id.text);
    set_from_err(w, API_EXPORTED, API_REASON_POOL_ABSENT, &err);
    return API_PHASE_LOST; /* an export is impossible now */
}

static enum api_phase set_released(struct status_writer *w)
{
    SET(w, API_MOUNTED, API_FALSE, "Released", "the volume is deleted from the node");
    /* An export may have succeeded after the commit. Every other end was written by the commit. */
    if (w->f->here && w->f->verdict.state == VERDICT_DONE)
        set_last_export(w);
    return API_PHASE_RELEASED;
}

static enum api_phase set_failure(struct status_writer *w)
{
    char line[API_MESSAGE_MAX];
    const char *reason = refusal_reason(w->o->failure);
    line_of(w->o->failure, line);
    if (w->o->action == ACTION_TAKE_OVER) {
        enum api_phase phase = set_lost(w);
        SET(w, API_HEALTHY, API_FALSE, API_REASON_VOLUME_LOST, "the volume cannot be created again: %.480s", line);
        return phase;
    }
    if (reason)
        SET(w, API_PROVISIONED, API_FALSE, reason, "%s", line);
    else
        SET(w, API_PROVISIONED, API_UNKNOWN, "Pending", "%s", line);
    return reason ? API_PHASE_FAILED : API_PHASE_PROVISIONING;
}

/* An export may run, or be due, and a disk that fails now may answer again: then the last phase holds. */
static enum api_phase set_unreadable(struct status_writer *w)
{
    enum api_phase last = w->v->status.phase;
    bool holds = w->o->failure->code == ERR_IO || last == API_PHASE_EXPORTING || last == API_PHASE_EXPORT_FAILED;
    set_from_err(w, API_HEALTHY, API_REASON_UNREADABLE, w->o->failure);
    return holds ? last : API_PHASE_FAILED;
}

/* Sets the conditions, and returns the phase. */
static enum api_phase set_conditions(struct status_writer *w)
{
    const struct action_outcome *o = w->o;
    if (!w->f)
        return set_unreadable(w);
    if (o->action == ACTION_RELEASE && !o->failure && o->release == RELEASE_GONE)
        return set_released(w);
    if (o->action == ACTION_RELEASE && !o->failure && o->release == RELEASE_HELD)
        return set_release_held(w);
    if (w->f->here)
        return set_present(w);
    if (o->action == ACTION_ABSENT || (o->failure && o->failure->code == ERR_ABSENT))
        return set_absent(w);
    if (o->failure)
        return set_failure(w);
    return o->action == ACTION_LOST ? set_lost(w) : w->v->status.phase;
}

void status_build(struct api_volume *order, const struct observed *f, const struct action_outcome *o, int64_t now_ns)
{
    struct status_writer w = {.v = order, .f = f, .o = o, .now_ns = now_ns};
    drop_controllers_conditions(&order->status.conditions);
    order->status.observed_generation = order->meta.generation;
    order->status.phase = set_conditions(&w);
}

void status_build_last_export(struct api_volume *order, const struct observed *f, int64_t now_ns)
{
    struct status_writer w = {.v = order, .f = f, .now_ns = now_ns};
    set_last_export(&w);
}

void status_build_unreadable(struct api_volume *order, const struct err *why, int64_t now_ns)
{
    status_build(order, NULL, &(struct action_outcome){.failure = why}, now_ns);
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static bool conditions_same(const struct api_conditions *a, const struct api_conditions *b)
{
    size_t ours = 0;
    for (size_t i = 0; i < a->count; i++)
        ours += !is_controllers(&a->items[i]);
    if (ours != b->count)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        const struct api_condition *x = &b->items[i], *y = api_condition_find(a, x->type);
        if (!y || x->status != y->status || !text_same(x->reason, y->reason) || !text_same(x->message, y->message))
            return false;
    }
    return true;
}

static bool faults_same(const struct api_faults *a, const struct api_faults *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!text_same(a->items[i].object, b->items[i].object) || !text_same(a->items[i].message, b->items[i].message))
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
        a->capacity_bytes != b->capacity_bytes || !text_same(a->pool_uuid, b->pool_uuid) ||
        !text_same(a->access, b->access) || !conditions_same(&a->conditions, &b->conditions) ||
        !faults_same(&a->errors, &b->errors) || !faults_same(&a->export_failed, &b->export_failed))
        return STATUS_CHANGED;
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

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* The condition's message if it became False for this reason; else NULL. */
static const char *became(const struct api_volume *before, const struct api_volume *now, const char *type,
                          const char *reason)
{
    if (!api_condition_says(&now->status.conditions, type, API_FALSE, reason) ||
        api_condition_says(&before->status.conditions, type, API_FALSE, reason))
        return NULL;
    return api_condition_find(&now->status.conditions, type)->message;
}

static bool was_recreated(const struct api_volume *before, const struct api_volume *now)
{
    const char *was = before->status.pool_uuid, *is = now->status.pool_uuid;
    return was && is && strcmp(was, is) != 0 && before->status.phase != API_PHASE_LOST;
}

size_t status_events(const struct api_volume *before, const struct api_volume *now,
                     struct status_event ret[STATUS_EVENTS_MAX])
{
    const struct {
        const char *reason, *message;
    } all[STATUS_EVENTS_MAX] = {
        {"VolumeLost", was_recreated(before, now)
                           ? "its disk was replaced or wiped: it is created again, as onDataLoss says; files that "
                             "were not exported are lost"
                           : became(before, now, API_HEALTHY, API_REASON_VOLUME_LOST)},
        {"PoolAbsent", became(before, now, API_HEALTHY, API_REASON_POOL_ABSENT)},
        {"MountsLost", became(before, now, API_MOUNTED, API_REASON_MOUNTS_LOST)},
        {"VolumeFull", became(before, now, API_HEALTHY, API_REASON_VOLUME_FULL)},
        {"ReleaseHeld", became(before, now, API_EXPORTED, API_REASON_POOL_ABSENT)},
        {"VolumeUnreadable", became(before, now, API_HEALTHY, API_REASON_UNREADABLE)},
    };
    size_t count = 0;
    for (size_t i = 0; i < STATUS_EVENTS_MAX; i++)
        if (all[i].message)
            ret[count++] = (struct status_event){.reason = all[i].reason, .message = all[i].message};
    return count;
}
