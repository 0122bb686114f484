/* SPDX-License-Identifier: Apache-2.0 */
/* credential_cache.h - caches one credential for each route, and renews it at 80 % of its life.
 * home: any thread; under its own lock. At most CREDENTIAL_CACHE_MAX routes; the least recently used is removed. */
#pragma once

#include "fetch.h"

struct credential_cache;

enum { CREDENTIAL_CACHE_MAX = 4096 };

struct credential_cache *credential_cache_new(const struct fetcher *f); /* `f` is borrowed */
void credential_cache_free(struct credential_cache *own_k);             /* no caller waits any more */

struct cached_credential {
    struct creds_identity *identity; /* the caller's */
    char method[FETCH_METHOD_MAX];
    char principal[FETCH_PRINCIPAL_MAX];
};

/* Returns the cached credential of the route, or fetches one. A failure is cached for 20 s, or as long as the cloud
 * asks for. `refused`: fingerprint of a credential that the store rejected; it is replaced, at most once in 20 s. */
must_check int credential_cache_get(struct credential_cache *k, const struct route *r, const char *refused,
                                    struct cached_credential *ret, struct err *err);
