/* SPDX-License-Identifier: Apache-2.0 */
/* A volume whose volume.json is damaged or gone still has its data and its promise. Who ordered it knows what it is;
 * what its disk is, the folder itself shows. */
#include "pool.h"
#include "quota.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define DAMAGED VOLUME_SPEC ".damaged"

/* The image's length is what was promised last: a growth that the order does not know yet stays. */
static int look_at_disk(const struct held *h, struct spec *made, struct err *err)
{
    struct stat st;
    uint32_t project = 0;
    if (fstatat(h->dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        made->backend = DISK_LOOP;
        made->capacity_bytes = max_u64(made->capacity_bytes, (uint64_t)st.st_size);
        return 0;
    }
    made->backend = DISK_QUOTA;
    if (quota_project_of(h->dir, &project, err) == 0 && project != 0) {
        made->project = project;
        return 0;
    }
    err_set(err, ERR_CORRUPT, "'%s' has neither '" VOLUME_IMAGE "' nor a limited '" VOLUME_DATA "'", h->path);
    return err_advise(err, 2005, "nothing of the volume can be served: discard it, or restore its folder");
}

/* The damaged file first gets out of the way, for a person to look at: dying in between leaves a volume without
 * volume.json, which is mended by the same call again. */
static int write_anew(struct space *s, const struct held *h, const struct spec *made, struct err *err)
{
    auto_mem char *text = spec_to_json(made);
    if (renameat(h->dir, VOLUME_SPEC, h->dir, DAMAGED) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot move '%s/%s' aside", h->path, VOLUME_SPEC);
    int r = space_lock(s, err);
    if (r < 0)
        return r;
    r = space_touch(s, err);
    if (r == 0)
        r = file_replace(h->dir, VOLUME_SPEC, str_of(text), 0644, err);
    if (r == 0) {
        ledger_remove(&s->ledger, str_of(made->id));
        ledger_add(&s->ledger, made, LEDGER_READY);
    }
    space_unlock(s);
    return r;
}

int space_restore(struct space *s, const struct spec *known, struct err *err)
{
    auto_held h = {.dir = -1};
    auto_volume there = NULL;
    struct err damage;
    struct spec made = *known; /* a shallow copy: strings stay the caller's */
    int r = held_open(s, s->volumes, known->id, &h, err);
    if (r < 0)
        return r;
    int state = space_find(s, str_of(known->id), &there, &damage);
    if (state != -ERR_CORRUPT)
        return state < 0 ? err_copy(err, &damage) : 0;
    r = look_at_disk(&h, &made, err);
    if (r == 0)
        r = write_anew(s, &h, &made, err);
    return r < 0 ? err_wrap(err, "restoring the record of the volume '%s'", known->id) : 0;
}
