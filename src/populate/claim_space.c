/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the size of a claim with the free space of pools. */
#include "api/node.h"
#include "api/pool.h"
#include "private.h"
#include "util/names.h"
#include <stdio.h>

struct populate_pool_search {
    struct populate *p;
    struct api_pool *largest; /* owned; NULL: no node has reported the pool */
};

static void populate_pool_search_done(struct populate_pool_search *s)
{
    api_pool_free(s->largest);
}

static int on_pool(void *ctx, struct str, const json *object)
{
    struct populate_pool_search *s = ctx;
    auto_api_pool p = NULL;
    if (api_pool_read(object, &p, ERR_IGNORED) < 0 || !api_pool_is_healthy(p))
        return 0;
    /* The pool of a deleted node stays for a while. */
    auto_json node = kube_informer_get(s->p->o.nodes, STR_NULL, str_of(p->node));
    if (node && (!s->largest || p->largest_volume_bytes > s->largest->largest_volume_bytes)) {
        api_pool_free(s->largest);
        s->largest = take(&p);
    }
    return 0;
}

/* The pool that the class names. Borrowed from the class. */
static struct str pool_of(const json *class)
{
    struct str pool = json_str_at(class, "parameters.pool");
    return pool.len ? pool : STR(NAME_POOL_DEFAULT);
}

static const json *topologies_of(const json *class)
{
    return json_member(class, "allowedTopologies");
}

struct populate_place_search {
    struct populate *p;
    const json *topologies;
    bool found;
};

static int place_found(void *ctx, struct str, const json *pool)
{
    struct populate_place_search *s = ctx;
    if (s->found)
        return 0;
    auto_json node = kube_informer_get(s->p->o.nodes, STR_NULL, json_str_at(pool, "spec.nodeName"));
    s->found = node && api_node_is_in(node, s->topologies);
    return 0;
}

bool claim_space_awaits_pools(struct populate *p)
{
    return kube_informer_count(p->o.pools) == 0;
}

bool claim_space_has_pool(struct populate *p, const json *class)
{
    struct populate_place_search s = {.p = p, .topologies = topologies_of(class)};
    if (!s.topologies)
        return kube_informer_count_by(p->o.pools, p->o.pools_by_name, pool_of(class)) > 0;
    (void)kube_informer_each(p->o.pools, p->o.pools_by_name, pool_of(class), place_found, &s);
    return s.found;
}

int claim_space_describe_pool(struct populate *p, const struct claim_pair *c, struct err *err)
{
    auto_json class = kube_informer_get(p->classes, STR_NULL, c->target.class_name);
    auto_mem char *pool = str_dup(pool_of(class));
    if (claim_space_awaits_pools(p))
        return err_fail(err, ERR_PENDING, CIS_CLAIM_POOL_NOT_FOUND,
                        "waiting for the node drivers: none has reported a pool yet");
    return err_fail(err, ERR_NOT_FOUND, CIS_CLAIM_POOL_NOT_FOUND,
                    "StorageClass %.*s: no node%s has a pool '%s'; kubectl get cisternpools lists the pools",
                    STR_FMT(c->target.class_name), topologies_of(class) ? " of its allowedTopologies" : "", pool);
}

/* The size that the claim asks for, but at least that of its class; and the pool of the class. Views into the claim and
 * *ret_class (owned). */
static bool read_request(struct populate *p, const struct claim_pair *c, json **ret_class, struct str *ret_pool,
                         struct str *ret_size)
{
    uint64_t asked, least;
    *ret_class = kube_informer_get(p->classes, STR_NULL, c->target.class_name);
    *ret_pool = pool_of(*ret_class);
    *ret_size = json_str_at(c->target_json, "spec.resources.requests.storage");
    struct str min = json_str_at(*ret_class, "parameters.minVolumeSize");
    if (str_to_bytes(*ret_size, &asked, ERR_IGNORED) == 0 && str_to_bytes(min, &least, ERR_IGNORED) == 0 &&
        least > asked)
        *ret_size = min;
    return ret_size->len > 0;
}

int claim_space_check(struct populate *p, const struct claim_pair *c, struct err *err)
{
    struct str requested, pool;
    uint64_t bytes;
    char free_text[BYTES_TEXT_MAX];
    auto_json class = NULL;
    if (!read_request(p, c, &class, &pool, &requested) || str_to_bytes(requested, &bytes, ERR_IGNORED) < 0)
        return 0;
    auto_with(populate_pool_search_done) struct populate_pool_search s = {.p = p};
    (void)kube_informer_each(p->o.pools, p->o.pools_by_name, pool, on_pool, &s);
    if (!s.largest || bytes <= s.largest->largest_volume_bytes)
        return 0;
    return err_fail(err, ERR_NO_SPACE, CIS_POOL_FULL, "%.*s requested: the largest pool '%s' has %s free, on node %s",
                    STR_FMT(requested), s.largest->pool, bytes_text(s.largest->largest_volume_bytes, free_text),
                    s.largest->node);
}

void claim_space_describe(struct populate *p, const struct claim_pair *c, char *ret, size_t size)
{
    struct str requested, pool;
    char name[API_POOL_NAME_MAX + 1], free_text[BYTES_TEXT_MAX];
    auto_json class = NULL;
    if (!read_request(p, c, &class, &pool, &requested))
        return;
    auto_mem char *node = str_dup(c->prime.prime_node);
    auto_mem char *pool_text = str_dup(pool);
    auto_json object = NULL;
    if (api_pool_name(node, pool_text, name, ERR_IGNORED) == 0)
        object = kube_informer_get(p->o.pools, STR_NULL, str_of(name));
    auto_api_pool found = NULL;
    if (!object || api_pool_read(object, &found, ERR_IGNORED) < 0)
        snprintf(ret, size, "it has no pool %s", pool_text);
    else
        snprintf(ret, size, "pool %s has %s free, %.*s requested", pool_text,
                 bytes_text(found->available_bytes, free_text), STR_FMT(requested));
}
