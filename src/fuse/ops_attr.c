/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, extended attributes, symbolic links and statfs. Setting attributes twice gives the same result: the
 * kernel holds the inode's lock from the request to its reply, also against writers. */
#include "private.h"
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

enum { XATTR_MAX = 65536, LINK_MAX_BYTES = 4096 };

static void reply_attr(struct request *rq, fuse_req_t req, fuse_ino_t ino)
{
    struct stat st;
    double timeout = 0;
    int r = attr_read(rq->session, ino, &st, &timeout);
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_attr(req, &st, timeout);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *)
{
    reply_attr(request_current(), req, ino);
}

/* The first change of a file stores the mode that the mount shows for it: else a mode set by a user would not stay. */
static int settle_view(struct session *s, int fd, const struct stat *now)
{
    struct stat shown = *now;
    group_show(s, fd, &shown);
    return lower_chmod(fd, shown.st_mode);
}

static int set_owner(struct session *s, int fd, const struct stat *attr, int set, const struct stat *now)
{
    uid_t uid = set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
    gid_t gid = set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
    if (group_is_shown(s, fd, now)) {
        int r = settle_view(s, fd, now);
        if (r < 0)
            return r;
        gid = set & FUSE_SET_ATTR_GID ? gid : s->config->group;
    }
    if (uid == (uid_t)-1 && gid == (gid_t)-1)
        return 0;
    fsuid_keep_setid(true); /* the kernel still clears what any chown clears: the bits of a program */
    int r = fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    fsuid_keep_setid(false);
    if (r < 0)
        return r;
    bool differs = s->config->has_group && gid != (gid_t)-1 && gid != s->config->group;
    return differs && !S_ISLNK(now->st_mode) ? group_keep(s, fd) : 0;
}

/* By truncate(2), which moves no time if the size stays. After ftruncate(2) the kernel asks for a time, too. */
static int set_size(int fd, off_t size, int set)
{
    char path[FD_PATH_MAX];
    bool keep = !(set & FUSE_SET_ATTR_KILL_SUID); /* that bit covers S_ISGID too */
    if (keep)
        fsuid_keep_setid(true);
    int r = truncate(fd_path(fd, path), size) < 0 ? -errno : 0;
    if (keep)
        fsuid_keep_setid(false);
    return r;
}

static int set_times(int fd, const struct stat *attr, int set)
{
    struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    if (set & FUSE_SET_ATTR_ATIME_NOW)
        t[0].tv_nsec = UTIME_NOW;
    else if (set & FUSE_SET_ATTR_ATIME)
        t[0] = attr->st_atim;
    if (set & FUSE_SET_ATTR_MTIME_NOW)
        t[1].tv_nsec = UTIME_NOW;
    else if (set & FUSE_SET_ATTR_MTIME)
        t[1] = attr->st_mtim;
    return utimensat(fd, "", t, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int set_all(struct session *s, fuse_ino_t ino, const struct stat *attr, int set)
{
    struct stat now;
    auto_fd fd = lower_open(s, ino, O_PATH);
    if (fd < 0)
        return fd;
    if (fstat(fd, &now) < 0)
        return -errno;
    int r = 0;
    if (set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_MODE))
        r = set_owner(s, fd, attr, set, &now);
    if (r == 0 && set & FUSE_SET_ATTR_MODE)
        r = lower_chmod(fd, attr->st_mode);
    if (r == 0 && set & FUSE_SET_ATTR_SIZE)
        r = set_size(fd, attr->st_size, set);
    if (r == 0 && set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME))
        r = set_times(fd, attr, set);
    return r;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set, struct fuse_file_info *)
{
    struct request *rq = request_current();
    test_point(rq->session, "setattr", "before");
    int r = set_all(rq->session, ino, attr, set);
    test_point(rq->session, "setattr", "after-act");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        reply_attr(rq, req, ino);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[LINK_MAX_BYTES + 1];
    auto_fd fd = lower_open(request_current()->session, ino, O_PATH);
    ssize_t n = fd < 0 ? fd : readlinkat(fd, "", target, LINK_MAX_BYTES);
    if (n < 0) {
        fuse_reply_err(req, fd < 0 ? -fd : errno);
        return;
    }
    target[n] = '\0';
    fuse_reply_readlink(req, target);
}

static void op_statfs(fuse_req_t req, fuse_ino_t)
{
    const struct session *s = request_current()->session;
    struct statvfs v;
    if (fstatvfs(s->root_fd, &v) < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    uint64_t limit = s->config->capacity_bytes / (v.f_frsize ? v.f_frsize : 1);
    if (limit > 0) {
        v.f_blocks = min_u64(v.f_blocks, limit);
        v.f_bfree = min_u64(v.f_bfree, limit);
        v.f_bavail = min_u64(v.f_bavail, limit);
    }
    fuse_reply_statfs(req, &v);
}

/* ---- extended attributes ----------------------------------------------------------------------------------------- */

/* Uses a path through /proc, which reaches any file but a symbolic link; those have no user attributes. */
static int xattr_path(struct session *s, fuse_ino_t ino, char *path)
{
    struct stat st;
    int fd = lower_open(s, ino, O_PATH);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0 || S_ISLNK(st.st_mode)) {
        close(fd);
        return -EOPNOTSUPP;
    }
    fd_path(fd, path);
    return fd;
}

