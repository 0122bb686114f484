/* SPDX-License-Identifier: Apache-2.0 */
#include "loopdev.h"
#include "util/file.h"
#include <fcntl.h>
#include <glob.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    LOOP_MAJOR = 7,
    /* An attempt fails only if another process took the device first: a thousand failures in a row have another
     * cause. */
    ATTEMPTS_MAX = 1000,
};

void loopdev_done(struct loopdev *d)
{
    fd_close(&d->fd);
}

/* A container's /dev has only the nodes from its start, but loop devices may be added at any time. */
static int open_device(unsigned number, struct loopdev *ret)
{
    snprintf(ret->path, sizeof ret->path, "/dev/loop%u", number);
    ret->number = number;
    ret->fd = open(ret->path, O_RDWR | O_CLOEXEC);
    /* EEXIST: another thread or driver has just made it. */
    if (ret->fd < 0 && errno == ENOENT &&
        (mknod(ret->path, S_IFBLK | 0660, makedev(LOOP_MAJOR, number)) == 0 || errno == EEXIST))
        ret->fd = open(ret->path, O_RDWR | O_CLOEXEC);
    return ret->fd < 0 ? -1 : 0;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static bool is_behind(const struct loopdev *d, const struct stat *file)
{
    struct loop_info64 info;
    return ioctl(d->fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == file->st_ino &&
           info.lo_device == file->st_dev;
}

int loopdev_find(int file, struct loopdev *ret, bool *ret_found, struct err *err)
{
    struct stat st;
    glob_t bound;
    if (fstat(file, &st) != 0)
        return err_sys(err, errno, "cannot stat the image");
    *ret_found = false;
    /* The directory `loop` exists only while a device is bound, so that free ones are not even opened. */
    int g = glob("/sys/block/loop*/loop", 0, NULL, &bound);
    if (g == GLOB_NOMATCH)
        return 0;
    if (g != 0)
        return err_set(err, ERR_IO, "cannot list the loop devices in /sys/block");
    for (size_t i = 0; i < bound.gl_pathc && !*ret_found; i++) {
        struct loopdev d = {.fd = -1};
        struct str rest = str_from(str_of(bound.gl_pathv[i]), sizeof "/sys/block/loop" - 1), digits;
        uint64_t number;
        /* A device that cannot be opened was freed after it was listed. */
        if (!str_split(&rest, '/', &digits) || str_to_u64(digits, &number, ERR_IGNORED) < 0 ||
            open_device((unsigned)number, &d) != 0)
            continue;
        *ret_found = is_behind(&d, &st);
        if (*ret_found)
            *ret = d;
        else
            loopdev_done(&d);
    }
    globfree(&bound);
    return 0;
}

/* ---- attaching --------------------------------------------------------------------------------------------------- */

/* The image is allocated in full, and a discard would punch holes into it. Distributions run fstrim every week
 * over all mounts, which would give a volume's space to its neighbours. Kernels from about 6.9 keep the setting
 * for the next user of the device number, and refuse to reset it (seen on 6.18): trims do nothing there. No data
 * is lost. */
static int forbid_discard(const struct loopdev *d, struct err *err)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/block/loop%u/queue/discard_max_bytes", d->number);
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s'", path);
    return file_write_all(fd, path, "0", 1, err);
}

static int configure(int control, int file, const char *path, unsigned block_bytes, struct loopdev *d)
{
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0 || open_device((unsigned)number, d) != 0)
        return -1;
    struct loop_config config = {.fd = (unsigned)file, .block_size = block_bytes};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    snprintf((char *)config.info.lo_file_name, LO_NAME_SIZE, "%s", path);
    if (ioctl(d->fd, LOOP_CONFIGURE, &config) == 0)
        return 0;
    loopdev_done(d);
    return -1;
}

int loopdev_attach(int file, const char *path, unsigned block_bytes, struct loopdev *ret, struct err *err)
{
    auto_fd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return err_sys(err, errno, "cannot open '/dev/loop-control'");
    struct loopdev d = {.fd = -1};
    unsigned attempt = 0;
    /* Between finding a free device and taking it, another process may take it (EBUSY) or remove it (ENXIO). */
    while (configure(control, file, path, block_bytes, &d) != 0)
        if ((errno != EBUSY && errno != ENXIO && errno != ENODEV) || ++attempt == ATTEMPTS_MAX)
            return err_sys(err, errno, "cannot make a loop device of '%s'", path);
    int r = forbid_discard(&d, err);
    if (r < 0) {
        loopdev_done(&d);
        return r;
    }
    *ret = d;
    return 0;
}

int loopdev_refresh(const struct loopdev *d, struct err *err)
{
    if (ioctl(d->fd, LOOP_SET_CAPACITY, 0) != 0)
        return err_sys(err, errno, "cannot grow '%s'", d->path);
    return 0;
}
