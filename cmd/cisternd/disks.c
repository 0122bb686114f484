/* SPDX-License-Identifier: Apache-2.0 */
/* --disks: pools that are made of the node's own NVMe disks before they are opened. */
#include "cisternd.h"
#include "volume/raid.h"
#include <string.h>

struct wishes {
    const char *models[OPT_LIST_MAX], *names[OPT_LIST_MAX], *wipe[OPT_LIST_MAX];
    struct disks_wish wish;
};

/* "model:PATTERN", "path:/dev/NAME", "wipe:SERIAL" */
static int add(struct wishes *w, const char *text, struct err *err)
{
    struct disks_wish *d = &w->wish;
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

static int gather(const char *pool, struct wishes *w, struct err *err)
{
    size_t len = strlen(pool);
    *w = (struct wishes){.wish = {.pool = pool}};
    w->wish.models = w->models;
    w->wish.names = w->names;
    w->wish.wipe = w->wipe;
    for (size_t i = 0; i < flags.disks.count; i++) {
        const char *item = flags.disks.items[i];
        if (strncmp(item, pool, len) != 0 || item[len] != '=')
            continue;
        int r = add(w, item + len + 1, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool has_pool(const struct pools *pools, const char *item)
{
    const char *equals = strchr(item, '=');
    for (size_t i = 0; equals && i < flags.pools.count; i++)
        if (strlen(pools->names[i]) == (size_t)(equals - item) &&
            strncmp(pools->names[i], item, (size_t)(equals - item)) == 0)
            return true;
    return false;
}

int ensure_disks(const struct pools *pools, struct err *err)
{
    for (size_t i = 0; i < flags.disks.count; i++)
        if (!has_pool(pools, flags.disks.items[i]))
            return err_set(err, ERR_INVALID, "--disks '%s' is not POOL=... of a pool given with --pool",
                           flags.disks.items[i]);
    for (size_t i = 0; i < flags.pools.count; i++) {
        struct wishes w;
        int r = gather(pools->names[i], &w, err);
        if (r == 0 && w.wish.model_count + w.wish.name_count > 0)
            r = raid_ensure(&w.wish, pools->items[i].path, err);
        if (r < 0)
            return r;
    }
    return 0;
}
