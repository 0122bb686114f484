/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"
#include <stdio.h>
#include <unistd.h>

#define RECEIVING_NS (2 * NS_PER_SECOND) /* after the last bytes; a run takes a status each second */

void progress_init(struct hydrate_progress *p)
{
    pthread_mutex_init(&p->lock, NULL);
    p->scratch = xcalloc(1, sizeof *p->scratch);
    p->began_ns = p->started_ns = clock_wall_ns();
    p->phase = HYDRATE_LISTING;
}

void progress_done(struct hydrate_progress *p)
{
    free(p->scratch);
    pthread_mutex_destroy(&p->lock);
}

void phase_become(struct hydrate *h, enum hydrate_phase phase)
{
    struct hydrate_progress *p = &h->progress;
    auto_lock(&p->lock);
    assert(phase > p->phase && p->phase < HYDRATE_DONE);
    p->phase = phase;
    if (phase >= HYDRATE_DONE && !p->was_complete)
        p->finished_ns = phase == HYDRATE_DONE && journal_is_complete(h->journal) ? journal_completed_ns(h->journal)
                                                                                  : clock_wall_ns();
}

static void set_error(struct hydrate_status *s, const struct err *e, int64_t time_ns)
{
    char line[ERR_LINE_MAX];
    s->has_error = true;
    s->error = (struct hydrate_fault){.id = e->id, .code = e->code, .time_ns = time_ns};
    snprintf(s->error.message, sizeof s->error.message, "%s", err_line(e, line, sizeof line));
}

static void read_fatal(struct hydrate *h, struct hydrate_status *ret)
{
    struct hydrate_faults *f = &h->faults;
    auto_lock(&f->lock);
    ret->error_count = f->kept_count;
    memcpy(ret->errors, f->kept, f->kept_count * sizeof *f->kept);
    if (f->has_fatal)
        set_error(ret, &f->fatal, ret->finished_ns);
}

/* A store is stuck while one request is refused, though the bodies of others may still come from it, or from another
 * source. */
bool progress_is_receiving(struct hydrate_progress *p, uint64_t now_ns)
{
    uint64_t received = atomic_load(&p->received);
    auto_lock(&p->lock);
    if (received != p->seen_received) {
        p->seen_received = received;
        p->seen_ns = now_ns;
    }
    return p->seen_ns && now_ns < p->seen_ns + RECEIVING_NS;
}

/* Retries take minutes: until then, only this error says why the run gets nothing. It has one time as long as requests
 * fail: readers take another time for another error. */
static void read_stuck(struct hydrate *h, struct hydrate_status *ret)
{
    struct hydrate_progress *p = &h->progress;
    struct err cause;
    bool is_stuck = false, is_receiving = progress_is_receiving(p, clock_now_ns());
    for (size_t i = 0; i < h->o.source_count && !is_stuck && !is_receiving && ret->phase < HYDRATE_DONE; i++)
        is_stuck = store_is_stuck(h->o.sources[i].store, &cause);
    auto_lock(&p->lock);
    p->stuck_ns = !is_stuck ? 0 : p->stuck_ns ? p->stuck_ns : ret->updated_ns;
    if (is_stuck && !ret->has_error)
        set_error(ret, &cause, p->stuck_ns);
}

