/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/queue.h"
#include "util/clock.h"
#include "util/thread.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS_MAX = 64, KEYS_DEFAULT = 100000, KEY_BYTES_MAX = 512, BUCKETS_FIRST = 64 };

#define BACKOFF_BASE_NS (50 * NS_PER_MS)
#define BACKOFF_CAP_NS (60 * NS_PER_SECOND)
#define NOT_IN_HEAP SIZE_MAX

/* A key that is known: in the heap (due, or delayed), running, or both: then it is due again. */
struct item {
    struct item *next; /* of the same bucket */
    uint64_t hash;
    uint64_t due_ns;
    uint64_t order; /* of those due at the same time */
    size_t slot;    /* in the heap; NOT_IN_HEAP */
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
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t due;   /* the heap's top changed, or it stops */
    struct item **buckets;
    size_t bucket_count, count;
    struct item **heap; /* by due_ns, then order */
    size_t heap_count, heap_room;
    uint64_t orders;
    bool stopping;
};

/* ---- the table; under the lock ----------------------------------------------------------------------------------- */

static struct str key_of(const struct item *i)
{
    return (struct str){i->key, i->key_len};
}

static struct item *find(const struct kube_queue *q, struct str key, uint64_t h)
{
    struct item *i = q->buckets[h % q->bucket_count];
    while (i && (i->hash != h || !str_eq(key_of(i), key)))
        i = i->next;
    return i;
}

static void grow(struct kube_queue *q)
{
    size_t room = 2 * q->bucket_count;
    struct item **buckets = xcalloc(room, sizeof(struct item *));
    for (size_t b = 0; b < q->bucket_count; b++)
        for (struct item *i = q->buckets[b], *next; i; i = next) {
            next = i->next;
            i->next = buckets[i->hash % room];
            buckets[i->hash % room] = i;
        }
    free(q->buckets);
    q->buckets = buckets;
    q->bucket_count = room;
}

static struct item *insert(struct kube_queue *q, struct str key, uint64_t h)
{
    if (q->count >= q->bucket_count)
        grow(q);
    struct item *i = xcalloc(1, sizeof *i + key.len);
    memcpy(i->key, key.ptr, key.len);
    i->key_len = key.len;
    i->hash = h;
    i->slot = NOT_IN_HEAP;
    i->next = q->buckets[h % q->bucket_count];
    q->buckets[h % q->bucket_count] = i;
    q->count++;
    return i;
}

static void forget(struct kube_queue *q, struct item *own_item)
{
    struct item **at = &q->buckets[own_item->hash % q->bucket_count];
    while (*at != own_item)
        at = &(*at)->next;
    *at = own_item->next;
    q->count--;
    free(own_item);
}

/* ---- the heap; under the lock ------------------------------------------------------------------------------------ */

