/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/file.h"
#include "util/thread.h"
#include <stdio.h>

static void next_source(struct hydrate *h);

static const struct hydrate_source *current(const struct hydrate *h)
{
    return &h->o.sources[h->lister.source];
}

static uint8_t rank_of(const struct hydrate *h, struct str path)
{
    for (size_t i = 0; i < h->o.priority_count; i++)
        if (glob_match(str_of(h->o.priorities[i]), path))
            return (uint8_t)i;
    return (uint8_t)h->o.priority_count;
}

static bool is_wanted(const struct hydrate *h, struct str rest)
{
    const struct hydrate_source *s = current(h);
    if (rest.len == 0)
        return false; /* the marker of the prefix: the target itself */
    if (rest.ptr[rest.len - 1] == '/')
        rest.len--;
    return !s->filter || filter_wants(s->filter, rest);
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* A shard's objects are known when all are listed (shard.h): the listing goes into a catalog of its own, from which the
 * run's catalog takes its part. */
static const char shard_dir[] = "listing";

static int prepare_shard(struct hydrate *h, struct err *err)
{
    auto_fd dir = -1;
    /* A listing that an earlier run did not complete may differ from this one. */
    int r = dir_remove(h->target->state, shard_dir, err);
    if (r < 0 || h->o.shard.count <= 1 || index_is_complete(h->index))
        return r;
    struct index_source source = {.text = STR("all shards")};
    r = dir_make(h->target->state, shard_dir, 0700, &dir, err);
    return r == 0 ? index_create(dir, &source, &h->lister.all, err) : r;
}

static int add_to_shard(void *ctx, const struct index_entry *e, struct err *err)
{
    struct hydrate *h = ctx;
    bool is_new;
    int r = index_add(h->index, e, &is_new, err);
    hydrate_space_count(h, e->size_bytes);
    return r;
}

static int assign_shard(struct hydrate *h, struct err *err)
{
    int r = shard_assign(h->lister.all, &h->o.shard, add_to_shard, h, err);
    if (r == 0)
        r = index_flush(h->index, false, err);
    return r == 0 ? dir_remove(h->target->state, shard_dir, err) : r;
}

/* ---- a page ------------------------------------------------------------------------------------------------------ */

static int add_object(struct hydrate *h, const struct store_object *o, struct err *err)
{
    struct str rest = str_from(o->key, h->lister.strip), sub = source_sub_path(current(h));
    bool is_new, is_single = store_names_object(current(h)->store);
    if (!is_wanted(h, rest)) {
        h->lister.left_out += rest.len > 0;
        return 0;
    }
    h->lister.found++;
    if (atomic_load(&h->space.is_exceeded)) { /* nothing more is fetched: only the sum is of interest */
        hydrate_space_count(h, o->size_bytes);
        return 0;
    }
    sbuf_set(&h->lister.path, sub);
    if (sub.len)
        sbuf_addc(&h->lister.path, '/');
    sbuf_add(&h->lister.path, current(h)->keeps_prefix ? o->key : rest);
    struct index_entry e = {.path = sbuf_str(&h->lister.path),
                            .size_bytes = o->size_bytes,
                            .mtime_ns = o->mtime_ns,
                            .generation = o->generation,
                            .etag = o->etag,
                            .digest = o->digest,
                            .rank = rank_of(h, rest),
                            .source = (uint16_t)(h->lister.source | (is_single ? SOURCE_SINGLE : 0))};
    int r = index_add(h->lister.all ? h->lister.all : h->index, &e, &is_new, err);
    if (r == 0 && is_new && !h->lister.all)
        hydrate_space_count(h, o->size_bytes);
    return r;
}

static int add_page(struct hydrate *h, const struct store_object *objects, size_t count, bool sorted, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        int r = add_object(h, &objects[i], err);
        if (r < 0)
            return r;
    }
    /* A later prefix may list smaller paths. */
    return index_flush(h->lister.all ? h->lister.all : h->index, sorted && h->o.source_count == 1, err);
}

