/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all reconcile functions share: states of keys, the queue, running Jobs, fenced writes. */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"
#include "util/names.h"
#include <stdio.h>

/* ---- state of keys ----------------------------------------------------------------------------------------------- */

static void make_key(char kind, struct str name, char ret[KEY_BYTES_MAX])
{
    snprintf(ret, KEY_BYTES_MAX, "%c/%.*s", kind, STR_FMT(name));
}

/* Under the lock. */
static struct key_state *find_key(const struct populate *p, const char *key)
{
    struct key_state *m;
    map_foreach_hash (&p->key_states, str_hash(str_of(key), 0), m, node)
        if (strcmp(m->key, key) == 0)
            return m;
    return NULL;
}

struct key_state *key_state_get(struct populate *p, char kind, struct str name, bool create)
{
    char key[KEY_BYTES_MAX];
    make_key(kind, name, key);
    auto_lock(&p->lock);
    struct key_state *m = find_key(p, key);
    if (!m && create && p->key_states.count < KEY_STATES_MAX) {
        m = xcalloc(1, sizeof *m);
        m->key = str_dup(str_of(key));
        map_add(&p->key_states, &m->node, str_hash(str_of(key), 0));
    }
    return m;
}

static void key_state_free(struct key_state *own_m)
{
    claim_events_drop(own_m);
    free(own_m->key);
    free(own_m);
}

void key_states_done(struct populate *p)
{
    struct key_state *m;
    map_foreach (&p->key_states, m, node)
        key_state_free(m);
    map_done(&p->key_states);
}

void key_state_remove(struct populate *p, char kind, struct str name)
{
    char key[KEY_BYTES_MAX];
    make_key(kind, name, key);
    pthread_mutex_lock(&p->lock);
    struct key_state *m = find_key(p, key);
    if (m)
        map_remove(&p->key_states, &m->node);
    pthread_mutex_unlock(&p->lock);
    if (m)
        key_state_free(m);
}

void operation_changed(struct populate *p, struct key_state *m, int64_t began_ns, const char *result)
{
    int64_t now_ns = clock_wall_ns();
    bool begins = result == NULL;
    if (!m || begins == (m->began_ns != 0))
        return;
    if (!begins)
        metric_observe(metric_series(p->seconds, result),
                       now_ns > m->began_ns ? (double)(now_ns - m->began_ns) / (double)NS_PER_SECOND : 0);
    m->began_ns = begins ? (began_ns ? began_ns : now_ns) : 0;
    auto_lock(&p->lock);
    p->in_flight_count += begins ? 1 : (size_t)-1;
    metric_set(p->in_flight, (int64_t)p->in_flight_count);
}

int populate_send(struct populate *p, struct kube_request q, json *own_body, struct err *err)
{
    auto_json body = own_body;
    q.body = body;
    q.fence = p->o.lease;
    return kube_call(p->o.kube, &q, NULL, err);
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

void populate_enqueue(struct populate *p, char kind, struct str name)
{
    char key[KEY_BYTES_MAX];
    make_key(kind, name, key);
    if (!kube_queue_add(p->queue, str_of(key)) && name.len)
        log_event(LOG_WARN, "the work queue is full: this key waits for the next change of its object", "key", key,
                  NULL);
}

int populate_enqueue_volume(void *p, struct str name, const json *)
{
    populate_enqueue(p, 'v', name);
    return 0;
}

/* Target and prime are found under one uid. A claim that only has the name of a prime is filtered by its namespace
 * later. */
struct str populate_claim_uid(const json *claim)
{
    struct str uid;
    bool is_prime = claim_target_uid(json_str_at(claim, "metadata.name"), &uid) &&
                    json_member(json_at(claim, "metadata.annotations"), NAME_ANNOTATION_POPULATE_TARGET);
    return is_prime ? uid : json_str_at(claim, "metadata.uid");
}

int populate_enqueue_claim(void *ctx, struct str, const json *claim)
{
    populate_enqueue(ctx, 'c', populate_claim_uid(claim));
    return 0;
}

/* ---- limits of Jobs ---------------------------------------------------------------------------------------------- */

bool populate_take_job_place(struct populate *p, enum job_slot slot, const struct job_request *r, bool is_running)
{
    auto_lock(&p->lock);
    return job_limit_take(&p->limits[slot], r, is_running);
}

void populate_leave_job_place(struct populate *p, enum job_slot slot, struct str volume)
{
    auto_mem char *ended = str_dup(volume);
    pthread_mutex_lock(&p->lock);
    const char *next = job_limit_leave(&p->limits[slot], ended) ? job_limit_next(&p->limits[slot]) : NULL;
    auto_mem char *name = next ? str_dup(str_of(next)) : NULL;
    pthread_mutex_unlock(&p->lock);
    if (name)
        populate_enqueue(p, 'v', str_of(name));
}
