/* SPDX-License-Identifier: Apache-2.0 */
/* XFS instead of ext4: ext4 grows online only with CAP_SYS_RESOURCE, which containers seldom have. It also has a
 * fixed number of inodes, and puts lost+found among the data. */
#include "image.h"
#include "loopdev.h"
#include "pool/label.h"
#include "pool/mount.h"
#include "pool/signature.h"
#include "pool/volume.h"
#include "tool.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <xfs/xfs.h>

enum {
    BLOCK_BYTES = 4096,
    SECTOR_BYTES_SAFE = 4096, /* no disk needs larger ones */
    MOUNT_FLAGS = MS_NODEV | MS_NOSUID | MS_NOATIME,
    /* The last user of an earlier mount may free a device at any time; the next look-up then does not find it. */
    ATTACH_ATTEMPTS = 5,
};

static void image_path(const struct disk *d, const char *name, char ret[PATH_MAX])
{
    snprintf(ret, PATH_MAX, "%s/%s", d->path, name);
}

static uint64_t image_bytes(const struct disk *d)
{
    return (d->capacity_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static int open_image(const struct disk *d, int flags, int *ret_fd, struct err *err)
{
    int fd = openat(d->dir, VOLUME_IMAGE, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s/%s'", d->path, VOLUME_IMAGE);
    *ret_fd = fd;
    return 0;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Fills holes below the end. XFS needs free space for the whole examined range, even for its allocated parts: so
 * only holes are filled, piece by piece. */
static int fill_holes(int fd, const struct stat *st)
{
    enum { PIECE_BYTES = 16 << 20 };
    if (st->st_blocks * 512 >= st->st_size)
        return 0;
    for (off_t at = 0; at < st->st_size; at += PIECE_BYTES)
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, at, PIECE_BYTES) != 0)
            return -1;
    return 0;
}

/* The length changes only after all blocks are allocated. Blocks beyond the end, from a call that died or failed,
 * are freed first: XFS would count them as still needed. Without enough free space nothing is tried: ext4 allocates all
 * that is left before it fails, and until then the disk is full for its other files. */
static int extend(int fd, uint64_t from, uint64_t to)
{
    struct statvfs fs;
    if (to <= from)
        return 0;
    if (ftruncate(fd, (off_t)from) != 0)
        return -1;
    if (fstatvfs(fd, &fs) == 0 && to - from > fs.f_bavail * fs.f_frsize) {
        errno = ENOSPC;
        return -1;
    }
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) == 0)
        return ftruncate(fd, (off_t)to);
    int errnum = errno;
    int r = ftruncate(fd, (off_t)from);
    errno = r == 0 ? errnum : errno;
    return -1;
}

/* Allocates blocks for the image, up to its size. */
static int allocate(const struct disk *d, int fd, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_sys(err, errno, "cannot stat '%s/%s'", d->path, VOLUME_IMAGE);
    if (extend(fd, (uint64_t)st.st_size, image_bytes(d)) == 0 && fill_holes(fd, &st) == 0)
        return 0;
    err_sys(err, errno, "cannot allocate %llu bytes for '%s'", (unsigned long long)d->capacity_bytes, d->path);
    return err->code == ERR_NO_SPACE ? err_advise(err, CIS_POOL_FULL) : -(int)err->code;
}

/* The alignment that direct I/O on this file needs; the kernel reports it from 6.1 on. */
static unsigned alignment(int fd)
{
    struct statx stx = {0};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && stx.stx_mask & STATX_DIOALIGN &&
        stx.stx_dio_offset_align >= 512 && stx.stx_dio_offset_align <= SECTOR_BYTES_SAFE)
        return stx.stx_dio_offset_align;
    return SECTOR_BYTES_SAFE;
}

/* reflink and rmapbt off: each holds back space that a scratch volume's owner paid for. nrext64 off: kernels
 * before 5.19 do not know it. --unsupported allows volumes below 300 MiB. -K: a fresh image has nothing to discard. */
static int make_file_system(const struct disk *d, unsigned sector_bytes, struct err *err)
{
    char image[PATH_MAX], sector[32];
    image_path(d, VOLUME_IMAGE, image);
    snprintf(sector, sizeof sector, "size=%u", sector_bytes);
    const char *const argv[] = {"mkfs.xfs",  "-q",  "-f",        "-K", "--unsupported",      "-s",
                                sector,      "-b",  "size=4096", "-m", "reflink=0,rmapbt=0", "-i",
                                "nrext64=0", image, NULL};
    int r = tool_run(argv, err);
    return r < 0 ? err_wrap(err, "making a file system in '%s'", image) : 0;
}

