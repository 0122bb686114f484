/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/local.h"
#include "driver.h"
#include "record.h"
#include "volume/mount.h"
#include <stdio.h>

size_t local_pool_count(const struct driver *d)
{
    return d->space_count;
}

struct space *local_pool(const struct driver *d, size_t index)
{
    return d->spaces[index];
}

struct space *local_pool_named(const struct driver *d, const char *name)
{
    for (size_t i = 0; i < d->space_count; i++)
        if (strcmp(space_name(d->spaces[i]), name) == 0)
            return d->spaces[i];
    return NULL;
}

int local_make(struct driver *d, struct space *s, const struct spec *want, struct err *err)
{
    char key[CLAIM_KEY_MAX];
    auto_claim claim = {0};
    auto_volume v = NULL;
    snprintf(key, sizeof key, "/%.*s", CLAIM_KEY_MAX - 2, want->name);
    int r = claim_take(&d->claims, key, &claim, err);
    return r < 0 ? r : space_create(s, want, 0, &v, err);
}

static int is_mounted(const char *path, bool *ret, struct err *err)
{
    struct mount m;
    int r = mount_find(path, &m, ret, err);
    if (r == 0 && *ret)
        mount_done(&m);
    return r;
}

int local_use(struct driver *d, const struct volume *v, struct local_use *ret, struct err *err)
{
    auto_record record = {0};
    struct keeper_status status;
    struct err ignored;
    struct local_use use = {0};
    int r = record_read(v->dir, &record, err);
    if (r == 0 && record.staged)
        r = is_mounted(record.staged, &use.staged, err);
    for (size_t i = 0; r == 0 && !use.published && i < record.target_count; i++)
        r = is_mounted(record.targets[i].path, &use.published, err);
    if (r < 0)
        return r;
    use.read_only = record.read_only;
    use.written = record.written;
    use.unpublished_ns = record.unpublished_ns;
    use.fuse = record.fuse;
    if (use.staged && use.fuse && keeper_status(d->keeper_socket, v->spec->id, &status, &ignored) == 0)
        use.passthrough = status.passthrough;
    *ret = use;
    return 0;
}
