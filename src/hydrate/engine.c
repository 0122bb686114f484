/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a run: opens its state, makes its threads, and frees both. */
#include "private.h"
#include "util/cgroup.h"
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- defaults ---------------------------------------------------------------------------------------------------- */

/* A request costs, besides its buffers, memory of libcurl and of the kernel's socket. */
static const uint64_t buffers_max = UINT64_C(128) << 20, request_bytes = UINT64_C(1) << 20;

/* Measured: the smallest limit that runs of small, of large and of mixed objects survived. */
static const uint64_t limit_min = UINT64_C(64) << 20;

int memory_defaults(struct hydrate_options *o, uint64_t limit, struct err *err)
{
    if (o->memory_bytes)
        return 0;
    if (!o->concurrency_max)
        o->concurrency_max = (unsigned)min_u64(limit / request_bytes, WINDOW_MAX);
    return budget_default(limit, limit_min, buffers_max, &o->memory_bytes, err);
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

/* The fingerprint that two runs must share for the second to continue the first. */
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

/* A finished DIR may be filled from another source: its catalog and journal only record the last run. */
static bool is_finished(struct hydrate *h)
{
    return h->target->kind != TARGET_VOLUME &&
           hydrate_status_read(h->target->state, h->progress.scratch, ERR_IGNORED) == 0 &&
           h->progress.scratch->phase == HYDRATE_DONE;
}

static int open_index(struct hydrate *h, const struct index_source *source, struct err *err)
{
    int state = h->target->state;
    int r = index_open(state, source, true, &h->index, err);
    if (r == -ERR_EXISTS && is_finished(h) && (r = target_wipe(h->target, err)) == 0)
        r = -ERR_NOT_FOUND;
    /* A shard is assigned from one complete listing, so a partial one cannot be resumed. */
    if (r == -ERR_NOT_FOUND && h->o.shard.count <= 1)
        r = index_resume(state, source, &h->index, err);
    if (r != -ERR_NOT_FOUND)
        return r;
    /* The journal first: its ids are those of another catalog. */
    if (unlinkat(state, JOURNAL_FILE, 0) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot remove the old journal");
    return index_create(state, source, &h->index, err);
}

/* A DIR with files and without a record of them: which ones are the source's objects shows when all are listed. */
static bool has_unknown_files(const struct hydrate *h)
{
    return !h->o.fresh && index_count(h->index) == 0 && !index_is_complete(h->index) && target_has_files(h->target);
}

static int open_state(struct hydrate *h, struct err *err)
{
    const struct index_source source = source_of(&h->o);
    int r = h->o.fresh ? target_wipe(h->target, err) : 0;
    if (r == 0)
        r = open_index(h, &source, err);
    if (r == 0)
        r = relist_recover(h, err);
    if (r == 0)
        r = journal_open(h->target->state, index_uid(h->index), PLAN_PART_BYTES, NULL, &h->journal, err);
    if (r == 0)
        r = journal_cut(h->journal, index_count(h->index), err);
    if (r == 0 && (journal_is_stale(h->journal) || has_unknown_files(h)))
        r = relist_begin(h, &source, err);
    if (r < 0)
        return r;
    progress_recover(h);
    h->barrier.fs_fd = openat(h->target->data, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return h->barrier.fs_fd < 0 ? err_sys(err, errno, "cannot open the target") : lister_prepare(h, err);
}

static int open_threads(struct hydrate *h, struct err *err)
{
    /* One more than processors: a lane may block in the file system. */
    unsigned lanes = h->o.workers ? h->o.workers : worker_count(1);
    h->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->ended_fd < 0)
        return err_sys(err, errno, "cannot make an eventfd");
    int r = budget_new(h->o.memory_bytes, &h->budget, err);
    if (r == 0)
        r = thread_pool_new(8, &h->threads, err);
    if (r == 0)
        r = loop_new("coordinator", &h->coordinator.loop, err);
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
    h->ended_fd = h->barrier.fs_fd = -1;
    pthread_mutex_init(&h->conflict_lock, NULL);
    atomic_store(&h->rate.units_per_second, o->bytes_per_second);
    atomic_store(&h->rate.reserved_until_ns, clock_now_ns()); /* the listing's time counts */
    hydrate_queue_init(&h->queue, (unsigned)o->priority_count + 1);
    faults_init(&h->faults);
    progress_init(&h->progress);
    coordinator_init(&h->coordinator);
    lister_init(&h->lister);
    window_init(h);
    return h;
}

/* The run has ended or never began. Stops the threads that were started; *h may be half made. */
static void destroy(struct hydrate *h)
{
    /* The coordinator first: it posts to the lanes. */
    if (h->coordinator.loop)
        loop_stop_and_join(h->coordinator.loop);
    thread_pool_free(h->threads);
    for (size_t i = 0; i < h->lane_count; i++)
        lane_close(&h->lanes[i]);
    loop_free(h->coordinator.loop);
    lister_done(&h->lister);
    journal_free(h->journal);
    index_free(h->index);
    journal_free(h->old.journal);
    index_free(h->old.index);
    budget_free(h->budget);
    target_free(h->target);
    fd_close(&h->barrier.fs_fd);
    fd_close(&h->ended_fd);
    pthread_mutex_destroy(&h->window.lock);
    progress_done(&h->progress);
    faults_done(&h->faults);
    hydrate_queue_done(&h->queue);
    pthread_mutex_destroy(&h->conflict_lock);
    free(h);
}

int hydrate_start(const struct hydrate_options *o, struct target *own_target, struct hydrate **ret, struct err *err)
{
    struct hydrate *h = hydrate_new(o, own_target);
    int r = memory_defaults(&h->o, cgroup_memory_limit(), err);
    progress_begin(h);
    if (r == 0)
        r = open_state(h, err);
    if (r == 0)
        r = open_threads(h, err);
    if (r == 0)
        r = loop_start(h->coordinator.loop, err);
    if (r < 0) {
        if (h->index && hydrate_is_void(h))
            (void)!target_clean(h->target, ERR_IGNORED); /* the error that ended the run is reported */
        destroy(h);
        return r;
    }
    *ret = h;
    loop_post(h->coordinator.loop, &h->coordinator.begin);
    return 0;
}

void hydrate_cancel(struct hydrate *h)
{
    pthread_mutex_lock(&h->faults.lock);
    h->faults.is_cancelled = true;
    pthread_mutex_unlock(&h->faults.lock);
    atomic_store(&h->stopping, true);
    coordinator_wake(h);
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
    destroy(h);
}

unsigned hydrate_requests(const struct store *s, uint64_t size_bytes)
{
    unsigned parts = plan_part_count(min_u64(size_bytes, PLAN_OBJECT_MAX));
    bool asks_for_digest = !plan_is_small(size_bytes) && !store_caps(s)->lists_best_digest;
    return parts + asks_for_digest;
}
