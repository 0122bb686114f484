/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include "util/clock.h"
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>

enum {
    ACTIVE_MAX = 128,  /* files open at once */
    REFUSALS_MAX = 16, /* in a row, before any success: the destination is refused, not one file */
    TRIES_SHIFT_MAX = 5,
};
static const uint64_t wait_base_ns = 250 * NS_PER_MS, wait_cap_ns = 5 * NS_PER_SECOND;

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void tell(struct export_run *r, const struct upload *u, enum run_event e, const char *note,
                 const struct err *err)
{
    struct run_result result = {
        .event = e, .path = u->path, .key = str_of(u->key), .size_bytes = u->size_bytes, .note = note, .err = err};
    if (r->o.on_result)
        r->o.on_result(r->o.ctx, &result);
}

/* A file leaves the pending ones. Its size may differ from the one that was planned with. */
static void count_settled(struct export_run *r, uint64_t planned_bytes)
{
    r->counts.pending_files--;
    r->counts.pending_bytes -= min_u64(planned_bytes, r->counts.pending_bytes);
}

static uint64_t planned_bytes(const struct upload *u)
{
    return u->file == NO_FILE ? 0 : u->run->plan.files[u->file].size_bytes;
}

/* ---- transfers
 * ------------------------------------------------------------------------------------------------------- */

static void return_transfer(struct export_run *r, struct transfer *l)
{
    for (size_t i = 0; i < l->slice_count; i++)
        budget_return(r->budget, l->slices[i]);
    l->slice_count = 0;
    /* First in, first out: neighbours in the queue have different workers, so that all of them have work. */
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
        l->slices[l->slice_count] = slice;
    }
    if (l->slice_count == want)
        return true;
    /* Keep no memory while waiting: return all slices. */
    while (l->slice_count > 0)
        budget_return(r->budget, l->slices[--l->slice_count]);
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

static void transfer_ended(struct transfer *l)
{
    struct upload *u = l->owner;
    struct export_run *r = u->run;
    upload_answer(u, l);
    return_transfer(r, l);
    run_again(r);
}

void run_start_transfer(struct upload *u, struct transfer *l, enum transfer_op op)
{
    struct export_run *r = u->run;
    l->op = op;
    snprintf(u->object.owner, sizeof u->object.owner, "%s-%" PRIu64 "-%s", r->o.owner, u->size_bytes, u->uid);
    l->upload = (struct store_upload){
        .key = str_of(u->key ? u->key : u->multi->key),
        .upload_id = u->multi ? str_of(u->multi->id) : STR_NULL,
        .condition = upload_condition(u),
        .match = op == TRANSFER_READ ? str_of(u->object.seen) : str_of(u->object.replaces),
        .idempotency_token = str_of(u->uid),
        .owner = str_of(u->object.owner),
        .storage_class = r->o.policy->storage_class,
        .digest_kind = u->sum.kind,
        .part_bytes = u->part.bytes,
    };
    /* Abort the upload of an earlier run under the key that it was begun with. */
    if (u->multi && (op == TRANSFER_ABORT || op == TRANSFER_SWEEP))
        l->upload.key = str_of(u->multi->key);
    l->path = u->path;
    l->lease = u->lease.fd >= 0 ? &u->lease : NULL;
    l->owner = u;
    l->done = transfer_ended;
    u->in_flight++;
    transfer_go(l);
}

/* ---- the ends of a file ------------------------------------------------------------------------------------------ */

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
        r->store.looked_files += u->object.guard == GUARD_LOOK;
    }
    uint64_t looked = r->store.looked_files;
    for (int i = 0; i < 4; i++)
        if (!store_honours(r->o.store, i % 2 ? STORE_IF_SAME : STORE_IF_ABSENT, i / 2))
            looked += r->store.unproven[i / 2][i % 2];
    r->counts.looked_only_files = looked;
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
    r->successes++;
    pthread_mutex_lock(&r->lock);
    count_settled(r, planned_bytes(own_u));
    r->counts.done_files++;
    r->counts.done_bytes += own_u->size_bytes;
    r->counts.size_only_files += own_u->object.proof == PROOF_SIZE;
    count_proof(r, own_u, how);
    pthread_mutex_unlock(&r->lock);
    file_ends(own_u, how, NULL);
}

static void note_refusal(struct export_run *r, const struct err *err)
{
    bool refused = err->code == ERR_DENIED || err->code == ERR_NOT_FOUND;
    r->refusals = refused ? r->refusals + 1 : 0;
    if (r->successes == 0 && r->refusals >= REFUSALS_MAX)
        r->stop.gave_up = true;
}

