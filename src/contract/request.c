/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/request.h"
#include "contract/caps.h"
#include "util/names.h"

enum { NAME_BYTES_MAX = 128 };

int need_field(const char *value, const char *field, struct err *err)
{
    return value && value[0] ? 0 : err_set(err, ERR_INVALID, "%s is missing", field);
}

int pairs_apply(struct spec *s, const struct pair *pairs, size_t count,
                int (*set)(struct spec *s, struct str key, struct str value, struct err *err), struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        int r = set(s, str_of(pairs[i].key), str_of(pairs[i].value), err);
        if (r < 0)
            return r;
    }
    return 0;
}

int create_check(const Csi__V1__CreateVolumeRequest *q, struct err *err)
{
    int r = need_field(q->name, "name", err);
    if (r == 0)
        r = caps_check_all(q->volume_capabilities, q->n_volume_capabilities, err);
    if (r < 0)
        return r;
    if (strlen(q->name) > NAME_BYTES_MAX)
        return err_set(err, ERR_INVALID, "the name has %zu bytes, %d are allowed", strlen(q->name), NAME_BYTES_MAX);
    if (q->volume_content_source)
        return err_set(err, ERR_INVALID, "volume_content_source: snapshots and clones are not offered");
    return 0;
}

const char *topology_node(const Csi__V1__Topology *t)
{
    for (size_t i = 0; i < t->n_segments; i++)
        if (strcmp(t->segments[i]->key, NAME_TOPOLOGY_KEY) == 0)
            return t->segments[i]->value;
    return NULL;
}
