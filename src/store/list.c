/* SPDX-License-Identifier: Apache-2.0 */
/* Runs readers, each of which lists a range of keys page after page. A reader whose range has ended takes the
 * upper part of another's, split at a key that keyspace.c guesses; that key need not exist. */
#include "store/list.h"
#include "keyspace.h"
#include "util/clock.h"
#include "util/list.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    EMPTY_PAGES_MAX = 1000, /* so many successive pages without progress never end */
    KEY_ROOM = 8192,
    TOKEN_ROOM = 16384,
    READERS_DEFAULT = 32, /* at 20 ms a page, as fast as two cores parse; a page in flight takes half a MiB */
    READERS_MAX = 64,
    SAMPLE_STEP = 32, /* keys of a page that keyspace examines */
};

/* A range with fewer pages left ends sooner than a request for its half. */
static const double pages_worth_a_cut = 2;

/* Pages assumed in a range whose end is far beyond all keys seen. The rest goes to another reader; if it finds similar
 * keys, the stride grows by four. */
static const double stride_at_first = 8, stride_grows = 4;

/* home: `job` and `asked_end` its worker's loop; the rest under the listing's lock. */
struct list_reader {
    struct store_listing *listing;
    struct worker *worker; /* borrowed */
    struct mail mail;      /* "look what there is to do" */
    bool is_posted;
    bool is_active;          /* has a range */
    struct list_node node;   /* among the active readers, in order of their ranges */
    struct sbuf after;       /* its keys are greater than this ... */
    struct sbuf end;         /* ... and not greater than this; empty: to the end of all */
    struct sbuf first, last; /* keys of the previous page; before the first page, those of another reader */
    struct sbuf token;
    unsigned empty_pages;
    bool has_read;     /* a page of this range came */
    double pages_left; /* were its keys spread evenly */
    struct store_job *job;
    struct sbuf asked_end; /* end_before of the last request: a token needs the same parameters */
};

struct store_listing {
    struct store *store; /* borrowed */
    struct store_listing_options options;
    struct sbuf prefix;
    _Atomic unsigned refs; /* one for the owner, and one for each mail in transit */

    pthread_mutex_t lock; /* guards the fields below, and the readers */
    struct keyspace keyspace;
    struct list active; /* readers */
    size_t active_count;
    uint64_t requests, keys, cuts, page_keys;
    double stride;    /* in pages */
    uint64_t wait_ns; /* the shortest time of a page: the latency of the store without a queue */
    bool is_unsorted; /* the store does not sort keys: one reader, page by page */
    bool is_whole;    /* the store ignores start_after: split no more */
    bool is_stopping;
    bool has_failed;
    bool has_ended;
    struct err err;
    struct list_rounds rounds;
    size_t worker_count, reader_count;
    struct list_reader readers[];
};

static void ask(struct list_reader *r);

