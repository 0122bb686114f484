/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/cgroup.h"
#include "util/clock.h"
#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

enum { TRANSFERS_DEFAULT = 64, TRANSFERS_MAX = 512 };
static const uint64_t memory_max = 192 << 20;
/* Measured: with 32 MiB, large and small files together take 18 MiB, half of it for one part. */
static const uint64_t limit_min = 32 << 20;
/* A change within one tick of the kernel's clock leaves ctime as it was: do not read younger files yet. */
static const uint64_t settle_least_ns = 20 * NS_PER_MS;

/* ---- timers and signals ------------------------------------------------------------------------------------------ */

static void wake_up(struct timer *t)
{
    run_again(container_of(t, struct export_run, wake));
}

static void deadline_passed(struct timer *t)
{
    struct export_run *r = container_of(t, struct export_run, deadline);
    r->stop.over_deadline = true;
    run_stop(r);
}

/* SIGIO: another process is about to write a file that this run reads. Each lease shows whether it is broken. */
static void lease_wanted(struct watch *w, uint32_t)
{
    struct export_run *r = container_of(w, struct export_run, leases);
    struct signalfd_siginfo info[16];
    struct upload *u;
    while (read(w->fd, info, sizeof info) > 0)
        ;
    list_foreach (&r->active, u, in_active)
        (void)file_lease_yield(&u->lease);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static bool ask_stopped(void *ctx)
{
    const struct export_run *r = ctx;
    return r->o.is_stopped && r->o.is_stopped(r->o.ctx);
}

static void on_skip(void *ctx, struct str path, const char *why)
{
    const struct export_run *r = ctx;
    struct run_result result = {.event = RUN_SKIPPED, .path = path, .note = why};
    if (r->o.on_result)
        r->o.on_result(r->o.ctx, &result);
}

static int make_plan(struct export_run *r, struct err *err)
{
    struct plan_options o = run_plan_options(r);
    o.on_skip = on_skip;
    o.is_stopped = ask_stopped;
    return plan_make(&o, &r->plan, err);
}

/* Enough for one part of each file whose part takes at most half of the control group's memory; the others fail. */
static void raise_memory(struct export_run *r)
{
    for (size_t i = 0; i < r->plan.count; i++) {
        const struct pick_file *f = &r->plan.files[i];
        uint64_t needed = run_memory_needed(r, f->size_bytes);
        if (f->chosen && !f->sent && needed <= r->memory_limit / 2)
            r->memory_bytes = max_u64(r->memory_bytes, needed);
    }
}

static void make_transfers(struct export_run *r)
{
    r->transfers.count = min_u64(r->o.concurrency ? r->o.concurrency : TRANSFERS_DEFAULT, TRANSFERS_MAX);
    r->transfers.way = (struct transfer_way){.home = r->home,
                                             .store = r->o.store,
                                             .rate = r->o.bytes_per_second ? &r->rate : NULL,
                                             .done = run_transfer_ended};
    r->transfers.all = xcalloc(r->transfers.count, sizeof *r->transfers.all);
    for (size_t i = 0; i < r->transfers.count; i++) {
        struct transfer *l = &r->transfers.all[i];
        transfer_init(l, &r->transfers.way, &r->o.workers[i % r->o.worker_count]);
        list_add(&r->transfers.free, &l->in_free);
    }
}

/* No file that was sent is at fault; `path` is the first one that the failure concerns. */
static void report_failure(struct export_run *r, struct str path, uint64_t bytes, struct err *err)
{
    const struct run_result result = {.event = RUN_FAILED, .path = path, .size_bytes = bytes, .err = err};
    if (err->id == 0)
        err_advise(err, CIS_FILE_NOT_EXPORTED);
    verdict_add_failure(&r->counts, path, bytes, err);
    if (r->o.on_result)
        r->o.on_result(r->o.ctx, &result);
}

static void count_files(struct export_run *r)
{
    struct verdict *c = &r->counts;
    c->pending_bytes = 0; /* this run has found its own */
    c->pending_files = r->markers.ours;
    for (size_t i = 0; i < r->plan.count; i++) {
        const struct pick_file *f = &r->plan.files[i];
        if (!f->chosen)
            continue;
        c->pending_files += !f->sent;
        c->pending_bytes += f->sent ? 0 : f->size_bytes;
        c->done_files += f->sent;
        c->done_bytes += f->sent ? f->size_bytes : 0;
    }
    c->skipped_files = r->plan.skipped;
    if (r->plan.error_count > 0)
        report_failure(r, str_of(r->plan.error_path), 0, &r->plan.error);
    for (uint64_t i = 1; i < r->plan.error_count; i++)
        verdict_add_failure(c, str_of(r->plan.error_path), 0, &r->plan.error);
}

static int make_signal(struct export_run *r, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    r->leases = (struct watch){.ready = lease_wanted, .events = EPOLLIN};
    r->leases.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->leases.fd < 0 ? err_sys(err, errno, "cannot wait for leases") : 0;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* Will an upload of this run find what an earlier run left of this path? A chore must not free it as well. */
static bool is_wanted(const struct export_run *r, struct str path)
{
    const struct pick_file *f = pick_find(r->plan.files, r->plan.count, path);
    return f ? f->chosen && !f->sent : checkpoint_makes_marker(r, path);
}

static void start(struct mail *m)
{
    struct export_run *r = container_of(m, struct export_run, start_mail);
    if (loop_watch(r->home, &r->leases, ERR_IGNORED) < 0) {
        /* Without SIGIO a writer waits until the part is sent: slower, not wrong. */
        r->leases.events = 0;
    }
    uint64_t deadline_ns = r->o.policy->deadline_ns, elapsed_ns = clock_now_ns() - r->began_ns;
    if (deadline_ns > 0)
        loop_timer_set(r->home, &r->deadline, deadline_ns - min_u64(elapsed_ns, deadline_ns));
    for (size_t i = 0; i < logbook_upload_count(r->logbook); i++)
        if (!is_wanted(r, str_of(logbook_upload_at(r->logbook, i)->path)))
            run_add_chore(r, logbook_upload_at(r->logbook, i));
    run_again(r);
}

static void free_run(struct export_run *r)
{
    for (size_t i = 0; i < r->transfers.count; i++)
        transfer_done(&r->transfers.all[i]);
    free(r->transfers.all);
    checkpoints_free(r);
    free(r->tries);
    free(r->stop.orders);
    for (size_t i = 0; i < r->waiting.count; i++)
        free(container_of(r->waiting.nodes[i], struct waiting_file, node));
    heap_done(&r->waiting);
    budget_free(r->budget);
    plan_done(&r->plan);
    logbook_free(r->logbook);
    verdict_done(&r->counts);
    fd_close(&r->leases.fd);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static bool waits_less(const struct heap_node *a, const struct heap_node *b)
{
    return container_of(a, struct waiting_file, node)->due_ns < container_of(b, struct waiting_file, node)->due_ns;
}

static void set_state(struct verdict *v, enum verdict_state next)
{
    assert(v->state == VERDICT_NONE || v->state == VERDICT_RUNNING);
    v->state = next;
    v->updated_ns = clock_wall_ns();
}

static struct export_run *new_run(const struct run_options *o)
{
    struct export_run *r = xcalloc(1, sizeof *r);
    r->o = *o;
    r->began_ns = clock_now_ns();
    (void)!fstat(o->export_dir, &r->records); /* if it fails, nothing is left out of the plan */
    r->home = o->workers[0].loop;
    r->memory_limit = cgroup_memory_limit();
    r->store.digest_kind = store_caps(o->store)->upload_digest;
    r->store.size_only = r->store.digest_kind == HASH_NONE;
    if (r->store.size_only)
        r->store.digest_kind = HASH_CRC32C;
    /* After unpublishing no pod writes, and the lease confirms it. Only a manual export waits for files to settle. */
    r->settle_ns = max_u64(o->purpose == VERDICT_FOR_MANUAL ? o->policy->settle_ns : 0, settle_least_ns);
    atomic_store(&r->rate.units_per_second, o->bytes_per_second);
    r->leases.fd = -1;
    r->stop.left = NO_FILE;
    r->waiting.is_before = waits_less;
    r->wake.fire = wake_up;
    r->deadline.fire = deadline_passed;
    r->pump.run = run_pump;
    r->start_mail.deliver = start;
    r->stop.orders = xcalloc(o->worker_count, sizeof *r->stop.orders);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    verdict_init(&r->counts);
    set_state(&r->counts, VERDICT_RUNNING);
    r->counts.purpose = o->purpose;
    r->counts.writes = o->writes;
    r->counts.started_ns = r->counts.updated_ns > o->unpublished_ns ? r->counts.updated_ns : o->unpublished_ns;
    r->counts.pending_since_ns = r->counts.started_ns;
    snprintf(r->counts.uri, sizeof r->counts.uri, "%s", o->policy->uri.text);
    return r;
}

/* ---- lost writes ------------------------------------------------------------------------------------------------- */

/* An error of an earlier write-back is reported once. A disk that fails now fails again: then nothing can be said about
 * its files, and reading them shows it. If the clock was set back, files from before the loss have a later ctime. */
static int note_lost_writes(struct export_run *r, struct err *err)
{
    struct stamp loss = {.ctime_ns = clock_wall_ns()};
    if (!r->o.must_lease || r->o.dry_run || syncfs(r->o.data) == 0 || syncfs(r->o.data) != 0)
        return 0;
    for (size_t i = 0; i < r->plan.count; i++)
        if (r->plan.files[i].ctime_ns > loss.ctime_ns)
            loss.ctime_ns = r->plan.files[i].ctime_ns;
    return logbook_add_lost(r->logbook, STR("."), &loss, err);
}

/* The kernel does not say which file it was. */
static void judge_lost_writes(struct export_run *r)
{
    struct export_plan *p = &r->plan;
    const struct stamp *lost = logbook_lost(r->logbook, 0);
    uint64_t files = 0;
    for (size_t i = 0; i < p->count && lost; i++)
        files += p->files[i].chosen && p->files[i].ctime_ns <= lost->ctime_ns;
    if (files == 0 || p->error_count++ > 0)
        return;
    err_fail(&p->error, ERR_IO, CIS_WRITES_LOST,
             "the disk lost data that a program wrote, perhaps to one of %" PRIu64 " files", files);
    snprintf(p->error_path, sizeof p->error_path, ".");
}

static void report_plan(struct export_run *r)
{
    for (size_t i = 0; i < r->plan.count; i++) {
        const struct pick_file *f = &r->plan.files[i];
        struct run_result result = {.event = RUN_PLANNED, .path = f->path, .size_bytes = f->size_bytes};
        if (f->chosen && !f->sent && r->o.on_result)
            r->o.on_result(r->o.ctx, &result);
    }
    r->ended = true;
}

static int prepare(struct export_run *r, struct err *err)
{
    int e = verdict_inherit(r->o.export_dir, &r->counts, err);
    /* Before the walk: from now on a reader of the verdict sees that a newer run exists. */
    if (e == 0 && !r->o.dry_run)
        e = verdict_write(r->o.export_dir, &r->counts, err);
    if (e == 0)
        e = logbook_open(r->o.export_dir, str_of(r->o.destination), &r->logbook, err);
    if (e == 0)
        e = make_plan(r, err);
    if (e == 0)
        e = note_lost_writes(r, err);
    if (e == 0)
        judge_lost_writes(r);
    if (e == 0)
        e = make_signal(r, err);
    return e;
}

int run_open(const struct run_options *o, struct export_run **ret, struct err *err)
{
    struct export_run *r = new_run(o);
    int e = o->dry_run ? 0 : budget_default(r->memory_limit, limit_min, memory_max, &r->memory_bytes, err);
    if (e == 0)
        e = prepare(r, err);
    if (e == 0) {
        raise_memory(r);
        e = budget_new(r->memory_bytes, &r->budget, err);
    }
    if (e < 0) {
        free_run(r);
        return e;
    }
    make_transfers(r);
    r->tries = xcalloc(r->plan.count, sizeof *r->tries);
    checkpoints_make(r);
    count_files(r);
    if (o->dry_run)
        report_plan(r);
    else
        loop_post(r->home, &r->start_mail);
    *ret = r;
    return 0;
}

/* ---- waiting and ending ------------------------------------------------------------------------------------------ */

bool run_wait(struct export_run *r, uint64_t timeout_ns, struct verdict *ret_counts)
{
    uint64_t until_ns = clock_now_ns() + timeout_ns;
    pthread_mutex_lock(&r->lock);
    while (!r->ended && clock_cond_wait(&r->changed, &r->lock, until_ns))
        ;
    bool ended = r->ended;
    *ret_counts = r->counts;
    pthread_mutex_unlock(&r->lock);
    ret_counts->failed = NULL;
    ret_counts->failed_count = 0;
    ret_counts->updated_ns = clock_wall_ns();
    return ended;
}

/* Names a waiting file first, then an interrupted one, then one that did not begin. */
static struct str first_of_rest(const struct export_run *r)
{
    const struct waiting_file *w = heap_first(&r->waiting, struct waiting_file, node);
    if (w)
        return r->plan.files[w->file].path;
    if (r->stop.left != NO_FILE)
        return r->plan.files[r->stop.left].path;
    for (size_t i = r->next_file; i < r->plan.count; i++)
        if (r->plan.files[i].chosen && !r->plan.files[i].sent)
            return r->plan.files[i].path;
    return r->markers.ready_count > 0 ? r->plan.pick.groups[r->markers.ready[r->markers.ready_count - 1]].directory
                                      : STR_NULL;
}

/* The deadline passed: every file that is not in the bucket failed. */
static void fail_the_rest(struct export_run *r)
{
    struct err err;
    struct verdict *c = &r->counts;
    struct str path = first_of_rest(r);
    err_fail(&err, ERR_TIMEOUT, CIS_EXPORT_DEADLINE,
             "%" PRIu64 " files were not exported when the deadline passed, among them '%.*s'", c->pending_files,
             STR_FMT(str_sub(path, 0, 200)));
    uint64_t files = c->pending_files, bytes = c->pending_bytes;
    if (files == 0)
        return;
    report_failure(r, path, bytes, &err);
    c->failed_files += files - 1;
    c->pending_files = c->pending_bytes = 0;
}

static int judge(struct export_run *r, struct err *err)
{
    struct verdict *c = &r->counts;
    struct err unwritten;
    /* Flush the logbook first: a verdict DONE lets the volume be deleted, and depends on it. */
    if (logbook_flush(r->logbook, &unwritten) < 0)
        report_failure(r, STR("."), 0, &unwritten);
    if (r->stop.over_deadline)
        fail_the_rest(r);
    bool stopped = atomic_load(&r->stop.requested) && !r->stop.over_deadline && !r->stop.is_refused;
    if (c->failed_files > 0)
        set_state(c, stopped ? VERDICT_RUNNING : VERDICT_FAILED);
    else
        set_state(c, c->pending_files > 0 ? VERDICT_RUNNING : VERDICT_DONE);
    return verdict_write(r->o.export_dir, c, err);
}

bool run_has_records(const struct export_run *r)
{
    return !logbook_is_empty(r->logbook);
}

int run_close(struct export_run *own_r, struct verdict *ret, struct err *err)
{
    struct export_run *r = own_r;
    int e = r->o.dry_run ? 0 : judge(r, err);
    if (e == 0 && r->counts.state == VERDICT_RUNNING && !r->o.dry_run)
        e = err_set(err, ERR_CANCELLED, "the export was stopped; repeat the command to continue");
    if (e == 0 || e == -ERR_CANCELLED) {
        *ret = r->counts;
        verdict_init(&r->counts);
    }
    free_run(r);
    return e;
}

unsigned run_write_requests(const struct store *s, uint64_t size_bytes)
{
    uint64_t part = key_part_bytes(size_bytes, store_caps(s)->parts_max);
    return size_bytes > KEY_PART_BYTES ? (unsigned)((size_bytes + part - 1) / part) + 2 : 1; /* begin, complete */
}
