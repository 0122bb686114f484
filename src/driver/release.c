/* SPDX-License-Identifier: Apache-2.0 */
/* Releases a volume by the steps of spec/release_state.h: the bucket confirms the export before the volume is
 * moved to the trash. Each call takes the steps that are possible now and answers; the caller repeats it, for
 * hours if need be. Standalone and cluster differ only in the caller and in the process that runs the export. */
#include "child.h"
#include "driver/volumes.h"
#include "export/verdict.h"
#include "io/ticker.h"
#include "pending_publish.h"
#include "pool/mount.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include <inttypes.h>
#include <limits.h>

/* home: the call's thread, which holds the volume lock. */
struct release {
    struct driver *d;
    const struct release_order *order;
    struct rpc_call *call; /* borrowed; NULL: no caller waits */
    struct pool *pool;     /* borrowed; NULL: its pool is not on this machine */
    struct volume *v;      /* owned; NULL: not here, or unreadable */
    enum release_place place;
    struct err found; /* why it is not HERE */
    struct record record;
    struct verdict verdict;
    struct err in_use; /* why it is */
    bool is_committed;
};

static void release_done(struct release *r)
{
    volume_close(r->v);
    record_done(&r->record);
    verdict_done(&r->verdict);
}

/* ---- users of the volume ----------------------------------------------------------------------------------------- */

static int check_unmounted(const struct volume_id *id, const char *path, const char *how, struct err *err)
{
    bool mounted;
    int r = mount_is_at(path, &mounted, err);
    if (r < 0 || !mounted)
        return r;
    return err_fail(err, ERR_BUSY, CIS_VOLUME_IN_USE, "volume '%s': still %s at '%s'", id->text, how, path);
}

int driver_check_unpublished(const struct volume_id *id, const struct record *record, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < record->target_count; i++)
        r = check_unmounted(id, record->targets[i].path, "published", err);
    return r;
}