static int make_mount_point(const struct disk *d, struct err *err)
{
    char target[PATH_MAX];
    image_path(d, VOLUME_DATA, target);
    return mount_point_make(target, err);
}

int image_make(const struct disk *d, struct err *err)
{
    auto_fd fd = -1;
    int r = open_image(d, O_RDWR | O_CREAT, &fd, err);
    if (r == 0)
        r = allocate(d, fd, err);
    if (r == 0)
        r = make_file_system(d, alignment(fd), err);
    if (r == 0 && fsync(fd) != 0)
        r = err_sys(err, errno, "cannot flush '%s/%s'", d->path, VOLUME_IMAGE);
    if (r == 0)
        r = make_mount_point(d, err);
    return r < 0 ? r : dir_sync(d->dir, d->path, err);
}

/* ---- attaching --------------------------------------------------------------------------------------------------- */

/* Is the image mounted on data/? Another mount there is an error. */
static int find_mount(const struct disk *d, const struct loopdev *device, bool *ret_mounted, struct err *err)
{
    char target[PATH_MAX];
    struct mount m = {0};
    bool found;
    image_path(d, VOLUME_DATA, target);
    int r = mount_find(target, &m, &found, err);
    if (r < 0)
        return r;
    struct stat st = {0};
    bool ours = found && device && fstat(device->fd, &st) == 0 && major(st.st_rdev) == m.dev_major &&
                minor(st.st_rdev) == m.dev_minor;
    if (found && !ours)
        r = err_fail(err, ERR_BUSY, CIS_VOLUME_COVERED, "'%s' is mounted on '%s' instead of the volume's image",
                     m.source, target);
    mount_done(&m);
    *ret_mounted = found;
    return r;
}

/* The sector size with which the file system was made: the device's blocks must not be larger, even if this kernel
 * reports another alignment. */
static int sector_of(const struct disk *d, int fd, unsigned *ret, struct err *err)
{
    char head[SIGNATURE_XFS_BYTES];
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0)
        return err_sys(err, errno, "cannot read '%s/%s'", d->path, VOLUME_IMAGE);
    *ret = signature_xfs_sector((struct str){head, (size_t)n});
    if (*ret > 0 && *ret <= SECTOR_BYTES_SAFE)
        return 0;
    return err_fail(err, ERR_CORRUPT, CIS_IMAGE_UNFORMATTED, "'%s/%s' has no file system", d->path, VOLUME_IMAGE);
}

static int get_device(const struct disk *d, int fd, struct loopdev *ret, struct err *err)
{
    bool found;
    unsigned sector_bytes = 0;
    char image[PATH_MAX];
    /* A device may exist already: mounted, or lazily unmounted with a file still open. Two devices over one image
     * would have two caches, and neither would see the writes of the other. */
    int r = loopdev_find(fd, ret, &found, err);
    if (r < 0 || found)
        return r;
    r = sector_of(d, fd, &sector_bytes, err);
    if (r < 0)
        return r;
    image_path(d, VOLUME_IMAGE, image);
    return loopdev_attach(fd, image, sector_bytes, ret, err);
}

/* Grows the file system to the size of its device: completes a growth that a crash interrupted. */
static int fill_device(const struct disk *d, const struct loopdev *device, struct err *err)
{
    int r = loopdev_refresh(device, err);
    if (r < 0)
        return r;
    struct xfs_fsop_geom geometry;
    uint64_t bytes;
    auto_fd root = openat(d->dir, VOLUME_DATA, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || ioctl(root, XFS_IOC_FSGEOMETRY, &geometry) != 0 || ioctl(device->fd, BLKGETSIZE64, &bytes) != 0)
        return err_sys(err, errno, "cannot read the geometry of the file system of '%s'", d->path);
    struct xfs_growfs_data grown = {.newblocks = bytes / geometry.blocksize, .imaxpct = geometry.imaxpct};
    /* XFS leaves less than its smallest allocation group (64 blocks) unused at the end; growing again is harmless. */
    if (grown.newblocks <= geometry.datablocks || ioctl(root, XFS_IOC_FSGROWFSDATA, &grown) == 0)
        return 0;
    return err_sys(err, errno, "cannot grow the file system of '%s'", d->path);
}

