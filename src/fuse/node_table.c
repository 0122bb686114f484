/* SPDX-License-Identifier: Apache-2.0 */
#include "node_table.h"
#include "util/thread.h"
#include <sys/mman.h>

static uint32_t hash_of(const struct table_handle *h)
{
    uint32_t x = 2166136261u;
    for (uint8_t i = 0; i < h->len; i++)
        x = (x ^ h->bytes[i]) * 16777619u;
    return x;
}

static bool same_handle(const struct table_handle *a, const struct table_handle *b)
{
    return a->type == b->type && a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static void chain_add(struct node_table *t, uint32_t slot)
{
    uint32_t c = hash_of(&t->nodes[slot].handle) & (t->n_chains - 1);
    t->nodes[slot].next = t->chains[c];
    t->chains[c] = slot;
}

static void chain_remove(struct node_table *t, uint32_t slot)
{
    uint32_t *at = &t->chains[hash_of(&t->nodes[slot].handle) & (t->n_chains - 1)];
    while (*at && *at != slot)
        at = &t->nodes[*at].next;
    if (*at)
        *at = t->nodes[slot].next;
}

/* Slot 0 is unused. Slot 1 is the root, whose handle is never looked up. */
static void rebuild(struct node_table *t)
{
    uint32_t n = 1024;
    while (n < t->head->node_high)
        n *= 2;
    free(t->chains);
    t->chains = xcalloc(n, sizeof(*t->chains));
    t->n_chains = n;
    t->first_free = 0;
    t->n_nodes = 1;
    t->head->opens = 0;
    for (uint32_t s = t->head->node_high; --s > TABLE_ROOT;) {
        struct table_node *d = &t->nodes[s];
        if (d->lookups == 0) {
            d->next = t->first_free;
            t->first_free = s;
            continue;
        }
        chain_add(t, s);
        t->n_nodes++;
        t->head->opens += d->opens;
    }
    t->head->nodes = t->n_nodes;
}

static void do_step(struct node_table *t, struct table_intent *i)
{
    struct table_step *s = &i->step;
    struct table_node *d = &t->nodes[s->slot];
    d->generation = s->generation;
    d->lookups = s->lookups;
    d->opens = s->opens;
    d->writers = s->writers;
    if (s->n_counted > i->n_counted)
        i->counted[s->n_counted - 1] = s->counted_slot;
    i->n_counted = s->n_counted;
    i->opened = s->opened;
    STORE_BARRIER();
    s->valid = 0;
}

/* Begins a step that changes nothing yet; the caller fills it in. */
static struct table_step step_of(const struct node_table *t, const struct table_intent *i, uint32_t slot)
{
    const struct table_node *d = &t->nodes[slot];
    return (struct table_step){.slot = slot,
                               .lookups = d->lookups,
                               .generation = d->generation,
                               .opens = d->opens,
                               .writers = d->writers,
                               .n_counted = i->n_counted,
                               .opened = i->opened};
}

static void take_step(struct node_table *t, struct table_intent *i, const struct table_step *s)
{
    i->step = *s;
    STORE_BARRIER();
    i->step.valid = 1;
    STORE_BARRIER();
    do_step(t, i);
}

int nodes_open(int own_fd, struct node_table **ret, struct err *err)
{
    auto_node_table t = xcalloc(1, sizeof(*t));
    t->fd = own_fd;
    t->head = MAP_FAILED;
    pthread_mutex_init(&t->lock, NULL);
    const struct table_head *peek;
    int r = table_head_map(own_fd, &peek, err);
    if (r < 0)
        return r;
    table_head_unmap(peek);
    /* The largest table is mapped at once, most of it beyond the file's end: nodes never move. */
    t->bytes = table_file_bytes(NODES_MAX);
    t->head = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own_fd, 0);
    if (t->head == MAP_FAILED)
        return err_sys(err, errno, "cannot map a memfd");
    t->nodes = (struct table_node *)((char *)t->head + table_head_bytes());
    for (size_t k = 0; k < INTENTS_MAX; k++) {
        struct table_intent *i = &t->head->intents[k];
        if (i->unique && i->step.valid && i->step.slot < t->head->node_high)
            do_step(t, i);
    }
    t->nodes[TABLE_ROOT].lookups = 1;
    rebuild(t);
    *ret = take(&t);
    return 0;
}

