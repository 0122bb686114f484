/* SPDX-License-Identifier: Apache-2.0 */
#include "job_limit.h"
#include "util/str.h"

/* A volume whose Job runs or waits. */
struct limited_job {
    struct list_node node_of_list;
    char *volume, *node, *ns; /* owned */
    bool is_running;
    bool is_picked; /* in a simulation that finds the next Job */
};

/* The running Jobs, and those that a simulation starts before others. */
struct places {
    const struct job_limit *limit;
    const struct limited_job **held; /* owned; has room for every Job */
    size_t count;
};

static void places_done(struct places *p)
{
    free(p->held);
}

static unsigned half_of(unsigned max)
{
    return max > 1 ? max / 2 : max;
}

static size_t count_of_namespace(const struct places *p, const char *ns)
{
    size_t count = 0;
    for (size_t i = 0; i < p->count; i++)
        count += strcmp(p->held[i]->ns, ns) == 0;
    return count;
}

static bool has_room(const struct places *p, const struct limited_job *e)
{
    const struct job_limit *l = p->limit;
    size_t on_node = 0, its = 0;
    if (l->max && p->count >= l->max)
        return false;
    for (size_t i = 0; l->max_per_node && i < p->count; i++) {
        bool is_there = strcmp(p->held[i]->node, e->node) == 0;
        on_node += is_there;
        its += is_there && strcmp(p->held[i]->ns, e->ns) == 0;
    }
    if (l->max_per_node && (on_node >= l->max_per_node || its >= half_of(l->max_per_node)))
        return false;
    return !l->max || count_of_namespace(p, e->ns) < half_of(l->max);
}

static struct places running(struct job_limit *l)
{
    struct places p = {.limit = l};
    struct limited_job *e;
    size_t all = 0;
    list_foreach (&l->jobs, e, node_of_list)
        all++;
    p.held = xcalloc(all, sizeof(struct limited_job *));
    list_foreach (&l->jobs, e, node_of_list) {
        e->is_picked = false;
        if (e->is_running)
            p.held[p.count++] = e;
    }
    return p;
}

/* Gives the next place to the namespace with the fewest Jobs; NULL: no waiting Job may start. */
static const struct limited_job *pick(struct places *p)
{
    struct limited_job *e, *best = NULL;
    size_t fewest = SIZE_MAX;
    list_foreach (&p->limit->jobs, e, node_of_list) {
        size_t count = e->is_running || e->is_picked ? SIZE_MAX : count_of_namespace(p, e->ns);
        if (count >= fewest || !has_room(p, e))
            continue;
        best = e;
        fewest = count;
    }
    if (best) {
        best->is_picked = true;
        p->held[p->count++] = best;
    }
    return best;
}

/* Most waiting volumes exceed a limit of their own: check that first, without a simulation. */
static bool may_run(struct job_limit *l, const struct limited_job *own)
{
    auto_with(places_done) struct places p = running(l);
    const struct limited_job *next = NULL;
    if (!has_room(&p, own))
        return false;
    while (next != own && (next = pick(&p)) != NULL)
        ;
    return next == own;
}

/* The waiting volumes of its namespace move behind those of all others. */
static void end_turn(struct job_limit *l, const char *ns)
{
    struct list behind = {0};
    struct limited_job *e;
    list_foreach (&l->jobs, e, node_of_list)
        if (!e->is_running && strcmp(e->ns, ns) == 0) {
            list_remove(&l->jobs, &e->node_of_list);
            list_add(&behind, &e->node_of_list);
        }
    while ((e = list_pop(&behind, struct limited_job, node_of_list)) != NULL)
        list_add(&l->jobs, &e->node_of_list);
}

static bool is_limited(const struct job_limit *l)
{
    return l->max || l->max_per_node;
}

static struct limited_job *find_job(const struct job_limit *l, const char *volume)
{
    struct limited_job *e;
    list_foreach (&l->jobs, e, node_of_list)
        if (strcmp(e->volume, volume) == 0)
            return e;
    return NULL;
}

static void remove_job(struct job_limit *l, struct limited_job *own_e)
{
    list_remove(&l->jobs, &own_e->node_of_list);
    free(own_e->volume);
    free(own_e->node);
    free(own_e->ns);
    free(own_e);
}

bool job_limit_take(struct job_limit *l, const struct job_request *r, bool is_running)
{
    if (!is_limited(l))
        return true;
    struct limited_job *own = find_job(l, r->volume);
    if (!own) {
        own = xcalloc(1, sizeof *own);
        own->volume = str_dup(str_of(r->volume));
        own->node = str_dup(str_of(r->node));
        own->ns = str_dup(str_of(r->ns));
        list_add(&l->jobs, &own->node_of_list);
    }
    own->is_running = own->is_running || is_running || may_run(l, own);
    return own->is_running;
}

bool job_limit_leave(struct job_limit *l, const char *volume)
{
    struct limited_job *e = find_job(l, volume);
    bool had_place = e && e->is_running;
    if (had_place)
        end_turn(l, e->ns);
    if (e)
        remove_job(l, e);
    return had_place;
}

void job_limit_forget_waiting(struct job_limit *l)
{
    struct limited_job *e;
    list_foreach (&l->jobs, e, node_of_list)
        if (!e->is_running)
            remove_job(l, e);
}

const char *job_limit_next(struct job_limit *l)
{
    auto_with(places_done) struct places p = running(l);
    const struct limited_job *next = pick(&p);
    return next ? next->volume : NULL;
}

void job_limit_done(struct job_limit *l)
{
    struct limited_job *e;
    list_foreach (&l->jobs, e, node_of_list)
        remove_job(l, e);
}
