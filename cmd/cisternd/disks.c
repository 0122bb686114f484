/* SPDX-License-Identifier: Apache-2.0 */
/* --disks: which NVMe disks of the node are which pool. */
#include "pool/disks.h"
#include "cisternd.h"
#include <stdio.h>
#include <string.h>

/* Frozen once parsed; the driver borrows it until the end. */
static struct disk_flags {
    const char *models[OPT_LIST_MAX], *names[OPT_LIST_MAX], *wipe[OPT_LIST_MAX];
    char pool[64];
    struct disks_wanted wish;
} wanted[DRIVER_POOLS_MAX];

/* "model:PATTERN", "path:/dev/NAME", "wipe:SERIAL" */
static int add(struct disk_flags *w, const char *text, struct err *err)
{
    struct disks_wanted *d = &w->wish;
    const char *path = "path:/dev/";
    if (strncmp(text, "model:", 6) == 0 && text[6])
        w->models[d->model_count++] = text + 6;
    else if (strncmp(text, path, strlen(path)) == 0 && text[strlen(path)])
        w->names[d->name_count++] = text + strlen(path);
    else if (strncmp(text, "wipe:", 5) == 0 && text[5])
        w->wipe[d->wipe_count++] = text + 5;
    else
        return err_set(err, ERR_INVALID, "--disks: '%s' is not model:PATTERN, path:/dev/NAME or wipe:SERIAL", text);
    return 0;
}

static int gather(struct disk_flags *w, struct err *err)
{
    size_t len = strlen(w->pool);
    w->wish = (struct disks_wanted){.pool = w->pool, .models = w->models, .names = w->names, .wipe = w->wipe};
    for (size_t i = 0; i < flags.disks.count; i++) {
        const char *item = flags.disks.items[i];
        if (strncmp(item, w->pool, len) != 0 || item[len] != '=')
            continue;
        int r = add(w, item + len + 1, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool has_pool(const struct pool_flags *pools, const char *item)
{
    const char *equals = strchr(item, '=');
    for (size_t i = 0; equals && i < flags.pools.count; i++)
        if (strlen(pools->names[i]) == (size_t)(equals - item) &&
            strncmp(pools->names[i], item, (size_t)(equals - item)) == 0)
            return true;
    return false;
}

int parse_disks(struct pool_flags *pools, struct err *err)
{
    for (size_t i = 0; i < flags.disks.count; i++)
        if (!has_pool(pools, flags.disks.items[i]))
            return err_set(err, ERR_INVALID, "--disks '%s' is not POOL=... of a pool given with --pool",
                           flags.disks.items[i]);
    for (size_t i = 0; i < flags.pools.count; i++) {
        struct disk_flags *w = &wanted[i];
        snprintf(w->pool, sizeof w->pool, "%s", pools->names[i]);
        int r = gather(w, err);
        if (r < 0)
            return r;
        if (w->wish.model_count + w->wish.name_count > 0)
            pools->items[i].disks = &w->wish;
    }
    return 0;
}
