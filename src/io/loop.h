/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - one thread: epoll, timers, a mailbox.
 * home: the thread that loop_start() makes; functions say so where any other thread may call them.
 *
 * Threads exchange mail. A mail is a field of a larger struct, so posting neither allocates nor fails. Each struct has
 * one mail, which limits the mailbox. A posted mail belongs to the loop until it is delivered. A post wakes the loop
 * only if the mailbox was empty. The loop detaches the batch under the lock and delivers it without the lock. */
#pragma once

#include "util/clock.h"
#include "util/err.h"
#include "util/heap.h"
#include "util/list.h"
#include "util/macro.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;

enum { LOOP_NAME_MAX = 16 };

struct mail {
    struct list_node node; /* the loop's */
    void (*deliver)(struct mail *m);
};

struct timer {
    void (*fire)(struct timer *t);
    uint64_t due_ns;       /* the loop's; 0 while not set */
    struct heap_node node; /* the loop's */
};

struct watch {
    void (*ready)(struct watch *w, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP */
    int fd;                                          /* borrowed */
    uint32_t events;
};

/* Work for the end of the turn: submissions to the kernel and starts of requests leave in one batch. */
struct deferred {
    struct list_node node; /* the loop's */
    bool queued;           /* the loop's */
    void (*run)(struct deferred *t);
};

/* `name` is the thread's, at most 15 bytes: "loop/0". Nothing runs before loop_start. */
must_check int loop_new(const char *name, struct loop **ret, struct err *err);
must_check int loop_start(struct loop *l, struct err *err);

/* Any thread. The loop ends after the current batch; mail posted later is delivered by loop_free, on the caller's
 * thread, so that no message is lost. loop_stop_and_join may not be called from the loop itself. */
void loop_stop_and_join(struct loop *l);
void loop_free(struct loop *l); /* NULL is fine; stops and joins first */
DEFINE_AUTO(loop, struct loop, loop_free)
#define auto_loop auto_with(auto_clean_loop) struct loop *

/* Any thread. */
void loop_post(struct loop *l, struct mail *m);

/* Any thread. Has one of the loops of this process not begun a turn within `limit_ns` of an earlier call? ret_name: its
 * thread's. */
bool loop_find_stuck(uint64_t limit_ns, char ret_name[LOOP_NAME_MAX]);

/* Is the caller on this loop's thread? For assertions. True on any thread while the loop does not run. */
bool loop_is_mine(const struct loop *l);

/* The loop's own thread, or any before loop_start. */
uint64_t loop_now_ns(const struct loop *l); /* read once a turn: time is taken from the loop, never passed down */
/* Calls t->run once, after the events, mail and timers of this turn and before the loop sleeps; queued already is
 * fine. Work that `run` itself queues runs in the next turn, which then does not sleep. */
void loop_defer(struct loop *l, struct deferred *t);
void loop_defer_cancel(struct loop *l, struct deferred *t);              /* not queued is fine */
void loop_timer_set(struct loop *l, struct timer *t, uint64_t delay_ns); /* sets again if it is set */
void loop_timer_cancel(struct loop *l, struct timer *t);                 /* not set is fine */
must_check int loop_watch(struct loop *l, struct watch *w, struct err *err);
must_check int loop_watch_change(struct loop *l, struct watch *w, uint32_t events, struct err *err);
/* `ready` is not called after this, not even in this turn. False: the descriptor was closed already. */
bool loop_unwatch(struct loop *l, struct watch *w);
