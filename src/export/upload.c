/* SPDX-License-Identifier: Apache-2.0 */
/* One file of an export: its states, its requests and its ends. */
#include "private.h"
#include "util/clock.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { REFUSALS_MAX = 16 }; /* consecutive files: the destination is the cause */
static const uint64_t wait_base_ns = 250 * NS_PER_MS, wait_cap_ns = 5 * NS_PER_SECOND;

struct upload *run_new_upload(struct export_run *r)
{
    struct upload *u = xcalloc(1, sizeof *u);
    u->run = r;
    u->file = NO_FILE;
    u->group = SIZE_MAX;
    u->version = 1;
    u->sum.kind = r->store.digest_kind;
    u->lease.fd = -1;
    list_add(&r->active, &u->in_active);
    r->active_count++;
    return u;
}

void run_make_token(struct str path, const struct stamp *s, char ret[LOGBOOK_TOKEN_MAX])
{
    auto_sbuf text = SBUF(8192);
    uint8_t sum[32];
    sbuf_addf(&text, "%" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " ", s->size_bytes, s->mtime_ns, s->ctime_ns,
              s->inode);
    sbuf_add(&text, path);
    sha256(sbuf_str(&text), sum);
    hex_text(sum, (LOGBOOK_TOKEN_MAX - 1) / 2, ret);
}

/* Allowed next states. */
static const uint16_t allowed[] = {
#define TO(s) (1 << UPLOAD_##s)
    [UPLOAD_NEW] = TO(LOOKING) | TO(CLEANING) | TO(NOTING) | TO(SENDING) | TO(PUTTING) | TO(WITHDRAWING),
    [UPLOAD_LOOKING] = TO(COMPARING) | TO(NOTING) | TO(PUTTING) | TO(NEW) | TO(SWEEPING),
    [UPLOAD_COMPARING] = TO(READING) | TO(NOTING) | TO(PUTTING) | TO(NEW) | TO(SWEEPING) | TO(DROPPING) | TO(PROBING),
    [UPLOAD_READING] = TO(NOTING) | TO(PUTTING) | TO(NEW) | TO(SWEEPING) | TO(DROPPING) | TO(PROBING),
    [UPLOAD_PROBING] = TO(CONFIRMING),
    [UPLOAD_CLEANING] = TO(NEW),
    [UPLOAD_NOTING] = TO(BEGINNING),
    [UPLOAD_BEGINNING] = TO(SENDING) | TO(DROPPING) | TO(NEW),
    [UPLOAD_SENDING] = TO(COMPLETING) | TO(DROPPING) | TO(NEW),
    [UPLOAD_COMPLETING] = TO(CONFIRMING) | TO(DROPPING) | TO(SWEEPING) | TO(READING),
    [UPLOAD_DROPPING] = TO(NEW),
    [UPLOAD_PUTTING] = TO(CONFIRMING) | TO(NEW) | TO(SWEEPING) | TO(PROBING),
    [UPLOAD_CONFIRMING] = TO(DROPPING) | TO(NEW) | TO(SWEEPING) | TO(READING) | TO(COMPARING) | TO(PROBING),
    [UPLOAD_WITHDRAWING] = 0,
    [UPLOAD_SWEEPING] = 0,
#undef TO
};

void upload_become(struct upload *u, enum upload_state next)
{
    assert(u->in_flight == 0 && (allowed[u->state] & 1 << next));
    u->state = next;
    u->failed = false;
    if (next == UPLOAD_COMPARING || next == UPLOAD_SENDING || next == UPLOAD_READING)
        u->part.next = 1;
}

static void upload_free(struct upload *u)
{
    file_lease_close(&u->lease);
    free(u->marker_path);
    free(u->key);
    free(u->part.sums);
    free(u->part.list);
    free(u);
}

/* Our own object is replaced under `fail` only: `version` keeps every version, `overwrite` has no condition. */
static enum store_if upload_condition(const struct upload *u)
{
    if (u->run->o.policy->conflict == CONFLICT_OVERWRITE)
        return STORE_IF_ANY;
    return u->object.replaces[0] ? STORE_IF_SAME : STORE_IF_ABSENT;
}

bool upload_is_large(const struct upload *u)
{
    return u->size_bytes > KEY_PART_BYTES;
}

void upload_ended(struct upload *u)
{
    if (u->multi)
        logbook_ended(u->run->logbook, u->multi);
    u->multi = NULL;
}

void upload_drop(struct upload *u, enum upload_after after, const struct err *why)
{
    u->err = *why;
    u->after = after;
    upload_become(u, UPLOAD_DROPPING);
}

