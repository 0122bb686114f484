/* SPDX-License-Identifier: Apache-2.0 */
#include "turns.h"
#include "util/str.h"

struct turn {
    struct turn *next;
    char *volume, *node; /* owned */
    bool runs;
};

/* Those that run, and those that wait in front and could: each holds a place. */
struct places {
    const struct turns *turns;
    const char *nodes[TURNS_MAX];
    size_t count;
};

static bool has_room(const struct places *p, const char *node)
{
    const struct turns *t = p->turns;
    size_t here = 0;
    if (p->count == TURNS_MAX || (t->most && p->count >= t->most))
        return false;
    for (size_t i = 0; t->most_a_node && i < p->count; i++)
        here += strcmp(p->nodes[i], node) == 0;
    return !t->most_a_node || here < t->most_a_node;
}

static void add_running(struct places *p)
{
    for (const struct turn *i = p->turns->first; i && p->count < TURNS_MAX; i = i->next)
        if (i->runs)
            p->nodes[p->count++] = i->node;
}

static bool is_limited(const struct turns *t)
{
    return (t->most && t->most < TURNS_MAX) || t->most_a_node;
}

/* Its place, or that behind the last. */
static struct turn **find(struct turns *t, const char *volume)
{
    struct turn **at = &t->first;
    while (*at && strcmp((*at)->volume, volume) != 0)
        at = &(*at)->next;
    return at;
}

/* Nobody in front of it that could go has to wait longer because of it. */
static bool is_its_turn(const struct turns *t, const struct turn *own)
{
    struct places p = {.turns = t};
    add_running(&p);
    for (const struct turn *i = t->first; i != own; i = i->next)
        if (!i->runs && has_room(&p, i->node))
            p.nodes[p.count++] = i->node;
    return has_room(&p, own->node);
}

bool turns_take(struct turns *t, const char *volume, const char *node, bool runs)
{
    if (!is_limited(t))
        return true;
    struct turn **at = find(t, volume), *own = *at;
    if (!own) {
        own = *at = xcalloc(1, sizeof *own);
        own->volume = str_dup(str_of(volume));
        own->node = str_dup(str_of(node));
    }
    own->runs = own->runs || runs || is_its_turn(t, own);
    return own->runs;
}

void turns_leave(struct turns *t, const char *volume)
{
    struct turn **at = find(t, volume), *gone = *at;
    if (!gone)
        return;
    *at = gone->next;
    free(gone->volume);
    free(gone->node);
    free(gone);
}

void turns_forget_waiting(struct turns *t)
{
    for (struct turn *i = t->first, *next; i; i = next) {
        next = i->next;
        if (!i->runs)
            turns_leave(t, i->volume);
    }
}

const char *turns_next(const struct turns *t)
{
    struct places p = {.turns = t};
    add_running(&p);
    for (const struct turn *i = t->first; i; i = i->next)
        if (!i->runs && has_room(&p, i->node))
            return i->volume;
    return NULL;
}

void turns_done(struct turns *t)
{
    while (t->first)
        turns_leave(t, t->first->volume);
}
