/* SPDX-License-Identifier: Apache-2.0 */
#include "file_lease.h"
#include "util/clock.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static struct stamp stamp_of(const struct stat *st)
{
    return (struct stamp){.size_bytes = (uint64_t)st->st_size,
                          .mtime_ns = time_from_spec(st->st_mtim),
                          .ctime_ns = time_from_spec(st->st_ctim),
                          .inode = st->st_ino};
}

/* O_NONBLOCK: neither a fifo in the file's place nor another process's lease may block. EAGAIN has two causes: a
 * rename changed the path during the open, which is over at once, or another process has a lease, which may last.
 * So give up after some attempts. */
static int open_still(int data, const char *path)
{
    enum { ATTEMPTS = 100 };
    struct open_how how = {.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOATIME,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    for (int attempt = 1;; attempt++) {
        int fd = (int)syscall(SYS_openat2, data, path, &how, sizeof how);
        if (fd < 0 && errno == EPERM && (how.flags & O_NOATIME))
            how.flags &= ~(uint64_t)O_NOATIME; /* O_NOATIME needs the owner of the file */
        else if (fd >= 0 || errno != EAGAIN || attempt >= ATTEMPTS)
            return fd;
    }
}

static int take_lease(struct file_lease *h, const char *path, bool must_lease, struct err *err)
{
    if (fcntl(h->fd, F_SETLEASE, F_RDLCK) == 0) {
        h->leased = true;
        return 0;
    }
    if (errno == EAGAIN)
        return err_set(err, ERR_AGAIN, "'%s' is open or mapped for writing", path);
    if (!must_lease)
        return 0;
    return err_fail(err, ERR_UNSUPPORTED, CIS_LEASES_UNSUPPORTED, "the kernel denied a lease on '%s' (errno %d)", path,
                    errno);
}

/* ENXIO: it is a socket, or its disk is gone. */
static bool is_socket(int data, const char *path)
{
    struct stat st;
    bool yes = fstatat(data, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode);
    errno = ENXIO;
    return yes;
}

int file_lease_open(int data, const char *path, bool must_lease, struct file_lease *ret, struct err *err)
{
    struct file_lease h = {.fd = open_still(data, path)};
    struct stat st;
    if (h.fd < 0 && (errno == ELOOP || errno == ENOTDIR || errno == EXDEV || (errno == ENXIO && is_socket(data, path))))
        return err_set(err, ERR_NOT_FOUND, "'%s' is not a file any more", path);
    if (h.fd < 0 && errno == EAGAIN)
        return err_set(err, ERR_AGAIN, "another process has a lease on '%s'", path);
    if (h.fd < 0)
        return err_sys(err, errno, "cannot open '%s'", path);
    int r = take_lease(&h, path, must_lease, err);
    /* Stat under the lease: only this state counts. */
    if (r == 0 && fstat(h.fd, &st) != 0)
        r = err_sys(err, errno, "cannot stat '%s'", path);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = err_set(err, ERR_NOT_FOUND, "'%s' is not a file any more", path);
    if (r < 0) {
        file_lease_close(&h);
        return r;
    }
    h.stamp = stamp_of(&st);
    *ret = h;
    return 0;
}

int file_lease_check(const struct file_lease *h, struct err *err)
{
    struct stat st;
    if (fstat(h->fd, &st) != 0)
        return err_sys(err, errno, "cannot stat it again");
    struct stamp now = stamp_of(&st);
    /* A lease that is being broken reads as F_UNLCK, before the writer gets access. */
    if (!stamp_eq(&now, &h->stamp) || (h->leased && fcntl(h->fd, F_GETLEASE) != F_RDLCK))
        return err_set(err, ERR_CHANGED, "it was opened for writing or changed while it was read");
    return 0;
}

bool file_lease_yield(struct file_lease *h)
{
    if (h->fd < 0 || !h->leased || fcntl(h->fd, F_GETLEASE) == F_RDLCK)
        return false;
    (void)fcntl(h->fd, F_SETLEASE, F_UNLCK);
    return true;
}

void file_lease_close(struct file_lease *h)
{
    fd_close(&h->fd);
    h->leased = false;
}
