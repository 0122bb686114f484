/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/lease.h"
#include "client_private.h"
#include "kube/informer.h"
#include "util/clock.h"
#include <assert.h>
#include <stdio.h>

enum { IDENTITY_MAX = 128, SECONDS_MAX = 3600, SELECTOR_MAX = 512 };

#define DURATION_DEFAULT_NS (15 * NS_PER_SECOND)
/* A leader whose renewal failed tries again sooner than one whose renewal went well. */
#define HURRY_NS NS_PER_SECOND
#define TIMEOUT_MIN_NS (NS_PER_SECOND / 2)

struct kube_elector {
    struct kube_lease lease; /* what others see of it */
    struct kube *kube;       /* borrowed: it outlives us */
    struct kube_lease_options options;
    char *ns, *name, *identity; /* owned */
    struct timer tick;
    struct timer expiry; /* set while leading */
    struct kube_exchange *exchange;
    struct kube_informer *watch; /* owned: sees when the lease is released */
    json *object;                /* owned: the lease as last read; NULL: not read */
    uint64_t seen_ns;            /* when its version was first seen */
    uint64_t asked_ns;           /* when the running request was made */
    bool leading;
    bool raced;   /* the last write conflicted: another replica seems to have written */
    bool hurried; /* an event arrived after the running request was made: read the lease again */
    bool releasing;
    void (*on_released)(void *ctx);
    struct loop *loop; /* borrowed */
};

/* ---- leadership -------------------------------------------------------------------------------------------------- */

static void stop_leading(struct kube_elector *l)
{
    atomic_store(&l->lease.held_until_ns, 0);
    loop_timer_cancel(l->loop, &l->expiry);
    if (!l->leading)
        return;
    l->leading = false;
    l->options.on_stopped(l->options.ctx);
}

/* The lease has our identity now. Others may take it over `duration` after they see that. We lead for a shorter time,
 * counted from the request. */
static void start_leading(struct kube_elector *l)
{
    uint64_t until = l->asked_ns + l->options.renew_deadline_ns, now = clock_boot_ns();
    if (until <= now) { /* the reply came too late */
        stop_leading(l);
        return;
    }
    atomic_store(&l->lease.held_until_ns, until);
    loop_timer_set(l->loop, &l->expiry, until - now);
    if (l->leading)
        return;
    l->leading = true;
    l->options.on_started(l->options.ctx);
}

static void expired(struct timer *t)
{
    struct kube_elector *l = container_of(t, struct kube_elector, expiry);
    if (kube_lease_is_held(&l->lease)) /* the clocks differ by a little */
        loop_timer_set(l->loop, t, kube_lease_left_ns(&l->lease) + NS_PER_MS);
    else
        stop_leading(l);
}

static struct str holder_of(const json *object)
{
    return json_member_str(json_at(object, "spec"), "holderIdentity");
}

static bool is_mine(const struct kube_elector *l)
{
    return str_eq(holder_of(l->object), str_of(l->identity));
}

/* How long the holder asks others to respect the lease. */
static uint64_t wanted_ns(const json *object)
{
    uint64_t seconds = SECONDS_MAX;
    if (json_opt_u64(object, "spec.leaseDurationSeconds", &seconds, ERR_IGNORED) < 0 || seconds > SECONDS_MAX)
        seconds = SECONDS_MAX;
    return seconds * NS_PER_SECOND;
}

