/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/queue.h"
#include "util/clock.h"
#include "util/heap.h"
#include "util/map.h"
#include "util/thread.h"
#include <pthread.h>
#include <stdio.h>

enum { THREADS_MAX = 64, KEYS_DEFAULT = 100000, KEY_BYTES_MAX = 512 };

#define BACKOFF_BASE_NS (50 * NS_PER_MS)
#define BACKOFF_CAP_NS (60 * NS_PER_SECOND)

/* A key in the heap (due or delayed), running, or both: then it is due again. */
struct queue_key {
    struct map_node node;
    uint64_t due_ns;
    uint64_t order; /* orders keys that are due at the same time */
    struct heap_node due;
    unsigned failures;
    bool running;
    size_t key_len;
    char key[];
};

struct kube_queue {
    struct kube_queue_options options;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
    uint64_t seed;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t due;   /* the top of the heap changed, or the queue stops */
    struct map keys;
    struct heap heap; /* by due_ns, then order */
    uint64_t orders;
    bool stopping;
};

/* ---- the table; under the lock ----------------------------------------------------------------------------------- */

static struct str key_of(const struct queue_key *i)
{
    return (struct str){i->key, i->key_len};
}

static struct queue_key *find_key(const struct kube_queue *q, struct str key)
{
    struct queue_key *i;
    map_foreach_hash (&q->keys, str_hash(key, q->seed), i, node)
        if (str_eq(key_of(i), key))
            return i;
    return NULL;
}

static struct queue_key *insert(struct kube_queue *q, struct str key)
{
    struct queue_key *i = xcalloc(1, sizeof *i + key.len);
    memcpy(i->key, key.ptr, key.len);
    i->key_len = key.len;
    map_add(&q->keys, &i->node, str_hash(key, q->seed));
    return i;
}

static bool is_before(const struct heap_node *x, const struct heap_node *y)
{
    const struct queue_key *a = container_of(x, struct queue_key, due), *b = container_of(y, struct queue_key, due);
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void key_free(struct kube_queue *q, struct queue_key *own_item)
{
    map_remove(&q->keys, &own_item->node);
    free(own_item);
}

/* Due at `due_ns`, or earlier if it is already due earlier. */
static void schedule(struct kube_queue *q, struct queue_key *i, uint64_t due_ns)
{
    if (i->due.place && i->due_ns <= due_ns)
        return;
    if (i->due.place)
        heap_remove(&q->heap, &i->due);
    i->due_ns = due_ns;
    i->order = q->orders++;
    heap_add(&q->heap, &i->due);
    pthread_cond_signal(&q->due);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* The next key that is due and not running; NULL when the queue stops. A running key returns to the heap only after
 * its run, so the top of the heap never runs. */
static struct queue_key *await_due(struct kube_queue *q)
{
    for (;;) {
        uint64_t now = clock_now_ns();
        if (q->stopping)
            return NULL;
        struct queue_key *top = heap_first(&q->heap, struct queue_key, due);
        if (!top) {
            pthread_cond_wait(&q->due, &q->lock);
            continue;
        }
        if (top->due_ns <= now) {
            heap_remove(&q->heap, &top->due);
            return top;
        }
        clock_cond_wait(&q->due, &q->lock, top->due_ns);
    }
}

/* During the run, due_ns is the time of the next run, if one was requested (0: none). */
static void run_one(struct kube_queue *q, struct queue_key *i)
{
    struct err err;
    uint64_t again = 0, wait = 0;
    i->running = true;
    i->due_ns = 0;
    pthread_mutex_unlock(&q->lock);
    int r = q->options.reconcile(q->options.ctx, key_of(i), &again, &err);
    if (r < 0) {
        wait = clock_backoff_half_ns(i->failures + 1, q->options.backoff_base_ns, q->options.backoff_cap_ns);
        if (q->options.on_failure)
            q->options.on_failure(q->options.ctx, key_of(i), &err, i->failures + 1, wait);
    }
    pthread_mutex_lock(&q->lock);
    uint64_t now = clock_now_ns(), wanted = i->due_ns;
    i->running = false;
    i->failures = r < 0 ? i->failures + 1 : 0;
    if (r < 0)
        schedule(q, i, now + wait);
    else if (again)
        schedule(q, i, now + again);
    if (wanted)
        schedule(q, i, wanted);
    if (!i->due.place)
        key_free(q, i);
}

static void *work(void *arg)
{
    struct kube_queue *q = arg;
    auto_lock(&q->lock);
    for (struct queue_key *i; (i = await_due(q)) != NULL;)
        run_one(q, i);
    return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool add_at(struct kube_queue *q, struct str key, uint64_t due_ns)
{
    bool taken = false;
    if (key.len == 0 || key.len > KEY_BYTES_MAX)
        return false;
    auto_lock(&q->lock);
    struct queue_key *i = find_key(q, key);
    if (!i && q->keys.count < q->options.keys_max)
        i = insert(q, key);
    if (i) {
        taken = true;
        if (!i->running)
            schedule(q, i, due_ns);
        else if (!i->due_ns || due_ns < i->due_ns)
            i->due_ns = due_ns;
    }
    return taken;
}

bool kube_queue_add(struct kube_queue *q, struct str key)
{
    return add_at(q, key, clock_now_ns());
}

bool kube_queue_add_after(struct kube_queue *q, struct str key, uint64_t delay_ns)
{
    return add_at(q, key, clock_now_ns() + delay_ns);
}

size_t kube_queue_length(struct kube_queue *q)
{
    auto_lock(&q->lock);
    return q->keys.count;
}

static struct kube_queue *queue_of(const struct kube_queue_options *o)
{
    struct kube_queue *q = xcalloc(1, sizeof *q);
    q->options = *o;
    q->options.threads = o->threads ? (unsigned)min_u64(o->threads, THREADS_MAX) : 1;
    q->options.keys_max = o->keys_max ? o->keys_max : KEYS_DEFAULT;
    q->options.backoff_base_ns = o->backoff_base_ns ? o->backoff_base_ns : BACKOFF_BASE_NS;
    q->options.backoff_cap_ns = o->backoff_cap_ns ? o->backoff_cap_ns : BACKOFF_CAP_NS;
    q->seed = clock_random();
    q->heap.is_before = is_before;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->due, NULL);
    return q;
}

int kube_queue_new(const struct kube_queue_options *o, struct kube_queue **ret, struct err *err)
{
    auto_kube_queue q = queue_of(o);
    while (q->thread_count < q->options.threads) {
        char name[16];
        snprintf(name, sizeof name, "%.11s/%u", o->name, q->thread_count % 1000);
        int r = thread_start_named(&q->threads[q->thread_count], name, work, q, err);
        if (r < 0)
            return r;
        q->thread_count++;
    }
    *ret = take(&q);
    return 0;
}

void kube_queue_stop(struct kube_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_broadcast(&q->due);
    pthread_mutex_unlock(&q->lock);
    while (q->thread_count > 0)
        pthread_join(q->threads[--q->thread_count], NULL);
}

void kube_queue_free(struct kube_queue *q)
{
    if (!q)
        return;
    kube_queue_stop(q);
    struct queue_key *i;
    map_foreach (&q->keys, i, node)
        key_free(q, i);
    map_done(&q->keys);
    heap_done(&q->heap);
    pthread_cond_destroy(&q->due);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
