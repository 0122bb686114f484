/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a volume, by the steps of volume/release_state.h: what must be in the bucket is there first, and then the
 * volume goes into the trash. The caller asks again and again, for hours if need be: each call looks, takes the steps
 * that can be taken, and answers. Standalone and in a cluster: only who asks, and who runs the export, differ. */
#include "child.h"
#include "csi/local.h"
#include "driver.h"
#include "export/verdict.h"
#include "gate.h"
#include "util/clock.h"
#include "util/log.h"
#include "volume/mount.h"
#include <inttypes.h>
#include <limits.h>

/* One release in hand. home: the call's thread, which holds the claim. */
struct release {
    struct driver *d;
    const struct local_order *order;
    struct rpc_call *call; /* borrowed; NULL: nobody waits */
    struct space *s;       /* borrowed; NULL: its pool is not here */
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

/* ---- is it in use? ----------------------------------------------------------------------------------------------- */

static int check_unmounted(const char *id, const char *path, const char *how, struct err *err)
{
    bool mounted;
    int r = mount_is_at(path, &mounted, err);
    if (r < 0 || !mounted)
        return r;
    err_set(err, ERR_BUSY, "volume '%s' is still %s at '%s'", id, how, path);
    return err_advise(err, 3013, "unpublish and unstage it first");
}

static int check_unused(const struct volume *v, const struct record *record, struct err *err)
{
    if (record->is_lost) {
        err_set(err, ERR_BUSY, "volume '%s' is still mounted, and its record of mounts is damaged", v->spec->id);
        return err_advise(err, 3013, "unpublish and unstage it first");
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < record->target_count; i++)
        r = check_unmounted(v->spec->id, record->targets[i].path, "published", err);
    if (r == 0 && record->staged)
        r = check_unmounted(v->spec->id, record->staged, "staged", err);
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
    if (w->record.is_lost) /* not to be written while its mounts are there; and nobody is admitted meanwhile */
        f->stage = f->is_withdrawn ? RELEASE_OPEN : RELEASE_CLOSED;
    f->writes = w->record.writes;
    f->has_policy = policy->uri != NULL;
    f->discards_failed = policy->on_failure == ON_FAILURE_DISCARD;
    f->verdict = verdict_of(&w->verdict);
    f->verdict_writes = w->verdict.writes;
    f->at_work = w->verdict.alive || (w->d->is_node && child_lives(JOB_HYDRATE, w->v->path));
    return 0;
}

/* Nobody can say what it was; only who has it is seen. */
static int read_unreadable(struct release *w, struct release_facts *f, struct err *err)
{
    auto_mem char *shown = NULL;
    auto_sbuf data, folder;
    sbuf_init(&data, PATH_MAX);
    sbuf_init(&folder, PATH_MAX);
    space_add_folder(w->s, w->order->id, &folder);
    sbuf_addf(&data, "%s/" VOLUME_DATA, folder.ptr);
    int r = mount_that_shows(data.ptr, w->order->id, &shown, err);
    f->in_use = shown != NULL;
    f->at_work = child_lives(JOB_HYDRATE, folder.ptr) || child_lives(JOB_EXPORT_RELEASE, folder.ptr);
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

/* Where the volume is; with it the claim. */
static int find(struct release *w, struct claim *claim, struct err *err)
{
    int r = driver_claim(w->d, w->order->id, claim, &w->s, &w->v, err);
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
        w->s = driver_space_of(w->d, w->order->id);
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
    return r < 0 ? err_wrap(err, "releasing volume '%s'", w->order->id) : 0;
}

static int commit(struct release *w, struct err *err)
{
    int r = w->order->commit(w->order->ctx, err);
    w->is_committed = r == 0;
    return r;
}

/* Whoever had the volume a moment ago may still be letting go of it: a mount process that ends closes its descriptors
 * after its mount is gone, and a child that somebody just starts has copies of them until its exec. */
#define LET_GO_NS (3 * NS_PER_SECOND)
#define LOOK_NS (20 * NS_PER_MS)

static int delete_patiently(const struct release *w, struct err *err)
{
    uint64_t end_ns = clock_now_ns() + LET_GO_NS;
    int r;
    while ((r = space_delete(w->s, str_of(w->order->id), err)) == -ERR_BUSY || r == -ERR_PENDING)
        if (!w->call || clock_now_ns() >= end_ns || !rpc_sleep_until(w->call, clock_now_ns() + LOOK_NS))
            break;
    return r;
}

static int move_to_trash(struct release *w, struct err *err)
{
    const char *id = w->order->id;
    int r = w->d->jobs && w->v ? jobs_end(w->d->jobs, id, w->v->path, err) : 0;
    if (r < 0)
        return r;
    r = delete_patiently(w, err);
    trash_wake(w->d->trash); /* also by what failed: it may lie there, and nobody asks again for what is gone */
    if (r < 0)
        return r;
    if (verdict_of(&w->verdict) == RELEASE_FAILED)
        log_event(LOG_WARN, "volume is deleted with files not exported, as was said", "volume", id, "files",
                  log_u64(w->verdict.failed_files), "first", w->verdict.failed_count ? w->verdict.failed[0].path : NULL,
                  NULL);
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
        return set_stage(w, RELEASE_SEALED, err);
    case RELEASE_COMMIT:
        return commit(w, err);
    case RELEASE_TRASH:
        return move_to_trash(w, err);
    default:
        *ret_again = false;
        return 0;
    }
}

static int advance(struct release *w, struct claim *claim, enum release_step *ret, struct err *err)
{
    struct release_facts f;
    bool again = true;
    w->is_committed = w->order->is_committed;
    verdict_init(&w->verdict);
    int r = find(w, claim, err);
    while (r == 0 && again) {
        r = read_facts(w, &f, err);
        if (r < 0)
            return r;
        *ret = release_next_step(&f);
        r = take_step(w, *ret, &again, err);
    }
    return r;
}

/* ---- who is admitted --------------------------------------------------------------------------------------------- */

int driver_is_released(const char *id, struct err *err)
{
    err_set(err, ERR_BUSY, "volume '%s' is being released", id);
    return err_advise(err, 3022, "no pod gets it until its release is withdrawn");
}

int driver_admit(struct driver *d, const struct volume *v, struct record *have, struct err *err)
{
    auto_with(verdict_done) struct verdict verdict;
    verdict_init(&verdict);
    int r = have->release == RELEASE_OPEN ? 0 : verdict_read(v->dir, &verdict, err);
    if (r < 0)
        return r;
    switch (release_admit(have->release, d->is_node, verdict.alive && is_for_release(&verdict))) {
    case RELEASE_REFUSE:
        return driver_is_released(v->spec->id, err);
    case RELEASE_REFUSE_NOW:
        err_set(err, ERR_PENDING, "volume '%s': its last export is under way", v->spec->id);
        return err_advise(err, 4030, "ask again");
    case RELEASE_ADMIT_BY_WITHDRAWING:
        have->release = RELEASE_OPEN;
        return 0;
    case RELEASE_ADMIT:
        break;
    }
    return 0;
}

/* ---- a node's: the exports are Kubernetes's to run, and what stands in the way is told to the caller ------------- */

int local_release(struct driver *d, const struct local_order *o, enum release_step *ret, struct err *err)
{
    auto_claim claim = {0};
    auto_with(release_done) struct release w = {.d = d, .order = o};
    enum release_step step;
    int r = advance(&w, &claim, &step, err);
    if (r == 0 && step == RELEASE_DAMAGED)
        r = err_copy(err, &w.found);
    if (r < 0)
        return r;
    if (step == RELEASE_IN_USE)
        gate_call_off(o->id);
    if (step == RELEASE_GONE)
        log_event(LOG_INFO, "volume released", "volume", o->id, "name", w.v ? w.v->spec->name : NULL, "discard",
                  o->may_discard ? "true" : NULL, NULL);
    *ret = step;
    return 0;
}

/* ---- DeleteVolume of the standalone driver ----------------------------------------------------------------------- */

static int still_travelling(const char *id, const struct verdict *v, const struct job_view *job, struct err *err)
{
    char left[BYTES_TEXT_MAX], wait[TIME_TEXT_MAX];
    if (job->state == JOB_FAILED) {
        err_set(err, ERR_PENDING, "volume '%s': its export ended before its time", id);
        return err_advise(err, 4031, "it is tried again in %s", duration_text(job->retry_ns, wait));
    }
    if (v->state == VERDICT_RUNNING)
        err_set(err, ERR_PENDING, "volume '%s': %" PRIu64 " files, %s, are still to be exported", id, v->pending_files,
                bytes_text(v->pending_bytes, left));
    else
        err_set(err, ERR_PENDING, "volume '%s': its export is about to begin", id);
    return err_advise(err, 4030, "ask again");
}

static int not_exported(const char *id, const struct verdict *v, uint64_t retry_ns, struct err *err)
{
    char wait[TIME_TEXT_MAX];
    bool known = v->failed_count > 0;
    err_set(err, ERR_BUSY, "volume '%s': %" PRIu64 " of %" PRIu64 " files not exported, first %.100s: %.200s", id,
            v->failed_files, v->failed_files + v->done_files, known ? v->failed[0].path : "?",
            known ? v->failed[0].err.text : "the reason is not known");
    return err_advise(err, known && v->failed[0].err.id ? v->failed[0].err.id : 4012, "kept; tried again in %s",
                      duration_text(retry_ns, wait));
}

static int export_first(struct release *w, enum release_step step, struct err *err)
{
    struct job_view job = {.state = JOB_RUNNING};
    int r = 0;
    if (w->record.release == RELEASE_SEALED) {
        r = space_attach(w->s, str_of(w->order->id), err);
        if (r == 0)
            r = volume_check_uncovered(w->v, err);
        if (r == 0)
            r = driver_want_job(w->d, w->v, JOB_EXPORT_RELEASE, false, &job, err);
    }
    if (r < 0)
        return r;
    if (step == RELEASE_EXPORT_FAILED && job.state == JOB_FAILED)
        return not_exported(w->order->id, &w->verdict, job.retry_ns, err);
    return still_travelling(w->order->id, &w->verdict, &job, err);
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

HANDLER(controller_delete)
{
    (void)reply;
    struct driver *d = ctx;
    const Csi__V1__DeleteVolumeRequest *q = (const Csi__V1__DeleteVolumeRequest *)request;
    /* The call itself asks, each time anew; of a disk that is not here nobody knows what it holds. */
    struct local_order o = {.id = q->volume_id, .is_committed = true, .owes_if_absent = true};
    auto_claim claim = {0};
    auto_with(release_done) struct release w = {.d = d, .order = &o, .call = call};
    enum release_step step;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r < 0)
        return r;
    if (!spec_id_is_valid(str_of(q->volume_id)))
        return 0; /* never was one of ours */
    r = advance(&w, &claim, &step, err);
    if (r == 0)
        r = answer(&w, step, err);
    if (r == 0 && w.v)
        log_event(LOG_INFO, "volume deleted", "volume", q->volume_id, NULL);
    return r;
}
