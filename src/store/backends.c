/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"

#define BACKEND(name) extern const struct store_backend backend_##name;
#include "backends.def"
#undef BACKEND

static const struct store_backend *const backends[] = {
#define BACKEND(name) &backend_##name,
#include "backends.def"
#undef BACKEND
};

const struct store_backend *backend_find(struct str scheme)
{
    for (size_t i = 0; i < countof(backends); i++)
        if (str_eq(scheme, str_of(backends[i]->caps.scheme)))
            return backends[i];
    return NULL;
}