static bool is_before(const struct item *a, const struct item *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void place(struct kube_queue *q, struct item *i, size_t slot)
{
    q->heap[slot] = i;
    i->slot = slot;
}

static void sift(struct kube_queue *q, struct item *i, size_t slot)
{
    for (; slot > 0 && is_before(i, q->heap[(slot - 1) / 2]); slot = (slot - 1) / 2)
        place(q, q->heap[(slot - 1) / 2], slot);
    for (size_t child; (child = 2 * slot + 1) < q->heap_count; slot = child) {
        if (child + 1 < q->heap_count && is_before(q->heap[child + 1], q->heap[child]))
            child++;
        if (!is_before(q->heap[child], i))
            break;
        place(q, q->heap[child], slot);
    }
    place(q, i, slot);
}

static void take_out(struct kube_queue *q, struct item *i)
{
    size_t slot = i->slot;
    struct item *last = q->heap[--q->heap_count];
    i->slot = NOT_IN_HEAP;
    if (last != i)
        sift(q, last, slot);
}

/* Due at `due_ns`, or earlier if it is already due earlier. */
static void schedule(struct kube_queue *q, struct item *i, uint64_t due_ns)
{
    if (i->slot != NOT_IN_HEAP && i->due_ns <= due_ns)
        return;
    if (i->slot == NOT_IN_HEAP) {
        if (q->heap_count == q->heap_room) {
            q->heap_room = q->heap_room ? 2 * q->heap_room : 64;
            q->heap = xrealloc(q->heap, q->heap_room, sizeof(struct item *));
        }
        i->slot = q->heap_count++;
    }
    i->due_ns = due_ns;
    i->order = q->orders++;
    sift(q, i, i->slot);
    pthread_cond_signal(&q->due);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* The next key whose time has come and that no thread works on; NULL when it stops. One that runs comes back to the
 * heap only when its run has ended, so the top is always free to be taken. */
static struct item *await_due(struct kube_queue *q)
{
    for (;;) {
        uint64_t now = clock_now_ns();
        if (q->stopping)
            return NULL;
        if (q->heap_count == 0) {
            pthread_cond_wait(&q->due, &q->lock);
            continue;
        }
        struct item *top = q->heap[0];
        if (top->due_ns <= now) {
            take_out(q, top);
            return top;
        }
        clock_cond_wait(&q->due, &q->lock, top->due_ns);
    }
}

/* While it runs, due_ns of an item says when it is wanted again (0: not). */
static void run_one(struct kube_queue *q, struct item *i)
{
    struct err err;
    uint64_t again = 0, wait = 0;
    i->running = true;
    i->due_ns = 0;
    pthread_mutex_unlock(&q->lock);
    int r = q->options.reconcile(q->options.ctx, key_of(i), &again, &err);
    if (r < 0) {
        /* Never at once: half the span is certain, the rest is jitter. */
        uint64_t span = clock_backoff_ns(i->failures + 1, q->options.backoff_base_ns, q->options.backoff_cap_ns);
        uint64_t least = q->options.backoff_base_ns << min_u64(i->failures, 20);
        wait = min_u64(least, q->options.backoff_cap_ns) / 2 + span / 2;
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
    if (i->slot == NOT_IN_HEAP)
        forget(q, i);
}

struct worker_arg {
    struct kube_queue *queue;
    unsigned number;
};

static void *work(void *arg)
{
    struct worker_arg *a = arg;
    struct kube_queue *q = a->queue;
    char name[16];
    snprintf(name, sizeof name, "%.11s/%u", q->options.name, a->number % 1000);
    pthread_setname_np(pthread_self(), name);
    free(a);
    pthread_mutex_lock(&q->lock);
    for (struct item *i; (i = await_due(q)) != NULL;)
        run_one(q, i);
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool add_at(struct kube_queue *q, struct str key, uint64_t due_ns)
{
    bool taken = false;
    uint64_t h = str_hash(key, q->seed);
    if (key.len == 0 || key.len > KEY_BYTES_MAX)
        return false;
    pthread_mutex_lock(&q->lock);
    struct item *i = find(q, key, h);
    if (!i && q->count < q->options.keys_max)
        i = insert(q, key, h);
    if (i) {
        taken = true;
        if (!i->running)
            schedule(q, i, due_ns);
        else if (!i->due_ns || due_ns < i->due_ns)
            i->due_ns = due_ns;
    }
    pthread_mutex_unlock(&q->lock);
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
    pthread_mutex_lock(&q->lock);
    size_t count = q->count;
    pthread_mutex_unlock(&q->lock);
    return count;
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
    q->bucket_count = BUCKETS_FIRST;
    q->buckets = xcalloc(BUCKETS_FIRST, sizeof(struct item *));
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->due, NULL);
    return q;
}

int kube_queue_new(const struct kube_queue_options *o, struct kube_queue **ret, struct err *err)
{
    auto_kube_queue q = queue_of(o);
    while (q->thread_count < q->options.threads) {
        struct worker_arg *a = xcalloc(1, sizeof *a);
        *a = (struct worker_arg){.queue = q, .number = q->thread_count};
        int r = thread_start(&q->threads[q->thread_count], work, a);
        if (r != 0) {
            free(a);
            return err_sys(err, r, "cannot start a thread of the queue '%s'", o->name);
        }
        q->thread_count++;
    }
    *ret = take(&q);
    return 0;
}

void kube_queue_free(struct kube_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_broadcast(&q->due);
    pthread_mutex_unlock(&q->lock);
    for (unsigned i = 0; i < q->thread_count; i++)
        pthread_join(q->threads[i], NULL);
    for (size_t b = 0; b < q->bucket_count; b++)
        while (q->buckets[b])
            forget(q, q->buckets[b]);
    free(q->buckets);
    free(q->heap);
    pthread_cond_destroy(&q->due);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
