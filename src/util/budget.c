/* SPDX-License-Identifier: Apache-2.0 */
#include "util/budget.h"
#include "util/str.h"
#include "util/thread.h"
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* More than any machine has. The state of each slice is small beside the slice. */
#define BYTES_MAX (UINT64_C(4) << 40)

enum { HUGE_PAGE = 2 << 20, CELL_SHIFT_MAX = 6 };

/* A slice, cut into 1 << shift cells of one size. With `shift` 0 it is one cell, or free. */
struct budget_slice {
    struct list_node node; /* of .free, or of .partly_free while it has a free cell */
    uint64_t free;         /* a bit a cell */
    unsigned shift;
};

/* A running call of `wake`, without the lock. Only the waiter's address is used: the waiter may be freed by then. */
struct budget_wake {
    struct list_node node;
    const struct budget_waiter *w;
};

struct budget {
    unsigned char *mapped; /* owned */
    size_t mapped_bytes;
    unsigned char *slices; /* in `mapped`, aligned to a huge page */
    size_t count;
    pthread_mutex_t lock;        /* of everything below */
    pthread_cond_t woken;        /* an entry left `wakes` */
    struct budget_slice *states; /* owned: of every slice */
    struct list free;            /* whole slices; the first was returned last, so it is in the caches */
    size_t free_count;
    struct list partly_free[CELL_SHIFT_MAX + 1]; /* slices of each shift */
    struct list waiters, wakes;                  /* struct budget_waiter, struct budget_wake */
};

static int no_memory(uint64_t bytes, struct err *err)
{
    err_sys(err, ENOMEM, "cannot allocate %" PRIu64 " bytes of buffers", bytes);
    return err_advise(err, CIS_BUFFER_MEMORY);
}

int budget_default(uint64_t limit, uint64_t limit_min, uint64_t most, uint64_t *ret, struct err *err)
{
    char has[BYTES_TEXT_MAX], least[BYTES_TEXT_MAX];
    if (limit < limit_min)
        return err_fail(err, ERR_NO_SPACE, CIS_BUFFER_MEMORY,
                        "the control group of this process has %s of memory, and %s are needed", bytes_text(limit, has),
                        bytes_text(limit_min, least));
    *ret = min_u64(limit / 4, most);
    return 0;
}

int budget_new(uint64_t bytes, struct budget **ret, struct err *err)
{
    if (bytes > BYTES_MAX)
        return no_memory(bytes, err);
    size_t count = bytes < SLICE_BYTES ? 1 : (size_t)(bytes / SLICE_BYTES);
    size_t mapped_bytes = count * SLICE_BYTES + HUGE_PAGE;
    void *p = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return no_memory(bytes, err);
    struct budget *b = *ret = xcalloc(1, sizeof *b);
    b->count = count;
    b->mapped_bytes = mapped_bytes;
    b->mapped = p;
    b->slices = (unsigned char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    /* Optional: with huge pages a slice costs at most one page fault instead of 256. */
    (void)madvise(b->slices, b->count * SLICE_BYTES, MADV_HUGEPAGE);
    b->states = xcalloc(b->count, sizeof *b->states);
    for (; b->free_count < b->count; b->free_count++)
        list_add(&b->free, &b->states[b->free_count].node);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->woken, NULL);
    return 0;
}

void budget_free(struct budget *b)
{
    if (!b)
        return;
    assert(b->free_count == b->count && list_is_empty(&b->waiters));
    munmap(b->mapped, b->mapped_bytes);
    pthread_cond_destroy(&b->woken);
    pthread_mutex_destroy(&b->lock);
    free(b->states);
    free(b);
}

/* ---- slices and cells: under the lock ---------------------------------------------------------------------------- */

static uint64_t all_cells(unsigned shift)
{
    return shift == CELL_SHIFT_MAX ? UINT64_MAX : (UINT64_C(1) << (1u << shift)) - 1;
}

static unsigned shift_for(size_t bytes)
{
    unsigned shift = 0;
    while (shift < CELL_SHIFT_MAX && bytes <= (size_t)SLICE_BYTES >> (shift + 1))
        shift++;
    return shift;
}