/* Stores the object of the server. Its version counts, not its times, which are of another clock. */
static void saw(struct kube_elector *l, json *own_object)
{
    struct str old = json_member_str(json_at(l->object, "metadata"), "resourceVersion");
    struct str new = json_member_str(json_at(own_object, "metadata"), "resourceVersion");
    bool other_holder = !l->object || !str_eq(holder_of(l->object), holder_of(own_object));
    if (!l->object || !str_eq(old, new))
        l->seen_ns = clock_boot_ns();
    json_free(l->object);
    l->object = own_object;
    if (!is_mine(l))
        stop_leading(l);
    if (other_holder && l->options.on_leader && holder_of(own_object).len && !is_mine(l))
        l->options.on_leader(l->options.ctx, holder_of(own_object));
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void write_lease(struct kube_elector *l);

/* Waits this time from the last request: a slow reply must not delay the next renewal. */
static void tick_after(struct kube_elector *l, uint64_t wait_ns)
{
    /* Up to a tenth later, so that replicas that began together do not stay together. */
    uint64_t waited_ns = clock_boot_ns() - l->asked_ns;
    uint64_t left_ns = wait_ns > waited_ns ? wait_ns - waited_ns : 0;
    loop_timer_set(l->loop, &l->tick, l->hurried ? 0 : left_ns + clock_random() % (left_ns / 10 + 1));
}

static void ask(struct kube_elector *l, enum kube_verb verb, const json *body,
                void (*on_done)(void *ctx, struct kube_reply *r))
{
    /* Two such answers fit before the deadline, so a server that needs almost as long for each still has a leader. */
    uint64_t timeout_ns = max_u64(l->options.renew_deadline_ns / 2, TIMEOUT_MIN_NS);
    bool creates = verb == KUBE_CREATE;
    l->asked_ns = clock_boot_ns();
    l->hurried = false;
    l->exchange = kube_submit(l->kube, &(struct kube_request){.verb = verb,
                                                              .resource = &kube_leases,
                                                              .ns = str_of(l->ns),
                                                              .name = creates ? STR_NULL : str_of(l->name),
                                                              .body = body,
                                                              .exempt = true,
                                                              .timeout_ns = timeout_ns,
                                                              .ctx = l,
                                                              .on_done = on_done});
}

static void release_now(struct kube_elector *l);

static bool is_race(const struct kube_reply *r)
{
    return r->code == -ERR_CHANGED || r->code == -ERR_EXISTS;
}

/* Common end of all requests. True if the lease is being closed. */
static bool answered(struct kube_elector *l, const struct kube_reply *r)
{
    l->exchange = NULL;
    bool is_normal = r->code == 0 || r->code == -ERR_NOT_FOUND || (is_race(r) && !l->raced);
    if (!is_normal && l->options.on_error && !l->releasing)
        l->options.on_error(l->options.ctx, &r->err);
    return l->releasing;
}

static void on_read(void *ctx, struct kube_reply *r)
{
    struct kube_elector *l = ctx;
    if (answered(l, r)) {
        release_now(l);
        return;
    }
    if (r->code == -ERR_NOT_FOUND) {
        stop_leading(l); /* it was deleted: another replica may create it at any time */
        json_free(take(&l->object));
        write_lease(l);
        return;
    }
    if (r->code == 0)
        saw(l, take(&r->object));
    bool is_over =
        r->code == 0 && (is_mine(l) || !holder_of(l->object).len ||
                         clock_boot_ns() - l->seen_ns > max_u64(wanted_ns(l->object), l->options.duration_ns));
    if (is_over)
        write_lease(l);
    else
        tick_after(l, l->options.retry_ns);
}

static void on_written(void *ctx, struct kube_reply *r)
{
    struct kube_elector *l = ctx;
    if (r->code == 0) {
        saw(l, take(&r->object));
        if (!l->releasing)
            start_leading(l);
    }
    if (answered(l, r)) {
        release_now(l);
        return;
    }
    /* Another replica wrote or deleted the lease: read it. If two successive writes fail, the cause is another
     * one. */
    l->raced = is_race(r) && !l->raced;
    if (l->raced)
        ask(l, KUBE_GET, NULL, on_read);
    else
        tick_after(l, r->code < 0 && l->leading ? min_u64(HURRY_NS, l->options.retry_ns) : l->options.retry_ns);
}

static void set_time(json *spec, const char *name)
{
    char text[TIME_TEXT_MAX], micro[TIME_TEXT_MAX + 4];
    time_text(clock_wall_ns(), text);
    /* The server requires six digits. */
    snprintf(micro, sizeof micro, "%.*s000Z", (int)strlen(text) - 1, text);
    json_set_str(spec, name, str_of(micro));
}

/* Acquires or renews the lease with the version that was read: fails after a write of another replica. */
static void write_lease(struct kube_elector *l)
{
    auto_json j = l->object ? json_copy_of(l->object) : kube_object(&kube_leases, str_of(l->ns), str_of(l->name));
    uint64_t transitions = 0;
    bool exists = l->object != NULL, renews = exists && is_mine(l);
    if (json_opt_u64(j, "spec.leaseTransitions", &transitions, ERR_IGNORED) < 0)
        transitions = 0;
    if (!renews) {
        set_time(j, "spec.acquireTime");
        json_set_u64(j, "spec.leaseTransitions", exists ? transitions + 1 : 0);
    }
    json_set_str(j, "spec.holderIdentity", str_of(l->identity));
    json_set_u64(j, "spec.leaseDurationSeconds", l->options.duration_ns / NS_PER_SECOND);
    set_time(j, "spec.renewTime");
    ask(l, exists ? KUBE_REPLACE : KUBE_CREATE, j, on_written);
}

static void ticked(struct timer *t)
{
    struct kube_elector *l = container_of(t, struct kube_elector, tick);
    if (l->leading) /* if another replica wrote, this fails */
        write_lease(l);
    else
        ask(l, KUBE_GET, NULL, on_read);
}

/* ---- watch ------------------------------------------------------------------------------------------------------- */

/* Only reads the lease sooner: it is acquired by the result of that read. */
static void hurry(struct kube_elector *l)
{
    l->hurried = !l->leading;
    if (l->hurried && !l->releasing && !l->exchange)
        loop_timer_set(l->loop, &l->tick, 0);
}

static void on_changed(void *ctx, struct str, const json *object)
{
    if (!holder_of(object).len)
        hurry(ctx);
}

static void on_deleted(void *ctx, struct str, const json *)
{
    hurry(ctx);
}

static void watch(struct kube_elector *l)
{
    auto_sbuf selector = SBUF(SELECTOR_MAX);
    sbuf_addf(&selector, "metadata.name=%s", l->name);
    struct kube_informer_options o = {.resource = &kube_leases,
                                      .ns = str_of(l->ns),
                                      .field_selector = selector.ptr,
                                      .objects_max = 1,
                                      .ctx = l,
                                      .on_updated = on_changed,
                                      .on_deleted = on_deleted};
    l->watch = kube_informer_new(l->kube, &o);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void released(void *ctx, struct kube_reply *r)
{
    struct kube_elector *l = ctx;
    (void)r; /* if it failed, the lease ends by itself */
    l->exchange = NULL;
    l->on_released(l->options.ctx);
}

static void release_now(struct kube_elector *l)
{
    if (!l->object || !is_mine(l)) {
        l->on_released(l->options.ctx);
        return;
    }
    auto_json j = json_copy_of(l->object);
    json_set_str(j, "spec.holderIdentity", STR(""));
    json_set_u64(j, "spec.leaseDurationSeconds", 1);
    set_time(j, "spec.renewTime");
    ask(l, KUBE_REPLACE, j, released);
}

static void release_ticked(struct timer *t)
{
    release_now(container_of(t, struct kube_elector, tick));
}

void kube_lease_release(struct kube_lease *lease, void (*on_done)(void *ctx))
{
    struct kube_elector *l = container_of(lease, struct kube_elector, lease);
    assert(!l->releasing);
    l->releasing = true;
    l->on_released = on_done;
    stop_leading(l);
    /* Waits for the running request, which may write our name. */
    if (!l->exchange) {
        l->tick.fire = release_ticked;
        loop_timer_set(l->loop, &l->tick, 0);
    }
}

struct kube_lease *kube_lease_new(struct kube *k, const struct kube_lease_options *o)
{
    struct kube_elector *l = xcalloc(1, sizeof *l);
    assert(o->identity.len > 0 && o->identity.len <= IDENTITY_MAX);
    l->kube = k;
    l->loop = k->loop;
    l->options = *o;
    l->ns = str_dup(o->ns);
    l->name = str_dup(o->name);
    l->identity = str_dup(o->identity);
    l->options.duration_ns = max_u64(o->duration_ns ? o->duration_ns : DURATION_DEFAULT_NS, NS_PER_SECOND);
    uint64_t duration = l->options.duration_ns -= l->options.duration_ns % NS_PER_SECOND;
    l->options.renew_deadline_ns =
        min_u64(o->renew_deadline_ns ? o->renew_deadline_ns : duration * 2 / 3, duration * 9 / 10);
    l->options.retry_ns = o->retry_ns ? o->retry_ns : duration / 3;
    l->tick.fire = ticked;
    l->expiry.fire = expired;
    watch(l);
    loop_timer_set(k->loop, &l->tick, 0);
    return &l->lease;
}

void kube_lease_free(struct kube_lease *own_lease)
{
    if (!own_lease)
        return;
    struct kube_elector *l = container_of(own_lease, struct kube_elector, lease);
    loop_timer_cancel(l->loop, &l->tick);
    stop_leading(l);
    loop_timer_cancel(l->loop, &l->expiry);
    if (l->exchange)
        kube_abandon(l->exchange);
    kube_informer_free(l->watch);
    json_free(l->object);
    free(l->ns);
    free(l->name);
    free(l->identity);
    free(l);
}
