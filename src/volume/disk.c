/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/disk.h"
#include "image.h"
#include "quota.h"
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>

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

/* ---- which ------------------------------------------------------------------------------------------------------- */

int disk_probe(int dir, struct disk_facts *ret, struct err *err)
{
    struct statfs fs;
    if (fstatfs(dir, &fs) != 0)
        return err_sys(err, errno, "cannot ask for the pool's file system");
    *ret = (struct disk_facts){0};
    if (fs.f_type == EXT4_SUPER_MAGIC)
        snprintf(ret->fs_type, sizeof ret->fs_type, "ext4");
    else if (fs.f_type == XFS_SUPER_MAGIC)
        snprintf(ret->fs_type, sizeof ret->fs_type, "xfs");
    else
        snprintf(ret->fs_type, sizeof ret->fs_type, "0x%lx", (unsigned long)fs.f_type);
    quota_state(dir, &ret->quota_accounted, &ret->quota_enforced);
    ret->loop = access("/dev/loop-control", R_OK | W_OK) == 0;
    return 0;
}

/* NULL: quota can be had. Otherwise the reason why not. */
static const char *quota_missing(const struct disk_facts *f)
{
    if (strcmp(f->fs_type, "xfs") != 0 && strcmp(f->fs_type, "ext4") != 0)
        return "only XFS and ext4 have it";
    if (!f->quota_accounted)
        return "this kernel or mount does not count it (mount option prjquota)";
    return f->quota_enforced ? NULL : "it is counted here but not enforced (mount option prjquota)";
}

int disk_choose(const struct disk_facts *f, enum disk_backend wish, enum disk_backend *ret, char why[DISK_WHY_MAX],
                struct err *err)
{
    const char *missing = quota_missing(f);
    if (!missing && wish != DISK_LOOP) {
        snprintf(why, DISK_WHY_MAX, "quota: project quota is enforced on this %s", f->fs_type);
        *ret = DISK_QUOTA;
        return 0;
    }
    if (f->loop && wish != DISK_QUOTA) {
        snprintf(why, DISK_WHY_MAX, "loop: %s%s", missing ? "no project quota: " : "as configured",
                 missing ? missing : "");
        *ret = DISK_LOOP;
        return 0;
    }
    snprintf(why, DISK_WHY_MAX, "none: %s%s", missing ? "no project quota: " : "", missing ? missing : "");
    if (wish == DISK_QUOTA)
        err_set(err, ERR_UNSUPPORTED, "the pool cannot use project quota: %s", missing);
    else
        err_set(err, ERR_UNSUPPORTED, "the pool can use neither project quota nor loop devices");
    return err_advise(err, 2020, "%s",
                      wish == DISK_QUOTA ? "mount the pool with prjquota, or let it use loop"
                                         : "load the module loop, or mount the pool with prjquota");
}

/* ---- one volume's disk ------------------------------------------------------------------------------------------- */

/* data/ of the quota backend is a plain folder: nothing to take down. Nor is there of a disk that nobody knows. */
static int nothing_to_do(const struct disk *d, struct err *err)
{
    (void)d;
    (void)err;
    return 0;
}

static const struct backend {
    int (*make)(const struct disk *d, struct err *err);
    int (*attach)(const struct disk *d, struct err *err);
    int (*grow)(const struct disk *d, struct err *err);
    int (*detach)(const struct disk *d, struct err *err);
    int (*unbacked)(const struct disk *d, uint64_t *ret_bytes, struct err *err);
    int (*release)(const struct disk *d, struct err *err);
} calls[] = {
    [DISK_AUTO] = {.detach = nothing_to_do, .release = nothing_to_do},
    [DISK_QUOTA] = {quota_make, quota_attach, quota_grow, nothing_to_do, quota_unbacked, quota_release},
    [DISK_LOOP] = {image_make, image_attach, image_grow, image_detach, image_unbacked, image_release},
};

int disk_make(const struct disk *d, struct err *err)
{
    return calls[d->backend].make(d, err);
}

int disk_attach(const struct disk *d, struct err *err)
{
    return calls[d->backend].attach(d, err);
}

int disk_grow(const struct disk *d, struct err *err)
{
    return calls[d->backend].grow(d, err);
}

int disk_detach(const struct disk *d, struct err *err)
{
    return calls[d->backend].detach(d, err);
}

int disk_unbacked(const struct disk *d, uint64_t *ret_bytes, struct err *err)
{
    return calls[d->backend].unbacked(d, ret_bytes, err);
}

int disk_release(const struct disk *d, struct err *err)
{
    return calls[d->backend].release(d, err);
}
