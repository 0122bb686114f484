/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the stores of BucketSources answer, asked now and then: soon after a source came or changed, once a minute
 * while it fails, seldom while all is well. On threads of a queue of its own, so that a store that does not answer
 * holds up no claim; how many they are, and that new sources are spaced, bounds what thousands of sources ask for. A
 * namespace has two of the threads at most: stores that never answer cost their own namespace's sources their time, and
 * no other's. */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"

#define WELL_NS (1800 * NS_PER_SECOND)
#define FAILING_NS (60 * NS_PER_SECOND)
#define SPACE_NS (100 * NS_PER_MS) /* between the first probes of two sources */
#define BUSY_NS (500 * NS_PER_MS)  /* until a place of its namespace may be free */

enum { THREADS = PROBE_THREADS, A_NAMESPACE_MAX = 2, PROBES_MAX = 100000 };

/* ---- what is known; under the lock ------------------------------------------------------------------------------- */

static struct probe **place_of(struct populate *p, struct str source)
{
    struct probe **at = &p->probes[str_hash(source, 0) % MEMO_SLOTS];
    while (*at && !str_eq(str_of((*at)->key), source))
        at = &(*at)->next;
    return at;
}

static void forget(struct populate *p, struct str source)
{
    pthread_mutex_lock(&p->lock);
    struct probe **at = place_of(p, source), *found = *at;
    if (found) {
        *at = found->next;
        p->probe_count--;
    }
    pthread_mutex_unlock(&p->lock);
    if (found)
        free(found->key);
    free(found);
}

/* So long it is until this source is to be asked about; 0: now. One that is new, or other than it was, gets a place
 * behind those that came before. */
static uint64_t wait_ns(struct populate *p, struct str source, uint64_t generation, uint64_t now_ns)
{
    uint64_t left = FAILING_NS;
    pthread_mutex_lock(&p->lock);
    struct probe **at = place_of(p, source);
    if (!*at && p->probe_count < PROBES_MAX) {
        *at = xcalloc(1, sizeof **at);
        (*at)->key = str_dup(source);
        p->probe_count++;
    }
    if (*at) {
        struct probe *known = *at;
        if (known->generation != generation) {
            known->generation = generation;
            known->count = 0;
            known->due_ns = p->probe_slot_ns = max_u64(p->probe_slot_ns, now_ns);
            p->probe_slot_ns += SPACE_NS;
        }
        left = known->due_ns > now_ns ? known->due_ns - now_ns : 0;
    }
    pthread_mutex_unlock(&p->lock);
    return left;
}

/* True if it failed before and does not now. */
static bool note(struct populate *p, struct str source, const struct api_source *s, const struct probe *got)
{
    bool is_mended = false;
    pthread_mutex_lock(&p->lock);
    struct probe *known = *place_of(p, source);
    if (known && known->generation == s->meta.generation) {
        is_mended = known->failed && !got->failed;
        known->count++;
        known->failed = got->failed;
        known->answer = got->answer;
        known->err = got->err;
        known->time_ns = got->time_ns;
        known->due_ns = clock_now_ns() + (got->failed ? FAILING_NS : WELL_NS);
        if (is_mended)
            known->mended_ns = clock_now_ns();
    }
    pthread_mutex_unlock(&p->lock);
    return is_mended;
}

bool probe_find(struct populate *p, struct str source, uint64_t generation, struct probe *ret)
{
    *ret = (struct probe){0};
    if (!p->probe_queue)
        return false;
    pthread_mutex_lock(&p->lock);
    const struct probe *known = *place_of(p, source);
    if (known && known->generation == generation)
        *ret = *known;
    pthread_mutex_unlock(&p->lock);
    ret->next = NULL;
    ret->key = NULL;
    return true;
}

uint64_t probe_mended_ns(struct populate *p, struct str source)
{
    pthread_mutex_lock(&p->lock);
    const struct probe *known = *place_of(p, source);
    uint64_t ns = known ? known->mended_ns : 0;
    pthread_mutex_unlock(&p->lock);
    return ns;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* False: its namespace has all that it may have. */
static bool take_place(struct populate *p, const char *ns)
{
    size_t its = 0, free_at = THREADS;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < THREADS; i++) {
        if (!p->probing[i])
            free_at = i;
        else
            its += strcmp(p->probing[i], ns) == 0;
    }
    bool may = its < A_NAMESPACE_MAX && free_at < THREADS;
    if (may)
        p->probing[free_at] = ns;
    pthread_mutex_unlock(&p->lock);
    return may;
}

static void leave_place(struct populate *p, const char *ns)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < THREADS; i++)
        if (p->probing[i] == ns) /* the very text, which is one probe's */
            p->probing[i] = NULL;
    pthread_mutex_unlock(&p->lock);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static void ask(struct populate *p, struct str source, const struct api_source *s)
{
    struct probe got = {0};
    got.failed = p->o.probe(p->o.ctx, s, &got.answer, &got.err) < 0;
    got.time_ns = clock_wall_ns();
    if (got.failed)
        log_err(LOG_DEBUG, "a source's store does not answer", &got.err, "source", s->meta.name, "namespace",
                s->meta.namespace, NULL);
    /* Whose Jobs wait for their next try need not wait any more. */
    if (note(p, source, s, &got))
        kube_informer_each(p->o.volumes, p->o.volumes_by_source, source, look_at_volume, p);
    look_at(p, 's', source);
}

static int probe(struct populate *p, struct str source, uint64_t *again_ns, struct err *err)
{
    auto_api_source s = NULL;
    auto_json object = kube_informer_get_by_key(p->sources, source);
    if (!object) {
        forget(p, source);
        return 0;
    }
    int r = api_source_read(object, &s, err);
    if (r < 0 || s->suspend)
        return r;
    *again_ns = wait_ns(p, source, s->meta.generation, clock_now_ns());
    if (*again_ns)
        return 0;
    if (!take_place(p, s->meta.namespace)) {
        *again_ns = BUSY_NS;
        return 0;
    }
    ask(p, source, s);
    leave_place(p, s->meta.namespace);
    *again_ns = wait_ns(p, source, s->meta.generation, clock_now_ns());
    return 0;
}

static int reconcile(void *ctx, struct str source, uint64_t *again_ns, struct err *err)
{
    struct populate *p = ctx;
    if (p->o.lease && !kube_lease_is_held(p->o.lease))
        return 0; /* populate_lead() brings all of them back */
    if (!work_begin(p))
        return 0;
    int r = probe(p, source, again_ns, err);
    work_end(p);
    return r;
}

void probe_soon(struct populate *p, struct str source)
{
    if (p->probe_queue)
        (void)kube_queue_add(p->probe_queue, source);
}

int probes_open(struct populate *p, struct err *err)
{
    const struct kube_queue_options o = {.name = "probe", .threads = THREADS, .ctx = p, .reconcile = reconcile};
    return p->o.probe ? kube_queue_new(&o, &p->probe_queue, err) : 0;
}

void probes_close(struct populate *p)
{
    kube_queue_free(p->probe_queue);
    for (size_t i = 0; i < MEMO_SLOTS; i++)
        for (struct probe *known = p->probes[i], *next; known; known = next) {
            next = known->next;
            free(known->key);
            free(known);
        }
}
