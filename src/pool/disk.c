/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/disk.h"
#include "image.h"
#include "quota.h"
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>

/* ---- which ------------------------------------------------------------------------------------------------------- */

int disk_probe(int dir, struct disk_facts *ret, struct err *err)
{
    struct statfs fs;
    if (fstatfs(dir, &fs) != 0)
        return err_sys(err, errno, "cannot read the type of the pool's file system");
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

/* NULL: quotas are available. Otherwise the reason why not. */
static const char *quota_missing(const struct disk_facts *f)
{
    if (strcmp(f->fs_type, "xfs") != 0 && strcmp(f->fs_type, "ext4") != 0)
        return "only XFS and ext4 support it";
    if (!f->quota_accounted)
        return "this kernel or mount does not count it (mount option prjquota)";
    return f->quota_enforced ? NULL : "it is counted here but not enforced (mount option prjquota)";
}

int disk_choose(const struct disk_facts *f, enum spec_backend wanted, enum spec_backend *ret, char why[DISK_WHY_MAX],
                struct err *err)
{
    const char *missing = quota_missing(f);
    if (!missing && wanted != BACKEND_LOOP) {
        snprintf(why, DISK_WHY_MAX, "quota: project quota is enforced on this %s", f->fs_type);
        *ret = BACKEND_QUOTA;
        return 0;
    }
    if (f->loop && wanted != BACKEND_QUOTA) {
        snprintf(why, DISK_WHY_MAX, "loop: %s%s", missing ? "no project quota: " : "as configured",
                 missing ? missing : "");
        *ret = BACKEND_LOOP;
        return 0;
    }
    snprintf(why, DISK_WHY_MAX, "none: %s%s", missing ? "no project quota: " : "", missing ? missing : "");
    if (wanted == BACKEND_QUOTA)
        err_set(err, ERR_UNSUPPORTED, "the pool cannot use project quota: %s", missing);
    else
        err_set(err, ERR_UNSUPPORTED, "the pool can use neither project quota (%s) nor loop devices",
                missing ? missing : "not configured");
    return err_advise(err, CIS_QUOTA_UNSUPPORTED);
}

/* ---- one volume's disk ------------------------------------------------------------------------------------------- */

/* data/ of the quota backend is a plain directory, and a disk of an unknown backend is not attached. */
static int nothing_to_do(const struct disk *, struct err *)
{
    return 0;
}

/* The file system is shared with other volumes. */
static int cannot_be_set(const struct disk *d, bool writable, struct err *err)
{
    return writable ? 0 : err_set(err, ERR_UNSUPPORTED, "'%s' has no file system of its own", d->path);
}

static int cannot_be_labelled(const struct disk *d, const char *label, struct err *err)
{
    return label ? err_fail(err, ERR_INVALID, CIS_CONTEXT_UNSUPPORTED,
                            "'%s' has no file system of its own, so its bind mount cannot have SELinux label '%s'",
                            d->path, label)
                 : 0;
}

const struct disk_operations disk_operations[] = {
    [BACKEND_AUTO] = {.detach = nothing_to_do, .release = nothing_to_do},
    [BACKEND_QUOTA] = {quota_make, quota_attach, quota_grow, cannot_be_set, cannot_be_labelled, nothing_to_do,
                       quota_unbacked, quota_release},
    [BACKEND_LOOP] = {image_make, image_attach, image_grow, image_set_writable, image_set_label, image_detach,
                      image_unbacked, image_release},
};