static int mount_image(const struct disk *d, const struct loopdev *device, const char *label, struct err *err)
{
    char target[PATH_MAX];
    image_path(d, VOLUME_DATA, target);
    auto_mem char *options = label ? str_dupf("context=\"%s\"", label) : NULL;
    int r = make_mount_point(d, err);
    return r < 0 ? r : mount_make(device->path, target, "xfs", MOUNT_FLAGS, options, err);
}

static int attach_once(const struct disk *d, int fd, const char *label, struct err *err)
{
    auto_with(loopdev_done) struct loopdev device = {.fd = -1};
    bool mounted;
    int r = get_device(d, fd, &device, err);
    if (r == 0)
        r = find_mount(d, &device, &mounted, err);
    if (r == 0 && !mounted)
        r = mount_image(d, &device, label, err);
    return r < 0 ? r : fill_device(d, &device, err);
}

static int attach(const struct disk *d, const char *label, struct err *err)
{
    auto_fd fd = -1;
    int r = open_image(d, O_RDWR, &fd, err);
    if (r < 0)
        return r;
    /* Fill the holes that XFS punched when it zeroed blocks. If the pool has no space for them now, the volume is
     * attached all the same, unless it must grow. */
    struct stat st;
    r = allocate(d, fd, err);
    if (r < 0 && (r != -ERR_NO_SPACE || fstat(fd, &st) != 0 || (uint64_t)st.st_size < image_bytes(d)))
        return r;
    for (unsigned attempt = 1;; attempt++) {
        r = attach_once(d, fd, label, err);
        bool freed = r < 0 && (err->sys == ENXIO || err->sys == ENODEV);
        /* XFS shuts down when its log cannot be written. A mount that replays the log ends that. */
        bool is_shut_down = r < 0 && err->sys == EIO && attempt == 1 && image_detach(d, ERR_IGNORED) == 0;
        if (!(freed || is_shut_down) || attempt == ATTACH_ATTEMPTS)
            return r;
    }
}

int image_attach(const struct disk *d, struct err *err)
{
    return attach(d, NULL, err);
}

int image_grow(const struct disk *d, struct err *err)
{
    auto_fd fd = -1;
    auto_with(loopdev_done) struct loopdev device = {.fd = -1};
    bool found, mounted = false;
    int r = open_image(d, O_RDWR, &fd, err);
    if (r == 0)
        r = allocate(d, fd, err);
    if (r == 0 && fsync(fd) != 0)
        r = err_sys(err, errno, "cannot flush '%s/%s'", d->path, VOLUME_IMAGE);
    if (r == 0)
        r = loopdev_find(fd, &device, &found, err);
    if (r == 0 && found)
        r = find_mount(d, &device, &mounted, err);
    /* If it is detached, the file system grows at the next attach. */
    return r == 0 && mounted ? fill_device(d, &device, err) : r;
}

/* ---- writers ----------------------------------------------------------------------------------------------------- */

/* Of the file system, not only of the mount on data/: a process may use a detached mount, or one of another
 * namespace. Its descriptors stay, but no file on it can be opened for writing or changed any more. */
int image_set_writable(const struct disk *d, bool writable, struct err *err)
{
    char target[PATH_MAX];
    struct statvfs fs;
    auto_fd fd = -1;
    auto_with(loopdev_done) struct loopdev device = {.fd = -1};
    bool found, mounted = false;
    int r = open_image(d, O_RDONLY, &fd, err);
    if (r == 0)
        r = loopdev_find(fd, &device, &found, err);
    if (r == 0 && found)
        r = find_mount(d, &device, &mounted, err);
    if (r < 0 || !mounted)
        return r;
    image_path(d, VOLUME_DATA, target);
    if (statvfs(target, &fs) == 0 && !(fs.f_flag & ST_RDONLY) == writable)
        return 0;
    if (mount(NULL, target, NULL, MS_REMOUNT | MOUNT_FLAGS | (writable ? 0 : MS_RDONLY), NULL) == 0)
        return 0;
    if (errno == EBUSY)
        return err_fail(err, ERR_BUSY, CIS_VOLUME_IN_USE, "a process has files of '%s' open for writing", target);
    return err_sys(err, errno, "cannot make '%s' %s", target, writable ? "writable" : "read-only");
}

