/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"
#include "util/hash.h"
#include <inttypes.h>

enum { NAME_HASH_BYTES = 16 };

/* ---- the words of the call --------------------------------------------------------------------------------------- */

/* The order keeps all parameters except the sidecars', so that it explains the volume. */
static int keep_parameters(struct api_volume *v, struct csi_pairs pairs, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < pairs.count && r == 0; i++)
        if (!str_starts(str_of(pairs.items[i].key), STR("csi.storage.k8s.io/")))
            r = api_volume_set_parameter(v, str_of(pairs.items[i].key), str_of(pairs.items[i].value), err);
    return r;
}

int order_request_read(const struct csi_create *q, struct order_request *ret, struct err *err)
{
    struct order_request o = {.create = q, .volume = api_volume_new()};
    int r = keep_parameters(o.volume, q->parameters, err);
    if (r == 0)
        r = keep_parameters(o.volume, q->mutable_parameters, err);
    if (r < 0) {
        order_request_done(&o);
        return r;
    }
    o.volume->capacity_bytes = q->spec->capacity_bytes;
    o.volume->meta.name = order_name(str_of(q->name));
    o.volume->pool = str_dup(str_of(q->spec->params.pool));
    *ret = o;
    return 0;
}

void order_request_done(struct order_request *o)
{
    api_volume_free(o->volume);
    *o = (struct order_request){0};
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool is_dns_name(struct str s)
{
    return s.len > 0 && s.len <= 200 && str_is_of(s, CHARS_LOWER CHARS_DIGITS "-") && !str_starts(s, STR("-")) &&
           !str_ends(s, STR("-"));
}

char *order_name(struct str csi_name)
{
    if (is_dns_name(csi_name))
        return str_dup(csi_name);
    uint8_t digest[32];
    char hex[2 * NAME_HASH_BYTES + 1];
    sha256(csi_name, digest);
    return str_dupf("name-%s", hex_text(digest, NAME_HASH_BYTES, hex));
}

/* ---- comparing with an existing order ---------------------------------------------------------------------------- */

static int differs(const struct api_volume *have, const char *what, struct err *err)
{
    return err_fail(err, ERR_EXISTS, CIS_VOLUME_EXISTS, "volume '%s': exists already with another %s", have->meta.name,
                    what);
}

int order_matches(const struct api_volume *have, const struct order_request *o, struct err *err)
{
    if (have->capacity_bytes < o->volume->capacity_bytes ||
        (o->create->limit_bytes && have->capacity_bytes > o->create->limit_bytes))
        return differs(have, "capacity", err);
    auto_spec made = NULL;
    struct api_volume words = *have; /* borrowed; the source comes from the order, because the call has none */
    words.source = NULL;
    int r = api_volume_spec(&words, &made, err);
    if (r < 0)
        return r;
    /* The claim's annotations may have changed these two parameters; the call does not have them. */
    made->params.hydration = o->create->spec->params.hydration;
    made->params.on_data_loss = o->create->spec->params.on_data_loss;
    const char *difference = spec_difference(made, o->create->spec);
    return difference ? differs(have, difference, err) : 0;
}

/* ---- where to ---------------------------------------------------------------------------------------------------- */

int order_check_pool(const struct api_pool *p, uint64_t bytes, struct err *err)
{
    char have[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX];
    if (!p->pool_uuid || !api_pool_is_healthy(p))
        return err_fail(err, ERR_NO_SPACE, CIS_POOL_UNHEALTHY, "pool %s on %s: unhealthy: %.200s", p->pool, p->node,
                        p->health_reason ? p->health_reason : "its node has not reported its health");
    if (p->largest_volume_bytes >= bytes)
        return 0;
    return err_fail(err, ERR_NO_SPACE, CIS_POOL_FULL, "pool %s on %s: full: %s free, %s required", p->pool, p->node,
                    bytes_text(p->largest_volume_bytes, have), bytes_text(bytes, asked));
}

/* ---- state of an order ------------------------------------------------------------------------------------------- */

static const struct refusal {
    const char *reason;
    enum err_code code;
    enum err_id id;
} refusals[] = {
    {API_REASON_NODE_FULL, ERR_NO_SPACE, CIS_POOL_FULL},
    {API_REASON_OUT_OF_RANGE, ERR_RANGE, CIS_VOLUME_SIZE},
    {API_REASON_INVALID, ERR_INVALID, CIS_NODE_REFUSED},
    {API_REASON_EXISTS, ERR_EXISTS, CIS_VOLUME_EXISTS},
    {API_REASON_POOL_CHANGED, ERR_PENDING, CIS_POOL_DISK_REPLACED}, /* the next call orders it from the present pool */
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
        return err_set(err, ERR_INTERNAL, "order '%s': not refused", v->meta.name);
    err_set(err, why->code, "node %s: %.400s", v->node, c->message ? c->message : why->reason);
    return why->code == ERR_RANGE ? err_advise(err, CIS_VOLUME_SIZE, SPEC_BYTES_MIN) : err_advise_by_id(err, why->id);
}
