/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/disk.h"

static const char *const backends[] = {[DISK_AUTO] = "auto", [DISK_QUOTA] = "quota", [DISK_LOOP] = "loop"};

const char *disk_backend_name(enum disk_backend b)
{
    return (size_t)b < countof(backends) ? backends[b] : "auto";
}

int disk_backend_parse(struct str s, enum disk_backend *ret, struct err *err)
{
    for (size_t i = 0; i < countof(backends); i++)
        if (str_eq(s, str_of(backends[i]))) {
            *ret = (enum disk_backend)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "'%.*s' is no backend: auto, quota or loop is wanted", (int)min_u64(s.len, 60),
                   s.len ? s.ptr : "");
}
