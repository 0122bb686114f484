/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side of a mount: mount(2), and the abort of a connection through the fusectl file system. After an abort
 * users get ECONNABORTED or ENOTCONN at once, and no unmount has to wait. */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FUSECTL "/sys/fs/fuse/connections"

enum { MOUNTINFO_MAX = 64 << 20 };

/* The device at the path, without a request to the mount process. */
static bool find_device(const char *path, unsigned *ret_minor)
{
    struct statx at;
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_INO, &at) != 0)
        return false;
    *ret_minor = at.stx_dev_minor;
    return at.stx_dev_major == 0;
}

/* Whether this device is the volume's mount: another one may be mounted at its path now. "": of any volume. */
static bool is_mount_of(const char *volume_id, unsigned minor_number)
{
    char device[32], what[KEEPER_ID_MAX + 32];
    auto_mem char *text = NULL;
    size_t len;
    snprintf(device, sizeof device, " 0:%u ", minor_number);
    snprintf(what, sizeof what, " - fuse.cistern %s%s", volume_id, volume_id[0] ? " " : "");
    if (file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, &len, ERR_IGNORED) < 0)
        return false;
    struct str rest = {text, len}, line;
    while (str_split(&rest, '\n', &line))
        if (str_has(line, str_of(device)) && str_has(line, str_of(what)))
            return true;
    return false;
}

bool mountpoint_is_ours(const struct keeper_mount *v)
{
    unsigned minor_number;
    return find_device(v->head->config.mount_point, &minor_number) && is_mount_of(v->id, minor_number);
}

/* A container has its own sysfs, where fusectl is not mounted. */
static int open_connection(unsigned minor_number)
{
    char path[80];
    int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    snprintf(path, sizeof path, FUSECTL "/%u", minor_number);
    int fd = open(path, flags);
    if (fd >= 0 || errno != ENOENT || mount("fusectl", FUSECTL, "fusectl", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return fd;
    return open(path, flags);
}

int mountpoint_open_connection(const struct keeper_mount *v)
{
    unsigned minor_number;
    if (!v->head || !find_device(v->head->config.mount_point, &minor_number) || !is_mount_of(v->id, minor_number))
        return -1;
    return open_connection(minor_number);
}

bool mountpoint_abort(const struct keeper_mount *v)
{
    auto_fd connection = mountpoint_open_connection(v);
    auto_fd fd = connection < 0 ? -1 : openat(connection, "abort", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1", 1) == 1;
}

/* ---- mounting ---------------------------------------------------------------------------------------------------- */

int mountpoint_mount(const struct keeper_mount *v, const struct wire_msg *ask, struct err *err)
{
    const struct wire_config *c = &ask->body.config;
    struct stat st;
    unsigned minor_number;
    char options[160 + KEEPER_CONTEXT_MAX];
    const char *context = ask->body.context, *quote = context[0] ? "\"" : ""; /* a label may contain commas */
    if (stat(c->mount_point, &st) < 0 && errno == ENOTCONN && find_device(c->mount_point, &minor_number) &&
        is_mount_of("", minor_number))
        umount2(c->mount_point, MNT_DETACH); /* a dead mount of an earlier keeper */
    if (stat(c->mount_point, &st) < 0)
        return err_sys(err, errno, "cannot stat the mount point '%s'", c->mount_point);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "the mount point '%s' is not a directory: name one", c->mount_point);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions%s%s%s%s%s",
             v->fuse_fd, c->allow_other ? ",allow_other" : "", context[0] ? ",context=" : "", quote, context, quote);
    unsigned long flags = MS_NOSUID | MS_NODEV | (c->read_only ? MS_RDONLY : 0);
    if (mount(v->id, c->mount_point, "fuse.cistern", flags, options) < 0)
        return err_sys(err, errno, "cannot mount on '%s' with '%s'", c->mount_point, options);
    return 0;
}

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    while (n > 0 && top[n - 1] == '/')
        n--;
    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The keeper would wait for a mount process that it has to start itself. */
static int check_paths(struct keeper *k, const char *data, const char *mount_point, struct err *err)
{
    if (is_below(data, mount_point))
        return err_set(err, ERR_INVALID,
                       "the directory '%s' is inside its own mount point '%s': choose another mount point", data,
                       mount_point);
    keeper_foreach_mount (k, v) {
        const char *taken = v->head ? v->head->config.mount_point : NULL;
        if (taken && (is_below(mount_point, taken) || is_below(data, taken)))
            return err_set(err, ERR_BUSY, "'%s' or '%s' is inside the mount of volume '%s' at '%s'", mount_point, data,
                           v->id, taken);
    }
    return 0;
}

/* Compares the paths as text first: a lookup through a mount of Cistern would block. */
int mountpoint_check(struct keeper *k, const struct wire_config *c, struct err *err)
{
    char data[PATH_MAX], at[PATH_MAX];
    int r = check_paths(k, c->data, c->mount_point, err);
    if (r < 0)
        return r;
    if (!realpath(c->data, data))
        return err_sys(err, errno, "cannot find '%s'", c->data);
    if (!realpath(c->mount_point, at) && errno != ENOTCONN)
        return err_sys(err, errno, "cannot find the mount point '%s'", c->mount_point);
    return check_paths(k, data, at, err);
}