void upload_vanishes(struct upload *u, const struct err *why)
{
    struct err err = *why;
    err_wrap(&err, "the upload was aborted three times, by a lifecycle rule or another program");
    err_advise(&err, CIS_FILE_NOT_EXPORTED);
    upload_drop(u, AFTER_FAIL, &err);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

void run_return_transfer(struct export_run *r, struct transfer *l)
{
    for (size_t i = 0; i < l->slice_count; i++)
        budget_return(r->budget, l->slices[i].read.bytes);
    l->slice_count = 0;
    /* First in, first out: neighbours in the queue have different workers, so all workers are busy. */
    list_add(&r->transfers.free, &l->in_free);
    r->transfers.out--;
}

static bool take_slices(struct export_run *r, struct transfer *l, uint64_t bytes)
{
    size_t want = (size_t)((bytes + SLICE_BYTES - 1) / SLICE_BYTES);
    transfer_need_slices(l, want);
    for (l->slice_count = 0; l->slice_count < want; l->slice_count++) {
        void *slice = budget_take(r->budget, SLICE_BYTES, NULL);
        if (!slice)
            break;
        l->slices[l->slice_count].read.bytes = slice;
    }
    if (l->slice_count == want)
        return true;
    /* Keep no memory while waiting: return all slices. */
    while (l->slice_count > 0)
        budget_return(r->budget, l->slices[--l->slice_count].read.bytes);
    return false;
}

struct transfer *run_take_transfer(struct export_run *r, uint64_t bytes)
{
    struct transfer *l = list_first(&r->transfers.free, struct transfer, in_free);
    if (!l || !take_slices(r, l, bytes))
        return NULL;
    list_remove(&r->transfers.free, &l->in_free);
    r->transfers.out++;
    return l;
}

void run_start_transfer(struct upload *u, struct transfer *l)
{
    struct export_run *r = u->run;
    enum transfer_op op = l->request.op;
    snprintf(u->object.owner, sizeof u->object.owner, "%s-%" PRIu64 "-%s", r->o.owner, u->size_bytes, u->token);
    l->request.write = (struct store_write){
        .key = str_of(u->key ? u->key : u->multi->key),
        .upload_id = u->multi ? str_of(u->multi->upload_id) : STR_NULL,
        .condition = upload_condition(u),
        .match = op == TRANSFER_READ ? str_of(u->object.seen) : str_of(u->object.replaces),
        .idempotency_token = str_of(u->token),
        .owner = str_of(u->object.owner),
        .storage_class = str_of(r->o.policy->storage_class),
        .digest_kind = u->sum.kind,
        .part_bytes = u->part.bytes,
    };
    /* Abort the upload of an earlier run under the key with which it was begun. */
    if (u->multi && (op == TRANSFER_ABORT || op == TRANSFER_SWEEP))
        l->request.write.key = str_of(u->multi->key);
    l->request.path = u->path;
    l->request.lease = u->lease.fd >= 0 ? &u->lease : NULL;
    l->owner = u;
    u->in_flight++;
    transfer_go(l);
}

/* ---- ends of an upload ------------------------------------------------------------------------------------------- */

static void tell(struct export_run *r, const struct upload *u, enum run_event e, const char *note,
                 const struct err *err)
{
    struct run_result result = {
        .event = e, .path = u->path, .key = str_of(u->key), .size_bytes = u->size_bytes, .note = note, .err = err};
    if (r->o.on_result)
        r->o.on_result(r->o.ctx, &result);
}

/* A file is no longer pending. Its size may differ from the planned one. */
static void count_settled(struct export_run *r, uint64_t planned_bytes)
{
    r->counts.pending_files--;
    r->counts.pending_bytes -= min_u64(planned_bytes, r->counts.pending_bytes);
}

static uint64_t planned_bytes(const struct upload *u)
{
    return u->file == NO_FILE ? 0 : u->run->plan.files[u->file].size_bytes;
}

static void remove_active(struct upload *own_u)
{
    struct export_run *r = own_u->run;
    list_remove(&r->active, &own_u->in_active);
    r->active_count--;
    upload_free(own_u);
}

static void file_ends(struct upload *own_u, enum run_event how, const struct err *err)
{
    tell(own_u->run, own_u, how, NULL, err);
    checkpoint_settled(own_u, err);
    remove_active(own_u);
}

/* Counts how the object was confirmed and protected. Objects written before the store proved that it honours the
 * condition had the same condition, and count as protected too. */
static void count_proof(struct export_run *r, const struct upload *u, enum run_event how)
{
    bool replaced = u->object.replaces[0] != '\0', in_parts = upload_is_large(u);
    r->counts.proven_files[u->object.proof]++;
    if (how == RUN_SENT) {
        r->store.unproven[in_parts][replaced] += u->object.guard == GUARD_UNPROVEN;
        r->store.head_only_files += u->object.guard == GUARD_HEAD;
    }
    uint64_t head_only = r->store.head_only_files;
    for (int i = 0; i < 4; i++)
        if (!store_honours(r->o.store, i % 2 ? STORE_IF_SAME : STORE_IF_ABSENT, i / 2))
            head_only += r->store.unproven[i / 2][i % 2];
    r->counts.head_only_files = head_only;
}

void run_file_sent(struct upload *own_u, enum run_event how)
{
    struct export_run *r = own_u->run;
    struct err err;
    bool ours = own_u->version == 1 && (how == RUN_SENT || own_u->object.is_own);
    if (logbook_add(r->logbook, own_u->path, &own_u->lease.stamp, str_of(own_u->key),
                    ours ? str_of(own_u->object.seen) : STR_NULL, &err) < 0) {
        run_file_unrecorded(own_u, &err);
        return;
    }
    r->outcomes.successes++;
    r->outcomes.busy = 0;
    pthread_mutex_lock(&r->lock);
    count_settled(r, planned_bytes(own_u));
    r->counts.done_files++;
    r->counts.done_bytes += own_u->size_bytes;
    r->counts.size_only_files += own_u->object.proof == PROOF_SIZE;
    count_proof(r, own_u, how);
    pthread_mutex_unlock(&r->lock);
    file_ends(own_u, how, NULL);
}

void run_file_left(struct upload *own_u)
{
    if (own_u->run->stop.left == NO_FILE)
        own_u->run->stop.left = own_u->file;
    remove_active(own_u);
}

/* Every other file would fail by the same cause. */
static bool concerns_all_files(const struct export_run *r, const struct err *err)
{
    enum err_kind kind = err_kind_of(err->id);
    /* A port with TLS may answer a request without it. */
    bool is_wrong = err->code == ERR_INVALID || !store_has_answered(r->o.store);
    return kind == ERR_KIND_BUCKET_NOT_FOUND || kind == ERR_KIND_STORAGE_CLASS_UNKNOWN ||
           (kind == ERR_KIND_UNREACHABLE && is_wrong); /* the endpoint itself */
}

/* Not a status that no retry would change, such as 413: that may be about one file. */
static bool is_busy(const struct err *err)
{
    return err->code == ERR_AGAIN && err_kind_of(err->id) == ERR_KIND_STORE_BUSY;
}

static bool may_concern_all_files(const struct export_run *r, const struct err *err)
{
    enum err_kind kind = err_kind_of(err->id);
    return err->code == ERR_DENIED || err->code == ERR_NOT_FOUND || err->code == ERR_NO_SPACE ||
           kind == ERR_KIND_UNREACHABLE || is_busy(err) || concerns_all_files(r, err);
}

/* A permission may be missing for some files only, if others were exported. A store that is busy for each file in turn,
 * as long as a request is retried, is busy for the rest, too. */
static void note_refusal(const struct upload *u, struct err *err)
{
    struct export_run *r = u->run;
    bool is_local = u->state == UPLOAD_NEW && err->sys != 0; /* the file cannot be opened */
    if (is_local)
        return;
    r->outcomes.refusals = may_concern_all_files(r, err) ? r->outcomes.refusals + 1 : 0;
    r->outcomes.busy = is_busy(err) ? r->outcomes.busy + 1 : 0;
    bool is_likely =
        (r->outcomes.successes == 0 && r->outcomes.refusals >= REFUSALS_MAX) || r->outcomes.busy >= REFUSALS_MAX;
    if (!is_likely && !concerns_all_files(r, err))
        return;
    if (is_likely)
        err_wrap(err, "gave up after %d failed files; the last one", REFUSALS_MAX);
    r->stop.is_refused = true; /* the pump stops the run */
}

void run_file_failed(struct upload *own_u, const struct err *err)
{
    struct export_run *r = own_u->run;
    struct err why = *err;
    bool is_stopped = err->code == ERR_CANCELLED && atomic_load(&r->stop.requested);
    bool is_known = r->stop.is_refused && may_concern_all_files(r, err); /* of a file that was reported */
    if (is_stopped || is_known) {
        run_file_left(own_u);
        return;
    }
    if (own_u->old_marker != MARKER_NONE) {
        checkpoint_withdrawn(own_u, err);
        run_file_left(own_u);
        return;
    }
    if (why.id == 0)
        err_advise(&why, CIS_FILE_NOT_EXPORTED);
    note_refusal(own_u, &why);
    pthread_mutex_lock(&r->lock);
    count_settled(r, planned_bytes(own_u));
    verdict_add_failure(&r->counts, own_u->path, own_u->size_bytes, &why);
    pthread_mutex_unlock(&r->lock);
    file_ends(own_u, RUN_FAILED, &why);
}

void run_file_unrecorded(struct upload *own_u, struct err *err)
{
    own_u->run->stop.gave_up = true;
    err_wrap(err, "cannot record '%.*s' as exported", STR_FMT(str_sub(own_u->path, 0, 200)));
    run_file_failed(own_u, err);
}

void run_file_waits(struct upload *own_u, uint64_t delay_ns, const char *why)
{
    struct export_run *r = own_u->run;
    size_t file = (size_t)own_u->file;
    if (delay_ns == 0) {
        delay_ns = clock_doubled_ns(r->tries[file], wait_base_ns, wait_cap_ns);
        if (r->tries[file]++ == 0)
            tell(r, own_u, RUN_WAITING, why, NULL);
    }
    struct waiting_file *w = xcalloc(1, sizeof *w);
    w->file = file;
    w->due_ns = loop_now_ns(r->home) + delay_ns;
    heap_add(&r->waiting, &w->node);
    remove_active(own_u);
}

void run_again(struct export_run *r)
{
    loop_defer(r->home, &r->pump);
}