static int on_page(void *ctx, const struct store_object *objects, size_t count, bool sorted_so_far)
{
    struct hydrate *h = ctx;
    struct err err;
    pthread_mutex_lock(&h->lister.lock);
    int r = add_page(h, objects, count, sorted_so_far, &err);
    pthread_mutex_unlock(&h->lister.lock);
    if (r < 0)
        run_failed(h, h->lister.err_kind, &err);
    else
        lanes_wake(h);
    return r;
}

static void on_skipped(void *ctx, unsigned count, struct str last)
{
    struct hydrate *h = ctx;
    auto_lock(&h->lister.lock);
    h->lister.skipped += count;
    snprintf(h->lister.last_skipped, sizeof h->lister.last_skipped, "%.*s", STR_FMT(last));
}

/* ---- end of the listing ------------------------------------------------------------------------------------------ */

static void note_listing(struct hydrate *h)
{
    if (!h->lister.began_ns)
        return;
    struct hydrate_listing *l = &h->progress.listing;
    auto_lock(&h->progress.lock);
    *l = (struct hydrate_listing){.known = true,
                                  .objects_excluded = h->lister.excluded,
                                  .names_skipped = h->lister.skipped,
                                  .largest_bytes = h->space.largest_bytes,
                                  .seconds = (clock_now_ns() - h->lister.began_ns) / NS_PER_SECOND + 1};
    memcpy(l->last_skipped, h->lister.last_skipped, sizeof l->last_skipped);
}

static int finish_index(struct hydrate *h, struct index *x, struct err *err)
{
    int r = index_finish(x, err);
    if (r < 0 && err_kind_of(err->id) == ERR_KIND_LISTED_TWICE)
        h->lister.err_kind = FAULT_LISTED_TWICE;
    return r;
}

static void finish_run(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, lister.finish);
    struct index *all = h->lister.all;
    struct err err;
    h->lister.err.code = 0;
    int r = all ? finish_index(h, all, &err) : 0;
    if (r == 0 && all)
        r = assign_shard(h, &err);
    if (r == 0 && !h->is_relisting)
        r = hydrate_space_check(h, &err);
    if (r == 0)
        r = finish_index(h, h->index, &err);
    if (r == 0 && h->is_relisting)
        r = relist_finish(h, &err);
    if (r < 0)
        h->lister.err = err;
}

static void finish_over(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, lister.finish);
    if (h->lister.err.code == 0 || h->lister.err_kind == FAULT_TOO_LARGE)
        note_listing(h);
    if (h->lister.err.code != 0)
        run_failed(h, h->lister.err_kind, &h->lister.err);
    hydrate_queue_listed(h);
}

static void source_is_over(struct hydrate *h)
{
    if (atomic_load(&h->stopping)) {
        hydrate_queue_listed(h);
        return;
    }
    h->lister.excluded += h->lister.left_out;
    if (h->lister.source + 1 < h->o.source_count) {
        h->lister.source++;
        loop_post(h->lanes[0].worker.loop, &h->lister.next);
        return;
    }
    h->lister.finish.run = finish_run;
    h->lister.finish.done = finish_over;
    thread_pool_submit(h->threads, h->coordinator.loop, &h->lister.finish);
}

/* An empty source is a mistyped one more often than not. */
static int check_found(const struct hydrate *h, struct err *err)
{
    if (h->lister.found > 0 || h->o.allow_empty || atomic_load(&h->stopping))
        return 0;
    return store_found_nothing(current(h)->store, current(h)->uri, h->lister.left_out, err);
}