static void reply_bytes(fuse_req_t req, ssize_t n, int error, const char *bytes, size_t room)
{
    if (n < 0)
        fuse_reply_err(req, error);
    else if (room == 0)
        fuse_reply_xattr(req, (size_t)n);
    else
        fuse_reply_buf(req, bytes, (size_t)n);
}

/* ls(1) asks each file for its label, until it learns that the file system has no labels. */
static int xattr_error(const char *name, int error)
{
    return error == ENODATA && strcmp(name, "security.selinux") == 0 ? EOPNOTSUPP : error;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t room)
{
    char path[FD_PATH_MAX];
    room = room > XATTR_MAX ? XATTR_MAX : room;
    auto_mem char *bytes = room ? xcalloc(1, room) : NULL;
    auto_fd fd = xattr_path(request_current()->session, ino, path);
    ssize_t n = fd < 0 ? -1 : getxattr(path, name, bytes, room);
    int error = fd == -EOPNOTSUPP ? ENODATA : fd < 0 ? -fd : errno;
    reply_bytes(req, n, xattr_error(name, error), bytes, room);
}

/* XFS lists ACLs a second time, to callers with CAP_SYS_ADMIN as we are. Users without it could list these names, but
 * not read them. */
static bool is_hidden(const char *name, size_t len)
{
    static const char *const hidden[] = {GROUP_MARK, "trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT"};
    for (size_t k = 0; k < countof(hidden); k++)
        if (len == strlen(hidden[k]) && memcmp(name, hidden[k], len) == 0)
            return true;
    return false;
}

static size_t hide_names(char *names, size_t len)
{
    size_t kept = 0;
    for (size_t at = 0, n; at < len; at += n + 1) {
        n = strnlen(names + at, len - at);
        if (is_hidden(names + at, n))
            continue;
        memmove(names + kept, names + at, n + 1);
        kept += n + 1;
    }
    return kept;
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room)
{
    char path[FD_PATH_MAX];
    auto_mem char *bytes = xcalloc(1, XATTR_MAX);
    auto_fd fd = xattr_path(request_current()->session, ino, path);
    ssize_t n = fd == -EOPNOTSUPP ? 0 : fd < 0 ? -1 : listxattr(path, bytes, XATTR_MAX);
    int error = fd < 0 ? -fd : errno;
    if (n > 0)
        n = (ssize_t)hide_names(bytes, (size_t)n);
    if (room > 0 && n > (ssize_t)room) {
        n = -1;
        error = ERANGE;
    }
    reply_bytes(req, n, error, bytes, room);
}

/* XATTR_CREATE fails if the attribute exists, so the intent records whether it existed before. The inode is locked
 * until the reply. */
static int set_xattr(struct request *rq, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    char path[FD_PATH_MAX];
    auto_fd fd = xattr_path(rq->session, ino, path);
    if (fd < 0)
        return fd;
    bool was_there = request_before(rq, getxattr(path, name, NULL, 0) >= 0) != 0;
    if (rq->resent && !was_there)
        flags &= ~XATTR_CREATE; /* made by the earlier run, if it exists now */
    test_point(rq->session, "setxattr", "before");
    fsuid_keep_setid(true); /* an ACL sets the mode, too: without this, a directory of a foreign group loses S_ISGID */
    int r = setxattr(path, name, value, size, flags) < 0 ? -errno : 0;
    fsuid_keep_setid(false);
    test_point(rq->session, "setxattr", "after-act");
    return r;
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    int r = set_xattr(request_current(), ino, name, value, size, flags);
    test_point(request_current()->session, "setxattr", "before-reply");
    fuse_reply_err(req, -r);
}

static int remove_xattr(struct request *rq, fuse_ino_t ino, const char *name)
{
    char path[FD_PATH_MAX];
    auto_fd fd = xattr_path(rq->session, ino, path);
    if (fd < 0)
        return fd;
    bool was_there = request_before(rq, getxattr(path, name, NULL, 0) >= 0) != 0;
    test_point(rq->session, "removexattr", "before");
    int r = removexattr(path, name) < 0 ? -errno : 0;
    test_point(rq->session, "removexattr", "after-act");
    return r == -ENODATA && rq->resent && was_there ? 0 : r;
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    int r = remove_xattr(request_current(), ino, name);
    test_point(request_current()->session, "removexattr", "before-reply");
    fuse_reply_err(req, -r);
}

void ops_attr(struct fuse_lowlevel_ops *o)
{
    o->getattr = op_getattr;
    o->setattr = op_setattr;
    o->readlink = op_readlink;
    o->statfs = op_statfs;
    o->getxattr = op_getxattr;
    o->setxattr = op_setxattr;
    o->listxattr = op_listxattr;
    o->removexattr = op_removexattr;
}
