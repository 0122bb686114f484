/* SPDX-License-Identifier: Apache-2.0 */
#include "informer_private.h"
#include "util/clock.h"
#include "util/metric.h"
#include <assert.h>

enum {
    PAGE_DEFAULT = 500,
    USELESS_MAX = 3, /* after this number of successive watches that are silent or unreadable, list again */
};

#define PAGE_TIMEOUT_NS (60 * NS_PER_SECOND)
/* The server ends a watch after five to ten minutes, so that its replicas share them. */
#define WATCH_LEAST_NS (300 * NS_PER_SECOND)
/* The server sends a bookmark each minute, but none of Events, and none of a kind that never changed. Without one, the
 * server or a proxy may be stuck with an open connection. */
#define SILENCE_NS (75 * NS_PER_SECOND)
#define BACKOFF_BASE_NS (500 * NS_PER_MS)
#define BACKOFF_CAP_NS (10 * NS_PER_SECOND)
/* A list with too many objects costs the server most, and only a person can change it. */
#define LIMIT_BACKOFF_CAP_NS (60 * NS_PER_SECOND)
#define PAUSE_NS (100 * NS_PER_MS)
/* A shorter watch without an event counts as a failure: a server may end each watch at once. */
#define LASTED_NS (5 * NS_PER_SECOND)
#define REPORT_AGAIN_NS (60 * NS_PER_SECOND)

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void pause_for(struct kube_informer *i, uint64_t wait_ns)
{
    loop_timer_set(i->kube->loop, &i->again, wait_ns);
}

static void forget_version(struct kube_informer *i)
{
    free(take(&i->version));
}

static void remember_version(struct kube_informer *i, const json *object)
{
    struct str version = json_member_str(json_at(object, "metadata"), "resourceVersion");
    if (!version.len)
        return;
    free(i->version);
    i->version = str_dup(version);
}

static void fail(struct kube_informer *i, const struct err *err)
{
    uint64_t now = loop_now_ns(i->kube->loop);
    uint64_t cap = i->list_failed && err->code == ERR_NO_SPACE ? LIMIT_BACKOFF_CAP_NS : BACKOFF_CAP_NS;
    uint64_t wait = clock_backoff_ns(++i->failures, BACKOFF_BASE_NS, cap) + PAUSE_NS;
    pause_for(i, wait);
    if (err->code == i->reported_code && now - i->reported_ns < REPORT_AGAIN_NS)
        return;
    i->reported_code = err->code;
    i->reported_ns = now;
    if (i->options.on_error && err->code != ERR_CANCELLED)
        i->options.on_error(i->options.ctx, err, wait);
}