static void on_listed(void *ctx, const struct err *err, uint64_t requests)
{
    struct hydrate *h = ctx;
    struct err failure = {0};
    enum hydrate_fault_kind kind = FAULT_OTHER;
    if (err) /* it is freed with the listing */
        failure = *err;
    else if (check_found(h, &failure) < 0)
        kind = FAULT_EMPTY;
    atomic_fetch_add(&h->progress.requests, requests);
    pthread_mutex_lock(&h->lister.lock);
    store_listing_free(h->lister.listing);
    h->lister.listing = NULL;
    pthread_mutex_unlock(&h->lister.lock);
    if (failure.code != 0)
        run_failed(h, kind, &failure);
    source_is_over(h);
}

void lister_cancel(struct hydrate *h)
{
    auto_lock(&h->lister.lock);
    if (h->lister.listing && !h->lister.cancelled)
        store_listing_cancel(h->lister.listing);
    h->lister.cancelled = true;
}

/* ---- start of the listing ---------------------------------------------------------------------------------------- */

static void start_listing(struct hydrate *h)
{
    const struct hydrate_source *s = current(h);
    struct str after = h->o.source_count == 1 ? index_resume_after(h->index) : STR_NULL, sub = source_sub_path(s);
    auto_sbuf key = SBUF(1 << 20);
    h->lister.found = after.len > 0; /* an earlier run listed them */
    if (after.len) {
        sbuf_add(&key, str_sub(store_prefix(s->store), 0, s->keeps_prefix ? 0 : h->lister.strip));
        sbuf_add(&key, sub.len ? str_from(after, sub.len + 1) : after);
    }
    struct store_listing_options o = {.prefix = store_prefix(s->store),
                                      .start_after = sbuf_str(&key),
                                      .ctx = h,
                                      .on_page = on_page,
                                      .on_skipped = on_skipped,
                                      .on_done = on_listed};
    auto_lock(&h->lister.lock);
    h->lister.listing = store_listing_start(s->store, h->workers, h->lane_count, &o);
    bool cancelled = h->lister.cancelled;
    if (cancelled)
        store_listing_cancel(h->lister.listing);
}

/* The URI names one object. */
static void found_single(void *ctx, const struct store_object *object, const struct err *err, unsigned requests)
{
    struct hydrate *h = ctx;
    if (object && !err) {
        h->lister.strip = path_directory_len(object->key);
        (void)on_page(h, object, 1, false); /* it fails the run itself */
    }
    on_listed(h, err, requests);
}

static void next_source(struct hydrate *h)
{
    const struct hydrate_source *s = current(h);
    h->lister.found = h->lister.left_out = 0;
    if (store_names_object(s->store)) {
        h->lister.single =
            (struct store_single){.store = s->store, .worker = &h->lanes[0].worker, .ctx = h, .on_done = found_single};
        store_single_find(&h->lister.single);
        return;
    }
    h->lister.strip = store_prefix(s->store).len;
    start_listing(h);
}

static void deliver_next(struct mail *m)
{
    struct hydrate *h = container_of(m, struct hydrate, lister.next);
    if (atomic_load(&h->stopping))
        hydrate_queue_listed(h);
    else
        next_source(h);
}

void lister_start(struct hydrate *h)
{
    if (index_is_complete(h->index)) {
        hydrate_queue_listed(h);
        return;
    }
    h->lister.began_ns = index_count(h->index) == 0 ? clock_now_ns() : 0;
    loop_post(h->lanes[0].worker.loop, &h->lister.next);
}

void lister_init(struct hydrate_lister *l)
{
    pthread_mutex_init(&l->lock, NULL);
    sbuf_init(&l->path, 1 << 20);
    l->next.deliver = deliver_next;
}

void lister_done(struct hydrate_lister *l)
{
    index_free(l->all);
    sbuf_done(&l->path);
    pthread_mutex_destroy(&l->lock);
}

int lister_prepare(struct hydrate *h, struct err *err)
{
    struct hydrate_space *s = &h->space;
    int r = target_space(h->target, &s->free_bytes, &s->free_files, &s->block_bytes, err);
    if (r == 0)
        r = prepare_shard(h, err);
    return r == 0 ? hydrate_space_recover(h, err) : r;
}
