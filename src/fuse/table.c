/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"
#include <assert.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC "CISTNOD1"

/* Older and newer mount processes follow each other on one memfd, and find the nodes in the same place. */
static_assert(sizeof(struct table_head) > 27 * 4096 && sizeof(struct table_head) <= 28 * 4096, "the nodes would move");

static size_t nodes_at(void)
{
    return (sizeof(struct table_head) + 4095) & ~(size_t)4095;
}

static size_t file_bytes(uint32_t node_room)
{
    return nodes_at() + (size_t)node_room * sizeof(struct node);
}

int table_create(const char *volume_id, const struct wire_config *c, int *ret_fd, struct err *err)
{
    auto_fd fd = memfd_create("cistern-volume", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a memfd");
    if (ftruncate(fd, (off_t)file_bytes(NODES_GROWTH)) < 0)
        return err_sys(err, errno, "cannot grow a memfd");
    struct table_head *h = mmap(NULL, nodes_at(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED)
        return err_sys(err, errno, "cannot map a memfd");
    memcpy(h->magic, MAGIC, sizeof(h->magic));
    h->version = TABLE_VERSION;
    h->node_bytes = sizeof(struct node);
    h->node_room = NODES_GROWTH;
    h->node_high = TABLE_ROOT + 1;
    memccpy(h->volume_id, volume_id, '\0', sizeof(h->volume_id) - 1);
    h->config = *c;
    munmap(h, nodes_at());
    *ret_fd = take_fd(&fd);
    return 0;
}

static int check_head(const struct table_head *h, uint64_t size, struct err *err)
{
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0)
        return err_set(err, ERR_CORRUPT, "a volume's memfd is not a table of ours");
    if (h->version < TABLE_OLDEST || h->version > TABLE_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "a volume's table is of version %u, and this program reads versions %d to %d", h->version,
                       TABLE_OLDEST, TABLE_VERSION);
    if (h->node_bytes != sizeof(struct node) || h->node_room > NODES_MAX || file_bytes(h->node_room) > size ||
        h->node_high > h->node_room || h->init_len > INIT_MAX)
        return err_set(err, ERR_CORRUPT, "a volume's memfd is damaged");
    return 0;
}

int table_peek(int fd, const struct table_head **ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)nodes_at())
        return err_set(err, ERR_CORRUPT, "a volume's memfd is too short");
    void *p = mmap(NULL, nodes_at(), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_sys(err, errno, "cannot map a memfd");
    int r = check_head(p, (uint64_t)st.st_size, err);
    if (r < 0)
        munmap(p, nodes_at());
    else
        *ret = p;
    return r;
}

void table_unpeek(const struct table_head *h)
{
    if (h)
        munmap((void *)(uintptr_t)h, nodes_at());
}

struct counts table_counts(int fd)
{
    struct counts c = {0};
    if (pread(fd, &c, sizeof(c), offsetof(struct table_head, counts)) != sizeof(c))
        return (struct counts){0};
    return c;
}

static uint32_t hash_of(const struct handle *h)
{
    uint32_t x = 2166136261u;
    for (uint8_t i = 0; i < h->len; i++)
        x = (x ^ h->bytes[i]) * 16777619u;
    return x;
}

static bool same_handle(const struct handle *a, const struct handle *b)
{
    return a->type == b->type && a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static void chain_add(struct table *t, uint32_t slot)
{
    uint32_t c = hash_of(&t->nodes[slot].handle) & (t->n_chains - 1);
    t->nodes[slot].next = t->chains[c];
    t->chains[c] = slot;
}

static void chain_remove(struct table *t, uint32_t slot)
{
    uint32_t *at = &t->chains[hash_of(&t->nodes[slot].handle) & (t->n_chains - 1)];
    while (*at && *at != slot)
        at = &t->nodes[*at].next;
    if (*at)
        *at = t->nodes[slot].next;
}

/* Slot 0 is none and slot 1 the root, whose handle nobody looks up. */
static void rebuild(struct table *t)
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
        struct node *d = &t->nodes[s];
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

static void do_step(struct table *t, struct intent *i)
{
    struct step *s = &i->step;
    struct node *d = &t->nodes[s->slot];
    d->generation = s->generation;
    d->lookups = s->lookups;
    d->opens = s->opens;
    d->writers = s->writers;
    if (s->n_counted > i->n_counted)
        i->counted[s->n_counted - 1] = s->counted_slot;
    i->n_counted = s->n_counted;
    i->opened = s->opened;
    STORED();
    s->valid = 0;
}

/* A step that changes nothing yet, for the caller to alter. */
static struct step step_of(const struct table *t, const struct intent *i, uint32_t slot)
{
    const struct node *d = &t->nodes[slot];
    return (struct step){.slot = slot,
                         .lookups = d->lookups,
                         .generation = d->generation,
                         .opens = d->opens,
                         .writers = d->writers,
                         .n_counted = i->n_counted,
                         .opened = i->opened};
}

static void take_step(struct table *t, struct intent *i, const struct step *s)
{
    i->step = *s;
    STORED();
    i->step.valid = 1;
    STORED();
    do_step(t, i);
}

int table_open(int own_fd, struct table **ret, struct err *err)
{
    auto_table t = xcalloc(1, sizeof(*t));
    t->fd = own_fd;
    t->head = MAP_FAILED;
    pthread_mutex_init(&t->lock, NULL);
    const struct table_head *peek;
    int r = table_peek(own_fd, &peek, err);
    if (r < 0)
        return r;
    table_unpeek(peek);
    /* The largest table is mapped at once, most of it beyond the file's end: nodes never move. */
    t->bytes = file_bytes(NODES_MAX);
    t->head = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own_fd, 0);
    if (t->head == MAP_FAILED)
        return err_sys(err, errno, "cannot map a memfd");
    t->nodes = (struct node *)((char *)t->head + nodes_at());
    for (size_t k = 0; k < INTENTS_MAX; k++) {
        struct intent *i = &t->head->intents[k];
        if (i->unique && i->step.valid && i->step.slot < t->head->node_high)
            do_step(t, i);
    }
    t->nodes[TABLE_ROOT].lookups = 1;
    rebuild(t);
    *ret = take(&t);
    return 0;
}