static void went_well(struct kube_informer *i)
{
    i->failures = 0;
    i->useless = 0;
    i->reported_code = 0;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static void on_page(void *ctx, json **own_items)
{
    struct kube_informer *i = ctx;
    if (!own_items) { /* a new start: earlier pages are void */
        informer_copy_begin_list(i);
        return;
    }
    for (size_t n = 0; n < json_count(*own_items) && !i->list_failed; n++)
        i->list_failed = informer_copy_put(i, (json *)json_item(*own_items, n), &i->err) < 0;
}

static void on_listed(void *ctx, struct kube_reply *r)
{
    struct kube_informer *i = ctx;
    i->exchange = NULL;
    if (r->code == -ERR_NO_SPACE && i->page_size > 1)
        i->page_size /= 2;
    if (r->code < 0 || i->list_failed) {
        fail(i, r->code < 0 ? &r->err : &i->err);
        return;
    }
    informer_copy_sweep(i);
    remember_version(i, r->object);
    i->reported_code = 0; /* but not `failures`: a list without a watch is not enough */
    if (!atomic_exchange(&i->synced, true) && i->options.on_synced)
        i->options.on_synced(i->options.ctx);
    pause_for(i, 0);
}

/* Of a list or a watch. */
static struct kube_request request_of(struct kube_informer *i, void (*on_done)(void *ctx, struct kube_reply *r))
{
    return (struct kube_request){.verb = KUBE_LIST,
                                 .resource = i->options.resource,
                                 .ns = str_of(i->ns),
                                 .label_selector = i->label_selector,
                                 .field_selector = i->field_selector,
                                 .timeout_ns = PAGE_TIMEOUT_NS,
                                 .ctx = i,
                                 .on_done = on_done};
}

static void list(struct kube_informer *i)
{
    struct kube_request r = request_of(i, on_listed);
    r.page_size = i->page_size;
    r.on_page = on_page;
    informer_copy_begin_list(i);
    i->exchange = kube_submit(i->kube, &r);
}

/* ---- the watch --------------------------------------------------------------------------------------------------- */

/* An error event of the server. If the version is too old, a new list is needed. */
static int watch_error(struct kube_informer *i, const json *status, struct err *err)
{
    struct answer_outcome out;
    int r = answer_of_status("watch", status, &out, err);
    if (out.is_expired)
        forget_version(i);
    return r;
}

static int on_line(void *ctx, struct str line, struct err *err)
{
    struct kube_informer *i = ctx;
    enum watch_type type;
    auto_json object = NULL;
    int r = watch_line_parse(line, &type, &object, err);
    if (r < 0)
        return r;
    if (type == WATCH_ERROR)
        return watch_error(i, object, err);
    if (type == WATCH_DELETED)
        r = informer_copy_remove(i, object, err);
    else if (type != WATCH_BOOKMARK)
        r = informer_copy_put(i, object, err);
    if (r < 0)
        return r;
    /* After the copy was updated, so that a resumed watch misses nothing. */
    remember_version(i, object);
    went_well(i);
    return 0;
}

static int on_bytes(void *ctx, const char *bytes, size_t n)
{
    struct kube_informer *i = ctx;
    return line_splitter_feed(&i->lines, (struct str){bytes, n}, on_line, i, &i->err);
}

/* Is a new list needed before the next watch? */
static bool lost_its_place(struct kube_informer *i, int status, const struct err *err)
{
    if (err->code == ERR_CORRUPT || err->code == ERR_TIMEOUT)
        i->useless++;
    return status == 410 || err->code == ERR_NO_SPACE || i->useless >= USELESS_MAX;
}

static void on_watched(void *ctx, struct kube_reply *r)
{
    struct kube_informer *i = ctx;
    /* If this side ended the watch, i->err has the cause. */
    struct err err = r->code < 0 && r->status == 200 && i->err.code ? i->err : r->err;
    bool was_silent = r->status == 200 && r->code == -ERR_TIMEOUT; /* there may have been nothing to send */
    i->exchange = NULL;
    if (loop_now_ns(i->kube->loop) - i->watch_began_ns > LASTED_NS)
        i->failures = 0;
    if (r->code < 0 && lost_its_place(i, r->status, &err))
        forget_version(i);
    if (r->code < 0 && !was_silent && (i->version || err.code != ERR_AGAIN))
        fail(i, &err);
    else if (i->failures++ == 0)
        pause_for(i, PAUSE_NS); /* the normal end of a watch */
    else
        pause_for(i, clock_backoff_ns(i->failures, BACKOFF_BASE_NS, BACKOFF_CAP_NS) + PAUSE_NS);
}

static void watch(struct kube_informer *i)
{
    struct kube_stream stream = {.resource_version = str_of(i->version),
                                 .lasts_ns = WATCH_LEAST_NS + clock_random() % WATCH_LEAST_NS,
                                 .silence_ns = i->options.silence_ns,
                                 .on_bytes = on_bytes};
    line_splitter_clear(&i->lines);
    i->err = (struct err){0};
    i->watch_began_ns = loop_now_ns(i->kube->loop);
    const struct kube_request r = request_of(i, on_watched);
    i->exchange = kube_exchange_start(i->kube, &r, &stream);
}

static void pause_ended(struct timer *t)
{
    struct kube_informer *i = container_of(t, struct kube_informer, again);
    if (i->version)
        watch(i);
    else
        list(i);
}

/* ---- start and end ----------------------------------------------------------------------------------------------- */

static void make_metrics(struct kube_informer *i)
{
    const char *kind = i->options.resource->plural;
    i->over_limit = metric_series(
        metric_new(METRIC_GAUGE, "cistern_objects_over_limit",
                   "1 while the API server has more objects of a kind than Cistern reads: it decides nothing.",
                   "resource", NULL),
        kind);
    i->count =
        metric_series(metric_new(METRIC_GAUGE, "cistern_objects",
                                 "Objects of a kind by which Cistern decides, 200,000 at most.", "resource", NULL),
                      kind);
}

struct kube_informer *kube_informer_new(struct kube *k, const struct kube_informer_options *o)
{
    struct kube_informer *i = xcalloc(1, sizeof *i);
    size_t indexes = 0;
    assert(loop_is_mine(k->loop));
    i->kube = k;
    i->options = *o;
    i->ns = str_dup(o->ns);
    i->label_selector = text_copy(str_of(o->label_selector));
    i->field_selector = text_copy(str_of(o->field_selector));
    i->page_size = o->page_size ? o->page_size : PAGE_DEFAULT;
    i->options.silence_ns = o->silence_ns ? o->silence_ns : SILENCE_NS;
    if (!o->decides_nothing)
        make_metrics(i);
    i->again.fire = pause_ended;
    while (indexes < KUBE_INDEXES_MAX && (o->indexes[indexes].value || o->indexes[indexes].member))
        indexes++;
    informer_objects_init(&i->objects, i->options.indexes, indexes);
    line_splitter_init(&i->lines);
    pthread_mutex_init(&i->lock, NULL);
    pause_for(i, 0);
    return i;
}

void kube_informer_free(struct kube_informer *i)
{
    if (!i)
        return;
    assert(loop_is_mine(i->kube->loop) && list_is_empty(&i->waiters));
    loop_timer_cancel(i->kube->loop, &i->again);
    if (i->exchange)
        kube_abandon(i->exchange);
    informer_objects_done(&i->objects);
    line_splitter_done(&i->lines);
    pthread_mutex_destroy(&i->lock);
    free(i->ns);
    free(i->label_selector);
    free(i->field_selector);
    free(i->version);
    free(i);
}