void nodes_close(struct node_table *t)
{
    if (!t)
        return;
    if (t->head != MAP_FAILED)
        munmap(t->head, t->bytes);
    fd_close(&t->fd);
    free(t->chains);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- nodes, under .lock ------------------------------------------------------------------------------------------ */

static uint64_t id_of(const struct node_table *t, uint32_t slot)
{
    return slot | (uint64_t)t->nodes[slot].generation << 32;
}

static struct table_node *node_of(struct node_table *t, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot == 0 || slot >= t->head->node_high)
        return NULL;
    struct table_node *d = &t->nodes[slot];
    return d->lookups > 0 && d->generation == id >> 32 ? d : NULL;
}

static uint32_t find_slot(struct node_table *t, const struct table_handle *h)
{
    uint32_t s = t->chains[hash_of(h) & (t->n_chains - 1)];
    while (s && !same_handle(&t->nodes[s].handle, h))
        s = t->nodes[s].next;
    return s;
}

static uint32_t free_slot(struct node_table *t)
{
    struct table_head *h = t->head;
    if (t->first_free) {
        uint32_t s = t->first_free;
        t->first_free = t->nodes[s].next;
        return s;
    }
    if (h->node_high == h->node_room) {
        uint32_t room = h->node_room + NODES_GROWTH;
        if (room > NODES_MAX || ftruncate(t->fd, (off_t)table_file_bytes(room)) < 0)
            return 0;
        STORE_BARRIER(); /* the file first: a slot beyond its end must not be touched */
        h->node_room = room;
    }
    return h->node_high++;
}

static uint32_t make_slot(struct node_table *t, const struct table_handle *h)
{
    if (t->n_nodes >= t->n_chains)
        rebuild(t);
    uint32_t s = free_slot(t);
    if (!s)
        return 0;
    struct table_node *d = &t->nodes[s];
    d->opens = d->writers = 0;
    d->backing = 0;
    d->flags = 0;
    d->handle = *h;
    chain_add(t, s);
    t->head->nodes = ++t->n_nodes;
    return s;
}

int nodes_get(struct node_table *t, uint64_t id, struct table_node *ret)
{
    auto_lock(&t->lock);
    const struct table_node *d = node_of(t, id);
    if (d)
        *ret = *d;
    return d ? 0 : -ESTALE;
}

uint64_t nodes_find(struct node_table *t, const struct table_handle *h)
{
    auto_lock(&t->lock);
    uint32_t s = find_slot(t, h);
    return s ? id_of(t, s) : 0;
}

static bool reuse_count(const struct table_intent *i, struct count_reuse *c, uint32_t slot)
{
    for (uint32_t k = 0; k < c->n; k++)
        if (i->counted[k] == slot && !c->used[k])
            return c->used[k] = true;
    return false;
}

int nodes_count(struct node_table *t, struct table_intent *i, struct count_reuse *c, const struct table_handle *h,
                uint64_t *ret_id, struct table_node *ret)
{
    auto_lock(&t->lock);
    uint32_t slot = find_slot(t, h);
    if (!slot || !reuse_count(i, c, slot)) {
        if (i->n_counted >= COUNTED_MAX)
            return -EOVERFLOW;
        bool made = !slot;
        if (made)
            slot = make_slot(t, h);
        if (!slot)
            return -ENFILE;
        struct table_step s = step_of(t, i, slot);
        s.lookups++;
        s.generation += made; /* taken when it is made, so that a freed slot never answers to an old id */
        s.n_counted++;
        s.counted_slot = slot;
        take_step(t, i, &s);
    }
    *ret_id = id_of(t, slot);
    if (ret)
        *ret = t->nodes[slot];
    return 0;
}

uint64_t nodes_unused_count(struct node_table *t, const struct table_intent *i, struct count_reuse *c)
{
    uint64_t id = 0;
    auto_lock(&t->lock);
    for (uint32_t k = 0; k < c->n && !id; k++) {
        if (!c->used[k])
            id = id_of(t, i->counted[k]);
        c->used[k] = true;
    }
    return id;
}

void nodes_forget(struct node_table *t, struct table_intent *i, uint64_t id, uint64_t n, struct table_node *ret)
{
    *ret = (struct table_node){.lookups = 1};
    auto_lock(&t->lock);
    struct table_node *d = node_of(t, id);
    if (!d || (uint32_t)id == TABLE_ROOT)
        return;
    bool last = n >= d->lookups;
    *ret = *d;
    ret->lookups = last ? 0 : d->lookups - n;
    if (last) {
        /* Before the node is freed: a death in between closes the backing id twice, and never leaves it open. */
        i->closing = d->backing;
        chain_remove(t, (uint32_t)id);
        t->head->opens -= d->opens;
        t->head->nodes = --t->n_nodes;
        d->next = t->first_free;
        t->first_free = (uint32_t)id;
    }
    STORE_BARRIER();
    d->lookups = ret->lookups;
}

