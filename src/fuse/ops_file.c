/* SPDX-License-Identifier: Apache-2.0 */
/* Open files. With passthrough, reads, writes and mappings never come here; what does is opening, releasing, and what
 * the kernel does not pass through (fsync, fallocate, SEEK_HOLE, copy_file_range). All of it may be done twice: it is
 * by offset, and what changes the file comes under the inode's lock. */
#include "serve.h"
#include <fcntl.h>

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct job *j = job_mine();
    test_point(j->serve, "open", "before");
    int r = opens_add(j, ino, fi);
    test_point(j->serve, "open", "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_open(req, fi);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct job *j = job_mine();
    test_point(j->serve, "release", "before");
    opens_remove(j, ino, fi);
    test_point(j->serve, "release", "before-reply");
    fuse_reply_err(req, 0);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)fi;
    int fd = opens_plain_fd(job_mine()->serve, ino, false);
    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    auto_mem char *bytes = xcalloc(1, size);
    ssize_t n = pread(fd, bytes, size, offset);
    if (n < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, bytes, (size_t)n);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    struct job *j = job_mine();
    (void)fi;
    int fd = opens_plain_fd(j->serve, ino, true);
    test_point(j->serve, "write", "before");
    ssize_t n = fd < 0 ? fd : pwrite(fd, bytes, size, offset);
    int error = fd < 0 ? -fd : errno;
    test_point(j->serve, "write", "after-act");
    if (n < 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_write(req, (size_t)n);
}

static void reply_done(fuse_req_t req, int fd, int r)
{
    fuse_reply_err(req, fd < 0 ? -fd : r < 0 ? errno : 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    (void)fi;
    auto_fd fd = below_open(job_mine()->serve, ino, O_RDONLY);
    reply_done(req, fd, fd < 0 ? 0 : data_only ? fdatasync(fd) : fsync(fd));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                         struct fuse_file_info *fi)
{
    (void)fi;
    auto_fd fd = below_open(job_mine()->serve, ino, O_RDWR);
    reply_done(req, fd, fd < 0 ? 0 : fallocate(fd, mode, offset, length));
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
    (void)fi;
    auto_fd fd = below_open(job_mine()->serve, ino, O_RDONLY);
    off_t at = fd < 0 ? fd : lseek(fd, offset, whence);
    if (at < 0)
        fuse_reply_err(req, fd < 0 ? -fd : errno);
    else
        fuse_reply_lseek(req, at);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset, struct fuse_file_info *from_fi,
                               fuse_ino_t to, off_t to_offset, struct fuse_file_info *to_fi, size_t length, int flags)
{
    struct serve *s = job_mine()->serve;
    (void)from_fi;
    (void)to_fi;
    auto_fd in = below_open(s, from, O_RDONLY);
    auto_fd out = below_open(s, to, O_RDWR);
    ssize_t n = in < 0 ? in : out;
    int error = n < 0 ? (int)-n : 0;
    if (n >= 0) {
        n = copy_file_range(in, &from_offset, out, &to_offset, length, (unsigned)flags);
        error = errno;
    }
    if (n < 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_write(req, (size_t)n);
}

/* No flush: the first "not known" spares the kernel a round trip at every close. Locks are the kernel's own, and no
 * error waits for a close: writes are answered when the disk below has them. */
void ops_file(struct fuse_lowlevel_ops *o)
{
    o->open = op_open;
    o->release = op_release;
    o->read = op_read;
    o->write = op_write;
    o->fsync = op_fsync;
    o->fsyncdir = op_fsync;
    o->fallocate = op_fallocate;
    o->lseek = op_lseek;
    o->copy_file_range = op_copy_file_range;
}
