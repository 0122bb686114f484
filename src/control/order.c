/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"
#include "contract/caps.h"
#include "util/hash.h"
#include "volume/disk.h"
#include <inttypes.h>
#include <stdio.h>

enum { NAME_HASH_BYTES = 16 };

#define FOREIGN "csi.storage.k8s.io/"

/* ---- the words of the call --------------------------------------------------------------------------------------- */

static const char *value_of(const struct pair *pairs, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(pairs[i].key, key) == 0)
            return pairs[i].value;
    return NULL;
}

/* What the sidecars add is theirs; all else is kept in the order, so that the volume can be explained from it. */
static int keep_parameters(struct api_volume *v, const struct pair *pairs, size_t count, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        if (!str_starts(str_of(pairs[i].key), STR(FOREIGN)))
            r = api_volume_set_parameter(v, str_of(pairs[i].key), str_of(pairs[i].value), err);
    return r;
}

static int read_parameters(struct wish *w, const struct pair *fixed, size_t fixed_count, const struct pair *changing,
                           size_t changing_count, struct err *err)
{
    w->spec = spec_new();
    w->spec->in_cluster = true;
    int r = pairs_apply(w->spec, fixed, fixed_count, spec_set_parameter, err);
    if (r == 0)
        r = pairs_apply(w->spec, changing, changing_count, spec_modify, err);
    if (r == 0)
        r = spec_check(w->spec, err);
    if (r == 0)
        r = spec_check_served(w->spec, err);
    if (r == 0)
        r = keep_parameters(w->volume, fixed, fixed_count, err);
    return r < 0 ? r : keep_parameters(w->volume, changing, changing_count, err);
}

int wish_read(struct rpc_call *call, const Csi__V1__CreateVolumeRequest *q, struct wish *ret, struct err *err)
{
    int r = create_check(q, err);
    if (r < 0)
        return r;
    const struct pair *fixed = pairs_of(call, q, parameters);
    struct wish w = {.volume = api_volume_new(),
                     .claim_namespace = value_of(fixed, q->n_parameters, FOREIGN "pvc/namespace"),
                     .claim_name = value_of(fixed, q->n_parameters, FOREIGN "pvc/name")};
    r = read_parameters(&w, fixed, q->n_parameters, pairs_of(call, q, mutable_parameters), q->n_mutable_parameters,
                        err);
    if (r == 0)
        r = caps_size(q->capacity_range, max_u64(w.spec->params.min_volume_bytes, DISK_BYTES_MIN),
                      w.spec->params.max_volume_bytes, &w.volume->capacity_bytes, &w.limit_bytes, err);
    if (r < 0) {
        wish_done(&w);
        return r;
    }
    w.volume->meta.name = order_name(str_of(q->name));
    w.volume->pool = str_dup(str_of(w.spec->params.pool));
    *ret = w;
    return 0;
}

void wish_done(struct wish *w)
{
    api_volume_free(w->volume);
    spec_free(w->spec);
    *w = (struct wish){0};
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool is_dns_name(struct str s)
{
    bool good = s.len > 0 && s.len <= 200;
    for (size_t i = 0; i < s.len && good; i++) {
        char c = s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        good = plain || (c == '-' && i > 0 && i + 1 < s.len);
    }
    return good;
}

char *order_name(struct str csi_name)
{
    if (is_dns_name(csi_name))
        return str_dup(csi_name);
    uint8_t digest[32];
    auto_sbuf name;
    sbuf_init(&name, 2 * NAME_HASH_BYTES + 8);
    sha256(csi_name, digest);
    sbuf_adds(&name, "name-");
    sbuf_add_hex(&name, digest, NAME_HASH_BYTES);
    return str_dup(sbuf_str(&name));
}

/* ---- is it the same order? --------------------------------------------------------------------------------------- */

static int differs(const struct api_volume *have, const char *what, struct err *err)
{
    err_set(err, ERR_EXISTS, "there is a volume '%s' with another %s", have->meta.name, what);
    return err_advise(err, 2006, "delete it first, or ask for another name");
}

int order_matches(const struct api_volume *have, const struct wish *w, struct err *err)
{
    if (have->capacity_bytes < w->volume->capacity_bytes || (w->limit_bytes && have->capacity_bytes > w->limit_bytes))
        return differs(have, "capacity", err);
    auto_spec made = NULL;
    struct api_volume words = *have; /* borrows; the source is of the order, not of the call */
    words.source = NULL;
    int r = api_volume_spec(&words, &made, err);
    if (r < 0)
        return r;
    /* What a claim's annotations made of these two is not in the call. */
    made->params.hydration = w->spec->params.hydration;
    made->params.on_data_loss = w->spec->params.on_data_loss;
    const char *difference = spec_difference(made, w->spec);
    return difference ? differs(have, difference, err) : 0;
}

/* ---- where to ---------------------------------------------------------------------------------------------------- */

int pool_takes(const struct api_pool *p, uint64_t bytes, struct err *err)
{
    char have[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX];
    if (!p->pool_uuid || !api_pool_is_healthy(p)) {
        err_set(err, ERR_NO_SPACE, "pool %s on %s is not well: %.200s", p->pool, p->node,
                p->health_reason ? p->health_reason : "its node has not said how it is");
        return err_advise(err, 5102, "the scheduler will try another node");
    }
    if (p->largest_volume_bytes >= bytes)
        return 0;
    err_set(err, ERR_NO_SPACE, "pool %s on %s: %s free, %s asked", p->pool, p->node,
            bytes_text(p->largest_volume_bytes, have), bytes_text(bytes, asked));
    return err_advise(err, 2028, "the scheduler will try another node");
}

/* ---- how it stands ----------------------------------------------------------------------------------------------- */

static const struct refusal {
    const char *reason;
    enum err_code code;
    unsigned id;
    const char *advice;
} refusals[] = {
    {API_REASON_NODE_FULL, ERR_NO_SPACE, 2028, "the scheduler will try another node"},
    {API_REASON_OUT_OF_RANGE, ERR_RANGE, 2027, "ask for another size"},
    {API_REASON_INVALID, ERR_INVALID, 5103, "the node's driver may be of another version"},
    {API_REASON_EXISTS, ERR_EXISTS, 2006, "delete it first, or ask for another name"},
    /* The next call orders it again, from the pool as it is now. */
    {API_REASON_POOL_CHANGED, ERR_PENDING, 5104, "it is ordered again from the new disk"},
};

static const struct refusal *refusal_of(const struct api_volume *v)
{
    for (size_t i = 0; i < countof(refusals); i++)
        if (api_condition_says(&v->status.conditions, API_PROVISIONED, API_FALSE, refusals[i].reason))
            return &refusals[i];
    return NULL;
}

enum order_state order_state_of(const struct api_volume *v)
{
    if (v->release_requested || v->meta.deleted_ns || v->status.phase == API_PHASE_RELEASED)
        return ORDER_LEAVING;
    if (api_condition_is(&v->status.conditions, API_PROVISIONED, API_TRUE))
        return ORDER_MADE;
    return refusal_of(v) ? ORDER_REFUSED : ORDER_OPEN;
}

int order_refusal(const struct api_volume *v, struct err *err)
{
    const struct refusal *why = refusal_of(v);
    const struct api_condition *c = api_condition_find(&v->status.conditions, API_PROVISIONED);
    if (!why || !c)
        return err_set(err, ERR_INTERNAL, "the order '%s' was not refused", v->meta.name);
    err_set(err, why->code, "node %s: %.400s", v->node, c->message ? c->message : why->reason);
    return err_advise(err, why->id, "%s", why->advice);
}
