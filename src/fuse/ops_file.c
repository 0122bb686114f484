/* SPDX-License-Identifier: Apache-2.0 */
/* Open files. With passthrough, reads, writes and mappings bypass this process. The rest arrives here: open, release,
 * fsync, fallocate, SEEK_HOLE, copy_file_range. All of them may run twice: they work by offset, and the kernel locks
 * the inode for changes. */
#include "private.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct request *rq = request_current();
    test_point(rq->session, "open", "before");
    int r = opens_add(rq, ino, -1, fi);
    test_point(rq->session, "open", "before-reply");
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_open(req, fi);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct request *rq = request_current();
    test_point(rq->session, "release", "before");
    opens_remove(rq, ino, fi);
    test_point(rq->session, "release", "before-reply");
    fuse_reply_err(req, 0);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *)
{
    int fd = opens_plain_fd(request_current()->session, ino, false);
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
                     struct fuse_file_info *)
{
    struct request *rq = request_current();
    int fd = opens_plain_fd(rq->session, ino, true);
    test_point(rq->session, "write", "before");
    ssize_t n = fd < 0 ? fd : pwrite(fd, bytes, size, offset);
    int error = fd < 0 ? -fd : errno;
    test_point(rq->session, "write", "after-act");
    if (n < 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_write(req, (size_t)n);
}

static void reply_done(fuse_req_t req, int fd, int r)
{
    fuse_reply_err(req, fd < 0 ? -fd : r < 0 ? errno : 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *)
{
    auto_fd fd = lower_open(request_current()->session, ino, O_RDONLY);
    reply_done(req, fd, fd < 0 ? 0 : data_only ? fdatasync(fd) : fsync(fd));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *)
{
    auto_fd fd = lower_open(request_current()->session, ino, O_RDWR);
    reply_done(req, fd, fd < 0 ? 0 : fallocate(fd, mode, offset, length));
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *)
{
    auto_fd fd = lower_open(request_current()->session, ino, O_RDONLY);
    off_t at = fd < 0 ? fd : lseek(fd, offset, whence);
    if (at < 0)
        fuse_reply_err(req, fd < 0 ? -fd : errno);
    else
        fuse_reply_lseek(req, at);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset, struct fuse_file_info *,
                               fuse_ino_t to, off_t to_offset, struct fuse_file_info *, size_t length, int flags)
{
    struct session *s = request_current()->session;
    auto_fd in = lower_open(s, from, O_RDONLY);
    auto_fd out = lower_open(s, to, O_RDWR);
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

/* chattr(1): the flags that change how a file is written. Not immutable and append-only, by which a volume could not be
 * deleted. */
enum { CHATTR_FLAGS = FS_SYNC_FL | FS_NODUMP_FL | FS_NOATIME_FL | FS_DIRSYNC_FL };

static int set_flags(int fd, unsigned wanted)
{
    unsigned now = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &now) < 0)
        return -errno;
    if ((wanted ^ now) & ~(unsigned)CHATTR_FLAGS)
        return -EOPNOTSUPP;
    return ioctl(fd, FS_IOC_SETFLAGS, &wanted) < 0 ? -errno : 0;
}

/* The kernel checks the user's rights. Before it sets flags it asks for FS_IOC_FSGETXATTR. */
static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *, struct fuse_file_info *, unsigned,
                     const void *in, size_t in_size, size_t out_size)
{
    union {
        unsigned flags;
        struct fsxattr xattr;
    } value = {0};
    bool set = command == (unsigned)FS_IOC_SETFLAGS && in_size >= sizeof value.flags;
    size_t size = command == (unsigned)FS_IOC_GETFLAGS     ? sizeof value.flags
                  : command == (unsigned)FS_IOC_FSGETXATTR ? sizeof value.xattr
                                                           : 0;
    if (!set && (size == 0 || size > out_size)) {
        fuse_reply_err(req, ENOTTY);
        return;
    }
    auto_fd fd = lower_open(request_current()->session, ino, O_RDONLY | O_NONBLOCK);
    int r = fd < 0 ? fd : 0;
    if (r == 0 && set) {
        memcpy(&value.flags, in, sizeof value.flags);
        r = set_flags(fd, value.flags);
    } else if (r == 0 && ioctl(fd, command, &value) < 0) {
        r = -errno;
    }
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_ioctl(req, 0, &value, size);
}

/* No flush: after the first ENOSYS the kernel skips it at every close. Locks are the kernel's, and no error is left for
 * close: a write is answered when the lower file has it. */
void ops_file(struct fuse_lowlevel_ops *o)
{
    o->open = op_open;
    o->release = op_release;
    o->read = op_read;
    o->write = op_write;
    o->fsync = op_fsync;
    o->fsyncdir = op_fsync;
    o->fallocate = op_fallocate;
    o->ioctl = op_ioctl;
    o->lseek = op_lseek;
    o->copy_file_range = op_copy_file_range;
}
