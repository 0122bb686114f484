/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the mount's group (fsGroup) instead of changing files. A file with another group shows the mount's group,
 * with g+rwX. A file with the mount's group shows its own mode. A group that a user sets is stored on the disk,
 * with a mark that names the mount's group at that time. From then on mounts of that group show the stored group. */
#include "private.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/xattr.h>

enum { MARK_MAX = 16 };

static bool is_kept(const struct session *s, int fd)
{
    char path[FD_PATH_MAX], mark[MARK_MAX], ours[MARK_MAX];
    int want = snprintf(ours, sizeof ours, "%" PRIu32, s->config->group);
    ssize_t n = getxattr(fd_path(fd, path), GROUP_MARK, mark, sizeof mark);
    return n == want && memcmp(mark, ours, (size_t)n) == 0;
}

bool group_is_shown(const struct session *s, int fd, const struct stat *st)
{
    return s->config->has_group && st->st_gid != s->config->group && !S_ISLNK(st->st_mode) && !is_kept(s, fd);
}

void group_show(const struct session *s, int fd, struct stat *st)
{
    if (!group_is_shown(s, fd, st))
        return;
    st->st_gid = s->config->group;
    if (S_ISDIR(st->st_mode))
        st->st_mode |= S_ISGID | S_IRWXG;
    else
        st->st_mode |= S_IRGRP | S_IWGRP | (st->st_mode & (S_IXUSR | S_IXOTH) ? S_IXGRP : 0);
}

int group_keep(const struct session *s, int fd)
{
    char path[FD_PATH_MAX], ours[MARK_MAX];
    int n = snprintf(ours, sizeof ours, "%" PRIu32, s->config->group);
    return setxattr(fd_path(fd, path), GROUP_MARK, ours, (size_t)n, 0) < 0 ? -errno : 0;
}

/* The disk does not know that the directory is shown with the mount's group and S_ISGID. */
static int inherit_shown(const struct session *s, int fd, const struct stat *made)
{
    if (made->st_gid != s->config->group &&
        fchownat(fd, "", (uid_t)-1, s->config->group, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return S_ISDIR(made->st_mode) ? lower_chmod(fd, made->st_mode | S_ISGID) : 0;
}

int group_inherit(const struct session *s, int dir, int fd)
{
    struct stat at, made;
    if (!s->config->has_group)
        return 0;
    if (fstat(dir, &at) < 0 || fstat(fd, &made) < 0)
        return -errno;
    if (group_is_shown(s, dir, &at))
        return inherit_shown(s, fd, &made);
    bool taken = at.st_mode & S_ISGID && at.st_gid != s->config->group && made.st_gid == at.st_gid;
    return taken && !S_ISLNK(made.st_mode) ? group_keep(s, fd) : 0;
}
