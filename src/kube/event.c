/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/event.h"
#include "client_private.h"
#include "io/rate.h"
#include "util/clock.h"
#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    SERIES_DEFAULT = 4096,
    INBOX_MAX = 1024,    /* not yet seen by the loop */
    NAME_PART_MAX = 200, /* bytes of the object's name within the event's */
    /* A namespace may have thousands of objects with a mistake. Its events use no more of the client's requests. */
    NAMESPACE_QPS = 5,
    NAMESPACE_BURST = 200,
    NAMESPACE_SLOTS = 256,
};

#define QUIET_NS (60 * NS_PER_SECOND)  /* between two writes of one series */
#define AGAIN_NS (10 * NS_PER_SECOND)  /* after a write that failed; doubled up to QUIET_NS */
#define KEPT_NS (3600 * NS_PER_SECOND) /* the server keeps an event that long: an older one is not sent any more */
#define SWEEP_NS (5 * NS_PER_SECOND)   /* between writes of the series that have unsent events */
#define TIMEOUT_NS (10 * NS_PER_SECOND)

/* The events of one reason on one object. home: the sender, then the inbox, then the loop. */
struct event_series {
    struct list_node node;
    struct kube_events *events; /* borrowed */
    enum kube_event_type type;
    const struct kube_resource *resource; /* static */
    const char *reason;                   /* static */
    char *ns, *name, *uid, *message;      /* owned */
    uint64_t count;                       /* in all */
    int64_t first_ns, last_ns;
    bool unsent;       /* the last occurrences are not sent yet */
    unsigned failures; /* failed writes in a row */
    uint64_t wrote_ns;
    char *event; /* owned: the name of the Event object; NULL: none yet */
    bool created;
    struct kube_exchange *exchange;
};

/* The mail to the loop. It may outlive the events. */
struct event_mail {
    struct mail mail;
    struct kube_events *events; /* NULL: gone */
};

struct kube_events {
    struct kube *kube; /* borrowed: it outlives us */
    const char *component;
    char *instance; /* owned */
    unsigned series_max, series_count;
    struct list recent; /* event_series: owned; the last used first */
    struct timer sweep;
    struct rate namespaces[NAMESPACE_SLOTS]; /* by the hash of the name */
    struct event_mail *mail_to_loop;         /* owned; its delivery may free it */
    _Atomic uint64_t dropped;
    pthread_mutex_t lock; /* guards the fields below */
    struct list inbox;    /* event_series: owned */
    unsigned inbox_count;
    bool rung;
};

