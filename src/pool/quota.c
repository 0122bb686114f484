/* SPDX-License-Identifier: Apache-2.0 */
/* quotactl_fd() names the file system by a directory on it: no device path, which a container may not have. XFS and
 * ext4 both support the generic calls. */
#include "quota.h"
#include "pool/volume.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    UNIT_BYTES = 1024, /* QIF_DQBLKSIZE: what limits are counted in */
    ATTEMPTS_MAX = 64,
    /* A file with content occupies a block of this size, so the bytes run out first. Empty files have no block. But
     * their inodes take space that XFS counts for no project, and ext4 has a fixed number of them for all volumes. */
    BYTES_PER_INODE = 4096,
};

static int quota_call(int dir, unsigned command, uint32_t project, void *data)
{
    /* quotactl_fd takes neither O_PATH descriptors nor AT_FDCWD. */
    auto_fd fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : (int)syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), project, data);
}

void quota_state(int dir, bool *ret_accounted, bool *ret_enforced)
{
    struct fs_quota_statv state = {.qs_version = FS_QSTATV_VERSION1};
    bool known = quota_call(dir, Q_XGETQSTATV, 0, &state) == 0;
    *ret_accounted = known && state.qs_flags & FS_QUOTA_PDQ_ACCT;
    *ret_enforced = known && state.qs_flags & FS_QUOTA_PDQ_ENFD;
}

/* XFS has no record of a project that was never used, and returns ENOENT. */
static int usage_of(int dir, uint32_t project, struct if_dqblk *ret, struct err *err)
{
    *ret = (struct if_dqblk){0};
    if (quota_call(dir, Q_GETQUOTA, project, ret) == 0 || errno == ENOENT)
        return 0;
    return err_sys(err, errno, "cannot read the quota of project %u", project);
}

int quota_project_new(int dir, uint32_t *ret, struct err *err)
{
    for (unsigned i = 0; i < ATTEMPTS_MAX; i++) {
        /* A random high number that is unused: other users of project quotas (container runtimes) count theirs
         * from below. */
        uint32_t project = (uint32_t)clock_random() | UINT32_C(1) << 30;
        project &= INT32_MAX;
        struct if_dqblk usage;
        int r = usage_of(dir, project, &usage, err);
        if (r < 0)
            return r;
        if (usage.dqb_curspace == 0 && usage.dqb_curinodes == 0 && usage.dqb_bhardlimit == 0) {
            *ret = project;
            return 0;
        }
    }
    return err_set(err, ERR_NO_SPACE, "found no free project id in %d attempts", ATTEMPTS_MAX);
}

int quota_project_of(int dir, uint32_t *ret, struct err *err)
{
    struct fsxattr attr;
    auto_fd data = openat(dir, VOLUME_DATA, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (data < 0 || ioctl(data, FS_IOC_FSGETXATTR, &attr) != 0)
        return err_sys(err, errno, "cannot read the project of '%s'", VOLUME_DATA);
    *ret = attr.fsx_projid;
    return 0;
}

static int set_limit(const struct disk *d, uint64_t bytes, struct err *err)
{
    struct if_dqblk limit = {.dqb_bhardlimit = (bytes + UNIT_BYTES - 1) / UNIT_BYTES,
                             .dqb_ihardlimit = (bytes + BYTES_PER_INODE - 1) / BYTES_PER_INODE,
                             .dqb_valid = QIF_LIMITS};
    if (quota_call(d->dir, Q_SETQUOTA, d->project, &limit) != 0)
        return err_sys(err, errno, "cannot limit '%s' to %llu bytes", d->path, (unsigned long long)bytes);
    return 0;
}

static int check_enforced(const struct disk *d, struct err *err)
{
    bool accounted, enforced;
    quota_state(d->dir, &accounted, &enforced);
    if (enforced)
        return 0;
    return err_fail(err, ERR_UNSUPPORTED, CIS_QUOTA_NOT_ENFORCED,
                    "'%s' needs project quota, which is no longer enforced here", d->path);
}

static int join_project(const struct disk *d, struct err *err)
{
    struct fsxattr attr;
    auto_fd data = openat(d->dir, VOLUME_DATA, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (data < 0 || ioctl(data, FS_IOC_FSGETXATTR, &attr) != 0)
        return err_sys(err, errno, "cannot open '%s/%s'", d->path, VOLUME_DATA);
    attr.fsx_projid = d->project;
    attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    if (ioctl(data, FS_IOC_FSSETXATTR, &attr) != 0)
        return err_sys(err, errno, "cannot put '%s/%s' into project %u", d->path, VOLUME_DATA, d->project);
    if (fsync(data) != 0)
        return err_sys(err, errno, "cannot flush '%s/%s'", d->path, VOLUME_DATA);
    return 0;
}

int quota_make(const struct disk *d, struct err *err)
{
    int r = check_enforced(d, err);
    if (r < 0)
        return r;
    if (mkdirat(d->dir, VOLUME_DATA, 0755) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make '%s/%s'", d->path, VOLUME_DATA);
    /* Set the limit before the membership: the directory is never unlimited. */
    r = set_limit(d, d->capacity_bytes, err);
    if (r == 0)
        r = join_project(d, err);
    return r < 0 ? r : dir_sync(d->dir, d->path, err);
}

int quota_attach(const struct disk *d, struct err *err)
{
    int r = check_enforced(d, err);
    if (r == 0)
        r = set_limit(d, d->capacity_bytes, err);
    return r < 0 ? r : join_project(d, err);
}

int quota_grow(const struct disk *d, struct err *err)
{
    return set_limit(d, d->capacity_bytes, err);
}

int quota_unbacked(const struct disk *d, uint64_t *ret_bytes, struct err *err)
{
    struct if_dqblk usage;
    int r = usage_of(d->dir, d->project, &usage, err);
    if (r < 0)
        return r;
    *ret_bytes = d->capacity_bytes > usage.dqb_curspace ? d->capacity_bytes - usage.dqb_curspace : 0;
    return 0;
}

int quota_release(const struct disk *d, struct err *err)
{
    return set_limit(d, 0, err);
}
