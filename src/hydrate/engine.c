/* SPDX-License-Identifier: Apache-2.0 */
/* The running job: made, driven, ended. The driver's loop turns the state; lanes do the work. */
#include "private.h"
#include "util/cgroup.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- status ------------------------------------------------------------------------------------------------------ */

void hydrate_status(struct hydrate *h, struct hydrate_status *ret)
{
    *ret = (struct hydrate_status){.objects_done = atomic_load(&h->objects_done),
                                   .objects_failed = atomic_load(&h->objects_failed),
                                   .objects_size_only = atomic_load(&h->size_only),
                                   .objects_missing = atomic_load(&h->objects_missing),
                                   .objects_kept = atomic_load(&h->objects_kept),
                                   .bytes_done = atomic_load(&h->bytes_done),
                                   .requests = atomic_load(&h->requests),
                                   .hedged = atomic_load(&h->hedged),
                                   .objects_total = index_count(h->index),
                                   .bytes_total = index_bytes(h->index),
                                   .bytes_per_second = atomic_load(&h->rate_now),
                                   .eta_seconds = UINT64_MAX,
                                   .attempt = journal_runs(h->journal),
                                   .pid = getpid(),
                                   .updated_ns = clock_wall_ns()};
    snprintf(ret->source, sizeof ret->source, "%s", h->o.sources[0].uri);
    pthread_mutex_lock(&h->lock);
    ret->phase = h->phase;
    ret->began_ns = h->began_ns;
    ret->started_ns = h->started_ns;
    ret->finished_ns = h->finished_ns;
    memcpy(ret->manifest, h->manifest, sizeof ret->manifest);
    ret->listing = h->listing;
    ret->error_count = h->first_fault_count;
    memcpy(ret->errors, h->first_faults, h->first_fault_count * sizeof *h->first_faults);
    bool listed = h->listing_over;
    ret->has_error = h->has_fatal;
    if (h->has_fatal) {
        char line[ERR_LINE_MAX];
        ret->error = (struct hydrate_fault){.id = h->fatal.id, .code = h->fatal.code, .time_ns = h->finished_ns};
        snprintf(ret->error.message, sizeof ret->error.message, "%s", err_line(&h->fatal, line, sizeof line));
    }
    pthread_mutex_unlock(&h->lock);
    if (listed && ret->bytes_per_second > 0)
        ret->eta_seconds = (ret->bytes_total - min_u64(ret->bytes_done, ret->bytes_total)) / ret->bytes_per_second;
}

static void write_status(struct hydrate *h)
{
    struct err ignored; /* progress that cannot be told stops nothing: the disk's own errors will */
    hydrate_status(h, h->scratch);
    if (h->was_complete && h->scratch->phase != HYDRATE_DONE)
        return; /* whoever has the volume in use reads that it is whole, all the time */
    (void)!hydrate_status_write(h->target->state, h->scratch, &ignored);
}

static void set_phase(struct hydrate *h, enum hydrate_phase phase)
{
    pthread_mutex_lock(&h->lock);
    h->phase = phase;
    if (phase >= HYDRATE_DONE && !h->was_complete)
        h->finished_ns = phase == HYDRATE_DONE && journal_is_complete(h->journal) ? journal_completed_ns(h->journal)
                                                                                  : clock_wall_ns();
    pthread_mutex_unlock(&h->lock);
}

void hydrate_slowest(struct hydrate *h, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 0; i < h->lane_count && !buf[0]; i++) {
        uint64_t id = atomic_load(&h->lanes[i].oldest_id);
        struct index_entry e;
        struct err ignored;
        if (id > 0 && index_get(h->index, id - 1, &e, &ignored) == 0)
            snprintf(buf, size, "%.*s", (int)min_u64(e.path.len, size - 1), e.path.ptr);
    }
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int some_failed(struct hydrate *h, struct err *err)
{
    err_set(err, ERR_IO, "%" PRIu64 " of %" PRIu64 " objects failed", atomic_load(&h->objects_failed),
            index_count(h->index));
    if (h->is_stale)
        return err_advise(err, 1513, "some changed meanwhile or need another name: the same command lists anew");
    return err_advise(err, 1513, "the same command tries them again");
}