void table_close(struct table *t)
{
    if (!t)
        return;
    if (t->head != MAP_FAILED)
        munmap(t->head, t->bytes);
    if (t->fd >= 0)
        close(t->fd);
    free(t->chains);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- nodes, under .lock ------------------------------------------------------------------------------------------ */

static uint64_t id_of(const struct table *t, uint32_t slot)
{
    return slot | (uint64_t)t->nodes[slot].generation << 32;
}

static struct node *node_of(struct table *t, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot == 0 || slot >= t->head->node_high)
        return NULL;
    struct node *d = &t->nodes[slot];
    return d->lookups > 0 && d->generation == id >> 32 ? d : NULL;
}

static uint32_t find_slot(struct table *t, const struct handle *h)
{
    uint32_t s = t->chains[hash_of(h) & (t->n_chains - 1)];
    while (s && !same_handle(&t->nodes[s].handle, h))
        s = t->nodes[s].next;
    return s;
}

static uint32_t free_slot(struct table *t)
{
    struct table_head *h = t->head;
    if (t->first_free) {
        uint32_t s = t->first_free;
        t->first_free = t->nodes[s].next;
        return s;
    }
    if (h->node_high == h->node_room) {
        uint32_t room = h->node_room + NODES_GROWTH;
        if (room > NODES_MAX || ftruncate(t->fd, (off_t)file_bytes(room)) < 0)
            return 0;
        STORED(); /* the file first: nobody may touch a slot beyond its end */
        h->node_room = room;
    }
    return h->node_high++;
}

static uint32_t make_slot(struct table *t, const struct handle *h)
{
    if (t->n_nodes >= t->n_chains)
        rebuild(t);
    uint32_t s = free_slot(t);
    if (!s)
        return 0;
    struct node *d = &t->nodes[s];
    d->opens = d->writers = 0;
    d->backing = 0;
    d->flags = 0;
    d->handle = *h;
    chain_add(t, s);
    t->head->nodes = ++t->n_nodes;
    return s;
}

int table_get(struct table *t, uint64_t id, struct node *ret)
{
    pthread_mutex_lock(&t->lock);
    const struct node *d = node_of(t, id);
    if (d)
        *ret = *d;
    pthread_mutex_unlock(&t->lock);
    return d ? 0 : -ESTALE;
}

uint64_t table_find(struct table *t, const struct handle *h)
{
    pthread_mutex_lock(&t->lock);
    uint32_t s = find_slot(t, h);
    uint64_t id = s ? id_of(t, s) : 0;
    pthread_mutex_unlock(&t->lock);
    return id;
}

static bool claim(const struct intent *i, struct claims *c, uint32_t slot)
{
    for (uint32_t k = 0; k < c->n; k++)
        if (i->counted[k] == slot && !c->used[k])
            return c->used[k] = true;
    return false;
}

static int count_locked(struct table *t, struct intent *i, struct claims *c, const struct handle *h, uint32_t *ret_slot)
{
    uint32_t slot = find_slot(t, h);
    *ret_slot = slot;
    if (slot && claim(i, c, slot))
        return 0;
    if (i->n_counted >= COUNTED_MAX)
        return -EOVERFLOW;
    bool made = !slot;
    if (made)
        slot = make_slot(t, h);
    if (!slot)
        return -ENFILE;
    struct step s = step_of(t, i, slot);
    s.lookups++;
    s.generation += made; /* taken when it is made, so that a freed slot never answers to an old id */
    s.n_counted++;
    s.counted_slot = slot;
    take_step(t, i, &s);
    *ret_slot = slot;
    return 0;
}

