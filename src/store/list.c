/* SPDX-License-Identifier: Apache-2.0 */
#include "store/list.h"
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

/* A store that says "there is more" and brings nothing, so often in a row, never ends. */
enum { EMPTY_PAGES_MAX = 1000, KEY_ROOM = 8192, TOKEN_ROOM = 16384 };

struct listing {
    struct store *store;   /* borrowed */
    struct worker *worker; /* borrowed */
    struct listing_options options;
    struct sbuf prefix;
    struct mail start;
    struct mail stop;
    struct store_job *job; /* the page under way; of the worker's loop, as all that follows */
    struct sbuf last_key;
    struct sbuf token;
    unsigned empty_pages;
    bool sorted;
    bool cancelled;
    bool ended;
    _Atomic unsigned refs; /* the owner's, and the stop mail's while it is under way */
    uint64_t requests;
    uint64_t skipped;
};

static void next_page(struct listing *l);

static void end(struct listing *l, const struct err *err)
{
    l->ended = true;
    l->options.on_done(l->options.ctx, err, l->requests);
}

static int check_progress(struct listing *l, size_t count, struct str next_token, struct err *err)
{
    l->empty_pages = count ? 0 : l->empty_pages + 1;
    bool again = next_token.len && str_eq(next_token, sbuf_str(&l->token));
    if (!again && l->empty_pages <= EMPTY_PAGES_MAX && next_token.len <= TOKEN_ROOM)
        return 0;
    err_set(err, ERR_CORRUPT, "listing %s://%.*s/%.*s: the store answers page after page without going on",
            store_scheme(l->store), STR_FMT(store_bucket(l->store)), STR_FMT(l->options.prefix));
    return err_advise(err, 1601, "report it to whoever runs the store");
}

/* S3's directory buckets list in no order: then the pages are as they come, and say so. */
static void check_order(struct listing *l, const struct object *objects, size_t count)
{
    struct str last = sbuf_str(&l->last_key);
    for (size_t i = 0; i < count && l->sorted; i++) {
        l->sorted = str_cmp(last, objects[i].key) < 0 || (last.len == 0 && i == 0);
        last = objects[i].key;
    }
    if (count) {
        sbuf_clear(&l->last_key);
        sbuf_add(&l->last_key, objects[count - 1].key);
    }
}

static void on_page(void *ctx, const struct store_reply *r, const struct object *objects, size_t count,
                    struct str next_token)
{
    struct listing *l = ctx;
    struct err err;
    l->job = NULL;
    l->requests += r->requests;
    l->skipped += r->skipped;
    if (r->code < 0) {
        end(l, &r->err);
        return;
    }
    check_order(l, objects, count);
    if (check_progress(l, count, next_token, &err) < 0) {
        end(l, &err);
        return;
    }
    int code = count ? l->options.on_page(l->options.ctx, objects, count, l->sorted) : 0;
    if (code >= 0 && l->cancelled)
        code = -ERR_CANCELLED;
    if (code < 0) {
        err_set(&err, (enum err_code) - code, "the listing was stopped");
        end(l, &err);
    } else if (next_token.len == 0) {
        end(l, NULL);
    } else {
        sbuf_clear(&l->token);
        sbuf_add(&l->token, next_token);
        next_page(l);
    }
}

static void next_page(struct listing *l)
{
    struct store_page p = {.prefix = sbuf_str(&l->prefix),
                           .start_after = l->token.len ? STR_NULL : sbuf_str(&l->last_key),
                           .token = sbuf_str(&l->token),
                           .ctx = l,
                           .on_done = on_page};
    l->job = store_list_page(l->store, l->worker, &p);
}

static void unref(struct listing *l)
{
    if (atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    sbuf_done(&l->prefix);
    sbuf_done(&l->last_key);
    sbuf_done(&l->token);
    free(l);
}

static void start(struct mail *m)
{
    struct listing *l = container_of(m, struct listing, start);
    next_page(l);
}

static void stop(struct mail *m)
{
    struct listing *l = container_of(m, struct listing, stop);
    l->cancelled = true;
    if (l->job)
        store_cancel(l->job);
    unref(l);
}

struct listing *listing_start(struct store *s, struct worker **workers, size_t worker_count,
                              const struct listing_options *o)
{
    assert(worker_count > 0);
    struct listing *l = xcalloc(1, sizeof *l);
    l->store = s;
    l->worker = workers[0];
    l->options = *o;
    l->sorted = true;
    l->refs = 1;
    sbuf_init(&l->prefix, KEY_ROOM);
    sbuf_init(&l->last_key, KEY_ROOM);
    sbuf_init(&l->token, TOKEN_ROOM);
    sbuf_add(&l->prefix, o->prefix);
    sbuf_add(&l->last_key, o->start_after);
    l->options.prefix = sbuf_str(&l->prefix);
    l->start.deliver = start;
    l->stop.deliver = stop;
    loop_post(l->worker->loop, &l->start);
    return l;
}

void listing_cancel(struct listing *l)
{
    atomic_fetch_add(&l->refs, 1);
    loop_post(l->worker->loop, &l->stop);
}

uint64_t listing_skipped(const struct listing *l)
{
    return l->skipped;
}

void listing_free(struct listing *l)
{
    if (!l)
        return;
    assert(l->ended);
    unref(l);
}
