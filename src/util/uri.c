/* SPDX-License-Identifier: Apache-2.0 */
#include "uri.h"

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

struct uri uri_split(struct str text)
{
    ssize_t colon = str_find(text, ':');
    struct str rest = colon < 0 ? STR_NULL : str_from(text, (size_t)colon);
    struct uri u = {.scheme = str_starts(rest, STR("://")) ? scheme_find(str_sub(text, 0, (size_t)colon)) : NULL};
    if (!u.scheme)
        return u;
    u.prefix = str_from(rest, strlen("://"));
    if (!u.scheme->is_path)
        str_split(&u.prefix, '/', &u.bucket);
    return u;
}
