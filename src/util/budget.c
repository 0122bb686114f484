/* SPDX-License-Identifier: Apache-2.0 */
#include "util/budget.h"
#include "util/str.h"
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* More than any machine has, and little enough that what is kept of each slice is nothing beside it. */
#define BYTES_MAX (UINT64_C(4) << 40)

enum { HUGE_PAGE = 2 << 20, CELL_SHIFT_MAX = 6, NO_SLICE = UINT32_MAX };

/* A slice that is cut into 1 << shift cells of one size. With `shift` 0 it is given whole, or free. */
struct cut {
    uint64_t free; /* a bit a cell */
    unsigned shift;
    uint32_t prev, next; /* of those of this shift that have a free cell */
};

/* A wake that is under way, without the lock. Known by the waiter's address alone: the waiter may be gone by then. */
struct waking {
    struct waking *next;
    const struct budget_waiter *w;
};

struct budget {
    unsigned char *mapped; /* owned */
    size_t mapped_bytes;
    unsigned char *slices; /* in `mapped`, aligned to a huge page */
    size_t count;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t woken; /* an entry left `wakings` */
    uint32_t *free;       /* owned; a stack: the slice last given back is the warmest */
    size_t free_count;
    struct cut *cuts;                    /* owned: of every slice */
    uint32_t partly[CELL_SHIFT_MAX + 1]; /* the first slice of each shift that has a free cell */
    struct budget_waiter *first, *last;
    struct waking *wakings;
};

static int too_much(uint64_t bytes, struct err *err)
{
    err_sys(err, ENOMEM, "cannot have %" PRIu64 " bytes of buffers", bytes);
    return err_advise(err, 1516, "ask for less memory, or raise the limit of this process (ulimit -v)");
}

int budget_new(uint64_t bytes, struct budget **ret, struct err *err)
{
    if (bytes > BYTES_MAX)
        return too_much(bytes, err);
    size_t count = bytes < SLICE_BYTES ? 1 : (size_t)(bytes / SLICE_BYTES);
    size_t mapped_bytes = count * SLICE_BYTES + HUGE_PAGE;
    void *p = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return too_much(bytes, err);
    struct budget *b = *ret = xcalloc(1, sizeof *b);
    b->count = count;
    b->mapped_bytes = mapped_bytes;
    b->mapped = p;
    b->slices = (unsigned char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    /* A wish only: where huge pages are to be had, a slice costs one fault or none instead of 256. */
    (void)madvise(b->slices, b->count * SLICE_BYTES, MADV_HUGEPAGE);
    b->free = xcalloc(b->count, sizeof *b->free);
    b->cuts = xcalloc(b->count, sizeof *b->cuts);
    for (uint32_t i = (uint32_t)b->count; i > 0; i--)
        b->free[b->free_count++] = i - 1;
    for (unsigned shift = 0; shift <= CELL_SHIFT_MAX; shift++)
        b->partly[shift] = NO_SLICE;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->woken, NULL);
    return 0;
}

void budget_free(struct budget *b)
{
    if (!b)
        return;
    assert(b->free_count == b->count && !b->first);
    munmap(b->mapped, b->mapped_bytes);
    pthread_cond_destroy(&b->woken);
    pthread_mutex_destroy(&b->lock);
    free(b->cuts);
    free(b->free);
    free(b);
}

/* ---- slices and cells: under the lock ---------------------------------------------------------------------------- */

static void link_cut(struct budget *b, uint32_t slice)
{
    struct cut *c = &b->cuts[slice];
    c->prev = NO_SLICE;
    c->next = b->partly[c->shift];
    if (c->next != NO_SLICE)
        b->cuts[c->next].prev = slice;
    b->partly[c->shift] = slice;
}

static void unlink_cut(struct budget *b, uint32_t slice)
{
    struct cut *c = &b->cuts[slice];
    if (c->prev != NO_SLICE)
        b->cuts[c->prev].next = c->next;
    else
        b->partly[c->shift] = c->next;
    if (c->next != NO_SLICE)
        b->cuts[c->next].prev = c->prev;
}

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
    uint32_t slice = shift ? b->partly[shift] : NO_SLICE;
    if (slice == NO_SLICE && b->free_count == 0)
        return NULL;
    if (slice == NO_SLICE) {
        slice = b->free[--b->free_count];
        b->cuts[slice] = (struct cut){.free = all_cells(shift), .shift = shift};
        if (shift)
            link_cut(b, slice);
    }
    struct cut *c = &b->cuts[slice];
    unsigned cell = shift ? (unsigned)__builtin_ctzll(c->free) : 0;
    c->free &= ~(UINT64_C(1) << cell);
    if (shift && c->free == 0)
        unlink_cut(b, slice);
    return b->slices + slice * (size_t)SLICE_BYTES + cell * ((size_t)SLICE_BYTES >> shift);
}

