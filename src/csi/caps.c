/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/caps.h"
#include <inttypes.h>

enum { CONTEXT_BYTES_MAX = 255 };

#define MODE(m) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##m

static const char *caps_mode_name(int mode)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&csi__v1__volume_capability__access_mode__mode__descriptor, mode);
    return v ? v->name : "no known mode";
}

static int mode_of(const Csi__V1__VolumeCapability *c)
{
    return c->access_mode ? (int)c->access_mode->mode : MODE(UNKNOWN);
}

static int check_mode(int mode, struct err *err)
{
    switch (mode) {
    case MODE(SINGLE_NODE_WRITER):
    case MODE(SINGLE_NODE_READER_ONLY):
    case MODE(SINGLE_NODE_SINGLE_WRITER):
    case MODE(SINGLE_NODE_MULTI_WRITER):
        return 0;
    case MODE(UNKNOWN):
        return err_set(err, ERR_INVALID, "the volume capability has no access mode");
    default:
        return err_set(err, ERR_INVALID,
                       "access mode %s: unsupported: a volume is on one node's disk, use a SINGLE_NODE_* mode",
                       caps_mode_name(mode));
    }
}

/* Text that mount(2) takes in quotes. */
static bool is_context(struct str s)
{
    return s.len > 0 && s.len <= CONTEXT_BYTES_MAX && str_is_visible(s, "\"\\");
}

int caps_context(const Csi__V1__VolumeCapability *c, struct str *ret, struct err *err)
{
    struct str context = STR_NULL;
    for (size_t i = 0; c->mount && i < c->mount->n_mount_flags; i++) {
        struct str flag = str_of(c->mount->mount_flags[i]);
        if (!str_starts(flag, STR("context=")) || context.len > 0) {
            return err_fail(
                err, ERR_INVALID, CIS_PARAMETER_INVALID,
                "mount flag '%.300s': unsupported: mountOptions of a StorageClass may only have one context=",
                flag.ptr);
        }
        context = str_from(flag, strlen("context="));
        if (context.len > 1 && context.ptr[0] == '"' && context.ptr[context.len - 1] == '"')
            context = str_sub(context, 1, context.len - 2);
        if (!is_context(context))
            return err_set(err, ERR_INVALID, "mount flag '%.300s': not a label of at most %d characters", flag.ptr,
                           CONTEXT_BYTES_MAX);
    }
    *ret = context;
    return 0;
}

int caps_check(const Csi__V1__VolumeCapability *c, struct err *err)
{
    struct str context;
    if (c->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
        return err_set(err, ERR_INVALID, "volume capability: block volumes are unsupported, use a mount");
    if (c->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT || !c->mount)
        return err_set(err, ERR_INVALID, "the volume capability has no access type");
    if (c->mount->fs_type[0])
        return err_set(err, ERR_INVALID, "fs_type '%s': unsupported: it must be empty", c->mount->fs_type);
    int r = caps_context(c, &context, err);
    return r < 0 ? r : check_mode(mode_of(c), err);
}

int caps_check_all(Csi__V1__VolumeCapability *const *c, size_t count, struct err *err)
{
    if (count == 0)
        return err_set(err, ERR_INVALID, "volume_capabilities is missing");
    for (size_t i = 0; i < count; i++) {
        int r = caps_check(c[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

bool caps_is_read_only(const Csi__V1__VolumeCapability *c)
{
    return mode_of(c) == MODE(SINGLE_NODE_READER_ONLY);
}

bool caps_is_shared(const Csi__V1__VolumeCapability *c)
{
    return mode_of(c) == MODE(SINGLE_NODE_MULTI_WRITER) || mode_of(c) == MODE(SINGLE_NODE_READER_ONLY);
}

int caps_group(const Csi__V1__VolumeCapability *c, bool *ret_has, uint32_t *ret, struct err *err)
{
    uint64_t group;
    if (!c->mount || !c->mount->volume_mount_group[0]) {
        *ret_has = false;
        *ret = 0;
        return 0;
    }
    int r = str_to_u64(str_of(c->mount->volume_mount_group), &group, err);
    if (r < 0)
        return err_wrap(err, "volume_mount_group");
    if (group >= UINT32_MAX)
        return err_set(err, ERR_INVALID, "volume_mount_group '%s': not a group id", c->mount->volume_mount_group);
    *ret_has = true;
    *ret = (uint32_t)group;
    return 0;
}

int caps_size(const Csi__V1__CapacityRange *r, uint64_t least, uint64_t most, uint64_t *ret, uint64_t *ret_limit,
              struct err *err)
{
    int64_t required = r ? r->required_bytes : 0, limit = r ? r->limit_bytes : 0;
    char most_text[BYTES_TEXT_MAX];
    if (required < 0 || limit < 0)
        return err_set(err, ERR_INVALID, "the capacity range %" PRId64 " to %" PRId64 " is negative", required, limit);
    if (limit > 0 && limit < required)
        return err_set(err, ERR_RANGE, "the capacity range %" PRId64 " to %" PRId64 " is empty", required, limit);
    uint64_t size = max_u64((uint64_t)required, least);
    if (limit > 0 && size > (uint64_t)limit)
        return err_set(err, ERR_RANGE, "limit_bytes %" PRId64 ": too small: a volume has at least %" PRIu64 " bytes",
                       limit, least);
    if (most > 0 && size > most)
        return err_set(err, ERR_RANGE, "required_bytes %" PRIu64 ": too large: maxVolumeSize of this class is %s", size,
                       bytes_text(most, most_text));
    *ret = size;
    *ret_limit = (uint64_t)limit;
    return 0;
}
