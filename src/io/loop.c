/* SPDX-License-Identifier: Apache-2.0 */
#include "io/loop.h"
#include "util/clock.h"
#include "util/str.h"
#include "util/thread.h"
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* One epoll_wait returns at most this many events: enough to amortise the call, few enough for unwatch to search. */
enum { EVENTS_MAX = 128 };

struct loop {
    char name[LOOP_NAME_MAX];
    int epoll_fd;
    int wake_fd;
    struct watch wake;
    pthread_t thread;
    _Atomic pthread_t self; /* written by the thread: pthread_create may return after the thread has begun */
    _Atomic bool running;   /* between start and join */
    _Atomic bool stopping;
    uint64_t now_ns;
    struct list_node in_started;
    _Atomic uint64_t asked_ns; /* loop_find_stuck() has woken it; 0: a turn has begun since */

    pthread_mutex_t lock; /* guards mail */
    struct list mail;
    struct list deferred;

    struct heap timers;

    struct epoll_event events[EVENTS_MAX];
    int event_at; /* the batch being dispatched, for unwatch */
    int event_count;
};

static struct {
    pthread_mutex_t lock; /* guards `all` */
    struct list all;
} started = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void loop_deliver(struct loop *l);

static void woken(struct watch *w, uint32_t)
{
    struct loop *l = container_of(w, struct loop, wake);
    uint64_t count;
    /* Read before the delivery: mail that is posted in between finds an empty mailbox and writes again. */
    (void)!read(l->wake_fd, &count, sizeof count);
    loop_deliver(l);
}

static bool is_earlier(const struct heap_node *a, const struct heap_node *b)
{
    return container_of(a, struct timer, node)->due_ns < container_of(b, struct timer, node)->due_ns;
}

int loop_new(const char *name, struct loop **ret, struct err *err)
{
    auto_loop l = xcalloc(1, sizeof *l);
    snprintf(l->name, sizeof l->name, "%s", name);
    pthread_mutex_init(&l->lock, NULL);
    l->now_ns = clock_now_ns();
    l->timers.is_before = is_earlier;
    l->wake_fd = -1;
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0)
        return err_sys(err, errno, "cannot make an epoll set for thread '%s'", name);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake_fd < 0)
        return err_sys(err, errno, "cannot make an eventfd for thread '%s'", name);
    l->wake = (struct watch){.ready = woken, .fd = l->wake_fd, .events = EPOLLIN};
    int r = loop_watch(l, &l->wake, err);
    if (r < 0)
        return r;
    *ret = take(&l);
    return 0;
}

/* ---- mail -------------------------------------------------------------------------------------------------------- */