int table_count(struct table *t, struct intent *i, struct claims *c, const struct handle *h, uint64_t *ret_id,
                struct node *ret)
{
    uint32_t slot = 0;
    pthread_mutex_lock(&t->lock);
    int r = count_locked(t, i, c, h, &slot);
    if (r == 0) {
        *ret_id = id_of(t, slot);
        if (ret)
            *ret = t->nodes[slot];
    }
    pthread_mutex_unlock(&t->lock);
    return r;
}

uint64_t table_unclaimed(struct table *t, const struct intent *i, struct claims *c)
{
    uint64_t id = 0;
    pthread_mutex_lock(&t->lock);
    for (uint32_t k = 0; k < c->n && !id; k++) {
        if (!c->used[k])
            id = id_of(t, i->counted[k]);
        c->used[k] = true;
    }
    pthread_mutex_unlock(&t->lock);
    return id;
}

void table_forget(struct table *t, struct intent *i, uint64_t id, uint64_t n, struct node *ret)
{
    *ret = (struct node){.lookups = 1};
    pthread_mutex_lock(&t->lock);
    struct node *d = node_of(t, id);
    if (d && (uint32_t)id != TABLE_ROOT) {
        bool last = n >= d->lookups;
        *ret = *d;
        ret->lookups = last ? 0 : d->lookups - n;
        if (last) {
            i->closing = d->backing; /* before the node goes: a death between closes an id twice, never none */
            chain_remove(t, (uint32_t)id);
            t->head->opens -= d->opens;
            t->head->nodes = --t->n_nodes;
            d->next = t->first_free;
            t->first_free = (uint32_t)id;
        }
        STORED();
        d->lookups = ret->lookups;
    }
    pthread_mutex_unlock(&t->lock);
}

static int count_opens(struct table *t, struct intent *i, uint64_t id, bool writer, int by, struct node *ret)
{
    enum intent_opened after = by > 0 ? INTENT_OPENED : INTENT_CLOSED;
    pthread_mutex_lock(&t->lock);
    struct node *d = node_of(t, id);
    if (d && i->opened != after && (by > 0 || d->opens > 0)) {
        struct step s = step_of(t, i, (uint32_t)id);
        s.opens += (uint32_t)by;
        if (writer && (by > 0 || s.writers > 0))
            s.writers += (uint32_t)by;
        s.opened = after;
        take_step(t, i, &s);
        t->head->opens += (uint64_t)by;
    }
    if (d)
        *ret = *d;
    pthread_mutex_unlock(&t->lock);
    return d ? 0 : -ESTALE;
}

int table_count_open(struct table *t, struct intent *i, uint64_t id, bool writer, struct node *ret)
{
    return count_opens(t, i, id, writer, 1, ret);
}

int table_count_release(struct table *t, struct intent *i, uint64_t id, bool writer, struct node *ret)
{
    return count_opens(t, i, id, writer, -1, ret);
}

void table_set_flag(struct table *t, uint64_t id, enum node_flag f, bool on)
{
    pthread_mutex_lock(&t->lock);
    struct node *d = node_of(t, id);
    if (d)
        d->flags = (uint8_t)(on ? d->flags | f : d->flags & ~f);
    pthread_mutex_unlock(&t->lock);
}

void table_set_backing(struct table *t, uint64_t id, int32_t backing)
{
    pthread_mutex_lock(&t->lock);
    struct node *d = node_of(t, id);
    if (d)
        d->backing = backing;
    if (backing > t->head->backing_high)
        t->head->backing_high = backing;
    pthread_mutex_unlock(&t->lock);
}

int32_t table_take_backing(struct table *t, struct intent *i, uint64_t id, bool unused_only)
{
    int32_t backing = 0;
    pthread_mutex_lock(&t->lock);
    struct node *d = node_of(t, id);
    if (d && d->backing && !(unused_only && d->opens > 0)) {
        backing = d->backing;
        i->closing = backing;
        STORED();
        d->backing = 0;
    }
    pthread_mutex_unlock(&t->lock);
    return backing;
}

bool table_has_backing(struct table *t, int32_t backing)
{
    bool found = false;
    pthread_mutex_lock(&t->lock);
    for (uint32_t s = TABLE_ROOT; s < t->head->node_high && !found; s++)
        found = t->nodes[s].lookups > 0 && t->nodes[s].backing == backing;
    pthread_mutex_unlock(&t->lock);
    return found;
}