static void give_memory(struct budget *b, void *memory)
{
    size_t at = (size_t)((unsigned char *)memory - b->slices);
    uint32_t slice = (uint32_t)(at / SLICE_BYTES);
    assert(slice < b->count);
    struct cut *c = &b->cuts[slice];
    uint64_t cell = UINT64_C(1) << (at % SLICE_BYTES / ((size_t)SLICE_BYTES >> c->shift));
    assert(!(c->free & cell));
    if (c->shift && c->free == 0)
        link_cut(b, slice);
    c->free |= cell;
    if (c->free != all_cells(c->shift))
        return;
    if (c->shift)
        unlink_cut(b, slice);
    c->shift = 0;
    c->free = 1;
    b->free[b->free_count++] = slice;
}

/* ---- who waits --------------------------------------------------------------------------------------------------- */

static void enqueue(struct budget *b, struct budget_waiter *w)
{
    if (w->queued)
        return;
    w->queued = true;
    w->next = NULL;
    if (b->last)
        b->last->next = w;
    else
        b->first = w;
    b->last = w;
}

static void dequeue(struct budget *b, struct budget_waiter *w)
{
    struct budget_waiter *before = NULL;
    for (struct budget_waiter *i = b->first; i != w; i = i->next)
        before = i;
    if (before)
        before->next = w->next;
    else
        b->first = w->next;
    if (b->last == w)
        b->last = before;
    w->queued = false;
}

void *budget_take(struct budget *b, size_t bytes, struct budget_waiter *w)
{
    void *memory = NULL;
    assert(bytes <= SLICE_BYTES);
    pthread_mutex_lock(&b->lock);
    if (w)
        w->bytes = bytes;
    if (w && w->kept)
        memory = take(&w->kept);
    else if (!b->first) /* a newcomer cannot overtake who waits */
        memory = take_memory(b, bytes);
    if (!memory && w)
        enqueue(b, w);
    pthread_mutex_unlock(&b->lock);
    return memory;
}

/* Keeps memory for the first in the queue, if there are both; `entry` then stands in `wakings`. */
static struct budget_waiter *grant(struct budget *b, struct waking *entry)
{
    struct budget_waiter *w = b->first;
    void *memory = w ? take_memory(b, w->bytes) : NULL;
    if (!memory)
        return NULL;
    dequeue(b, w);
    w->kept = memory;
    *entry = (struct waking){.next = b->wakings, .w = w};
    b->wakings = entry;
    return w;
}

static void end_waking(struct budget *b, struct waking *entry)
{
    pthread_mutex_lock(&b->lock);
    struct waking **at = &b->wakings;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    pthread_cond_broadcast(&b->woken);
    pthread_mutex_unlock(&b->lock);
}

/* One at a time: what was given back may serve many who want less. */
static void grant_all(struct budget *b)
{
    for (;;) {
        struct waking entry;
        pthread_mutex_lock(&b->lock);
        struct budget_waiter *w = grant(b, &entry);
        pthread_mutex_unlock(&b->lock);
        if (!w)
            return;
        w->wake(w);
        end_waking(b, &entry);
    }
}

void budget_give(struct budget *b, void *own_memory)
{
    pthread_mutex_lock(&b->lock);
    give_memory(b, own_memory);
    bool wanted = b->first != NULL;
    pthread_mutex_unlock(&b->lock);
    if (wanted)
        grant_all(b);
}

static bool is_waking(const struct budget *b, const struct budget_waiter *w)
{
    for (const struct waking *i = b->wakings; i; i = i->next)
        if (i->w == w)
            return true;
    return false;
}

void budget_forget(struct budget *b, struct budget_waiter *w)
{
    pthread_mutex_lock(&b->lock);
    while (is_waking(b, w))
        pthread_cond_wait(&b->woken, &b->lock);
    if (w->queued)
        dequeue(b, w);
    if (w->kept)
        give_memory(b, take(&w->kept));
    pthread_mutex_unlock(&b->lock);
    grant_all(b);
}

uint64_t budget_bytes_out(struct budget *b)
{
    pthread_mutex_lock(&b->lock);
    uint64_t out = (uint64_t)(b->count - b->free_count) * SLICE_BYTES;
    pthread_mutex_unlock(&b->lock);
    return out;
}