static int some_kept(struct hydrate *h, struct err *err)
{
    err_set(err, ERR_EXISTS, "%" PRIu64 " of %" PRIu64 " objects were not written: other files have their names",
            atomic_load(&h->objects_kept), index_count(h->index));
    return err_advise(err, 1513,
                      "move those away, or replace them with --overwrite; the same command fetches the rest");
}

/* What a volume holds, in one word: two of one source that differ in it were filled from different objects. */
static int note_manifest(struct hydrate *h, struct err *err)
{
    struct digest d;
    auto_sbuf b;
    int r = index_manifest(h->index, &d, err);
    if (r < 0)
        return r;
    sbuf_init(&b, HYDRATE_MANIFEST_MAX);
    sbuf_adds(&b, "sha256:");
    digest_add_hex(&d, &b);
    pthread_mutex_lock(&h->lock);
    snprintf(h->manifest, sizeof h->manifest, "%.*s", STR_FMT(sbuf_str(&b)));
    pthread_mutex_unlock(&h->lock);
    return 0;
}

static int end_well(struct hydrate *h, struct err *err)
{
    bool durable = (h->o.durable || h->target->kind == TARGET_VOLUME) && !h->was_complete;
    bool whole = atomic_load(&h->objects_failed) + atomic_load(&h->objects_kept) == 0;
    int r = durable ? barrier_run(h, err) : 0;
    if (r == 0 && whole && h->target->kind == TARGET_VOLUME)
        r = note_manifest(h, err);
    if (r == 0 && durable && whole)
        r = journal_complete(h->journal, index_count(h->index), index_bytes(h->index), clock_wall_ns(), err);
    if (r == 0)
        r = target_finish(h->target, whole, durable, err);
    return r;
}

static void run_end(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, finish_work);
    struct err err;
    if (h->is_stale && !h->is_cancelled) /* who was stopped goes on where it was first */
        journal_stale(h->journal);
    int r = journal_flush(h->journal, &err);
    h->finish_err.code = 0;
    if (h->has_fatal && h->fatal.id == 1510)
        r = target_clean(h->target, &err);
    else if (h->has_fatal && h->fatal.id == 1504 && !h->old.index) /* by this listing no run would end */
        r = target_wipe(h->target, &err);
    else if (r == 0 && !atomic_load(&h->stopping))
        r = end_well(h, &err);
    if (r < 0)
        h->finish_err = err;
}

static void end_over(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, finish_work);
    struct err err;
    if (h->finish_err.code != 0)
        hydrate_fail(h, &h->finish_err);
    else if (!atomic_load(&h->stopping) && atomic_load(&h->objects_failed) > 0) {
        some_failed(h, &err);
        hydrate_fail(h, &err);
    } else if (!atomic_load(&h->stopping) && atomic_load(&h->objects_kept) > 0) {
        some_kept(h, &err);
        hydrate_fail(h, &err);
    }
    set_phase(h, h->has_fatal ? HYDRATE_FAILED : h->is_cancelled ? HYDRATE_STOPPED : HYDRATE_DONE);
    write_status(h);
    loop_timer_cancel(h->loop, &h->tick);
    atomic_store(&h->ended, true);
    uint64_t one = 1;
    if (write(h->ended_fd, &one, sizeof one) != sizeof one)
        abort(); /* an eventfd takes its first one */
}

static void tell_stop(struct hydrate *h)
{
    h->is_stopping_told = true;
    feed_cancel(h);
    lanes_kick(h);
}

