/* SPDX-License-Identifier: Apache-2.0 */
/* The listing becomes the catalog, page by page, while what it brought is fetched already. */
#include "private.h"
#include "util/file.h"
#include <inttypes.h>
#include <stdio.h>

static void next_source(struct hydrate *h);

static const struct hydrate_source *current(const struct hydrate *h)
{
    return &h->o.sources[h->feed.source];
}

/* ---- a page ------------------------------------------------------------------------------------------------------ */

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
        return false; /* the marker of the prefix itself: the target is its folder */
    if (rest.ptr[rest.len - 1] == '/')
        rest.len--;
    return !s->filter || filter_wants(s->filter, rest);
}

static int too_large(const struct hydrate *h, struct err *err)
{
    char need[BYTES_TEXT_MAX], have[BYTES_TEXT_MAX];
    bool bytes = h->feed.need_bytes > h->feed.space_bytes;
    if (bytes)
        err_set(err, ERR_NO_SPACE, "'%s' does not fit: %s listed so far, %s are free", current(h)->uri,
                bytes_text(h->feed.need_bytes, need), bytes_text(h->feed.space_bytes, have));
    else
        err_set(err, ERR_NO_SPACE,
                "'%s' does not fit: %" PRIu64 " objects listed so far, the file system has room for "
                "%" PRIu64 " files",
                current(h)->uri, h->feed.need_files, h->feed.space_files);
    return err_advise(err, 1510, "%s; give it more room, or narrow it with --include and --exclude",
                      target_is_seen(h->target) ? "what had its name already stays" : "nothing was kept");
}

void feed_need(struct hydrate *h, uint64_t size_bytes)
{
    uint64_t block = h->feed.block;
    uint64_t bytes = size_bytes, rest = bytes % block;
    /* A listing may lie: what is more than a number holds does not fit, rather than begin at nothing again. */
    if (__builtin_add_overflow(bytes, rest ? block - rest : 0, &bytes) ||
        __builtin_add_overflow(h->feed.need_bytes, bytes, &h->feed.need_bytes))
        h->feed.need_bytes = UINT64_MAX;
    h->feed.need_files++;
    h->feed.largest_bytes = max_u64(h->feed.largest_bytes, size_bytes);
}

int feed_fits(const struct hydrate *h, struct err *err)
{
    bool fits = h->feed.need_bytes <= h->feed.space_bytes && h->feed.need_files <= h->feed.space_files;
    return h->o.size_check && !fits ? too_large(h, err) : 0;
}

int feed_count(struct hydrate *h, uint64_t size_bytes, struct err *err)
{
    if (h->lists_anew)
        return 0; /* counted when it is known what of it is there */
    feed_need(h, size_bytes);
    return feed_fits(h, err);
}

static int add_object(struct hydrate *h, const struct object *o, struct err *err)
{
    struct str rest = str_from(o->key, h->feed.strip), sub = source_sub_path(current(h));
    bool is_new;
    if (h->feed.single && !str_eq(o->key, store_prefix(current(h)->store)))
        return 0;
    if (!is_wanted(h, rest)) {
        h->feed.excluded += rest.len > 0;
        return 0;
    }
    sbuf_clear(&h->feed.path);
    sbuf_add(&h->feed.path, sub);
    if (sub.len)
        sbuf_addc(&h->feed.path, '/');
    sbuf_add(&h->feed.path, current(h)->keeps_prefix ? o->key : rest);
    struct index_entry e = {.path = sbuf_str(&h->feed.path),
                            .size_bytes = o->size_bytes,
                            .mtime_ns = o->mtime_ns,
                            .generation = o->generation,
                            .etag = o->etag,
                            .digest = o->digest,
                            .rank = rank_of(h, rest),
                            .source = (uint16_t)(h->feed.source | (h->feed.single ? SOURCE_SINGLE : 0))};
    int r = index_add(h->feed.all ? h->feed.all : h->index, &e, &is_new, err);
    return r == 0 && is_new && !h->feed.all ? feed_count(h, o->size_bytes, err) : r;
}

static int add_page(struct hydrate *h, const struct object *objects, size_t count, bool sorted, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        int r = add_object(h, &objects[i], err);
        if (r < 0)
            return r;
    }
    /* Of several prefixes the later ones may bring smaller paths. */
    return index_flush(h->feed.all ? h->feed.all : h->index, sorted && h->o.source_count == 1, err);
}

