/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up, creates, links, renames and removes names, each exactly once.
 *
 * The kernel holds the directory's lock from before the request until its reply, also while this process dies. So only
 * the request itself changes the name in between. The intent records the inode of the name before the first act. For a
 * resent request, a name that exists now but did not before (or the reverse) means that the act was done. */
#include "private.h"
#include <fcntl.h>
#include <stdio.h>

/* Seconds that the kernel may cache the attributes of a file that was just made and may be mapped for storing. Within
 * them it opens the file, which otherwise costs a GETATTR. A store in that time is seen late by one tick of the coarse
 * clock of file times (1 to 10 ms). */
#define NEW_FILE_TIMEOUT 0.001

static void reply_entry(struct request *rq, fuse_req_t req, const char *op, int r, const struct fuse_entry_param *e)
{
    test_point(rq->session, op, "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_entry(req, e);
}

static void reply_done(struct request *rq, fuse_req_t req, const char *op, int r)
{
    test_point(rq->session, op, "before-reply");
    fuse_reply_err(req, -r);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct request *rq = request_current();
    struct fuse_entry_param e = {.entry_timeout = rq->session->name_timeout};
    int dir = lower_dir(rq->session, parent);
    int r = dir < 0 ? dir : node_entry(rq, dir, name, &e);
    if (r == -ENOENT && rq->session->config->exclusive)
        r = 0; /* node 0: the kernel may cache that the name does not exist */
    reply_entry(rq, req, "lookup", r, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
    node_forget(request_current(), ino, n);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t k = 0; k < count; k++)
        node_forget(request_current(), forgets[k].ino, forgets[k].nlookup);
    fuse_reply_none(req);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

struct making {
    const char *op;
    mode_t mode;
    dev_t rdev;
    const char *target; /* of a symbolic link */
    fuse_ino_t source;  /* of a hard link */
};

static int make_act(struct request *rq, fuse_req_t req, const struct making *m, int dir, const char *name)
{
    auto_fsuid user = fsuid_set(rq->session, req, m->mode);
    if (m->target)
        return symlinkat(m->target, dir, name) < 0 ? -errno : 0;
    if (S_ISDIR(m->mode))
        return mkdirat(dir, name, m->mode & 07777) < 0 ? -errno : 0;
    return mknodat(dir, name, m->mode, m->rdev) < 0 ? -errno : 0;
}

static int link_act(struct request *rq, const struct making *m, int dir, const char *name)
{
    auto_fd from = lower_open(rq->session, m->source, O_PATH);
    if (from < 0)
        return from;
    return linkat(from, "", dir, name, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int inherit_group(struct session *s, int dir, const char *name)
{
    if (!s->config->has_group)
        return 0;
    auto_fd fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : group_inherit(s, dir, fd);
}

static int make(struct request *rq, fuse_req_t req, const struct making *m, fuse_ino_t parent, const char *name,
                struct fuse_entry_param *ret)
{
    int dir = lower_dir(rq->session, parent);
    if (dir < 0)
        return dir;
    bool was_there = request_before(rq, lower_ino(dir, name)) != 0;
    test_point(rq->session, m->op, "before");
    int r = m->source ? link_act(rq, m, dir, name) : make_act(rq, req, m, dir, name);
    if (r == -EEXIST && rq->resent && !was_there)
        r = 0; /* the earlier run made it */
    if (r == 0 && !m->source)
        r = inherit_group(rq->session, dir, name);
    test_point(rq->session, m->op, "after-act");
    return r < 0 ? r : node_entry(rq, dir, name, ret);
}

static void make_and_reply(fuse_req_t req, const struct making *m, fuse_ino_t parent, const char *name)
{
    struct request *rq = request_current();
    struct fuse_entry_param e = {0};
    reply_entry(rq, req, m->op, make(rq, req, m, parent, name, &e), &e);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    make_and_reply(req, &(struct making){.op = "mkdir", .mode = S_IFDIR | mode}, parent, name);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    make_and_reply(req, &(struct making){.op = "mknod", .mode = mode, .rdev = rdev}, parent, name);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    make_and_reply(req, &(struct making){.op = "symlink", .target = target}, parent, name);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    make_and_reply(req, &(struct making){.op = "link", .source = ino}, parent, name);
}

/* The descriptor identifies the file and becomes its backing. The kernel opens the file once more, for the user. */
static int create_act(struct request *rq, fuse_req_t req, int dir, const char *name, mode_t mode, int flags)
{
    auto_fsuid user = fsuid_set(rq->session, req, mode);
    int fd = openat(dir, name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode & 07777);
    return fd < 0 ? -errno : fd;
}

/* Not by O_TRUNC: the descriptor must not be one for writing. */
static int make_empty(int fd)
{
    struct stat st;
    char path[FD_PATH_MAX];
    if (fstat(fd, &st) < 0)
        return -errno;
    return st.st_size == 0 || truncate(fd_path(fd, path), 0) == 0 ? 0 : -errno;
}

static int create(struct request *rq, fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *fi, struct fuse_entry_param *e)
{
    struct session *s = rq->session;
    int dir = lower_dir(s, parent);
    if (dir < 0)
        return dir;
    bool was_there = request_before(rq, lower_ino(dir, name)) != 0;
    int flags = fi->flags & O_EXCL;
    if (rq->resent && !was_there)
        flags &= ~O_EXCL; /* made by the earlier run, if it exists now */
    test_point(s, "create", "before");
    auto_fd fd = create_act(rq, req, dir, name, mode, flags);
    test_point(s, "create", "after-act");
    int r = fd < 0 || was_there ? fd : group_inherit(s, dir, fd);
    if (r >= 0 && fi->flags & O_TRUNC)
        r = make_empty(fd);
    if (r >= 0)
        r = node_entry_of_fd(rq, fd, e);
    if (r < 0)
        return r;
    r = opens_add(rq, e->ino, fd, fi);
    if (r < 0)
        node_forget(rq, e->ino, 1);
    else if ((fi->flags & O_ACCMODE) == O_RDWR)
        e->attr_timeout = was_there ? 0 : NEW_FILE_TIMEOUT;
    return r;
}

static void reply_create(struct request *rq, fuse_req_t req, const char *op, int r, const struct fuse_entry_param *e,
                         struct fuse_file_info *fi)
{
    test_point(rq->session, op, "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_create(req, e, fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct request *rq = request_current();
    struct fuse_entry_param e = {0};
    reply_create(rq, req, "create", create(rq, req, parent, name, mode, fi, &e), &e, fi);
}

/* A file without a name is reached by its descriptor alone, so the keeper gets that first. The file of an earlier run
 * is released with its unused lookup count. */
static int tmpfile_make(struct request *rq, fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi,
                        struct fuse_entry_param *e)
{
    struct session *s = rq->session;
    auto_fd dir = lower_open(s, parent, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    auto_fd fd = -1;
    {
        auto_fsuid user = fsuid_set(s, req, mode);
        fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | (fi->flags & O_EXCL), mode & 07777);
        if (fd < 0)
            return -errno;
    }
    test_point(s, "tmpfile", "after-act");
    int r = group_inherit(s, dir, fd);
    if (r == 0)
        r = node_entry_of_fd(rq, fd, e);
    if (r < 0)
        return r;
    node_hold_fd(s, e->ino, fd, true);
    e->attr_timeout = NEW_FILE_TIMEOUT;
    rq->intent->opened = INTENT_UNOPENED; /* an earlier run counted the open of its own file */
    r = opens_add(rq, e->ino, -1, fi);
    if (r < 0)
        node_forget(rq, e->ino, 1);
    return r;
}

static void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    struct request *rq = request_current();
    struct fuse_entry_param e = {0};
    reply_create(rq, req, "tmpfile", tmpfile_make(rq, req, parent, mode, fi, &e), &e, fi);
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

static int remove_name(struct request *rq, const char *op, fuse_ino_t parent, const char *name, int flags)
{
    struct session *s = rq->session;
    struct stat st;
    struct table_handle h;
    int dir = lower_dir(s, parent);
    if (dir < 0)
        return dir;
    auto_fd fd = lower_lookup(s, dir, name, &st, &h);
    uint64_t was = request_before(rq, fd < 0 ? 0 : st.st_ino);
    if (fd == -ENOENT && rq->resent && was != 0)
        return 0; /* the earlier run removed it */
    if (fd < 0)
        return fd;
    uint64_t held = node_hold(rq, fd, &st, &h);
    test_point(s, op, "before");
    int r = unlinkat(dir, name, flags) < 0 ? -errno : 0;
    test_point(s, op, "after-act");
    if (r < 0)
        node_unhold(s, held);
    return r;
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    reply_done(request_current(), req, "unlink", remove_name(request_current(), "unlink", parent, name, 0));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    reply_done(request_current(), req, "rmdir", remove_name(request_current(), "rmdir", parent, name, AT_REMOVEDIR));
}

/* ---- renaming ---------------------------------------------------------------------------------------------------- */

/* Both directories are locked. The rename was done if `to` has the inode that `from` had, and `from` has it no longer.
 * Two names of one file never arrive here: the kernel skips such a rename. */
static bool is_renamed(const struct request *rq, uint64_t from_was, uint64_t from_is, uint64_t to_is)
{
    return rq->resent && from_was != 0 && to_is == from_was && from_is != from_was;
}

static int rename_act(struct request *rq, int dir, const char *name, int to_dir, const char *to_name, bool replaces,
                      unsigned flags)
{
    struct session *s = rq->session;
    struct stat st;
    struct table_handle h;
    uint64_t held = 0;
    if (replaces) {
        auto_fd victim = lower_lookup(s, to_dir, to_name, &st, &h);
        if (victim >= 0)
            held = node_hold(rq, victim, &st, &h);
    }
    test_point(s, "rename", "before");
    int r = renameat2(dir, name, to_dir, to_name, flags) < 0 ? -errno : 0;
    test_point(s, "rename", "after-act");
    if (r < 0)
        node_unhold(s, held);
    return r;
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent, const char *to_name,
                      unsigned flags)
{
    struct request *rq = request_current();
    int dir = lower_dir(rq->session, parent);
    int to_dir = lower_dir(rq->session, to_parent);
    int r = dir < 0 ? dir : to_dir < 0 ? to_dir : 0;
    if (r == 0) {
        uint64_t from_is = lower_ino(dir, name);
        uint64_t to_is = lower_ino(to_dir, to_name);
        uint64_t from_was = request_before(rq, from_is);
        if (!is_renamed(rq, from_was, from_is, to_is))
            r = rename_act(rq, dir, name, to_dir, to_name, to_is != 0 && !(flags & RENAME_EXCHANGE), flags);
    }
    reply_done(rq, req, "rename", r);
}

void ops_name(struct fuse_lowlevel_ops *o)
{
    o->lookup = op_lookup;
    o->forget = op_forget;
    o->forget_multi = op_forget_multi;
    o->mkdir = op_mkdir;
    o->mknod = op_mknod;
    o->symlink = op_symlink;
    o->link = op_link;
    o->create = op_create;
    o->tmpfile = op_tmpfile;
    o->unlink = op_unlink;
    o->rmdir = op_rmdir;
    o->rename = op_rename;
}
