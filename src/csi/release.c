/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a volume: what must be in the bucket is there first, and then the volume goes into the trash. The caller
 * asks again and again, for hours if need be: each call looks, nudges and answers. */
#include "child.h"
#include "csi/local.h"
#include "driver.h"
#include "export/verdict.h"
#include "gate.h"
#include "record.h"
#include "util/clock.h"
#include "util/log.h"
#include "volume/mount.h"
#include <inttypes.h>
#include <limits.h>

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

/* ---- export ------------------------------------------------------------------------------------------------------ */

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

/* Of the last run for release, if that is what the verdict is about. */
static bool is_final(const struct verdict *v, enum verdict_state state)
{
    return v->state == state && v->purpose == VERDICT_FOR_RELEASE;
}

static int export_first(struct driver *d, struct space *s, const struct volume *v, struct err *err)
{
    const char *id = v->spec->id;
    struct job_view job;
    auto_with(verdict_done) struct verdict verdict;
    verdict_init(&verdict);
    int r = verdict_read(v->dir, &verdict, err);
    if (r < 0 || (is_final(&verdict, VERDICT_DONE) && !verdict.alive))
        return r;
    if (is_final(&verdict, VERDICT_FAILED) && v->spec->export.on_failure == ON_FAILURE_DISCARD) {
        log_event(LOG_WARN, "volume is deleted with files not exported, as onFailure says", "volume", id, "files",
                  log_u64(verdict.failed_files), "first", verdict.failed_count ? verdict.failed[0].path : NULL, NULL);
        return 0;
    }
    r = space_attach(s, str_of(id), err);
    if (r == 0)
        r = driver_want_job(d, v, JOB_EXPORT_RELEASE, false, &job, err);
    if (r < 0)
        return r;
    if (is_final(&verdict, VERDICT_FAILED) && job.state == JOB_FAILED)
        return not_exported(id, &verdict, job.retry_ns, err);
    return still_travelling(id, &verdict, &job, err);
}

/* An export is owed if the policy names a moment of release, and somebody could write. */
static bool owes_export(const struct spec *s, const struct record *record)
{
    return s->export.uri && record->written && (s->export.triggers & (TRIGGER_ON_RELEASE | TRIGGER_ON_UNPUBLISH));
}

/* Whoever had the volume a moment ago may still be letting go of it: a mount process that ends closes its descriptors
 * after its mount is gone, and a child that somebody just starts has copies of them until its exec. */
#define LET_GO_NS (3 * NS_PER_SECOND)
#define LOOK_NS (20 * NS_PER_MS)

static int delete_patiently(struct rpc_call *call, struct space *s, const char *id, struct err *err)
{
    uint64_t end_ns = clock_now_ns() + LET_GO_NS;
    int r;
    while ((r = space_delete(s, str_of(id), err)) == -ERR_BUSY || r == -ERR_PENDING)
        if (clock_now_ns() >= end_ns || !rpc_sleep_until(call, clock_now_ns() + LOOK_NS))
            break;
    return r;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static int release(struct driver *d, struct rpc_call *call, struct space *s, const struct volume *v, struct err *err)
{
    auto_record record = {0};
    int r = record_of(v, &record, err);
    if (r == 0)
        r = check_unused(v, &record, err);
    if (r == 0 && owes_export(v->spec, &record))
        r = export_first(d, s, v, err);
    if (r == 0)
        r = jobs_end(d->jobs, v->spec->id, v->path, err);
    if (r < 0)
        return r;
    r = delete_patiently(call, s, v->spec->id, err);
    trash_wake(d->trash); /* also by what failed: it may lie there, and nobody asks again for what is gone */
    return r;
}

/* ---- a node's -----------------------------------------------------------------------------------------------------
 * The same, but the exports are Kubernetes's to run: what stands in the way is told to the caller. */

static int weigh(const struct volume *v, bool discard, enum release_step *ret, struct err *err)
{
    auto_record record = {0};
    auto_with(verdict_done) struct verdict verdict;
    struct err in_use;
    verdict_init(&verdict);
    int r = record_of(v, &record, err);
    if (r == 0)
        r = verdict_read(v->dir, &verdict, err);
    if (r < 0)
        return r;
    bool owes = !discard && owes_export(v->spec, &record);
    bool failed = is_final(&verdict, VERDICT_FAILED);
    if (check_unused(v, &record, &in_use) < 0)
        *ret = RELEASE_IN_USE;
    else if (verdict.alive || child_lives(JOB_HYDRATE, v->path))
        *ret = RELEASE_AT_WORK;
    else if (!owes || is_final(&verdict, VERDICT_DONE) || (failed && v->spec->export.on_failure == ON_FAILURE_DISCARD))
        *ret = RELEASE_GONE;
    else
        *ret = failed ? RELEASE_EXPORT_FAILED : RELEASE_EXPORT_DUE;
    return 0;
}

/* Nobody can say what it was; that it may go was said. Only who has it still keeps it. */
static int weigh_unreadable(struct space *s, const char *id, enum release_step *ret, struct err *err)
{
    auto_mem char *shown = NULL;
    auto_sbuf data, folder;
    sbuf_init(&data, PATH_MAX);
    sbuf_init(&folder, PATH_MAX);
    space_add_folder(s, id, &folder);
    sbuf_addf(&data, "%s/" VOLUME_DATA, folder.ptr);
    int r = mount_that_shows(data.ptr, id, &shown, err);
    if (r < 0)
        return r;
    bool at_work = child_lives(JOB_HYDRATE, folder.ptr) || child_lives(JOB_EXPORT_RELEASE, folder.ptr);
    *ret = shown ? RELEASE_IN_USE : at_work ? RELEASE_AT_WORK : RELEASE_GONE;
    return 0;
}

int local_release(struct driver *d, const char *id, bool discard, enum release_step *ret, struct err *err)
{
    auto_claim claim = {0};
    auto_volume v = NULL;
    struct space *s;
    enum release_step step = RELEASE_GONE;
    int r = driver_claim(d, id, &claim, &s, &v, err);
    if (r == -ERR_NOT_FOUND || r == -ERR_ABSENT) {
        *ret = RELEASE_GONE;
        return 0;
    }
    if (discard && (r == -ERR_CORRUPT || r == -ERR_UNSUPPORTED))
        r = weigh_unreadable(s = driver_space_of(d, id), id, &step, err);
    else if (r == 0)
        r = weigh(v, discard, &step, err);
    if (r == 0 && step == RELEASE_GONE) {
        r = space_delete(s, str_of(id), err);
        trash_wake(d->trash); /* as in release() */
    }
    if (r < 0)
        return r;
    if (step == RELEASE_IN_USE)
        gate_call_off(id);
    if (step == RELEASE_GONE)
        log_event(LOG_INFO, "volume released", "volume", id, "name", v ? v->spec->name : NULL, "discard",
                  discard ? "true" : NULL, NULL);
    *ret = step;
    return 0;
}

HANDLER(controller_delete)
{
    (void)reply;
    struct driver *d = ctx;
    const Csi__V1__DeleteVolumeRequest *q = (const Csi__V1__DeleteVolumeRequest *)request;
    auto_claim claim = {0};
    auto_volume v = NULL;
    struct space *s;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r < 0)
        return r;
    if (!spec_id_is_valid(str_of(q->volume_id)))
        return 0; /* never was one of ours */
    r = driver_claim(d, q->volume_id, &claim, &s, &v, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = release(d, call, s, v, err);
    if (r < 0)
        return r;
    log_event(LOG_INFO, "volume deleted", "volume", q->volume_id, NULL);
    return 0;
}