static void *take_memory(struct budget *b, size_t bytes)
{
    unsigned shift = shift_for(bytes);
    struct budget_slice *s = shift ? list_first(&b->partly_free[shift], struct budget_slice, node) : NULL;
    if (!s && b->free_count == 0)
        return NULL;
    if (!s) {
        s = list_pop(&b->free, struct budget_slice, node);
        b->free_count--;
        s->free = all_cells(shift);
        s->shift = shift;
        if (shift)
            list_add_first(&b->partly_free[shift], &s->node);
    }
    unsigned cell = shift ? (unsigned)__builtin_ctzll(s->free) : 0;
    s->free &= ~(UINT64_C(1) << cell);
    if (shift && s->free == 0)
        list_remove(&b->partly_free[shift], &s->node);
    return b->slices + (size_t)(s - b->states) * SLICE_BYTES + cell * ((size_t)SLICE_BYTES >> shift);
}

static void return_memory(struct budget *b, void *memory)
{
    size_t at = (size_t)((unsigned char *)memory - b->slices);
    assert(at / SLICE_BYTES < b->count);
    struct budget_slice *s = &b->states[at / SLICE_BYTES];
    uint64_t cell = UINT64_C(1) << (at % SLICE_BYTES / ((size_t)SLICE_BYTES >> s->shift));
    assert(!(s->free & cell));
    if (s->shift && s->free == 0)
        list_add_first(&b->partly_free[s->shift], &s->node);
    s->free |= cell;
    if (s->free != all_cells(s->shift))
        return;
    if (s->shift)
        list_remove(&b->partly_free[s->shift], &s->node);
    s->shift = 0;
    s->free = 1;
    list_add_first(&b->free, &s->node);
    b->free_count++;
}

/* ---- waiters ----------------------------------------------------------------------------------------------------- */

static void dequeue(struct budget *b, struct budget_waiter *w)
{
    list_remove(&b->waiters, &w->node);
    w->queued = false;
}

void *budget_take(struct budget *b, size_t bytes, struct budget_waiter *w)
{
    void *memory = NULL;
    assert(bytes <= SLICE_BYTES);
    auto_lock(&b->lock);
    if (w)
        w->bytes = bytes;
    if (w && w->granted)
        memory = take(&w->granted);
    else if (list_is_empty(&b->waiters)) /* waiters come first */
        memory = take_memory(b, bytes);
    if (!memory && w && !w->queued) {
        list_add(&b->waiters, &w->node);
        w->queued = true;
    }
    return memory;
}

/* Reserves memory for the first waiter if there is enough; `entry` is then in `wakes`. */
static struct budget_waiter *grant(struct budget *b, struct budget_wake *entry)
{
    struct budget_waiter *w = list_first(&b->waiters, struct budget_waiter, node);
    void *memory = w ? take_memory(b, w->bytes) : NULL;
    if (!memory)
        return NULL;
    dequeue(b, w);
    w->granted = memory;
    entry->w = w;
    list_add(&b->wakes, &entry->node);
    return w;
}

static void end_waking(struct budget *b, struct budget_wake *entry)
{
    auto_lock(&b->lock);
    list_remove(&b->wakes, &entry->node);
    pthread_cond_broadcast(&b->woken);
}

/* One request at a time, until none fits: a returned slice may be enough for several small ones. */
static void grant_all(struct budget *b)
{
    for (;;) {
        struct budget_wake entry;
        pthread_mutex_lock(&b->lock);
        struct budget_waiter *w = grant(b, &entry);
        pthread_mutex_unlock(&b->lock);
        if (!w)
            return;
        w->wake(w);
        end_waking(b, &entry);
    }
}

void budget_return(struct budget *b, void *own_memory)
{
    pthread_mutex_lock(&b->lock);
    return_memory(b, own_memory);
    bool wanted = !list_is_empty(&b->waiters);
    pthread_mutex_unlock(&b->lock);
    if (wanted)
        grant_all(b);
}

static bool is_waking(const struct budget *b, const struct budget_waiter *w)
{
    struct budget_wake *i;
    list_foreach (&b->wakes, i, node)
        if (i->w == w)
            return true;
    return false;
}

void budget_cancel(struct budget *b, struct budget_waiter *w)
{
    pthread_mutex_lock(&b->lock);
    while (is_waking(b, w))
        pthread_cond_wait(&b->woken, &b->lock);
    if (w->queued)
        dequeue(b, w);
    if (w->granted)
        return_memory(b, take(&w->granted));
    pthread_mutex_unlock(&b->lock);
    grant_all(b);
}

uint64_t budget_bytes_out(struct budget *b)
{
    auto_lock(&b->lock);
    return (uint64_t)(b->count - b->free_count) * SLICE_BYTES;
}
