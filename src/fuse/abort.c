/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a FUSE connection from outside, through the kernel's fusectl file system. Whoever waits for an answer gets
 * ECONNABORTED or ENOTCONN at once, whoever asks later ENOTCONN, and no unmount waits for anything any more. */
#include "keep.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FUSECTL "/sys/fs/fuse/connections"

enum { MOUNTINFO_MAX = 16 << 20 };

/* The device at the path, without asking the mount process. */
static bool find_device(const char *path, unsigned *ret_minor)
{
    struct statx at;
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_INO, &at) != 0)
        return false;
    *ret_minor = at.stx_dev_minor;
    return at.stx_dev_major == 0;
}

/* Is this device a mount of ours, of this volume? Something else may be mounted at its path meanwhile. */
static bool is_of(const char *volume_id, unsigned minor_number)
{
    char device[32], what[KEEPER_ID_MAX + 32];
    struct err ignored;
    auto_mem char *text = NULL;
    size_t len;
    snprintf(device, sizeof device, " 0:%u ", minor_number);
    snprintf(what, sizeof what, " - fuse.cistern %s ", volume_id);
    if (file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, &len, &ignored) < 0)
        return false;
    struct str rest = {text, len}, line;
    while (str_split(&rest, '\n', &line))
        if (memmem(line.ptr, line.len, device, strlen(device)) && memmem(line.ptr, line.len, what, strlen(what)))
            return true;
    return false;
}

/* A container has a sysfs of its own, with nothing mounted there. */
static int open_control(unsigned minor_number)
{
    char path[80];
    snprintf(path, sizeof path, FUSECTL "/%u/abort", minor_number);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT || mount("fusectl", FUSECTL, "fusectl", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return fd;
    return open(path, O_WRONLY | O_CLOEXEC);
}

bool kept_abort(const struct kept *v)
{
    unsigned minor_number;
    if (!v->head || !find_device(v->head->config.mount_point, &minor_number) || !is_of(v->id, minor_number))
        return false;
    auto_fd fd = open_control(minor_number);
    return fd >= 0 && write(fd, "1", 1) == 1;
}