static void unref(struct store_listing *l)
{
    if (atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    for (size_t i = 0; i < l->reader_count; i++) {
        struct list_reader *r = &l->readers[i];
        sbuf_done(&r->after);
        sbuf_done(&r->end);
        sbuf_done(&r->first);
        sbuf_done(&r->last);
        sbuf_done(&r->token);
        sbuf_done(&r->asked_end);
    }
    sbuf_done(&l->prefix);
    sbuf_done(&l->rounds.key);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- assigning ranges to readers: under the lock ----------------------------------------------------------------- */

static void activate(struct list_reader *r, struct list_reader *behind)
{
    struct store_listing *l = r->listing;
    r->is_active = true;
    list_insert(&l->active, &r->node, behind ? behind->node.next : l->active.first);
    l->active_count++;
}

static void retire(struct list_reader *r)
{
    struct store_listing *l = r->listing;
    r->is_active = false;
    list_remove(&l->active, &r->node);
    l->active_count--;
}

/* As many readers as keep the workers busy: parsing a page takes a millisecond or two, and more pages help only
 * while requests wait for the store. */
static bool are_enough(const struct store_listing *l)
{
    return l->active_count >= l->worker_count * (2 + l->wait_ns / NS_PER_MS);
}

/* Each split costs at most one request. Allowed: one for every four pages read, and one for each other reader. The
 * latter are at most two a page read, so that a short listing is not split often. */
static bool may_cut(const struct store_listing *l)
{
    if (l->is_unsorted || l->is_whole || l->is_stopping || l->page_keys == 0 || are_enough(l))
        return false;
    uint64_t pages = l->keys / l->page_keys;
    return l->cuts < pages / 4 + min_u64(l->reader_count - 1, 2 * pages);
}

static struct str last_of(const struct list_reader *r)
{
    return r->has_read ? sbuf_str(&r->last) : sbuf_str(&r->after);
}

static bool is_open(const struct list_reader *r)
{
    return r->pages_left > 2 * r->listing->stride;
}

/* Estimated pages gained by splitting this range. */
static double worth(const struct list_reader *r)
{
    if (r->pages_left < pages_worth_a_cut)
        return 0;
    if (!r->has_read && is_open(r))
        return 0.5;
    return is_open(r) ? 2 * r->listing->stride : r->pages_left;
}

enum list_cut { CUT_AHEAD, CUT_SEEN, CUT_GUESS, CUTS };

static bool find_cut(const struct list_reader *r, enum list_cut how, struct sbuf *ret)
{
    const struct keyspace *k = &r->listing->keyspace;
    struct str from = last_of(r), end = sbuf_str(&r->end);
    if (how == CUT_AHEAD)
        return keyspace_ahead(k, sbuf_str(&r->first), sbuf_str(&r->last), from, end,
                              is_open(r) ? r->listing->stride : r->pages_left / 2, ret);
    return keyspace_split(k, from, end, how == CUT_SEEN ? KEYSPACE_SEEN : KEYSPACE_GUESS, ret);
}

static struct list_reader *richest(const struct store_listing *l, enum list_cut how, struct sbuf *ret_cut)
{
    struct list_reader *best = NULL, *r;
    auto_sbuf cut = SBUF(KEY_ROOM);
    list_foreach (&l->active, r, node) {
        bool richer = worth(r) > 0 && (!best || worth(r) > worth(best));
        if (richer && find_cut(r, how, &cut)) {
            best = r;
            sbuf_set(ret_cut, sbuf_str(&cut));
        }
    }
    return best;
}

static void look_ahead(struct list_reader *r)
{
    r->pages_left =
        keyspace_pages(&r->listing->keyspace, sbuf_str(&r->first), sbuf_str(&r->last), last_of(r), sbuf_str(&r->end));
}

/* True: `r` has a range. */
static bool steal(struct list_reader *r)
{
    struct store_listing *l = r->listing;
    auto_sbuf cut = SBUF(KEY_ROOM);
    if (!may_cut(l))
        return false;
    struct list_reader *victim = NULL;
    for (enum list_cut how = CUT_AHEAD; how < CUTS && !victim; how++)
        victim = richest(l, how, &cut);
    if (!victim)
        return false;
    if (is_open(victim))
        l->stride *= stride_grows;
    sbuf_set(&r->after, sbuf_str(&cut));
    sbuf_set(&r->end, sbuf_str(&victim->end));
    sbuf_set(&victim->end, sbuf_str(&cut));
    sbuf_set(&r->first, sbuf_str(&victim->first));
    sbuf_set(&r->last, sbuf_str(&victim->last));
    look_ahead(victim);
    sbuf_clear(&r->token);
    r->empty_pages = 0;
    r->has_read = false;
    look_ahead(r);
    activate(r, victim);
    l->cuts++;
    return true;
}

static struct list_reader *idle_reader(struct store_listing *l)
{
    if (l->active_count == l->reader_count || !may_cut(l))
        return NULL;
    for (size_t i = 0; i < l->reader_count; i++)
        if (!l->readers[i].is_active && !l->readers[i].is_posted)
            return &l->readers[i];
    return NULL;
}

/* ---- a page: under the lock -------------------------------------------------------------------------------------- */

static int fail(struct store_listing *l, struct err *err, const char *how)
{
    return err_fail(err, ERR_CORRUPT, CIS_REPLY_INVALID, "listing %s://%.*s/%.*s: %s", store_scheme(l->store),
                    STR_FMT(store_bucket(l->store)), STR_FMT(sbuf_str(&l->prefix)), how);
}

/* Some stores begin a page with the last key of the one before. */
static bool overlaps(const struct list_reader *r, const struct store_object *objects, size_t count)
{
    return r->has_read && count > 1 && str_eq(sbuf_str(&r->last), objects[0].key);
}

static bool is_sorted(const struct list_reader *r, const struct store_object *objects, size_t count)
{
    struct str last = r->has_read ? sbuf_str(&r->last) : STR_NULL;
    for (size_t i = overlaps(r, objects, count); i < count; i++) {
        if (last.ptr && str_cmp(last, objects[i].key) >= 0)
            return false;
        last = objects[i].key;
    }
    return true;
}

bool list_comes_round(struct list_rounds *r, const struct store_object *objects, size_t count)
{
    if (count == 0)
        return false;
    if (r->count > 0 && str_eq(sbuf_str(&r->key), objects[0].key))
        return true;
    if (++r->count >= 2 * r->page) {
        r->page = r->count;
        sbuf_set(&r->key, objects[0].key);
    }
    return false;
}

/* S3's directory buckets do not sort keys: their pages are passed on unsorted, and marked so. */
static int check_order(struct list_reader *r, const struct store_object *objects, size_t count, struct err *err)
{
    struct store_listing *l = r->listing;
    for (size_t i = 0; i < count; i++)
        if (!str_starts(objects[i].key, sbuf_str(&l->prefix)))
            return fail(l, err, "the store lists keys outside of the prefix");
    if (!l->is_unsorted && !is_sorted(r, objects, count)) {
        if (l->cuts > 0)
            return fail(l, err, "the store's keys are out of order");
        l->is_unsorted = true;
    }
    /* The end of an unsorted listing cannot be predicted. */
    if (l->is_unsorted && list_comes_round(&l->rounds, objects, count))
        return fail(l, err, "the store returns the same pages repeatedly");
    return 0;
}

bool list_goes_on(unsigned *empty_pages, size_t count, struct str token, struct str next_token)
{
    *empty_pages = count ? 0 : *empty_pages + 1;
    bool again = next_token.len > 0 && str_eq(next_token, token);
    return !again && *empty_pages <= EMPTY_PAGES_MAX;
}

static int check_progress(struct list_reader *r, size_t count, struct str next_token, struct err *err)
{
    if (list_goes_on(&r->empty_pages, count, sbuf_str(&r->token), next_token) && next_token.len <= TOKEN_ROOM)
        return 0;
    return fail(r->listing, err, "the store returns pages without progress");
}

static size_t count_to(const struct store_object *objects, size_t count, struct str key)
{
    size_t low = 0;
    while (low < count) {
        size_t mid = low + (count - low) / 2;
        if (str_cmp(objects[mid].key, key) <= 0)
            low = mid + 1;
        else
            count = mid;
    }
    return low;
}

struct taken {
    size_t from, to; /* objects of the page that are in this reader's range */
    bool sorted_so_far;
    bool is_last;
};

/* Selects the objects of the reader's range, which may have been split during the request. */
static void take_range(struct list_reader *r, const struct store_object *objects, size_t count, struct taken *ret)
{
    struct store_listing *l = r->listing;
    if (l->is_unsorted || count == 0) {
        ret->to = count;
        return;
    }
    if (r->after.len)
        ret->from = count_to(objects, count, sbuf_str(&r->after));
    ret->to = r->end.len ? count_to(objects, count, sbuf_str(&r->end)) : count;
    ret->is_last |= ret->to < count;
    ret->sorted_so_far = !r->node.prev;
    l->is_whole |= ret->from > 0 && l->cuts > 0;
    ret->from = max_u64(ret->from, overlaps(r, objects, count));
    sbuf_set(&r->first, objects[0].key);
    sbuf_set(&r->last, objects[count - 1].key);
    for (size_t i = 0; i < count; i += SAMPLE_STEP)
        keyspace_see(&l->keyspace, objects[i].key);
    keyspace_see(&l->keyspace, objects[count - 1].key);
    r->has_read = true;
}

static int take_page(struct list_reader *r, const struct store_reply *reply, const struct store_object *objects,
                     size_t count, struct str next_token, struct taken *ret, struct err *err)
{
    struct store_listing *l = r->listing;
    if (reply->code < 0)
        return err_copy(err, &reply->err);
    int code = check_order(r, objects, count, err);
    if (code == 0)
        code = check_progress(r, count, next_token, err);
    if (code < 0)
        return code;
    bool is_first = !r->has_read;
    ret->is_last = next_token.len == 0;
    take_range(r, objects, count, ret);
    l->keys += ret->to - ret->from;
    if (is_first && ret->to == ret->from) { /* the estimate was too high */
        uint64_t pages = l->page_keys ? l->keys / l->page_keys : 0;
        l->stride = stride_at_first + (double)pages;
    }
    l->wait_ns = min_u64(l->wait_ns, reply->first_byte_ns);
    if (!ret->is_last)
        l->page_keys = max_u64(l->page_keys, count);
    look_ahead(r);
    sbuf_set(&r->token, next_token);
    return 0;
}

/* ---- on a worker's loop ------------------------------------------------------------------------------------------ */

static void post(struct list_reader *r)
{
    atomic_fetch_add(&r->listing->refs, 1);
    loop_post(r->worker->loop, &r->mail);
}

/* Every reader gives up its page. */
static void stop_all(struct store_listing *l)
{
    for (size_t i = 0; i < l->reader_count; i++) {
        struct list_reader *r = &l->readers[i];
        pthread_mutex_lock(&l->lock);
        bool wanted = !r->is_posted && !l->has_ended;
        r->is_posted |= wanted;
        pthread_mutex_unlock(&l->lock);
        if (wanted)
            post(r);
    }
}

static void stop(struct store_listing *l, const struct err *err)
{
    atomic_fetch_add(&l->refs, 1); /* the last range may end while the other readers are notified */
    pthread_mutex_lock(&l->lock);
    bool first = !l->is_stopping;
    l->is_stopping = true;
    if (!l->has_failed)
        err_copy(&l->err, err);
    l->has_failed = true;
    pthread_mutex_unlock(&l->lock);
    if (first)
        stop_all(l);
    unref(l);
}

/* The reader's range was read, or given up. The caller must not use the listing afterwards: it may be freed. */
static void range_over(struct list_reader *r)
{
    struct store_listing *l = r->listing;
    pthread_mutex_lock(&l->lock);
    retire(r);
    bool again = steal(r);
    bool ends = l->active_count == 0;
    l->has_ended |= ends;
    pthread_mutex_unlock(&l->lock);
    if (again)
        ask(r);
    else if (ends)
        l->options.on_done(l->options.ctx, l->has_failed ? &l->err : NULL, l->requests);
}

static int give(struct list_reader *r, const struct store_object *objects, const struct taken *t, struct err *err)
{
    struct store_listing *l = r->listing;
    if (t->to <= t->from)
        return 0;
    int code = l->options.on_page(l->options.ctx, objects + t->from, t->to - t->from, t->sorted_so_far);
    return code < 0 ? err_set(err, (enum err_code) - code, "the listing was stopped") : 0;
}

static void on_page(void *ctx, const struct store_reply *reply, const struct store_object *objects, size_t count,
                    struct str next_token)
{
    struct list_reader *r = ctx, *idle = NULL;
    struct store_listing *l = r->listing;
    struct taken t = {0};
    struct err err;
    r->job = NULL;
    pthread_mutex_lock(&l->lock);
    l->requests += reply->requests;
    bool stopping = l->is_stopping;
    int code = stopping ? 0 : take_page(r, reply, objects, count, next_token, &t, &err);
    if (code == 0 && (idle = idle_reader(l)) != NULL)
        idle->is_posted = true;
    pthread_mutex_unlock(&l->lock);
    if (idle)
        post(idle);
    if (!stopping && code == 0 && reply->skipped && l->options.on_skipped)
        l->options.on_skipped(l->options.ctx, reply->skipped, reply->last_skipped);
    if (!stopping && code == 0)
        code = give(r, objects, &t, &err);
    if (code < 0)
        stop(l, &err);
    if (stopping || code < 0 || t.is_last)
        range_over(r);
    else
        ask(r);
}

static void ask(struct list_reader *r)
{
    struct store_listing *l = r->listing;
    pthread_mutex_lock(&l->lock);
    bool stopping = l->is_stopping;
    if (r->token.len == 0) {
        /* Our range includes its end, the store's excludes it: pass the next possible key. */
        sbuf_set(&r->asked_end, sbuf_str(&r->end));
        if (r->end.len)
            sbuf_addc(&r->asked_end, ' ');
    }
    pthread_mutex_unlock(&l->lock);
    if (stopping) {
        range_over(r);
        return;
    }
    struct store_page p = {.prefix = sbuf_str(&l->prefix),
                           .start_after = r->token.len ? STR_NULL : sbuf_str(&r->after),
                           .token = sbuf_str(&r->token),
                           .end_before = sbuf_str(&r->asked_end),
                           .ctx = r,
                           .on_done = on_page};
    r->job = store_list_page(l->store, r->worker, &p);
}

static void deliver(struct mail *m)
{
    struct list_reader *r = container_of(m, struct list_reader, mail);
    struct store_listing *l = r->listing;
    pthread_mutex_lock(&l->lock);
    r->is_posted = false;
    bool begins = !r->is_active && !l->has_ended && steal(r);
    bool stops = l->is_stopping;
    pthread_mutex_unlock(&l->lock);
    if (begins)
        ask(r);
    else if (stops && r->job)
        store_cancel(r->job);
    unref(l);
}

static void deliver_first(struct mail *m)
{
    struct list_reader *r = container_of(m, struct list_reader, mail);
    struct store_listing *l = r->listing;
    pthread_mutex_lock(&l->lock);
    r->is_posted = false;
    r->mail.deliver = deliver;
    pthread_mutex_unlock(&l->lock);
    ask(r);
    unref(l);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void reader_init(struct list_reader *r, struct store_listing *l, struct worker *w)
{
    r->listing = l;
    r->worker = w;
    r->mail.deliver = deliver;
    sbuf_init(&r->after, KEY_ROOM);
    sbuf_init(&r->end, KEY_ROOM);
    sbuf_init(&r->first, KEY_ROOM);
    sbuf_init(&r->last, KEY_ROOM);
    sbuf_init(&r->token, TOKEN_ROOM);
    sbuf_init(&r->asked_end, KEY_ROOM + 1);
}

struct store_listing *store_listing_start(struct store *s, struct worker **workers, size_t worker_count,
                                          const struct store_listing_options *o)
{
    assert(worker_count > 0);
    size_t readers = o->parallel ? min_u64(o->parallel, READERS_MAX) : READERS_DEFAULT;
    if (!store_caps(s)->lists_sorted || !store_caps(s)->lists_from_any_key)
        readers = 1;
    struct store_listing *l = xcalloc(1, sizeof *l + readers * sizeof l->readers[0]);
    l->store = s;
    l->options = *o;
    l->refs = 1;
    l->wait_ns = UINT64_MAX / 2;
    l->stride = stride_at_first;
    l->worker_count = worker_count;
    l->reader_count = readers;
    pthread_mutex_init(&l->lock, NULL);
    sbuf_init(&l->prefix, KEY_ROOM);
    sbuf_init(&l->rounds.key, KEY_ROOM);
    sbuf_add(&l->prefix, o->prefix);
    l->keyspace.prefix_len = o->prefix.len;
    for (size_t i = 0; i < readers; i++)
        reader_init(&l->readers[i], l, workers[i % worker_count]);
    struct list_reader *first = &l->readers[0];
    sbuf_add(&first->after, o->start_after);
    first->is_posted = true;
    first->mail.deliver = deliver_first;
    activate(first, NULL);
    post(first);
    return l;
}

void store_listing_cancel(struct store_listing *l)
{
    struct err err;
    err_set(&err, ERR_CANCELLED, "the listing was stopped");
    stop(l, &err);
}

void store_listing_free(struct store_listing *l)
{
    if (!l)
        return;
    assert(l->has_ended);
    unref(l);
}