static int on_page(void *ctx, const struct object *objects, size_t count, bool sorted_so_far)
{
    struct hydrate *h = ctx;
    struct err err;
    pthread_mutex_lock(&h->feed.lock);
    int r = add_page(h, objects, count, sorted_so_far, &err);
    pthread_mutex_unlock(&h->feed.lock);
    if (r < 0)
        hydrate_fail(h, &err);
    else
        lanes_kick(h);
    return r;
}

static void on_skipped(void *ctx, unsigned count, struct str last)
{
    struct hydrate *h = ctx;
    pthread_mutex_lock(&h->feed.lock);
    h->feed.skipped += count;
    snprintf(h->feed.last_skipped, sizeof h->feed.last_skipped, "%.*s", STR_FMT(last));
    pthread_mutex_unlock(&h->feed.lock);
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

static void listing_is_over(struct hydrate *h)
{
    pthread_mutex_lock(&h->lock);
    h->listing_over = true;
    if (h->phase == HYDRATE_LISTING)
        h->phase = HYDRATE_FETCHING;
    pthread_mutex_unlock(&h->lock);
    lanes_kick(h);
    driver_nudge(h);
}

static void note_listing(struct hydrate *h)
{
    if (!h->feed.began_ns)
        return;
    pthread_mutex_lock(&h->lock);
    h->listing = (struct hydrate_listing){.known = true,
                                          .objects_excluded = h->feed.excluded,
                                          .names_skipped = h->feed.skipped,
                                          .largest_bytes = h->feed.largest_bytes,
                                          .seconds = (clock_now_ns() - h->feed.began_ns) / NS_PER_SECOND + 1};
    memcpy(h->listing.last_skipped, h->feed.last_skipped, sizeof h->listing.last_skipped);
    pthread_mutex_unlock(&h->lock);
}

static void finish_run(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, feed.finish);
    struct err err;
    h->feed.err.code = 0;
    int r = h->feed.all ? deal(h, &err) : 0;
    if (r == 0)
        r = index_finish(h->index, &err);
    if (r == 0 && h->lists_anew)
        r = anew_end(h, &err);
    if (r < 0)
        h->feed.err = err;
}

static void finish_over(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, feed.finish);
    if (h->feed.err.code != 0)
        hydrate_fail(h, &h->feed.err);
    else
        note_listing(h);
    listing_is_over(h);
}

static void source_is_over(struct hydrate *h)
{
    if (atomic_load(&h->stopping)) {
        listing_is_over(h);
        return;
    }
    if (h->feed.source + 1 < h->o.source_count) {
        h->feed.source++;
        loop_post(h->lanes[0].worker.loop, &h->feed.next);
        return;
    }
    h->feed.finish.run = finish_run;
    h->feed.finish.done = finish_over;
    pool_submit(h->pool, h->loop, &h->feed.finish);
}

static void on_listed(void *ctx, const struct err *err, uint64_t requests)
{
    struct hydrate *h = ctx;
    struct err failure = {0};
    if (err) /* it goes with the listing */
        failure = *err;
    atomic_fetch_add(&h->requests, requests);
    pthread_mutex_lock(&h->feed.lock);
    listing_free(h->feed.listing);
    h->feed.listing = NULL;
    pthread_mutex_unlock(&h->feed.lock);
    if (failure.code != 0)
        hydrate_fail(h, &failure);
    source_is_over(h);
}

void feed_cancel(struct hydrate *h)
{
    pthread_mutex_lock(&h->feed.lock);
    if (h->feed.listing && !h->feed.cancelled)
        listing_cancel(h->feed.listing);
    h->feed.cancelled = true;
    pthread_mutex_unlock(&h->feed.lock);
}

/* ---- its beginning ----------------------------------------------------------------------------------------------- */

static void start_listing(struct hydrate *h)
{
    const struct hydrate_source *s = current(h);
    struct str after = h->o.source_count == 1 ? index_resume_after(h->index) : STR_NULL, sub = source_sub_path(s);
    auto_sbuf key;
    sbuf_init(&key, 1 << 20);
    if (after.len) {
        sbuf_add(&key, str_sub(sbuf_str(&h->feed.prefix), 0, s->keeps_prefix ? 0 : h->feed.strip));
        sbuf_add(&key, sub.len ? str_from(after, sub.len + 1) : after);
    }
    struct listing_options o = {.prefix = sbuf_str(&h->feed.prefix),
                                .start_after = sbuf_str(&key),
                                .ctx = h,
                                .on_page = on_page,
                                .on_skipped = on_skipped,
                                .on_done = on_listed};
    pthread_mutex_lock(&h->feed.lock);
    h->feed.listing = listing_start(s->store, h->workers, h->lane_count, &o);
    bool cancelled = h->feed.cancelled;
    if (cancelled)
        listing_cancel(h->feed.listing);
    pthread_mutex_unlock(&h->feed.lock);
}