/* Nothing runs, and nothing more is to be given out. What waited for that (conflict.c) gets its turn first. */
static bool is_over(struct hydrate *h, bool stopping)
{
    pthread_mutex_lock(&h->lock);
    bool idle = h->active == 0 && h->listing_over;
    bool drained = idle && !h->larges && plan_is_exhausted(&h->plan, index_count(h->index));
    bool again = drained && !stopping && h->deferred_next < h->deferred_count;
    h->second_round |= again;
    pthread_mutex_unlock(&h->lock);
    if (again)
        lanes_kick(h);
    return !again && (drained || (idle && stopping));
}

void driver_look(struct hydrate *h)
{
    bool stopping = atomic_load(&h->stopping);
    if (h->is_finishing)
        return;
    if (stopping && !h->is_stopping_told)
        tell_stop(h);
    if (!is_over(h, stopping) || h->barrier_runs)
        return;
    h->is_finishing = true;
    if (!stopping)
        set_phase(h, HYDRATE_VERIFYING);
    h->finish_work.run = run_end;
    h->finish_work.done = end_over;
    pool_submit(h->pool, h->loop, &h->finish_work);
}

static void deliver_drained(struct mail *m)
{
    struct hydrate *h = container_of(m, struct hydrate, drained);
    atomic_store(&h->is_drained_posted, false);
    driver_look(h);
}

void driver_nudge(struct hydrate *h)
{
    if (!atomic_exchange(&h->is_drained_posted, true))
        loop_post(h->loop, &h->drained);
}

void hydrate_cancel(struct hydrate *h)
{
    pthread_mutex_lock(&h->lock);
    h->is_cancelled = true;
    pthread_mutex_unlock(&h->lock);
    atomic_store(&h->stopping, true);
    driver_nudge(h);
}

/* ---- the driver's clock ------------------------------------------------------------------------------------------ */

static void measure_rate(struct hydrate *h)
{
    uint64_t now = loop_now_ns(h->loop), bytes = atomic_load(&h->received);
    double seconds = (double)(now - h->rate_ns) / (double)NS_PER_SECOND;
    if (seconds < 0.45)
        return;
    double rate = (double)(bytes - h->rate_bytes) / seconds, before = (double)atomic_load(&h->rate_now);
    /* A moving mean over some 3 s: steady enough to read, quick enough to believe. */
    atomic_store(&h->rate_now, (uint64_t)(before > 0 ? 0.85 * before + 0.15 * rate : rate));
    h->rate_bytes = bytes;
    h->rate_ns = now;
}

static void tick(struct timer *t)
{
    struct hydrate *h = container_of(t, struct hydrate, tick);
    struct err err;
    if (journal_flush(h->journal, &err) < 0)
        hydrate_fail(h, &err);
    window_tick(h, loop_now_ns(h->loop));
    measure_rate(h);
    barrier_tick(h);
    if (h->ticks++ % (NS_PER_SECOND / TICK_NS) == 0) {
        /* A folder of state that is being taken away gets no new file: it could not be removed. */
        if (!h->is_finishing || h->target->kind == TARGET_VOLUME)
            write_status(h);
        index_release(h->index);
    }
    driver_look(h);
    if (!atomic_load(&h->ended))
        loop_timer_set(h->loop, &h->tick, TICK_NS);
}