static void series_free(struct event_series *s)
{
    if (s->exchange)
        kube_abandon(s->exchange);
    free(s->ns);
    free(s->name);
    free(s->uid);
    free(s->message);
    free(s->event);
    free(s);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void set_time(json *j, const char *name, int64_t wall_ns)
{
    char text[TIME_TEXT_MAX];
    json_set_str(j, name, str_of(time_text(wall_ns, text)));
}

static json *event_object(const struct event_series *s)
{
    const struct kube_events *e = s->events;
    const struct kube_resource *about = s->resource;
    char version[KUBE_API_VERSION_MAX];
    struct str component = str_of(e->component), instance = str_of(e->instance);
    json *j = kube_object(&kube_events_resource, STR_NULL, str_of(s->event));
    json_set_strings(j, {"involvedObject.apiVersion", str_of(kube_api_version(about, version))},
                     {"involvedObject.kind", str_of(about->kind)}, {"?involvedObject.namespace", str_of(s->ns)},
                     {"involvedObject.name", str_of(s->name)}, {"involvedObject.uid", str_of(s->uid)},
                     {"reason", str_of(s->reason)}, {"type", s->type == KUBE_WARNING ? STR("Warning") : STR("Normal")},
                     {"source.component", component}, {"source.host", instance}, {"reportingComponent", component},
                     {"reportingInstance", instance});
    set_time(j, "firstTimestamp", s->first_ns);
    return j;
}

static void write_series(struct event_series *s);

/* Another write would fail, too (the namespace is being deleted), or is of no use. */
static bool is_final(const struct event_series *s, int code)
{
    return code == -ERR_DENIED || code == -ERR_INVALID || code == -ERR_UNSUPPORTED || code == -ERR_NOT_FOUND ||
           clock_wall_ns() - s->last_ns > (int64_t)KEPT_NS;
}

static void on_written(void *ctx, struct kube_reply *r)
{
    struct event_series *s = ctx;
    s->exchange = NULL;
    bool was_there = s->created;
    s->created = r->code == 0;
    if (r->code == 0) {
        s->failures = 0;
        return;
    }
    if (r->code == -ERR_NOT_FOUND && was_there) { /* the server keeps events for an hour */
        write_series(s);
        return;
    }
    s->created = was_there;
    if (is_final(s, r->code)) {
        s->failures = 0;
        atomic_fetch_add(&s->events->dropped, 1);
    } else {
        s->failures++;
        s->unsent = true;
    }
}

static void write_series(struct event_series *s)
{
    struct kube_events *e = s->events;
    bool is_new = !s->created;
    if (is_new) {
        char name[NAME_PART_MAX + 20];
        snprintf(name, sizeof name, "%.*s.%016llx", NAME_PART_MAX, s->name, (unsigned long long)clock_random());
        free(s->event);
        s->event = str_dup(str_of(name));
    }
    auto_json j = is_new ? event_object(s) : json_new_object();
    json_set_str(j, "message", str_of(s->message));
    json_set_u64(j, "count", s->count);
    set_time(j, "lastTimestamp", s->last_ns);
    s->unsent = false;
    s->wrote_ns = loop_now_ns(e->kube->loop);
    /* If the reply is lost, a second event is created: better than none. */
    s->exchange = kube_submit(e->kube, &(struct kube_request){.verb = is_new ? KUBE_CREATE : KUBE_MERGE_PATCH,
                                                              .resource = &kube_events_resource,
                                                              .ns = s->ns[0] ? str_of(s->ns) : STR("default"),
                                                              .name = is_new ? STR_NULL : str_of(s->event),
                                                              .body = j,
                                                              .timeout_ns = TIMEOUT_NS,
                                                              .ctx = s,
                                                              .on_done = on_written});
}

/* Writes it, or leaves it unsent for the next sweep. */
static void write_if_allowed(struct event_series *s)
{
    struct rate *r = &s->events->namespaces[str_hash(str_of(s->ns), 0) % NAMESPACE_SLOTS];
    if (rate_take(r, 1, loop_now_ns(s->events->kube->loop)) == 0)
        write_series(s);
}

static bool is_pending(const struct event_series *s)
{
    return s->unsent || s->exchange;
}

static uint64_t pause_ns(const struct event_series *s)
{
    return s->failures ? clock_doubled_ns(s->failures - 1, AGAIN_NS, QUIET_NS) : QUIET_NS;
}

static void sweep_due(struct timer *t)
{
    struct kube_events *e = container_of(t, struct kube_events, sweep);
    uint64_t now = loop_now_ns(e->kube->loop);
    bool unsent = false;
    struct event_series *s;
    /* From the least recent: an event that does not recur goes before those that do, which come to the front. */
    for (struct list_node *n = e->recent.last; n; n = n->prev) {
        s = list_entry(n, struct event_series, node);
        if (s->unsent && !s->exchange && now - s->wrote_ns >= pause_ns(s))
            write_if_allowed(s);
        unsent |= is_pending(s);
    }
    if (unsent)
        loop_timer_set(e->kube->loop, t, SWEEP_NS);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static bool is_same(const struct event_series *a, const struct event_series *b)
{
    return strcmp(a->reason, b->reason) == 0 && strcmp(a->uid, b->uid) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->ns, b->ns) == 0 && a->resource == b->resource && a->type == b->type;
}

static struct event_series *find_series(const struct kube_events *e, const struct event_series *like)
{
    struct event_series *s;
    list_foreach (&e->recent, s, node)
        if (is_same(s, like))
            return s;
    return NULL;
}

/* The least recent that is in the API server, else the least recent. */
static void drop_oldest(struct kube_events *e)
{
    struct list_node *n = e->recent.last;
    while (n && is_pending(list_entry(n, struct event_series, node)))
        n = n->prev;
    struct event_series *oldest = list_entry(n ? n : e->recent.last, struct event_series, node);
    if (is_pending(oldest))
        atomic_fetch_add(&e->dropped, 1);
    list_remove(&e->recent, &oldest->node);
    series_free(oldest);
    e->series_count--;
}

static void seen(struct kube_events *e, struct event_series *own_new)
{
    struct event_series *s = find_series(e, own_new);
    if (s) {
        list_remove(&e->recent, &s->node);
        s->count++;
        s->last_ns = own_new->last_ns;
        free(s->message);
        s->message = take(&own_new->message);
        series_free(own_new);
    } else {
        s = own_new;
        e->series_count++;
    }
    list_add_first(&e->recent, &s->node);
    s->unsent = true;
    if (s->count == 1)
        write_if_allowed(s);
    if (e->series_count > e->series_max)
        drop_oldest(e);
}

static void inbox_delivered(struct mail *m)
{
    struct event_mail *d = container_of(m, struct event_mail, mail);
    struct kube_events *e = d->events;
    if (!e) {
        free(d);
        return;
    }
    pthread_mutex_lock(&e->lock);
    struct list all = take(&e->inbox);
    e->inbox_count = 0;
    e->rung = false;
    pthread_mutex_unlock(&e->lock);
    struct event_series *s;
    while ((s = list_pop(&all, struct event_series, node)) != NULL)
        seen(e, s);
    if (!e->sweep.due_ns)
        loop_timer_set(e->kube->loop, &e->sweep, SWEEP_NS);
}

static void post(struct kube_events *e, struct event_series *own_new)
{
    bool must_ring = false;
    pthread_mutex_lock(&e->lock);
    bool fits = e->inbox_count < INBOX_MAX;
    if (fits) {
        list_add(&e->inbox, &own_new->node);
        e->inbox_count++;
        must_ring = !e->rung;
        e->rung = true;
    }
    pthread_mutex_unlock(&e->lock);
    if (must_ring)
        loop_post(e->kube->loop, &e->mail_to_loop->mail);
    if (!fits) {
        atomic_fetch_add(&e->dropped, 1);
        series_free(own_new);
    }
}

void kube_event(struct kube_events *e, const struct kube_ref *about, enum kube_event_type type, const char *reason,
                const char *fmt, ...)
{
    struct event_series *s = xcalloc(1, sizeof *s);
    char text[KUBE_EVENT_MESSAGE_MAX + 4]; /* a whole character more, so that the cut finds its start */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->events = e;
    s->type = type;
    s->resource = about->resource;
    s->reason = reason;
    s->ns = str_dup(about->ns);
    s->name = str_dup(about->name);
    s->uid = str_dup(about->uid);
    s->message = str_dup(str_cut(str_of(text), KUBE_EVENT_MESSAGE_MAX));
    s->count = 1;
    s->first_ns = s->last_ns = clock_wall_ns();
    post(e, s);
}

struct kube_ref kube_ref_of(const struct kube_resource *resource, const json *object)
{
    const json *metadata = json_at(object, "metadata");
    return (struct kube_ref){.resource = resource,
                             .ns = json_member_str(metadata, "namespace"),
                             .name = json_member_str(metadata, "name"),
                             .uid = json_member_str(metadata, "uid")};
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

uint64_t kube_events_dropped(const struct kube_events *e)
{
    return atomic_load(&e->dropped);
}

struct kube_events *kube_events_new(struct kube *k, const struct kube_events_options *o)
{
    struct kube_events *e = xcalloc(1, sizeof *e);
    e->kube = k;
    e->component = o->component;
    e->instance = str_dup(o->instance);
    e->series_max = o->series_max ? o->series_max : SERIES_DEFAULT;
    for (size_t i = 0; i < NAMESPACE_SLOTS; i++)
        rate_init(&e->namespaces[i], NAMESPACE_QPS, NAMESPACE_BURST);
    e->sweep.fire = sweep_due;
    e->mail_to_loop = xcalloc(1, sizeof *e->mail_to_loop);
    *e->mail_to_loop = (struct event_mail){.mail.deliver = inbox_delivered, .events = e};
    pthread_mutex_init(&e->lock, NULL);
    return e;
}

static void free_all(struct list *own_series)
{
    struct event_series *s;
    while ((s = list_pop(own_series, struct event_series, node)) != NULL)
        series_free(s);
}

void kube_events_free(struct kube_events *e)
{
    if (!e)
        return;
    assert(loop_is_mine(e->kube->loop));
    e->mail_to_loop->events = NULL;
    if (!e->rung)
        free(e->mail_to_loop);
    loop_timer_cancel(e->kube->loop, &e->sweep);
    free_all(&e->recent);
    free_all(&e->inbox);
    pthread_mutex_destroy(&e->lock);
    free(e->instance);
    free(e);
}