/* Fails only if the counter is full, and then the loop is awake anyway. */
static void wake(struct loop *l)
{
    (void)!write(l->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void loop_post(struct loop *l, struct mail *m)
{
    pthread_mutex_lock(&l->lock);
    bool was_empty = list_is_empty(&l->mail);
    list_add(&l->mail, &m->node);
    pthread_mutex_unlock(&l->lock);
    if (was_empty)
        wake(l);
}

static void loop_deliver(struct loop *l)
{
    struct mail *m;
    pthread_mutex_lock(&l->lock);
    struct list batch = l->mail;
    l->mail = (struct list){0};
    pthread_mutex_unlock(&l->lock);
    while ((m = list_pop(&batch, struct mail, node)) != NULL)
        m->deliver(m); /* may free it */
}

/* ---- deferred work ----------------------------------------------------------------------------------------------- */

void loop_defer(struct loop *l, struct deferred *t)
{
    assert(loop_is_mine(l));
    if (t->queued)
        return;
    t->queued = true;
    list_add(&l->deferred, &t->node);
}

void loop_defer_cancel(struct loop *l, struct deferred *t)
{
    assert(loop_is_mine(l));
    if (!t->queued)
        return;
    list_remove(&l->deferred, &t->node);
    t->queued = false;
}

/* Runs only the work that is queued at the start: work that queues itself again must not block events. Work stays in
 * the list until it runs, so that other work may cancel it. */
static void loop_run_deferred(struct loop *l)
{
    struct deferred *t, fence = {.queued = true};
    list_add(&l->deferred, &fence.node);
    while ((t = list_first(&l->deferred, struct deferred, node)) != &fence) {
        loop_defer_cancel(l, t);
        t->run(t);
    }
    loop_defer_cancel(l, &fence);
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

void loop_timer_cancel(struct loop *l, struct timer *t)
{
    assert(loop_is_mine(l));
    if (t->due_ns == 0)
        return;
    t->due_ns = 0;
    heap_remove(&l->timers, &t->node);
}

void loop_timer_set(struct loop *l, struct timer *t, uint64_t delay_ns)
{
    assert(loop_is_mine(l));
    loop_timer_cancel(l, t);
    if (__builtin_add_overflow(l->now_ns, delay_ns, &t->due_ns))
        t->due_ns = UINT64_MAX;
    heap_add(&l->timers, &t->node);
}

/* Due before `now`, or at it; NULL: none. */
static struct timer *due_timer(const struct loop *l, uint64_t now)
{
    struct timer *t = heap_first(&l->timers, struct timer, node);
    return t && t->due_ns <= now ? t : NULL;
}

/* Fires at most as many timers as are set now, so that a timer that sets itself without delay cannot block events. */
static void loop_fire(struct loop *l)
{
    uint64_t now = l->now_ns;
    struct timer *t;
    for (size_t left = l->timers.count; left > 0 && (t = due_timer(l, now)) != NULL; left--) {
        loop_timer_cancel(l, t);
        t->fire(t);
    }
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int control(struct loop *l, int op, struct watch *w, struct err *err)
{
    struct epoll_event e = {.events = w->events, .data.ptr = w};
    if (epoll_ctl(l->epoll_fd, op, w->fd, &e) < 0)
        return err_sys(err, errno, "thread '%s' cannot watch descriptor %d", l->name, w->fd);
    return 0;
}

int loop_watch(struct loop *l, struct watch *w, struct err *err)
{
    assert(loop_is_mine(l));
    return control(l, EPOLL_CTL_ADD, w, err);
}

int loop_watch_change(struct loop *l, struct watch *w, uint32_t events, struct err *err)
{
    assert(loop_is_mine(l));
    w->events = events;
    return control(l, EPOLL_CTL_MOD, w, err);
}

bool loop_unwatch(struct loop *l, struct watch *w)
{
    assert(loop_is_mine(l));
    bool was_watched = control(l, EPOLL_CTL_DEL, w, ERR_IGNORED) == 0; /* close() takes it out of the set */
    for (int i = l->event_at; i < l->event_count; i++)
        if (l->events[i].data.ptr == w)
            l->events[i].data.ptr = NULL;
    return was_watched;
}

static void loop_dispatch(struct loop *l, int count)
{
    l->event_count = count;
    for (l->event_at = 0; l->event_at < l->event_count;) {
        struct epoll_event e = l->events[l->event_at++];
        struct watch *w = e.data.ptr;
        if (w)
            w->ready(w, e.events);
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Rounded up: a loop that wakes too early would only turn again. */
static int loop_sleep_ms(const struct loop *l)
{
    if (!list_is_empty(&l->deferred))
        return 0;
    const struct timer *next = heap_first(&l->timers, struct timer, node);
    if (!next)
        return -1;
    uint64_t now = clock_now_ns();
    return next->due_ns <= now ? 0 : (int)min_u64((next->due_ns - now + NS_PER_MS - 1) / NS_PER_MS, INT_MAX);
}

static void *loop_run(void *arg)
{
    struct loop *l = arg;
    l->self = pthread_self();
    while (!atomic_load_explicit(&l->stopping, memory_order_acquire)) {
        int n = epoll_wait(l->epoll_fd, l->events, EVENTS_MAX, loop_sleep_ms(l));
        assert(n >= 0 || errno == EINTR);
        l->now_ns = clock_now_ns();
        atomic_store_explicit(&l->asked_ns, 0, memory_order_relaxed);
        loop_dispatch(l, n);
        loop_fire(l);
        loop_run_deferred(l);
    }
    return NULL;
}

int loop_start(struct loop *l, struct err *err)
{
    assert(!l->running);
    l->running = true;
    l->asked_ns = 0;
    int r = thread_start_named(&l->thread, l->name, loop_run, l, err);
    if (r < 0) {
        l->running = false;
        return r;
    }
    auto_lock(&started.lock);
    list_add(&started.all, &l->in_started);
    return 0;
}

bool loop_is_mine(const struct loop *l)
{
    return !l->running || pthread_equal(l->self, pthread_self());
}

uint64_t loop_now_ns(const struct loop *l)
{
    return l->now_ns;
}

bool loop_find_stuck(uint64_t limit_ns, char ret_name[LOOP_NAME_MAX])
{
    struct loop *l;
    auto_lock(&started.lock);
    uint64_t now_ns = clock_now_ns();
    list_foreach (&started.all, l, in_started) {
        uint64_t asked_ns = atomic_load_explicit(&l->asked_ns, memory_order_relaxed);
        if (asked_ns && now_ns - asked_ns > limit_ns) {
            memcpy(ret_name, l->name, sizeof l->name);
            return true;
        }
        if (!asked_ns) {
            atomic_store_explicit(&l->asked_ns, now_ns, memory_order_relaxed);
            wake(l);
        }
    }
    return false;
}

void loop_stop_and_join(struct loop *l)
{
    if (!l->running)
        return;
    assert(!loop_is_mine(l));
    atomic_store_explicit(&l->stopping, true, memory_order_release);
    wake(l);
    pthread_join(l->thread, NULL);
    pthread_mutex_lock(&started.lock);
    list_remove(&started.all, &l->in_started);
    pthread_mutex_unlock(&started.lock);
    l->running = false;
    l->stopping = false;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    loop_stop_and_join(l);
    while (!list_is_empty(&l->mail)) /* a delivery may post again */
        loop_deliver(l);
    fd_close(&l->wake_fd);
    fd_close(&l->epoll_fd);
    pthread_mutex_destroy(&l->lock);
    heap_done(&l->timers);
    free(l);
}