/* Who may not list may be let read the one object: it is all that there is to know of it. */
static void headed(void *ctx, const struct store_reply *r)
{
    struct hydrate *h = ctx;
    h->feed.probe = NULL;
    atomic_fetch_add(&h->requests, r->requests);
    if (r->code < 0) {
        hydrate_fail(h, &r->err);
        listing_is_over(h);
        return;
    }
    h->feed.single = true;
    h->feed.strip = path_folder_len(store_prefix(current(h)->store));
    (void)on_page(h, &r->object, 1, false); /* what fails there fails the run */
    source_is_over(h);
}

/* s3://bucket/name: an object of that name, or else the folder of that name. */
static void probed(void *ctx, const struct store_reply *r, const struct object *objects, size_t count,
                   struct str next_token)
{
    struct hydrate *h = ctx;
    (void)next_token;
    h->feed.probe = NULL;
    atomic_fetch_add(&h->requests, r->requests);
    struct str prefix = store_prefix(current(h)->store);
    if (r->code == -ERR_DENIED) {
        h->feed.probe = store_head(current(h)->store, &h->lanes[0].worker, prefix, headed, h);
        return;
    }
    if (r->code < 0) {
        hydrate_fail(h, &r->err);
        listing_is_over(h);
        return;
    }
    h->feed.single = count > 0 && str_eq(objects[0].key, prefix);
    if (h->feed.single) {
        h->feed.strip = path_folder_len(prefix);
    } else {
        sbuf_addc(&h->feed.prefix, '/');
        h->feed.strip = h->feed.prefix.len;
    }
    start_listing(h);
}

static void next_source(struct hydrate *h)
{
    const struct hydrate_source *s = current(h);
    struct str prefix = store_prefix(s->store);
    h->feed.single = false;
    h->feed.strip = prefix.len;
    sbuf_clear(&h->feed.prefix);
    sbuf_add(&h->feed.prefix, prefix);
    if (prefix.len == 0 || prefix.ptr[prefix.len - 1] == '/') {
        start_listing(h);
        return;
    }
    struct store_page p = {.prefix = sbuf_str(&h->feed.prefix), .keys_max = 1, .ctx = h, .on_done = probed};
    h->feed.probe = store_list_page(s->store, &h->lanes[0].worker, &p);
}

void feed_stop(struct hydrate *h)
{
    if (h->feed.probe)
        store_cancel(h->feed.probe);
}

static void deliver_next(struct mail *m)
{
    struct hydrate *h = container_of(m, struct hydrate, feed.next);
    if (atomic_load(&h->stopping))
        listing_is_over(h);
    else
        next_source(h);
}

void feed_start(struct hydrate *h)
{
    if (index_is_complete(h->index)) {
        listing_is_over(h);
        return;
    }
    h->feed.began_ns = index_count(h->index) == 0 ? clock_now_ns() : 0;
    loop_post(h->lanes[0].worker.loop, &h->feed.next);
}

/* What an earlier run told of its listing is true as long as its catalog is; and a volume has one hydration, however
 * many Jobs it takes. */
static void recall(struct hydrate *h)
{
    struct err ignored;
    if (hydrate_status_read(h->target->state, h->scratch, &ignored) < 0)
        return;
    if (index_is_complete(h->index))
        h->listing = h->scratch->listing;
    if (h->target->kind == TARGET_VOLUME && h->scratch->began_ns)
        h->began_ns = h->scratch->began_ns;
}

int feed_prepare(struct hydrate *h, struct err *err)
{
    pthread_mutex_init(&h->feed.lock, NULL);
    sbuf_init(&h->feed.prefix, 1 << 20);
    sbuf_init(&h->feed.path, 1 << 20);
    h->feed.next.deliver = deliver_next;
    recall(h);
    int r = target_space(h->target, &h->feed.space_bytes, &h->feed.space_files, &h->feed.block, err);
    if (r == 0)
        r = deal_prepare(h, err);
    return r == 0 ? known_count(h, err) : r;
}

void feed_done(struct hydrate *h)
{
    index_free(h->feed.all);
    sbuf_done(&h->feed.prefix);
    sbuf_done(&h->feed.path);
}
