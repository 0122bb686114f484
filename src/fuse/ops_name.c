/* SPDX-License-Identifier: Apache-2.0 */
/* Names: what is looked up, made, linked, renamed and removed.
 *
 * Doing each once: the kernel holds the folder's lock from before the request until its answer, through our death too,
 * so nothing but the request itself changes that name in between. It is enough to write down what the name led to
 * before the first act; when the request comes again, a name that is there but was not (or the reverse) says that the
 * act was done. */
#include "serve.h"
#include <fcntl.h>
#include <stdio.h>

static void reply_entry(struct job *j, fuse_req_t req, const char *op, int r, const struct fuse_entry_param *e)
{
    test_point(j->serve, op, "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_entry(req, e);
}

static void reply_done(struct job *j, fuse_req_t req, const char *op, int r)
{
    test_point(j->serve, op, "before-reply");
    fuse_reply_err(req, -r);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct job *j = job_mine();
    struct fuse_entry_param e = {.entry_timeout = j->serve->name_timeout};
    auto_fd dir = below_open(j->serve, parent, O_PATH);
    int r = dir < 0 ? dir : node_entry(j, dir, name, &e);
    if (r == -ENOENT && j->serve->config->exclusive)
        r = 0; /* node 0: the kernel may remember that there is nothing */
    reply_entry(j, req, "lookup", r, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
    node_forget(job_mine(), ino, n);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t k = 0; k < count; k++)
        node_forget(job_mine(), forgets[k].ino, forgets[k].nlookup);
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

static int make_act(struct job *j, fuse_req_t req, const struct making *m, int dir, const char *name)
{
    auto_guise guise = guise_on(j->serve, req, m->mode);
    (void)guise;
    if (m->target)
        return symlinkat(m->target, dir, name) < 0 ? -errno : 0;
    if (S_ISDIR(m->mode))
        return mkdirat(dir, name, m->mode & 07777) < 0 ? -errno : 0;
    return mknodat(dir, name, m->mode, m->rdev) < 0 ? -errno : 0;
}

static int link_act(struct job *j, const struct making *m, int dir, const char *name)
{
    auto_fd from = below_open(j->serve, m->source, O_PATH);
    if (from < 0)
        return from;
    return linkat(from, "", dir, name, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int inherit_group(struct serve *s, int dir, const char *name)
{
    if (!s->config->has_group)
        return 0;
    auto_fd fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : group_inherit(s, dir, fd);
}

static int make(struct job *j, fuse_req_t req, const struct making *m, fuse_ino_t parent, const char *name,
                struct fuse_entry_param *ret)
{
    auto_fd dir = below_open(j->serve, parent, O_PATH);
    if (dir < 0)
        return dir;
    bool was_there = job_before(j, 0, below_ino(dir, name)) != 0;
    test_point(j->serve, m->op, "before");
    int r = m->source ? link_act(j, m, dir, name) : make_act(j, req, m, dir, name);
    if (r == -EEXIST && j->again && !was_there)
        r = 0; /* it is the one that we made */
    if (r == 0 && !m->source)
        r = inherit_group(j->serve, dir, name);
    test_point(j->serve, m->op, "after-act");
    return r < 0 ? r : node_entry(j, dir, name, ret);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct fuse_entry_param e = {0};
    struct making m = {.op = "mkdir", .mode = S_IFDIR | mode};
    reply_entry(job_mine(), req, m.op, make(job_mine(), req, &m, parent, name, &e), &e);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct fuse_entry_param e = {0};
    struct making m = {.op = "mknod", .mode = mode, .rdev = rdev};
    reply_entry(job_mine(), req, m.op, make(job_mine(), req, &m, parent, name, &e), &e);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {0};
    struct making m = {.op = "symlink", .target = target};
    reply_entry(job_mine(), req, m.op, make(job_mine(), req, &m, parent, name, &e), &e);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {0};
    struct making m = {.op = "link", .source = ino};
    reply_entry(job_mine(), req, m.op, make(job_mine(), req, &m, parent, name, &e), &e);
}

/* Opened for nothing but its identity: the kernel opens it again for the user. */
static int create_act(struct job *j, fuse_req_t req, int dir, const char *name, mode_t mode, int flags)
{
    auto_guise guise = guise_on(j->serve, req, mode);
    (void)guise;
    int fd = openat(dir, name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode & 07777);
    return fd < 0 ? -errno : fd;
}

static int create(struct job *j, fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *fi, struct fuse_entry_param *e)
{
    struct serve *s = j->serve;
    auto_fd dir = below_open(s, parent, O_PATH);
    if (dir < 0)
        return dir;
    bool was_there = job_before(j, 0, below_ino(dir, name)) != 0;
    int flags = (fi->flags & O_EXCL) | (fi->flags & O_TRUNC ? O_RDWR | O_TRUNC : O_RDONLY);
    if (j->again && !was_there)
        flags &= ~O_EXCL; /* ours, if it is there now */
    test_point(s, "create", "before");
    auto_fd fd = create_act(j, req, dir, name, mode, flags);
    test_point(s, "create", "after-act");
    int r = fd < 0 || was_there ? fd : group_inherit(s, dir, fd);
    if (r >= 0)
        r = node_entry(j, dir, name, e);
    if (r < 0)
        return r;
    r = opens_add(j, e->ino, fi);
    if (r < 0)
        node_forget(j, e->ino, 1);
    else if ((fi->flags & O_ACCMODE) != O_RDONLY)
        e->attr_timeout = 0;
    return r;
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct job *j = job_mine();
    struct fuse_entry_param e = {0};
    int r = create(j, req, parent, name, mode, fi, &e);
    test_point(j->serve, "create", "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_create(req, &e, fi);
}

/* A nameless file is reached by its descriptor alone, so the keeper has that before anybody knows of the file. One that
 * an earlier run made is let go with its count. */
static int tmpfile_make(struct job *j, fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi,
                        struct fuse_entry_param *e)
{
    struct serve *s = j->serve;
    auto_fd dir = below_open(s, parent, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    auto_fd fd = -1;
    {
        auto_guise guise = guise_on(s, req, mode);
        (void)guise;
        fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | (fi->flags & O_EXCL), mode & 07777);
        if (fd < 0)
            return -errno;
    }
    test_point(s, "tmpfile", "after-act");
    struct stat st;
    struct handle h;
    int r = group_inherit(s, dir, fd);
    if (r == 0)
        r = below_handle(fd, &h);
    if (r == 0 && fstat(fd, &st) < 0)
        r = -errno;
    if (r == 0)
        r = node_entry_of_fd(j, fd, &st, &h, e);
    if (r < 0)
        return r;
    node_hold_fd(s, e->ino, fd, true);
    e->attr_timeout = 0;
    j->intent->opened = INTENT_UNOPENED; /* an earlier run counted the open of its own file */
    r = opens_add(j, e->ino, fi);
    if (r < 0)
        node_forget(j, e->ino, 1);
    return r;
}

static void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    struct job *j = job_mine();
    struct fuse_entry_param e = {0};
    int r = tmpfile_make(j, req, parent, mode, fi, &e);
    test_point(j->serve, "tmpfile", "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_create(req, &e, fi);
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

static int remove_name(struct job *j, const char *op, fuse_ino_t parent, const char *name, int flags)
{
    struct serve *s = j->serve;
    struct stat st;
    struct handle h;
    auto_fd dir = below_open(s, parent, O_PATH);
    if (dir < 0)
        return dir;
    auto_fd fd = below_lookup(s, dir, name, &st, &h);
    uint64_t was = job_before(j, 0, fd < 0 ? 0 : st.st_ino);
    if (fd == -ENOENT && j->again && was != 0)
        return 0; /* we removed it */
    if (fd < 0)
        return fd;
    uint64_t held = node_hold(j, fd, &st, &h);
    test_point(s, op, "before");
    int r = unlinkat(dir, name, flags) < 0 ? -errno : 0;
    test_point(s, op, "after-act");
    if (r < 0)
        node_unhold(s, held);
    return r;
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    reply_done(job_mine(), req, "unlink", remove_name(job_mine(), "unlink", parent, name, 0));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    reply_done(job_mine(), req, "rmdir", remove_name(job_mine(), "rmdir", parent, name, AT_REMOVEDIR));
}

/* ---- renaming ---------------------------------------------------------------------------------------------------- */

/* Both folders are locked. `to` leads to what `from` led to before, and `from` does not any more (or, exchanged, leads
 * elsewhere): we did it. Two names of one file never get here: the kernel knows that nothing is to do. */
static bool is_renamed(const struct job *j, uint64_t from_was, uint64_t from_is, uint64_t to_is)
{
    return j->again && from_was != 0 && to_is == from_was && from_is != from_was;
}

static int rename_act(struct job *j, int dir, const char *name, int to_dir, const char *to_name, unsigned flags)
{
    struct serve *s = j->serve;
    struct stat st;
    struct handle h;
    uint64_t held = 0;
    if (!(flags & RENAME_EXCHANGE)) {
        auto_fd victim = below_lookup(s, to_dir, to_name, &st, &h);
        if (victim >= 0)
            held = node_hold(j, victim, &st, &h);
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
    struct job *j = job_mine();
    auto_fd dir = below_open(j->serve, parent, O_PATH);
    auto_fd to_dir = below_open(j->serve, to_parent, O_PATH);
    int r = dir < 0 ? dir : to_dir < 0 ? to_dir : 0;
    if (r == 0) {
        uint64_t from_is = below_ino(dir, name);
        uint64_t to_is = below_ino(to_dir, to_name);
        uint64_t from_was = job_before(j, 0, from_is);
        if (!is_renamed(j, from_was, from_is, to_is))
            r = rename_act(j, dir, name, to_dir, to_name, flags);
    }
    reply_done(j, req, "rename", r);
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
