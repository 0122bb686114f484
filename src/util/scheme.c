/* SPDX-License-Identifier: Apache-2.0 */
#include "scheme.h"

#define STORE(store, ...) {__VA_ARGS__},
const struct scheme schemes[] = {
#include "stores.def"
};
#undef STORE

const struct scheme *scheme_find(struct str name)
{
    for (size_t i = 0; i < countof(schemes); i++)
        if (str_eq(name, str_of(schemes[i].name)))
            return &schemes[i];
    return NULL;
}

const struct scheme *scheme_of(struct str uri)
{
    ssize_t colon = str_find(uri, ':');
    bool is_uri = colon > 0 && str_starts(str_from(uri, (size_t)colon), STR("://"));
    return is_uri ? scheme_find(str_sub(uri, 0, (size_t)colon)) : NULL;
}

struct str scheme_rest(struct str uri)
{
    return str_from(uri, (size_t)str_find(uri, ':') + strlen("://"));
}