void hydrate_status(struct hydrate *h, struct hydrate_status *ret)
{
    struct hydrate_progress *p = &h->progress;
    *ret = (struct hydrate_status){.objects_done = atomic_load(&p->objects_done),
                                   .objects_failed = atomic_load(&p->objects_failed),
                                   .objects_size_only = atomic_load(&p->size_only),
                                   .objects_missing = atomic_load(&p->objects_missing),
                                   .objects_kept = atomic_load(&p->objects_kept),
                                   .bytes_done = atomic_load(&p->bytes_done),
                                   .sync.known = h->is_relisting && target_is_visible(h->target),
                                   .sync.objects_same = atomic_load(&p->same),
                                   .sync.bytes_same = atomic_load(&p->same_bytes),
                                   .sync.objects_changed = atomic_load(&p->changed),
                                   .sync.files_deleted = atomic_load(&p->deleted),
                                   .sync.files_gone = atomic_load(&p->gone),
                                   .requests = atomic_load(&p->requests),
                                   .hedged = atomic_load(&p->hedged),
                                   .objects_total = index_count(h->index),
                                   .bytes_total = index_bytes(h->index),
                                   .bytes_per_second = atomic_load(&p->rate_now),
                                   .eta_seconds = UINT64_MAX,
                                   .attempt = journal_runs(h->journal),
                                   .pid = getpid(),
                                   .updated_ns = clock_wall_ns()};
    snprintf(ret->source, sizeof ret->source, "%s", h->o.sources[0].uri);
    pthread_mutex_lock(&p->lock);
    ret->phase = p->phase;
    ret->began_ns = p->began_ns;
    ret->started_ns = p->started_ns;
    ret->finished_ns = p->finished_ns;
    memcpy(ret->manifest, p->manifest, sizeof ret->manifest);
    ret->listing = p->listing;
    pthread_mutex_unlock(&p->lock);
    /* After the phase: a status whose phase is FAILED has its error. */
    read_fatal(h, ret);
    read_stuck(h, ret);
    if (ret->phase == HYDRATE_FAILED && atomic_load(&h->space.is_exceeded)) { /* the catalog has only a part of them */
        ret->objects_total = h->space.need_files;
        ret->bytes_total = h->space.need_bytes;
    }
    if (ret->phase != HYDRATE_LISTING && ret->bytes_per_second > 0)
        ret->eta_seconds = (ret->bytes_total - min_u64(ret->bytes_done, ret->bytes_total)) / ret->bytes_per_second;
}

void progress_write(struct hydrate *h)
{
    struct hydrate_status *s = h->progress.scratch;
    hydrate_status(h, s);
    if (h->progress.was_complete && s->phase != HYDRATE_DONE)
        return; /* the volume is in use: its status stays DONE all the time */
    /* A status that cannot be written stops nothing: errors of the disk fail the run. */
    (void)!hydrate_status_write(h->target->state, s, ERR_IGNORED);
}

/* The end time must not change: an export compares files with it to find those that were written later. */
static void recover_complete(struct hydrate_progress *p, int64_t completed_ns, bool has_status)
{
    bool was_done = has_status && p->scratch->phase == HYDRATE_DONE;
    p->finished_ns = completed_ns ? completed_ns : was_done ? p->scratch->finished_ns : 0;
    if (was_done)
        p->started_ns = p->scratch->started_ns;
}

void progress_begin(const struct hydrate *h)
{
    struct hydrate_status *s = h->progress.scratch;
    if (h->target->kind != TARGET_VOLUME || hydrate_status_read(h->target->state, s, ERR_IGNORED) < 0 ||
        s->phase >= HYDRATE_DONE)
        return;
    s->updated_ns = clock_wall_ns();
    (void)!hydrate_status_write(h->target->state, s, ERR_IGNORED);
}

void progress_recover(struct hydrate *h)
{
    struct hydrate_progress *p = &h->progress;
    bool is_volume = h->target->kind == TARGET_VOLUME;
    bool has_status = hydrate_status_read(h->target->state, p->scratch, ERR_IGNORED) == 0;
    p->was_complete = is_volume && journal_is_complete(h->journal);
    if (p->was_complete)
        recover_complete(p, journal_completed_ns(h->journal), has_status);
    if (has_status && index_is_complete(h->index))
        p->listing = p->scratch->listing;
    if (has_status && is_volume && p->scratch->began_ns)
        p->began_ns = p->scratch->began_ns;
}

void progress_measure_rate(struct hydrate *h)
{
    struct hydrate_progress *p = &h->progress;
    uint64_t now = loop_now_ns(h->coordinator.loop), bytes = atomic_load(&p->received);
    double seconds = (double)(now - p->rate_ns) / (double)NS_PER_SECOND;
    if (seconds < 0.45)
        return;
    double rate = (double)(bytes - p->rate_bytes) / seconds, before = (double)atomic_load(&p->rate_now);
    /* A moving mean over about 3 s. */
    atomic_store(&p->rate_now, (uint64_t)(before > 0 ? 0.85 * before + 0.15 * rate : rate));
    p->rate_bytes = bytes;
    p->rate_ns = now;
}

void hydrate_slowest(struct hydrate *h, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 0; i < h->lane_count && !buf[0]; i++) {
        uint64_t id = atomic_load(&h->lanes[i].oldest_id);
        struct index_entry e;
        if (id > 0 && index_get(h->index, id - 1, &e, ERR_IGNORED) == 0)
            snprintf(buf, size, "%.*s", (int)min_u64(e.path.len, size - 1), e.path.ptr);
    }
}
