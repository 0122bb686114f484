/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a BucketSource: gathered from its volumes, written seldom and only when it says something new. */
#include "private.h"
#include "tally.h"
#include "util/clock.h"

struct gathering {
    struct api_source *source;
    struct err *err;
    size_t count;
};

static int volume_seen(void *ctx, struct str key, const json *object)
{
    (void)key;
    struct gathering *g = ctx;
    auto_api_volume v = NULL;
    int r = api_volume_read(object, &v, g->err);
    if (r < 0)
        return r;
    g->count++;
    tally_add(g->source, v);
    return 0;
}

static int write_status(struct populate *p, const struct api_source *s, json *own_status, struct err *err)
{
    auto_json body = own_status;
    struct kube_request q = {.verb = KUBE_APPLY,
                             .resource = &api_sources,
                             .ns = str_of(s->meta.namespace),
                             .name = str_of(s->meta.name),
                             .subresource = "status",
                             .body = body,
                             .force = true,
                             .fence = p->o.lease};
    int r = kube_call(p->o.kube, &q, NULL, err);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* With very many volumes each look costs a walk over all of them: seldomer then. */
static uint64_t write_every_ns(size_t volumes)
{
    return max_u64(WRITE_EVERY_NS, volumes * NS_PER_SECOND / 100);
}

/* `suspend` and `retry` hold at once. After a start all volumes are looked at anyway. */
static void follow_edit(struct populate *p, struct memo *m, const struct api_source *s, struct str key)
{
    if (m->generation && m->generation != s->meta.generation)
        kube_informer_each(p->o.volumes, p->o.volumes_by_source, key, look_at_volume, p);
    m->generation = s->meta.generation;
}

int source_reconcile(struct populate *p, struct str key, uint64_t *again_ns, struct err *err)
{
    auto_json object = kube_informer_get_by_key(p->sources, key);
    if (!object) {
        memo_forget(p, 's', key);
        return 0;
    }
    struct memo *m = memo_of(p, 's', key);
    uint64_t now_ns = clock_now_ns();
    auto_api_source s = NULL;
    struct probe probe;
    int r = api_source_read(object, &s, err);
    if (r < 0)
        return r;
    if (m)
        follow_edit(p, m, s, key);
    bool is_probed = probe_find(p, key, s->meta.generation, &probe);
    /* Volumes change often; what the store says is told at once. */
    if (m && m->written_ns && now_ns - m->written_ns < m->pause_ns && m->probes == probe.count) {
        *again_ns = m->pause_ns - (now_ns - m->written_ns);
        return 0;
    }
    auto_json before = api_source_status_json(s);
    auto_mem char *before_text = json_text(before, 0);
    struct gathering g = {.source = s, .err = err};
    tally_begin(s);
    r = kube_informer_each(p->o.volumes, p->o.volumes_by_source, key, volume_seen, &g);
    if (r < 0)
        return r;
    const struct tally_probe asked = {.state = !is_probed     ? TALLY_NOT_PROBED
                                               : !probe.count ? TALLY_PROBE_DUE
                                                              : TALLY_PROBED,
                                      .answer = probe.answer,
                                      .err = probe.failed ? &probe.err : NULL,
                                      .time_ns = probe.time_ns};
    tally_end(s, &asked, clock_wall_ns());
    if (m)
        m->probes = probe.count;
    auto_json after = api_source_status_json(s);
    auto_mem char *after_text = json_text(after, 0);
    if (strcmp(before_text, after_text) == 0)
        return 0;
    if (m) {
        m->written_ns = now_ns;
        m->pause_ns = write_every_ns(g.count);
    }
    return write_status(p, s, take(&after), err);
}
