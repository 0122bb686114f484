/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"
#include "csi/caps.h"
#include "util/names.h"

enum { NAME_BYTES_MAX = 128 };

int need_field(const char *value, const char *field, struct err *err)
{
    return value && value[0] ? 0 : err_set(err, ERR_INVALID, "%s is missing", field);
}

int csi_volume_not_found(const char *id, struct err *err)
{
    return err_fail(err, ERR_NOT_FOUND, CIS_VOLUME_NOT_FOUND, "volume '%.128s': not found", id);
}

int csi_token_invalid(const char *token, struct err *err)
{
    return err_set(err, ERR_PENDING, "starting_token '%.64s' is invalid: list again without a token", token);
}

int need_id(const char *text, struct volume_id *ret, struct err *err)
{
    int r = need_field(text, "volume_id", err);
    return r < 0 || volume_id_parse(str_of(text), ret) ? r : csi_volume_not_found(text, err);
}

const char *csi_pairs_value(struct csi_pairs pairs, const char *key)
{
    for (size_t i = 0; i < pairs.count; i++)
        if (strcmp(pairs.items[i].key, key) == 0)
            return pairs.items[i].value;
    return NULL;
}

int pairs_apply(struct spec *s, struct csi_pairs pairs,
                int (*set)(struct spec *s, struct str key, struct str value, struct err *err), struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < pairs.count; i++)
        r = set(s, str_of(pairs.items[i].key), str_of(pairs.items[i].value), err);
    return r;
}

int create_check(const Csi__V1__CreateVolumeRequest *q, struct err *err)
{
    int r = need_field(q->name, "name", err);
    if (r == 0)
        r = caps_check_all(q->volume_capabilities, q->n_volume_capabilities, err);
    if (r < 0)
        return r;
    if (strlen(q->name) > NAME_BYTES_MAX)
        return err_set(err, ERR_INVALID, "name: %zu bytes, the maximum is %d", strlen(q->name), NAME_BYTES_MAX);
    if (q->volume_content_source)
        return err_set(err, ERR_INVALID, "volume_content_source: snapshots and clones are unsupported");
    return 0;
}

struct csi_place topology_place(const Csi__V1__Topology *t)
{
    for (size_t i = 0; i < t->n_segments; i++)
        if (strcmp(t->segments[i]->key, NAME_TOPOLOGY_KEY) == 0)
            return (struct csi_place){.node = t->segments[i]->value};
    return (struct csi_place){.other_key = t->n_segments > 0 ? t->segments[0]->key : NULL};
}
