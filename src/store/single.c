/* SPDX-License-Identifier: Apache-2.0 */
#include "store/single.h"
#include "util/file.h"
#include <inttypes.h>

bool store_names_object(const struct store *s)
{
    struct str prefix = store_prefix(s);
    return prefix.len > 0 && !str_ends(prefix, STR("/"));
}

static void headed(void *ctx, const struct store_reply *r)
{
    struct store_single *s = ctx;
    s->job = NULL;
    s->on_done(s->ctx, &r->object, r->code < 0 ? &r->err : NULL, s->requests + r->requests);
}

/* The key itself sorts before all keys that begin with it. */
static void listed(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count, struct str)
{
    struct store_single *s = ctx;
    s->job = NULL;
    s->requests = r->requests;
    struct str key = store_prefix(s->store);
    if (r->code == -ERR_DENIED) /* the caller may have no permission except to read the object */
        s->job = store_head(s->store, s->worker, key, headed, s);
    else if (r->code < 0)
        s->on_done(s->ctx, NULL, &r->err, s->requests);
    else
        s->on_done(s->ctx, count > 0 && str_eq(objects[0].key, key) ? &objects[0] : NULL, NULL, s->requests);
}

/* A listing, not a HEAD: its reply distinguishes a missing bucket from a missing object. */
void store_single_find(struct store_single *s)
{
    struct store_page p = {.prefix = store_prefix(s->store), .keys_max = 1, .ctx = s, .on_done = listed};
    s->job = store_list_page(s->store, s->worker, &p);
}

void store_single_cancel(struct store_single *s)
{
    if (s->job)
        store_cancel(s->job);
}

/* The length of a key before the version that other tools add: KEY?versionId=ID, and KEY#GENERATION. 0: none. */
static size_t versioned_len(struct str key)
{
    const char *id = strstr(key.ptr, "?versionId="), *generation = strrchr(key.ptr, '#');
    if (!id && generation && generation[1] && generation[1 + strspn(generation + 1, "0123456789")] == '\0')
        id = generation;
    return id ? (size_t)(id - key.ptr) : 0;
}

int store_found_nothing(const struct store *s, const char *uri, uint64_t excluded, struct err *err)
{
    struct str prefix = store_prefix(s);
    size_t key_len = versioned_len(prefix), plain_len = strcspn(prefix.ptr, "*?[");
    struct str dir = str_sub(prefix, 0, path_directory_len(str_sub(prefix, 0, plain_len))), shown = prefix;
    if (excluded > 0)
        return err_fail(err, ERR_NOT_FOUND, CIS_SOURCE_EMPTY,
                        "'%s' selects no object: include and exclude leave out all %" PRIu64
                        "; patterns match paths below the URI, in the same case",
                        uri, excluded);
    if (key_len > 0) {
        shown = str_sub(prefix, 0, key_len);
        err_set(
            err, ERR_NOT_FOUND,
            "'%s': no object has this key, and a URI names no version: write %s://%.*s/%.*s: the current version is "
            "read",
            uri, store_scheme(s), STR_FMT(store_bucket(s)), (int)min_u64(key_len, 80), prefix.ptr);
    } else if (plain_len < prefix.len) {
        shown = dir.len ? str_sub(dir, 0, dir.len - 1) : dir;
        err_set(err, ERR_NOT_FOUND,
                "'%s': no object has this key, and a URI has no wildcards: use %s://%.*s/%.*s with --include '%.*s' (a "
                "BucketSource: include)",
                uri, store_scheme(s), STR_FMT(store_bucket(s)), STR_FMT(dir), STR_FMT(str_from(prefix, dir.len)));
    } else if (str_ends(prefix, STR(" ")) || str_ends(prefix, STR("\n"))) {
        shown = str_trim(prefix);
        err_set(err, ERR_NOT_FOUND, "'%s': no object has this key, which ends with a blank: remove the blank", uri);
    } else if (!store_names_object(s)) {
        return err_fail(err, ERR_NOT_FOUND, CIS_SOURCE_EMPTY, "'%s': no object is below this prefix", uri);
    } else {
        err_set(err, ERR_NOT_FOUND, "'%s': no object has this key", uri);
    }
    return err_advise(err, CIS_KEY_NOT_FOUND, store_scheme(s), STR_FMT(store_bucket(s)), shown.len ? "/" : "",
                      (int)min_u64(shown.len, 60), shown.ptr);
}
