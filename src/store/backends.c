/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"

#define STORE(name, ...) extern const struct store_backend backend_##name;
#include "util/stores.def"
#undef STORE

static const struct store_backend *const backends[] = {
#define STORE(name, ...) &backend_##name,
#include "util/stores.def"
#undef STORE
};

const struct store_backend *backend_of(const struct scheme *scheme)
{
    return backends[scheme - schemes];
}

enum creds_kind store_creds_kind(const struct scheme *scheme)
{
    return scheme ? backend_of(scheme)->caps.creds : CREDS_NONE;
}
