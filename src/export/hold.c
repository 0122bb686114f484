/* SPDX-License-Identifier: Apache-2.0 */
#include "hold.h"
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

/* O_NONBLOCK: neither a fifo that took the file's place nor another's lease may keep us waiting. EAGAIN says two
 * things: a rename raced with the path, which passes at once, or somebody holds a lease, which may last: so not for
 * ever. */
static int open_still(int data, const char *path)
{
    enum { ATTEMPTS = 100 };
    struct open_how how = {.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOATIME,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    for (int attempt = 1;; attempt++) {
        int fd = (int)syscall(SYS_openat2, data, path, &how, sizeof how);
        if (fd < 0 && errno == EPERM && (how.flags & O_NOATIME))
            how.flags &= ~(uint64_t)O_NOATIME; /* somebody else's file */
        else if (fd >= 0 || errno != EAGAIN || attempt >= ATTEMPTS)
            return fd;
    }
}

static int take_lease(struct hold *h, const char *path, bool must_lease, struct err *err)
{
    if (fcntl(h->fd, F_SETLEASE, F_RDLCK) == 0) {
        h->leased = true;
        return 0;
    }
    if (errno == EAGAIN)
        return err_set(err, ERR_AGAIN, "'%s' is open or mapped for writing", path);
    if (!must_lease)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "the kernel gives no lease on '%s' (errno %d)", path, errno);
    return err_advise(err, 4006, "run the export as root, or with CAP_LEASE, on a local file system");
}

/* ENXIO says that it is one, or that its disk is gone. */
static bool is_socket(int data, const char *path)
{
    struct stat st;
    bool yes = fstatat(data, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode);
    errno = ENXIO;
    return yes;
}

int hold_open(int data, const char *path, bool must_lease, struct hold *ret, struct err *err)
{
    struct hold h = {.fd = open_still(data, path)};
    struct stat st;
    if (h.fd < 0 && (errno == ELOOP || errno == ENOTDIR || errno == EXDEV || (errno == ENXIO && is_socket(data, path))))
        return err_set(err, ERR_NOT_FOUND, "'%s' is no file any more", path);
    if (h.fd < 0 && errno == EAGAIN)
        return err_set(err, ERR_AGAIN, "somebody holds a lease on '%s'", path);
    if (h.fd < 0)
        return err_sys(err, errno, "cannot open '%s'", path);
    int r = take_lease(&h, path, must_lease, err);
    /* The state that counts is the one under the lease. */
    if (r == 0 && fstat(h.fd, &st) != 0)
        r = err_sys(err, errno, "cannot look at '%s'", path);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = err_set(err, ERR_NOT_FOUND, "'%s' is no file any more", path);
    if (r < 0) {
        hold_close(&h);
        return r;
    }
    h.stamp = stamp_of(&st);
    *ret = h;
    return 0;
}

int hold_check(const struct hold *h, struct err *err)
{
    struct stat st;
    if (fstat(h->fd, &st) != 0)
        return err_sys(err, errno, "cannot look at it again");
    struct stamp now = stamp_of(&st);
    /* A lease that is being broken answers F_UNLCK, before the writer gets in. */
    if (!stamp_eq(&now, &h->stamp) || (h->leased && fcntl(h->fd, F_GETLEASE) != F_RDLCK))
        return err_set(err, ERR_CHANGED, "it was opened for writing or changed while it was read");
    return 0;
}

bool hold_yield(struct hold *h)
{
    if (h->fd < 0 || !h->leased || fcntl(h->fd, F_GETLEASE) == F_RDLCK)
        return false;
    (void)fcntl(h->fd, F_SETLEASE, F_UNLCK);
    return true;
}

void hold_close(struct hold *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
    h->leased = false;
}
