/* SPDX-License-Identifier: Apache-2.0 */
#include "api/pool.h"
#include "util/clock.h"
#include "util/json_fields.h"
#include "util/names.h"
#include <stdio.h>

#define AT(field) .offset = offsetof(struct api_pool, field)

const struct kube_resource api_pools = {
    .group = NAME_API_GROUP, .version = NAME_API_VERSION, .plural = "cisternpools", .kind = API_POOL_KIND};

static const struct json_field spec_fields[] = {
    {"spec.nodeName", JSON_TEXT, AT(node)},
    {"spec.pool", JSON_TEXT, AT(pool)},
    {"spec.volumesGeneration", JSON_U64, AT(volumes_generation)},
};

static const struct json_field status_fields[] = {
    {"status.volumesGeneration", JSON_U64, AT(seen_volumes_generation), .flags = JSON_ALWAYS},
    {"status.poolUUID", JSON_TEXT, AT(pool_uuid)},
    {"status.nodeUID", JSON_TEXT, AT(node_uid)},
    {"status.path", JSON_TEXT, AT(path)},
    {"status.backend", JSON_TEXT, AT(backend)},
    {"status.fsType", JSON_TEXT, AT(fs_type)},
    {"status.capacityBytes", JSON_U64, AT(capacity_bytes), .flags = JSON_ALWAYS},
    {"status.allocatedBytes", JSON_U64, AT(allocated_bytes), .flags = JSON_ALWAYS},
    {"status.availableBytes", JSON_U64, AT(available_bytes), .flags = JSON_ALWAYS},
    {"status.largestVolumeBytes", JSON_U64, AT(largest_volume_bytes), .flags = JSON_ALWAYS},
    {"status.volumes", JSON_U64, AT(volumes), .flags = JSON_ALWAYS},
    {"status.quarantinedVolumes", JSON_U64, AT(quarantined)},
    {"status.health.status", JSON_TEXT, AT(health)},
    {"status.health.reason", JSON_TEXT, AT(health_reason)},
    {"status.agentVersion", JSON_TEXT, AT(agent_version)},
};

struct api_pool *api_pool_new(void)
{
    return xcalloc(1, sizeof(struct api_pool));
}

void api_pool_free(struct api_pool *own_p)
{
    if (!own_p)
        return;
    api_meta_done(&own_p->meta);
    free(own_p->given_up);
    json_fields_clear(spec_fields, countof(spec_fields), own_p);
    json_fields_clear(status_fields, countof(status_fields), own_p);
    free(own_p);
}

int api_pool_read(const json *j, struct api_pool **ret, struct err *err)
{
    auto_api_pool p = api_pool_new();
    int r = api_meta_read(j, &p->meta, err);
    if (r == 0)
        r = json_fields_read(j, spec_fields, countof(spec_fields), p, err);
    if (r == 0)
        r = json_fields_read(j, status_fields, countof(status_fields), p, err);
    struct str given_up = json_member_str(json_at(j, "metadata.annotations"), NAME_ANNOTATION_REPLACE_POOL);
    p->given_up = given_up.len ? str_dup(given_up) : NULL;
    if (r == 0 && (!p->node || !p->pool))
        r = err_set(err, ERR_INVALID, "'spec.nodeName' or 'spec.pool' is missing");
    if (r < 0)
        return err_wrap(err, "CisternPool '%s'", p->meta.name ? p->meta.name : "?");
    *ret = take(&p);
    return 0;
}

static bool is_label(struct str s)
{
    return s.len > 0 && s.len <= 63 && s.ptr[0] != '-' && s.ptr[s.len - 1] != '-' &&
           str_is_of(s, CHARS_LOWER CHARS_DIGITS "-");
}

int api_pool_name(const char *node, const char *pool, char ret[API_POOL_NAME_MAX + 1], struct err *err)
{
    if (!is_label(str_of(pool)))
        return err_set(err, ERR_INVALID, "'%.80s' is not a valid pool name: use lower-case letters, digits and '-'",
                       pool);
    int n = snprintf(ret, API_POOL_NAME_MAX + 1, "%s.%s", node, pool);
    if (!node[0] || n > API_POOL_NAME_MAX)
        return err_set(err, ERR_INVALID, "the node's name '%.200s' is empty or too long", node);
    return 0;
}

/* The generation is the time, so that two replicas need not agree on a number: any change wakes the node. Whole
 * microseconds stay exact in a double, as some readers parse JSON numbers. */
int api_pool_wake(struct kube *k, const struct kube_lease *fence, const char *node, const char *pool, struct err *err)
{
    char name[API_POOL_NAME_MAX + 1];
    auto_json patch = json_new_object();
    int r = api_pool_name(node, pool, name, err);
    if (r < 0)
        return r;
    json_set_u64(patch, "spec.volumesGeneration", (uint64_t)clock_wall_ns() / 1000);
    struct kube_request q = {
        .verb = KUBE_MERGE_PATCH, .resource = &api_pools, .name = str_of(name), .body = patch, .fence = fence};
    r = kube_call(k, &q, NULL, err);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

json *api_pool_json(const struct api_pool *p)
{
    json *j = api_document(&api_pools, &p->meta);
    json_fields_write(j, spec_fields, countof(spec_fields), p);
    return j;
}

json *api_pool_status_json(const struct api_pool *p)
{
    char text[BYTES_TEXT_MAX];
    json *j = api_document(&api_pools, &p->meta);
    json_fields_write(j, status_fields, countof(status_fields), p);
    json_set_str(j, "status.summary.free", str_of(bytes_text(p->available_bytes, text)));
    json_set_str(j, "status.summary.total", str_of(bytes_text(p->capacity_bytes, text)));
    return j;
}

bool api_pool_is_healthy(const struct api_pool *p)
{
    return p->health && strcmp(p->health, "Healthy") == 0;
}