static int count_opens(struct node_table *t, struct table_intent *i, uint64_t id, bool writer, int by,
                       struct table_node *ret)
{
    enum intent_opened after = by > 0 ? INTENT_OPENED : INTENT_CLOSED;
    auto_lock(&t->lock);
    struct table_node *d = node_of(t, id);
    if (!d)
        return -ESTALE;
    if (i->opened != after && (by > 0 || d->opens > 0)) {
        struct table_step s = step_of(t, i, (uint32_t)id);
        s.opens += (uint32_t)by;
        if (writer && (by > 0 || s.writers > 0))
            s.writers += (uint32_t)by;
        s.opened = after;
        take_step(t, i, &s);
        t->head->opens += (uint64_t)by;
    }
    *ret = *d;
    return 0;
}

int nodes_count_open(struct node_table *t, struct table_intent *i, uint64_t id, bool writer, struct table_node *ret)
{
    return count_opens(t, i, id, writer, 1, ret);
}

int nodes_count_release(struct node_table *t, struct table_intent *i, uint64_t id, bool writer, struct table_node *ret)
{
    return count_opens(t, i, id, writer, -1, ret);
}

void nodes_set_flag(struct node_table *t, uint64_t id, enum table_node_flag f, bool on)
{
    auto_lock(&t->lock);
    struct table_node *d = node_of(t, id);
    if (d)
        d->flags = (uint8_t)(on ? d->flags | f : d->flags & ~f);
}

void nodes_set_backing(struct node_table *t, uint64_t id, int32_t backing)
{
    auto_lock(&t->lock);
    struct table_node *d = node_of(t, id);
    if (d)
        d->backing = backing;
    if (backing > t->head->backing_high)
        t->head->backing_high = backing;
}

int32_t nodes_take_backing(struct node_table *t, struct table_intent *i, uint64_t id, bool unused_only)
{
    auto_lock(&t->lock);
    struct table_node *d = node_of(t, id);
    if (!d || !d->backing || (unused_only && d->opens > 0))
        return 0;
    i->closing = d->backing;
    STORE_BARRIER();
    d->backing = 0;
    return i->closing;
}

bool nodes_has_backing(struct node_table *t, int32_t backing)
{
    auto_lock(&t->lock);
    for (uint32_t s = TABLE_ROOT; s < t->head->node_high; s++)
        if (t->nodes[s].lookups > 0 && t->nodes[s].backing == backing)
            return true;
    return false;
}

uint64_t nodes_unused_backing(struct node_table *t, uint32_t slot)
{
    auto_lock(&t->lock);
    const struct table_node *d = &t->nodes[slot];
    return d->lookups > 0 && d->opens == 0 && d->backing ? id_of(t, slot) : 0;
}

/* ---- intents ----------------------------------------------------------------------------------------------------- */

struct table_intent *intent_find(struct node_table *t, uint64_t unique)
{
    for (size_t k = 0; k < INTENTS_MAX; k++)
        if (t->head->intents[k].unique == unique)
            return &t->head->intents[k];
    return NULL;
}

/* `unique` last: a record without it is free, whatever else it holds. */
struct table_intent *intent_begin(struct node_table *t, size_t hint, uint64_t unique, uint32_t opcode)
{
    auto_lock(&t->lock);
    for (size_t k = 0; k < INTENTS_MAX; k++) {
        struct table_intent *i = &t->head->intents[(hint + k) % INTENTS_MAX];
        if (i->unique != 0)
            continue;
        i->opcode = opcode;
        i->n_before = i->opened = i->mapping = i->n_counted = i->step.valid = 0;
        i->closing = 0;
        STORE_BARRIER();
        i->unique = unique;
        return i;
    }
    return NULL;
}

void intent_end(struct table_intent *i)
{
    STORE_BARRIER();
    i->unique = 0;
}

void intent_sweep(struct node_table *t)
{
    for (size_t k = 0; k < INTENTS_MAX; k++)
        intent_end(&t->head->intents[k]);
}
