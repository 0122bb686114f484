/* SPDX-License-Identifier: Apache-2.0 */
/* Reconciles the status of a BucketSource from its volumes; written seldom and only if it has changed. */
#include "private.h"
#include "source_status.h"
#include "util/clock.h"

struct volume_walk {
    struct api_source *source;
    struct err *err;
    size_t count;
};

static int volume_seen(void *ctx, struct str, const json *object)
{
    struct volume_walk *g = ctx;
    auto_api_volume v = NULL;
    int r = api_volume_read(object, &v, g->err);
    if (r < 0)
        return r;
    g->count++;
    source_status_add(g->source, v);
    return 0;
}

static int write_status(struct populate *p, const struct api_source *s, json *own_status, struct err *err)
{
    struct kube_request q = {
        .resource = &api_sources, .ns = str_of(s->meta.namespace), .name = str_of(s->meta.name), .fence = p->o.lease};
    int r = api_apply_status(p->o.kube, q, own_status, NULL, err);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

static void send_events(struct populate *p, struct key_state *m, const struct api_source *s,
                        const struct source_probe *probe)
{
    struct populate_event report;
    const struct kube_ref about = api_ref(&api_sources, &s->meta);
    const struct api_condition *c = api_condition_find(&s->status.conditions, API_ACCEPTED);
    bool exports_into = c && strcmp(c->reason, SOURCE_EXPORTS_INTO) == 0;
    if (m && exports_into && !m->events.exports_into)
        kube_event(p->o.events, &about, KUBE_WARNING, SOURCE_EXPORTS_INTO, "%s", c->message);
    if (m)
        m->events.exports_into = exports_into;
    if (m && probe->answer.tried_export && volume_event_of_export_test(&probe->answer.export_err, &m->events, &report))
        populate_event_send(p, &about, &report);
}

/* `suspend` and `retry` apply to existing volumes, also those of a source that was deleted and created again. */
static void follow_edit(struct populate *p, struct key_state *m, const struct api_source *s, struct str key)
{
    uint64_t edit = str_hash(str_of(s->meta.uid), s->meta.generation);
    if (m->edit != edit)
        kube_informer_each(p->o.volumes, p->o.volumes_by_source, key, populate_enqueue_volume, p);
    m->edit = edit;
}

/* The volumes of a source that was suspended go on without it. */
static void follow_deletion(struct populate *p, struct str key)
{
    if (!key_state_get(p, 's', key, false))
        return;
    key_state_remove(p, 's', key);
    kube_informer_each(p->o.volumes, p->o.volumes_by_source, key, populate_enqueue_volume, p);
}

int source_reconcile(struct populate *p, struct str key, uint64_t *again_ns, struct err *err)
{
    auto_json object = kube_informer_get_by_key(p->sources, key);
    if (!object) {
        follow_deletion(p, key);
        return 0;
    }
    struct key_state *m = key_state_get(p, 's', key, true);
    uint64_t now_ns = clock_now_ns();
    auto_api_source s = NULL;
    struct source_probe probe;
    int r = api_source_read(object, &s, err);
    if (r < 0)
        return r;
    if (m)
        follow_edit(p, m, s, key);
    bool is_probed = source_probe_find(p, key, s->meta.generation, &probe);
    /* Changes of volumes wait for the pause; a new probe does not. */
    if (m && m->written_ns && now_ns - m->written_ns < m->pause_ns && m->probes == probe.count) {
        *again_ns = m->pause_ns - (now_ns - m->written_ns);
        return 0;
    }
    auto_json before = api_source_status_json(s);
    struct volume_walk g = {.source = s, .err = err};
    source_status_begin(s);
    r = kube_informer_each(p->o.volumes, p->o.volumes_by_source, key, volume_seen, &g);
    if (r < 0)
        return r;
    const struct source_probe_result asked = {.state = !is_probed     ? SOURCE_NOT_PROBED
                                                       : !probe.count ? SOURCE_PROBE_DUE
                                                                      : SOURCE_PROBED,
                                              .answer = probe.answer,
                                              .err = probe.failed ? &probe.err : NULL,
                                              .time_ns = probe.time_ns};
    source_status_end(s, &asked, clock_wall_ns());
    send_events(p, m, s, &probe);
    if (m)
        m->probes = probe.count;
    auto_json after = api_source_status_json(s);
    if (json_same(before, after))
        return 0;
    if (m) {
        m->written_ns = now_ns;
        /* Each computation walks over all volumes of the source: the more there are, the less often. */
        m->pause_ns = max_u64(WRITE_EVERY_NS, g.count * NS_PER_SECOND / 100);
    }
    return write_status(p, s, take(&after), err);
}