void run_file_failed(struct upload *own_u, const struct err *err)
{
    struct export_run *r = own_u->run;
    struct err why = *err;
    if (err->code == ERR_CANCELLED && atomic_load(&r->stop.requested)) {
        run_file_left(own_u);
        return;
    }
    if (own_u->sight != MARKER_NONE) {
        checkpoint_withdrawn(own_u, err);
        return;
    }
    if (why.id == 0)
        err_advise(&why, CIS_FILE_NOT_EXPORTED);
    note_refusal(r, &why);
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

void run_file_left(struct upload *own_u)
{
    if (own_u->run->stop.left == NO_FILE)
        own_u->run->stop.left = own_u->file;
    remove_active(own_u);
}

void run_file_waits(struct upload *own_u, uint64_t delay_ns, const char *why)
{
    struct export_run *r = own_u->run;
    size_t file = (size_t)own_u->file;
    if (delay_ns == 0) {
        unsigned shift = r->tries[file] < TRIES_SHIFT_MAX ? r->tries[file] : TRIES_SHIFT_MAX;
        delay_ns = min_u64(wait_base_ns << shift, wait_cap_ns);
        if (r->tries[file]++ == 0)
            tell(r, own_u, RUN_WAITING, why, NULL);
    }
    queue_push(&r->waiting, (struct queue_item){.file = file, .due_ns = loop_now_ns(r->home) + delay_ns});
    remove_active(own_u);
}

/* ---- the beginning of a file ------------------------------------------------------------------------------------- */

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

/* Aborts an upload of an earlier run that this run does not continue. */
void run_add_chore(struct export_run *r, struct logbook_upload *m)
{
    struct upload *u = run_new_upload(r);
    u->multi = m;
    u->path = str_of(m->path);
    u->size_bytes = m->stamp.size_bytes;
    upload_start(u);
}

void run_make_uid(struct str path, const struct stamp *s, char ret[LOGBOOK_UID_MAX])
{
    auto_sbuf text;
    uint8_t sum[32];
    sbuf_init(&text, 8192);
    sbuf_addf(&text, "%" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " ", s->size_bytes, s->mtime_ns, s->ctime_ns,
              s->inode);
    sbuf_add(&text, path);
    sha256(sbuf_str(&text), sum);
    hex_text(sum, (LOGBOOK_UID_MAX - 1) / 2, ret);
}

/* How long until the file counts as settled, by its ctime, which no program can set. If the clock was set back, do
 * not wait until it catches up: the lease alone shows that nothing writes. */
static uint64_t unsettled_ns(const struct export_run *r, const struct file_lease *h)
{
    int64_t age = clock_wall_ns() - h->stamp.ctime_ns;
    return age >= 0 && (uint64_t)age < r->settle_ns ? r->settle_ns - (uint64_t)age : 0;
}

/* A large file that is not in the page cache goes past it: the pages belong to the pods. */
static void choose_direct(const struct file_lease *h)
{
    struct {
        uint64_t off, len;
    } range = {0, 0};
    struct {
        uint64_t cache, dirty, writeback, evicted, recently_evicted;
    } stat = {0};
    const long nr_cachestat = 451;
    if (h->stamp.size_bytes <= KEY_PART_BYTES || syscall(nr_cachestat, h->fd, &range, &stat, 0) != 0)
        return;
    if (stat.cache * 4096 < h->stamp.size_bytes / 2)
        (void)fcntl(h->fd, F_SETFL, O_RDONLY | O_NONBLOCK | O_DIRECT); /* refused: then through the cache */
}

/* It grew while it waited: one of its parts would never fit into the run's memory. */
static bool has_outgrown(const struct export_run *r, uint64_t size_bytes)
{
    return size_bytes <= KEY_OBJECT_BYTES_MAX &&
           key_part_bytes(size_bytes, store_caps(r->o.store)->parts_max) + SLICE_BYTES > r->memory_bytes;
}

static void fail_outgrown(struct upload *own_u)
{
    struct err err;
    char size[BYTES_TEXT_MAX];
    err_fail(&err, ERR_NO_SPACE, CIS_FILE_NOT_EXPORTED, "'%.*s' grew to %s, more than the memory of this run",
             STR_FMT(own_u->path), bytes_text(own_u->size_bytes, size));
    run_file_failed(own_u, &err);
}

/* The file existed when the run began. The next run sees whether it was removed or renamed. */
static void fail_gone(struct upload *own_u)
{
    struct err err;
    err_fail(&err, ERR_CHANGED, CIS_FILE_REMOVED_DURING_EXPORT, "'%.*s' was removed or renamed while the export ran",
             STR_FMT(str_sub(own_u->path, 0, 300)));
    run_file_failed(own_u, &err);
}

void run_start_file(struct export_run *r, size_t file)
{
    struct upload *u = run_new_upload(r);
    struct err err;
    u->file = (ssize_t)file;
    u->path = r->plan.files[file].path;
    u->size_bytes = r->plan.files[file].size_bytes;
    const struct err *barred = checkpoint_barred(u);
    if (barred) {
        run_file_failed(u, barred);
        return;
    }
    int e = file_lease_open(r->o.data, u->path.ptr, r->o.must_lease, &u->lease, &err);
    if (e == -ERR_NOT_FOUND) {
        fail_gone(u);
    } else if (e == -ERR_AGAIN) {
        run_file_waits(u, 0, err.text);
    } else if (e < 0) {
        run_file_failed(u, &err);
    } else if (unsettled_ns(r, &u->lease) > 0) {
        run_file_waits(u, unsettled_ns(r, &u->lease), NULL);
    } else {
        u->size_bytes = u->lease.stamp.size_bytes;
        if (has_outgrown(r, u->size_bytes)) {
            fail_outgrown(u);
            return;
        }
        choose_direct(&u->lease);
        run_make_uid(u->path, &u->lease.stamp, u->uid);
        upload_start(u);
    }
}

/* ---- the pump ---------------------------------------------------------------------------------------------------- */

static bool take_due(struct export_run *r, size_t *ret_file)
{
    uint64_t due;
    if (!queue_first(&r->waiting, &due) || due > loop_now_ns(r->home))
        return false;
    *ret_file = queue_pop(&r->waiting).file;
    return true;
}

static bool take_next(struct export_run *r, size_t *ret_file)
{
    while (r->next_file < r->plan.count) {
        size_t i = r->next_file++;
        const struct pick_file *f = &r->plan.files[i];
        if (f->chosen && !f->sent && !checkpoint_is_marker(r, i)) {
            *ret_file = i;
            return true;
        }
    }
    return false;
}

static bool start_something(struct export_run *r)
{
    size_t file;
    if (r->active_count >= ACTIVE_MAX || r->stop.gave_up)
        return false;
    if (checkpoint_withdraw_next(r))
        return true;
    if (r->markers.withdrawals > 0)
        return false;
    if (r->markers.ready_count > 0)
        checkpoint_start_marker(r, r->markers.ready[--r->markers.ready_count]);
    else if (take_due(r, &file) || take_next(r, &file))
        run_start_file(r, file);
    else
        return false;
    return true;
}

static bool feed_all(struct export_run *r)
{
    struct upload *u;
    list_foreach (&r->active, u, in_active)
        if (!upload_feed(u))
            return false;
    return true;
}

static void set_wake(struct export_run *r)
{
    uint64_t due, now = loop_now_ns(r->home);
    if (queue_first(&r->waiting, &due))
        loop_timer_set(r->home, &r->wake, due > now ? due - now : 0);
}

static void leave_idle(struct export_run *r)
{
    struct upload *u;
    list_foreach (&r->active, u, in_active)
        if (u->in_flight == 0)
            run_file_left(u);
}

static bool is_over(const struct export_run *r)
{
    bool stopping = atomic_load(&r->stop.requested);
    if (!list_is_empty(&r->active) || r->transfers.out > 0 || r->stop.orders_left > 0 || (stopping && !r->stop.sent))
        return false;
    return stopping || r->stop.gave_up ||
           (r->next_file == r->plan.count && r->waiting.count == 0 && r->markers.ready_count == 0);
}

static void end(struct export_run *r)
{
    loop_timer_cancel(r->home, &r->wake);
    loop_timer_cancel(r->home, &r->deadline);
    loop_unwatch(r->home, &r->leases);
    pthread_mutex_lock(&r->lock);
    r->ended = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock); /* from here on r is its owner's */
}

void run_pump(struct deferred *t)
{
    struct export_run *r = container_of(t, struct export_run, pump);
    if (atomic_load(&r->stop.requested)) {
        leave_idle(r);
    } else {
        bool more = feed_all(r);
        while (more && start_something(r))
            more = feed_all(r);
        set_wake(r);
    }
    if (is_over(r))
        end(r);
}

void run_again(struct export_run *r)
{
    loop_defer(r->home, &r->pump);
}