static int check_unused(const struct volume *v, const struct record *record, struct err *err)
{
    if (record->is_lost)
        return err_fail(err, ERR_BUSY, CIS_VOLUME_IN_USE,
                        "volume '%s': still mounted, and its record of mounts is corrupt", v->spec->id.text);
    int r = driver_check_unpublished(&v->spec->id, record, err);
    if (r == 0 && record->staged)
        r = check_unmounted(&v->spec->id, record->staged, "staged", err);
    return r;
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

static bool is_for_release(const struct verdict *v)
{
    return v->state != VERDICT_NONE && v->purpose == VERDICT_FOR_RELEASE;
}

static enum release_verdict verdict_of(const struct verdict *v)
{
    if (!is_for_release(v) || v->state == VERDICT_RUNNING)
        return RELEASE_UNTRIED;
    return v->state == VERDICT_DONE ? RELEASE_CONFIRMED : RELEASE_FAILED;
}

static int read_present(struct release *w, struct release_facts *f, struct err *err)
{
    const struct spec_export *policy = &w->v->spec->export;
    record_done(&w->record);
    verdict_done(&w->verdict);
    int r = record_of(w->v, &w->record, err);
    if (r == 0)
        r = verdict_read(w->v->dir, &w->verdict, err);
    if (r < 0)
        return r;
    f->in_use = check_unused(w->v, &w->record, &w->in_use) < 0;
    f->stage = w->record.release;
    if (w->record.is_lost) /* a mounted record cannot be changed; mounts are refused for that time */
        f->stage = f->is_withdrawn ? RELEASE_OPEN : RELEASE_CLOSED;
    f->writes = w->record.writes;
    f->has_policy = policy->uri.text != NULL;
    f->discards_failed = policy->on_failure == ON_FAILURE_DISCARD;
    f->verdict = verdict_of(&w->verdict);
    f->verdict_writes = w->verdict.writes;
    f->at_work = w->verdict.alive || (w->d->is_node && child_lives(JOB_HYDRATE, w->v->path));
    return 0;
}

/* The record is unreadable: only mounts and jobs are checked. */
static int read_unreadable(struct release *w, struct release_facts *f, struct err *err)
{
    auto_mem char *shown = NULL;
    auto_sbuf data = SBUF(PATH_MAX), directory = SBUF(PATH_MAX);
    pool_add_volume_path(w->pool, w->order->id, &directory);
    sbuf_addf(&data, "%s/" VOLUME_DATA, directory.ptr);
    int r = mount_that_shows(data.ptr, w->order->id->text, &shown, err);
    f->in_use = shown != NULL;
    f->at_work = child_lives(JOB_HYDRATE, directory.ptr) || child_lives(JOB_EXPORT_RELEASE, directory.ptr);
    return r;
}

static int read_facts(struct release *w, struct release_facts *ret, struct err *err)
{
    struct release_facts f = {.place = w->place,
                              .in_cluster = w->d->is_node,
                              .is_withdrawn = w->order->is_withdrawn,
                              .is_committed = w->is_committed,
                              .may_discard = w->order->may_discard};
    int r = 0;
    if (w->place == RELEASE_HERE) {
        r = read_present(w, &f, err);
    } else if (w->place == RELEASE_UNREADABLE) {
        r = read_unreadable(w, &f, err);
    } else if (w->place == RELEASE_ABSENT) {
        f.has_policy = w->order->owes_if_absent;
        f.writes = w->order->owes_if_absent ? 1 : 0;
    }
    if (r == 0)
        *ret = f;
    return r;
}

/* Finds the volume and locks it. */
static int find_volume(struct release *w, struct volume_lock *lock, struct err *err)
{
    int r = driver_lock_volume(w->d, w->order->id, lock, &w->pool, &w->v, err);
    if (r < 0)
        w->found = *err;
    switch (-r) {
    case 0:
        w->place = RELEASE_HERE;
        return 0;
    case ERR_NOT_FOUND:
        w->place = RELEASE_MISSING;
        return 0;
    case ERR_ABSENT:
        w->place = RELEASE_ABSENT;
        return 0;
    case ERR_CORRUPT:
    case ERR_UNSUPPORTED:
        w->place = RELEASE_UNREADABLE;
        w->pool = driver_pool_of(w->d, w->order->id);
        return 0;
    default:
        return r;
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int set_stage(struct release *w, enum release_stage stage, struct err *err)
{
    w->record.release = stage;
    int r = record_write(w->v->dir, &w->record, err);
    return r < 0 ? err_wrap(err, "releasing volume '%s'", w->order->id->text) : 0;
}

/* A process may outlive its pod, and keeps the pod's mounts after they left the tree. A FUSE mount ends for it,
 * too; a bind mount does not. So the volume's file system becomes read-only: only then does the export see the last
 * write. (Older versions let a pod write to a quota through a bind mount; such volumes have no file system of their
 * own.) */
static int seal(struct release *w, struct err *err)
{
    int r = 0;
    if (w->v->spec->params.access == ACCESS_BIND && w->v->spec->backend == BACKEND_LOOP) {
        r = pool_attach_volume(w->pool, &w->v->spec->id, err);
        if (r == 0)
            r = pool_set_volume_writable(w->pool, &w->v->spec->id, false, err);
    }
    return r < 0 ? err_wrap(err, "releasing volume '%s'", w->order->id->text) : set_stage(w, RELEASE_SEALED, err);
}

static int commit(struct release *w, struct err *err)
{
    int r = w->order->commit(w->order->ctx, err);
    w->is_committed = r == 0;
    return r;
}

/* A user of the volume may still hold descriptors for a moment: a mount process closes them after its mount is gone,
 * and a child just started has copies until its exec. */
#define CLOSE_WAIT_NS (3 * NS_PER_SECOND)
#define RETRY_NS (20 * NS_PER_MS)

static int delete_when_closed(const struct release *w, struct err *err)
{
    uint64_t end_ns = clock_now_ns() + CLOSE_WAIT_NS;
    int r;
    while ((r = pool_delete_volume(w->pool, w->order->id, err)) == -ERR_BUSY || r == -ERR_PENDING)
        if (!w->call || clock_now_ns() >= end_ns || !rpc_sleep_until(w->call, clock_now_ns() + RETRY_NS))
            break;
    return r;
}

static int move_to_trash(struct release *w, struct err *err)
{
    const struct volume_id *id = w->order->id;
    int r = w->d->jobs && w->v ? jobs_end(w->d->jobs, id, w->v->path, err) : 0;
    if (r < 0)
        return r;
    r = delete_when_closed(w, err);
    ticker_wake(w->d->trash); /* also after a failure: no later call may follow for a volume in the trash */
    if (r < 0)
        return r;
    if (verdict_of(&w->verdict) == RELEASE_FAILED)
        log_event(LOG_WARN, "volume is deleted with files not exported, as its order allows", "volume", id->text,
                  "files", log_u64(verdict_missing_files(&w->verdict)), "first",
                  w->verdict.failed_count ? w->verdict.failed[0].path : NULL, NULL);
    w->place = RELEASE_MISSING;
    return 0;
}

static int take_step(struct release *w, enum release_step step, bool *ret_again, struct err *err)
{
    *ret_again = true;
    switch (step) {
    case RELEASE_REOPEN:
        return set_stage(w, RELEASE_OPEN, err);
    case RELEASE_CLOSE:
        return set_stage(w, RELEASE_CLOSED, err);
    case RELEASE_SEAL:
        return seal(w, err);
    case RELEASE_COMMIT:
        return commit(w, err);
    case RELEASE_TRASH:
        return move_to_trash(w, err);
    default:
        *ret_again = false;
        return 0;
    }
}

static int advance(struct release *w, struct volume_lock *lock, enum release_step *ret, struct err *err)
{
    struct release_facts f;
    bool again = true;
    w->is_committed = w->order->is_committed;
    verdict_init(&w->verdict);
    int r = find_volume(w, lock, err);
    while (r == 0 && again) {
        r = read_facts(w, &f, err);
        if (r < 0)
            return r;
        *ret = release_next_step(&f);
        r = take_step(w, *ret, &again, err);
    }
    return r;
}

/* ---- admission of new mounts ------------------------------------------------------------------------------------- */

int driver_admit(struct driver *d, const struct volume *v, struct record *have, struct err *err)
{
    auto_with(verdict_done) struct verdict verdict;
    verdict_init(&verdict);
    int r = have->release == RELEASE_OPEN ? 0 : verdict_read(v->dir, &verdict, err);
    if (r < 0)
        return r;
    switch (release_admit(have->release, d->is_node, verdict.alive && is_for_release(&verdict))) {
    case RELEASE_REFUSE:
        return pending_publish_releasing(&v->spec->id, err);
    case RELEASE_REFUSE_NOW:
        return err_fail(err, ERR_PENDING, CIS_EXPORT_PENDING, "volume '%s': its last export is still running",
                        v->spec->id.text);
    case RELEASE_ADMIT_BY_WITHDRAWING:
        have->release = RELEASE_OPEN;
        return 0;
    case RELEASE_ADMIT:
        break;
    }
    return 0;
}

/* ---- a node: Kubernetes runs the exports, and the caller gets the obstacle
 * --------------------------------------------- */

int driver_release_volume(struct driver *d, const struct release_order *o, enum release_step *ret, struct err *err)
{
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_with(release_done) struct release w = {.d = d, .order = o};
    enum release_step step;
    int r = advance(&w, &lock, &step, err);
    if (r == 0 && step == RELEASE_DAMAGED)
        r = err_copy(err, &w.found);
    if (r < 0)
        return r;
    if (step == RELEASE_IN_USE)
        pending_publish_cancel_volume(o->id);
    if (step == RELEASE_GONE)
        log_event(LOG_INFO, "volume released", "volume", o->id->text, "name", w.v ? w.v->spec->name : NULL, "discard",
                  o->may_discard ? "true" : NULL, NULL);
    *ret = step;
    return 0;
}

/* ---- DeleteVolume of the standalone driver ----------------------------------------------------------------------- */

static int export_pending(const struct volume_id *id, const struct verdict *v, const struct driver_job_view *job,
                          struct err *err)
{
    char left[BYTES_TEXT_MAX], wait[TIME_TEXT_MAX];
    if (job->state == JOB_FAILED) {
        if (job->start.code)
            err_set(err, ERR_PENDING, "volume '%s': its export cannot be started: %s", id->text, job->start.text);
        else
            err_set(err, ERR_PENDING, "volume '%s': its export was interrupted", id->text);
        return err_advise(err, CIS_EXPORT_INTERRUPTED, duration_text(job->retry_ns, wait));
    }
    if (v->state == VERDICT_RUNNING)
        err_set(err, ERR_PENDING, "volume '%s': %" PRIu64 " files, %s, are still to be exported", id->text,
                v->pending_files, bytes_text(v->pending_bytes, left));
    else
        err_set(err, ERR_PENDING, "volume '%s': its export has not started", id->text);
    return err_advise(err, CIS_EXPORT_PENDING);
}

static int not_exported(const struct volume_id *id, const struct verdict *v, uint64_t retry_ns, struct err *err)
{
    char wait[TIME_TEXT_MAX];
    bool known = v->failed_count > 0;
    err_set(err, ERR_BUSY, "volume '%s': %" PRIu64 " of %" PRIu64 " files not exported, first %.100s: %.200s", id->text,
            verdict_missing_files(v), verdict_missing_files(v) + v->done_files, known ? v->failed[0].path : "?",
            known ? v->failed[0].err.text : "unknown cause");
    return err_advise_text(err, known && v->failed[0].err.id ? v->failed[0].err.id : CIS_FILE_NOT_EXPORTED,
                           "kept; retried in %s", duration_text(retry_ns, wait));
}

static int export_first(struct release *w, enum release_step step, struct err *err)
{
    struct driver_job_view job = {.state = JOB_RUNNING};
    int r = 0;
    if (w->record.release == RELEASE_SEALED) {
        r = pool_attach_volume(w->pool, &w->v->spec->id, err);
        if (r == 0)
            r = volume_check_uncovered(w->v, err);
        if (r == 0)
            r = driver_request_job(w->d, w->v, JOB_EXPORT_RELEASE, false, &job, err);
    }
    if (r < 0)
        return r;
    if (step == RELEASE_EXPORT_FAILED && job.state == JOB_FAILED)
        return not_exported(w->order->id, &w->verdict, job.retry_ns, err);
    return export_pending(w->order->id, &w->verdict, &job, err);
}

static int answer(struct release *w, enum release_step step, struct err *err)
{
    switch (step) {
    case RELEASE_HELD:
    case RELEASE_DAMAGED:
        return err_copy(err, &w->found);
    case RELEASE_IN_USE:
        return err_copy(err, &w->in_use);
    case RELEASE_AT_WORK:
    case RELEASE_EXPORT_DUE:
    case RELEASE_EXPORT_FAILED:
        return export_first(w, step, err);
    default:
        return 0;
    }
}

int driver_delete(void *ctx, struct rpc_call *call, const struct volume_id *id, struct err *err)
{
    /* Each call requests the release. The content of a missing disk is unknown. */
    struct release_order o = {.id = id, .is_committed = true, .owes_if_absent = true};
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_with(release_done) struct release w = {.d = ctx, .order = &o, .call = call};
    enum release_step step;
    int r = advance(&w, &lock, &step, err);
    if (r == 0)
        r = answer(&w, step, err);
    if (r == 0 && w.v)
        log_event(LOG_INFO, "volume deleted", "volume", id->text, NULL);
    return r;
}