/* ---- taking apart ------------------------------------------------------------------------------------------------ */

/* data/ can be unmounted while a pod has a bind of it. */
static int check_only_mount(const struct disk *d, const struct mount *ours, struct err *err)
{
    struct mount *all = NULL;
    size_t count = 0;
    int r = mount_below("/", &all, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (r == 0 && all[i].id != ours->id && all[i].dev_major == ours->dev_major &&
            all[i].dev_minor == ours->dev_minor)
            r = err_fail(err, ERR_BUSY, CIS_MOUNT_BUSY, "'%s' is still mounted at '%s'", d->path, all[i].target);
    }
    mount_list_free(all, count);
    return r;
}

int image_detach(const struct disk *d, struct err *err)
{
    char target[PATH_MAX];
    struct mount m = {0};
    bool found;
    image_path(d, VOLUME_DATA, target);
    int r = mount_find(target, &m, &found, err);
    if (r < 0 || !found)
        return r;
    r = check_only_mount(d, &m, err);
    mount_done(&m);
    return r < 0 ? r : mount_unmount(target, 0, false, err);
}

/* ---- label ------------------------------------------------------------------------------------------------------- */

/* After the unmount of data/: a process outside of it keeps the device, and the kernel keeps the label with it. */
static bool has_device(const struct disk *d)
{
    auto_fd fd = -1;
    auto_with(loopdev_done) struct loopdev device = {.fd = -1};
    bool found;
    return open_image(d, O_RDONLY, &fd, ERR_IGNORED) == 0 && loopdev_find(fd, &device, &found, ERR_IGNORED) == 0 &&
           found;
}

static int mount_again(const struct disk *d, const char *old, const char *label, struct err *err)
{
    int r = image_detach(d, err);
    if (r < 0)
        return r;
    r = attach(d, label, err);
    if (r == 0)
        return 0;
    if (err->sys == EINVAL && has_device(d))
        r = err_fail(err, ERR_BUSY, CIS_CONTEXT_DIFFERS,
                     "a process still uses '%s' with SELinux label '%s', but the pod has '%s'", d->path,
                     old ? old : "none", label ? label : "none");
    else
        r = err_wrap(err, "mounting with SELinux label '%s'", label ? label : "none");
    int again = attach(d, old, ERR_IGNORED);
    (void)again; /* the next attach tries once more */
    return r;
}

/* Linux sets the label of a file system when it is mounted for the first time, and a remount cannot change it. */
int image_set_label(const struct disk *d, const char *label, struct err *err)
{
    char target[PATH_MAX];
    auto_with(mount_done) struct mount m = {0};
    bool found;
    image_path(d, VOLUME_DATA, target);
    int r = mount_find(target, &m, &found, err);
    if (r < 0)
        return r;
    bool same = label && m.label ? label_eq(str_of(label), str_of(m.label)) : label == m.label;
    return found && same ? 0 : mount_again(d, m.label, label, err);
}

int image_unbacked(const struct disk *d, uint64_t *ret_bytes, struct err *err)
{
    struct stat st;
    uint64_t backed = 0;
    if (fstatat(d->dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0)
        backed = (uint64_t)st.st_blocks * 512;
    else if (errno != ENOENT)
        return err_sys(err, errno, "cannot stat '%s/%s'", d->path, VOLUME_IMAGE);
    *ret_bytes = image_bytes(d) > backed ? image_bytes(d) - backed : 0;
    return 0;
}

/* XFS frees the blocks of an unlinked file some time later, and those of a truncated one at once: the next volume may
 * need them. An image that still has a device is not truncated: its last users would read garbage. */
static int give_back(const struct disk *d, struct err *err)
{
    auto_with(loopdev_done) struct loopdev device = {.fd = -1};
    auto_fd fd = openat(d->dir, VOLUME_IMAGE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool found;
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "cannot open '%s/%s'", d->path, VOLUME_IMAGE);
    int r = loopdev_find(fd, &device, &found, err);
    if (r == 0 && !found && ftruncate(fd, 0) != 0)
        r = err_sys(err, errno, "cannot empty '%s/%s'", d->path, VOLUME_IMAGE);
    return r;
}

int image_release(const struct disk *d, struct err *err)
{
    char target[PATH_MAX];
    image_path(d, VOLUME_DATA, target);
    int r = mount_point_remove(target, err);
    return r < 0 ? r : give_back(d, err);
}
