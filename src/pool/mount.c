/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/mount.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { FILESYSTEMS_MAX = 1 << 16 };

int mount_make(const char *source, const char *target, const char *fs_type, unsigned long flags, const char *data,
               struct err *err)
{
    if (mount(source, target, fs_type, flags, data) != 0)
        return err_sys(err, errno, "cannot mount '%s' on '%s'", source, target);
    return 0;
}

int mount_bind(int dir, const char *source, const char *target, bool read_only, struct err *err)
{
    /* The clone gets its attributes before it is visible: a bind that is remounted read-only afterwards would be
     * writable for a moment. */
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    auto_fd tree = open_tree(dir, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (source[0] ? 0 : AT_EMPTY_PATH));
    if (tree < 0)
        return err_sys(err, errno, "cannot bind '%s' on '%s'", source, target);
    if (read_only && mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0)
        return err_sys(err, errno, "cannot make the bind of '%s' read-only", source);
    if (move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return err_sys(err, errno, "cannot bind '%s' on '%s'", source, target);
    return 0;
}

bool mount_takes_context(void)
{
    auto_mem char *text = NULL;
    size_t len;
    return file_read(AT_FDCWD, "/proc/filesystems", FILESYSTEMS_MAX, &text, &len, ERR_IGNORED) == 0 &&
           strstr(text, "\tselinuxfs\n");
}

/* ---- unmount ----------------------------------------------------------------------------------------------------- */

/* Unmounts one mount, retrying until `deadline`. 1: unmounted; 0: nothing is mounted there. */
static int unmount_top(const char *path, uint64_t deadline_ns, bool lazy, struct err *err)
{
    for (unsigned tries = 0; umount2(path, UMOUNT_NOFOLLOW) != 0; tries++) {
        if (errno == EINVAL || errno == ENOENT || errno == ENOTDIR)
            return 0;
        if (errno != EBUSY)
            return err_sys(err, errno, "cannot unmount '%s'", path);
        if (clock_now_ns() >= deadline_ns) {
            if (lazy && umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) == 0)
                return 1;
            err_sys(err, EBUSY, "cannot unmount '%s'", path);
            return err_advise(err, CIS_MOUNT_BUSY);
        }
        clock_sleep(clock_doubled_ns(tries, NS_PER_MS, 100 * NS_PER_MS));
    }
    return 1;
}

int mount_unmount(const char *path, uint64_t wait_ns, bool lazy, struct err *err)
{
    uint64_t deadline_ns = clock_now_ns() + wait_ns;
    int r;
    do
        r = unmount_top(path, deadline_ns, lazy, err);
    while (r > 0);
    if (r < 0)
        return r;
    /* EINVAL has a second meaning: a mount that is locked in our namespace. */
    bool left;
    r = mount_is_at(path, &left, err);
    if (r == 0 && left)
        return err_set(err, ERR_DENIED, "cannot unmount '%s': it is locked in this mount namespace", path);
    return r;
}

/* ---- bare mount points ------------------------------------------------------------------------------------------- */

static int check_empty(int fd, const char *path, struct err *err)
{
    auto_dir d = dir_stream(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot read the directory '%s'", path);
    struct dirent *e = dir_next(d);
    if (e)
        return err_set(err, ERR_EXISTS, "'%s' cannot become a mount point: it contains '%.100s'", path, e->d_name);
    return errno ? err_sys(err, errno, "cannot read the directory '%s'", path) : 0;
}

/* Was the flag set as requested? False if the file system or our capabilities do not allow it. */
static bool set_immutable(int fd, bool immutable)
{
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0)
        return !immutable;
    int wished = immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
    return wished == flags || ioctl(fd, FS_IOC_SETFLAGS, &wished) == 0;
}

static int guard(const char *path, struct err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot open the mount point '%s'", path);
    int r = check_empty(fd, path, err);
    if (r < 0)
        return r;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_sys(err, errno, "cannot stat the mount point '%s'", path);
    /* The mode of an immutable directory cannot be set: a repeated call must not try. */
    if ((st.st_mode & 07777) != 0 && fchmod(fd, 0) != 0)
        return err_sys(err, errno, "cannot make the mount point '%s' unwritable", path);
    (void)set_immutable(fd, true);
    return 0;
}

int mount_point_make(const char *path, struct err *err)
{
    bool mounted;
    int r = mount_is_at(path, &mounted, err);
    if (r < 0 || mounted)
        return r;
    if (mkdir(path, 0) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make the mount point '%s'", path);
    return guard(path, err);
}

int mount_point_remove(const char *path, struct err *err)
{
    bool mounted;
    int r = mount_is_at(path, &mounted, err);
    if (r < 0)
        return r;
    if (mounted)
        return err_set(err, ERR_BUSY, "something is still mounted on '%s'", path);
    auto_fd fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "cannot open the mount point '%s'", path);
    if (!set_immutable(fd, false))
        return err_sys(err, errno, "cannot make the mount point '%s' writable", path);
    if (rmdir(path) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return err_set(err, ERR_BUSY, "'%s' is not a bare mount point: it has content", path);
    return err_sys(err, errno, "cannot remove the mount point '%s'", path);
}
