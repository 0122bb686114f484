/* SPDX-License-Identifier: Apache-2.0 */
/* A pool that has no identity asks the API server whether one was there before: its CisternPool, and where that names
 * none (it was deleted with its Node), the orders of the node. */
#include "private.h"
#include "util/names.h"
#include <stdio.h>

void witness_done(struct witness *w)
{
    free(w->uuid);
    free(w->who);
    free(w->given_up);
    *w = (struct witness){0};
}

static char *name_of(const char *kind, const char *name)
{
    auto_sbuf b;
    struct err ignored;
    char *text = NULL;
    sbuf_init(&b, 512);
    sbuf_addf(&b, "%s '%s'", kind, name);
    return sbuf_take(&b, &text, &ignored) == 0 ? text : str_dup(str_of(kind));
}

static int ask_pool(struct agent_pool *p, struct witness *w, struct err *err)
{
    auto_json answer = NULL;
    auto_api_pool seen = NULL;
    struct kube_request q = {.verb = KUBE_GET, .resource = &api_pools, .name = str_of(p->name)};
    int r = kube_call(p->agent->kube, &q, &answer, err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    r = api_pool_read(answer, &seen, err);
    if (r < 0)
        return r;
    pool_found(p, &seen->meta);
    w->given_up = take(&seen->given_up);
    if (seen->pool_uuid) {
        w->uuid = take(&seen->pool_uuid);
        w->who = name_of("CisternPool", p->name);
    }
    return 0;
}

struct search {
    struct agent_pool *pool;
    struct witness *found;
    int64_t newest_ns;
    int code;
    struct err err;
};

/* What was released, or never was made, says nothing. */
static bool says_something(const struct search *s, const struct api_volume *v)
{
    return v->pool && strcmp(v->pool, space_name(s->pool->space)) == 0 && v->volume_id &&
           spec_id_is_valid(str_of(v->volume_id)) && v->status.phase != API_PHASE_RELEASED &&
           !api_condition_is(&v->status.conditions, API_PROVISIONED, API_FALSE);
}

/* Of several the newest: who has made volumes since then has had the last pool. */
static void weigh(struct search *s, const struct api_volume *v)
{
    if (!says_something(s, v) || (s->found->uuid && v->meta.created_ns <= s->newest_ns))
        return;
    free(s->found->uuid);
    free(s->found->who);
    s->newest_ns = v->meta.created_ns;
    s->found->uuid = v->status.pool_uuid ? str_dup(str_of(v->status.pool_uuid))
                                         : str_dup(str_sub(str_of(v->volume_id), 3, SPEC_UUID_LEN));
    s->found->who = name_of("CisternVolume", v->meta.name);
}

static void on_page(void *ctx, json **own_items)
{
    struct search *s = ctx;
    for (size_t i = 0; own_items && s->code == 0 && i < json_count(*own_items); i++) {
        auto_api_volume v = NULL;
        s->code = api_volume_read(json_item(*own_items, i), &v, &s->err);
        if (s->code == 0)
            weigh(s, v);
    }
}

static int ask_orders(struct agent_pool *p, struct witness *w, struct err *err)
{
    char selector[128];
    struct search s = {.pool = p, .found = w};
    snprintf(selector, sizeof selector, NAME_LABEL_NODE "=%s", p->agent->node);
    struct kube_request q = {.verb = KUBE_LIST,
                             .resource = &api_volumes,
                             .label_selector = selector,
                             .page_size = 64,
                             .ctx = &s,
                             .on_page = on_page};
    int r = kube_call(p->agent->kube, &q, NULL, err);
    return r == 0 && s.code < 0 ? err_copy(err, &s.err) : r;
}

int witness_ask(struct agent_pool *p, bool orders_too, struct witness *ret, struct err *err)
{
    struct witness w = {0};
    int r = ask_pool(p, &w, err);
    if (r == 0 && !w.uuid && orders_too)
        r = ask_orders(p, &w, err);
    if (r < 0) {
        witness_done(&w);
        return err_wrap(err, "asking which pool '%s' was", p->name);
    }
    *ret = w;
    return 0;
}
