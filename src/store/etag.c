/* SPDX-License-Identifier: Apache-2.0 */
#include "etag.h"
#include <inttypes.h>
#include <stdio.h>

bool etag_is_weak(struct str etag)
{
    return str_starts(etag, STR("W/"));
}

struct str etag_unquoted(struct str etag)
{
    bool quoted = etag.len >= 2 && etag.ptr[0] == '"' && etag.ptr[etag.len - 1] == '"';
    return quoted ? str_sub(etag, 1, etag.len - 2) : etag;
}

struct str etag_bare(struct str etag)
{
    return etag_unquoted(etag_is_weak(etag) ? str_from(etag, 2) : etag);
}

bool etag_is_same(struct str a, struct str b)
{
    return str_eq(etag_bare(a), etag_bare(b));
}

bool store_object_is_pinned(const struct store_object *o)
{
    return o->etag.len > 0 || o->generation > 0;
}

void store_object_tag(const struct store_object *o, char ret[STORE_OBJECT_TAG_MAX])
{
    ret[0] = '\0';
    if (o->generation)
        snprintf(ret, STORE_OBJECT_TAG_MAX, "%" PRIu64, o->generation);
    else if (o->etag.len < STORE_OBJECT_TAG_MAX)
        snprintf(ret, STORE_OBJECT_TAG_MAX, "%.*s", STR_FMT(o->etag));
}

int store_object_outdated(struct err *err)
{
    return err->code == ERR_NOT_FOUND ? err_advise(err, CIS_OBJECT_NOT_FOUND) : err_advise(err, CIS_OBJECT_CHANGED);
}

bool store_object_is_same(const struct store_object *a, const struct store_object *b)
{
    if (a->generation && b->generation)
        return a->generation == b->generation;
    if (a->etag.len && b->etag.len)
        return etag_is_same(a->etag, b->etag);
    return !a->mtime_ns || !b->mtime_ns || a->mtime_ns == b->mtime_ns;
}
