/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the next work, and detects the end of the run. */
#include "private.h"

enum { ACTIVE_MAX = 128 }; /* files open at once */

void run_transfer_ended(struct transfer *l)
{
    struct upload *u = l->owner;
    struct export_run *r = u->run;
    upload_answer(u, l);
    run_return_transfer(r, l);
    run_again(r);
}

static bool take_due(struct export_run *r, size_t *ret_file)
{
    struct waiting_file *w = heap_first(&r->waiting, struct waiting_file, node);
    if (!w || w->due_ns > loop_now_ns(r->home))
        return false;
    *ret_file = w->file;
    heap_remove(&r->waiting, &w->node);
    free(w);
    return true;
}

static bool take_next(struct export_run *r, size_t *ret_file)
{
    while (r->next_file < r->plan.count) {
        size_t i = r->next_file++;
        const struct pick_file *f = &r->plan.files[i];
        if (f->chosen && !f->sent && !checkpoint_is_marker(r, i)) {
            *ret_file = i;
            return true;
        }
    }
    return false;
}

static bool start_something(struct export_run *r)
{
    size_t file;
    if (r->active_count >= ACTIVE_MAX || r->stop.gave_up)
        return false;
    if (checkpoint_withdraw_next(r))
        return true;
    if (r->markers.withdrawals > 0)
        return false;
    if (r->markers.ready_count > 0)
        checkpoint_start_marker(r, r->markers.ready[--r->markers.ready_count]);
    else if (take_due(r, &file) || take_next(r, &file))
        run_start_file(r, file);
    else
        return false;
    return true;
}

static bool feed_all(struct export_run *r)
{
    struct upload *u;
    list_foreach (&r->active, u, in_active)
        if (!upload_feed(u))
            return false;
    return true;
}

static void set_wake(struct export_run *r)
{
    uint64_t now = loop_now_ns(r->home);
    const struct waiting_file *w = heap_first(&r->waiting, struct waiting_file, node);
    if (w)
        loop_timer_set(r->home, &r->wake, w->due_ns > now ? w->due_ns - now : 0);
}

static void leave_idle(struct export_run *r)
{
    struct upload *u;
    list_foreach (&r->active, u, in_active)
        if (u->in_flight == 0)
            run_file_left(u);
}

static bool is_over(const struct export_run *r)
{
    bool stopping = atomic_load(&r->stop.requested);
    if (!list_is_empty(&r->active) || r->transfers.out > 0 || r->stop.orders_left > 0 || (stopping && !r->stop.sent))
        return false;
    return stopping || r->stop.gave_up ||
           (r->next_file == r->plan.count && r->waiting.count == 0 && r->markers.ready_count == 0);
}

static void end(struct export_run *r)
{
    loop_timer_cancel(r->home, &r->wake);
    loop_timer_cancel(r->home, &r->deadline);
    loop_unwatch(r->home, &r->leases);
    pthread_mutex_lock(&r->lock);
    r->ended = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock); /* from here on the owner may free r */
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

static void order_back(struct mail *m)
{
    struct export_run *r = container_of(m, struct stop_order, mail)->run;
    r->stop.orders_left--;
    run_again(r);
}

static void order_there(struct mail *m)
{
    struct stop_order *order = container_of(m, struct stop_order, mail);
    struct export_run *r = order->run;
    for (size_t i = 0; i < r->transfers.count; i++)
        if (r->transfers.all[i].worker == order->worker)
            transfer_stop(&r->transfers.all[i]);
    order->mail.deliver = order_back;
    loop_post(r->home, &order->mail);
}

static void stop_asked(struct mail *m)
{
    struct export_run *r = container_of(m, struct export_run, stop.mail);
    r->stop.orders_left = r->o.worker_count;
    r->stop.sent = true;
    for (size_t i = 0; i < r->o.worker_count; i++) {
        struct stop_order *order = &r->stop.orders[i];
        *order = (struct stop_order){.run = r, .worker = &r->o.workers[i], .mail = {.deliver = order_there}};
        loop_post(order->worker->loop, &order->mail);
    }
}

void run_stop(struct export_run *r)
{
    if (atomic_exchange(&r->stop.requested, true))
        return;
    r->stop.mail.deliver = stop_asked;
    loop_post(r->home, &r->stop.mail);
}

/* ---- the pump --------------------------------------------------------------------------------------------------- */

void run_pump(struct deferred *t)
{
    struct export_run *r = container_of(t, struct export_run, pump);
    if (r->stop.is_refused)
        run_stop(r);
    if (atomic_load(&r->stop.requested)) {
        leave_idle(r);
    } else {
        bool more = feed_all(r);
        while (more && start_something(r))
            more = feed_all(r);
        set_wake(r);
    }
    if (is_over(r))
        end(r);
}