static void deliver_begin(struct mail *m)
{
    struct hydrate *h = container_of(m, struct hydrate, begin);
    h->rate_ns = h->barrier_ns = loop_now_ns(h->loop);
    feed_start(h);
    tick(&h->tick);
    lanes_kick(h);
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static void hash_text(struct hash *hash, struct str s)
{
    uint64_t len = s.len;
    hash_update(hash, &len, sizeof len);
    hash_update(hash, s.ptr, s.len);
}

static void hash_filter(struct hash *hash, const struct filter *f)
{
    for (size_t i = 0; f && i < f->include_count; i++)
        hash_text(hash, str_of(f->include[i]));
    hash_text(hash, STR("|"));
    for (size_t i = 0; f && i < f->exclude_count; i++)
        hash_text(hash, str_of(f->exclude[i]));
    hash_text(hash, STR("|"));
}

/* What two runs must have in common for the second to continue the first. */
static struct index_source source_of(const struct hydrate_options *o)
{
    struct index_source s = {.text = str_of(o->sources[0].uri)};
    struct hash hash;
    struct digest d;
    hash_init(&hash);
    hash_begin(&hash, HASH_SHA256);
    for (size_t i = 0; i < o->source_count; i++) {
        hash_text(&hash, str_of(o->sources[i].uri));
        hash_text(&hash, str_of(o->sources[i].sub_path));
        hash_filter(&hash, o->sources[i].filter);
        if (o->sources[i].keeps_prefix)
            hash_text(&hash, STR("whole keys"));
    }
    if (o->shard.count > 1)
        hash_update(&hash, &o->shard, sizeof o->shard);
    hash_end(&hash, &d);
    hash_done(&hash);
    memcpy(s.digest, d.bytes, sizeof s.digest);
    return s;
}

static int open_index(struct hydrate *h, const struct index_source *source, struct err *err)
{
    int state = h->target->state;
    int r = index_open(state, source, true, &h->index, err);
    /* A shard that was not dealt to its end holds objects that no other one may count on: it is dealt anew. */
    if (r == -ERR_NOT_FOUND && h->o.shard.count <= 1)
        r = index_resume(state, source, &h->index, err);
    if (r != -ERR_NOT_FOUND)
        return r;
    /* The journal first: what it says is about the ids of another catalog. */
    if (unlinkat(state, JOURNAL_FILE, 0) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot remove the old journal");
    return index_create(state, source, &h->index, err);
}

/* The time of the end stays what it was: what was written to the volume since, an export knows by it. */
static void know_complete(struct hydrate *h)
{
    struct err ignored;
    h->was_complete = h->target->kind == TARGET_VOLUME && journal_is_complete(h->journal);
    if (!h->was_complete)
        return;
    h->finished_ns = journal_completed_ns(h->journal);
    if (hydrate_status_read(h->target->state, h->scratch, &ignored) < 0 || h->scratch->phase != HYDRATE_DONE)
        return;
    h->started_ns = h->scratch->started_ns;
    if (h->finished_ns == 0)
        h->finished_ns = h->scratch->finished_ns;
}

static int open_state(struct hydrate *h, struct err *err)
{
    const struct index_source source = source_of(&h->o);
    int r = h->o.fresh ? target_wipe(h->target, err) : 0;
    if (r == 0)
        r = open_index(h, &source, err);
    if (r == 0)
        r = anew_settle(h, err);
    if (r == 0)
        r = journal_open(h->target->state, index_uid(h->index), PLAN_PART_BYTES, NULL, &h->journal, err);
    if (r == 0)
        r = journal_cut(h->journal, index_count(h->index), err);
    if (r == 0 && journal_is_stale(h->journal))
        r = anew_begin(h, &source, err);
    if (r < 0)
        return r;
    know_complete(h);
    h->sync_fd = openat(h->target->data, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return h->sync_fd < 0 ? err_sys(err, errno, "cannot open the target") : feed_prepare(h, err);
}

static int open_threads(struct hydrate *h, struct err *err)
{
    /* One more than processors: while a lane waits for what it has asked for, or for the file system, another works. */
    unsigned lanes = h->o.workers ? h->o.workers : worker_count(1);
    h->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->ended_fd < 0)
        return err_sys(err, errno, "cannot make an eventfd");
    int r = budget_new(h->o.memory_bytes, &h->budget, err);
    if (r == 0)
        r = pool_new(8, &h->pool, err);
    if (r == 0)
        r = loop_new("driver", &h->loop, err);
    h->lane_count = lanes;
    for (unsigned i = 0; i < lanes && r == 0; i++) {
        r = lane_open(&h->lanes[i], h, i, err);
        h->workers[i] = &h->lanes[i].worker;
    }
    for (unsigned i = 0; i < lanes && r == 0; i++)
        r = loop_start(h->lanes[i].worker.loop, err);
    return r;
}

static struct hydrate *hydrate_new(const struct hydrate_options *o, struct target *own_target)
{
    struct hydrate *h = xcalloc(1, sizeof *h);
    h->o = *o;
    h->target = own_target;
    h->target->overwrite = o->overwrite;
    h->ended_fd = h->sync_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->conflict_lock, NULL);
    h->faults = xcalloc(FAULTS_MAX, sizeof *h->faults);
    h->first_faults = xcalloc(HYDRATE_ERRORS_KEPT, sizeof *h->first_faults);
    h->scratch = xcalloc(1, sizeof *h->scratch);
    h->began_ns = h->started_ns = clock_wall_ns();
    h->phase = HYDRATE_LISTING;
    h->drained.deliver = deliver_drained;
    h->begin.deliver = deliver_begin;
    h->tick.fire = tick;
    plan_init(&h->plan, (unsigned)o->priority_count + 1);
    atomic_store(&h->rate.bytes_per_second, o->bytes_per_second);
    atomic_store(&h->rate.paid_until_ns, clock_now_ns()); /* the listing's time counts */
    for (size_t i = 0; i < o->source_count; i++)
        h->starts_at_first = max_u64(h->starts_at_first, store_reads_at_first(o->sources[i].store));
    h->starts_since_ns = clock_now_ns();
    atomic_store(&h->served_ns, h->starts_since_ns);
    h->starts.slack_ns = STARTS_SLACK_NS;
    atomic_store(&h->starts.bytes_per_second, h->starts_at_first * STARTS_UNIT);
    atomic_store(&h->window, (unsigned)min_u64(WINDOW_START, o->concurrency_max ? o->concurrency_max : WINDOW_MAX));
    return h;
}

/* Nothing runs any more, or nothing ran yet: it may be half made. */
static void release(struct hydrate *h)
{
    /* The driver first: it posts to the lanes. */
    if (h->loop)
        loop_stop_and_join(h->loop);
    pool_free(h->pool);
    for (size_t i = 0; i < h->lane_count; i++)
        lane_close(&h->lanes[i]);
    loop_free(h->loop);
    feed_done(h);
    journal_free(h->journal);
    index_free(h->index);
    journal_free(h->old.journal);
    index_free(h->old.index);
    budget_free(h->budget);
    target_free(h->target);
    auto_clean_fd(&h->sync_fd);
    auto_clean_fd(&h->ended_fd);
    free(h->faults);
    free(h->first_faults);
    free(h->deferred);
    free(h->scratch);
    pthread_mutex_destroy(&h->conflict_lock);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

int hydrate_start(const struct hydrate_options *o, struct target *own_target, struct hydrate **ret, struct err *err)
{
    struct hydrate *h = hydrate_new(o, own_target);
    int r = memory_fit(&h->o, cgroup_memory_limit(), err);
    if (r == 0)
        r = open_state(h, err);
    if (r == 0)
        r = open_threads(h, err);
    if (r == 0)
        r = loop_start(h->loop, err);
    if (r < 0) {
        release(h);
        return r;
    }
    *ret = h;
    /* The loops run already: the first step comes by mail, as every other does. */
    loop_post(h->loop, &h->begin);
    return 0;
}

int hydrate_fd(const struct hydrate *h)
{
    return h->ended_fd;
}

bool hydrate_has_ended(const struct hydrate *h)
{
    return atomic_load(&h->ended);
}

void hydrate_free(struct hydrate *h)
{
    if (!h)
        return;
    if (!hydrate_has_ended(h)) {
        hydrate_cancel(h);
        struct pollfd p = {.fd = h->ended_fd, .events = POLLIN};
        while (poll(&p, 1, -1) < 0 && errno == EINTR)
            ;
    }
    release(h);
}
