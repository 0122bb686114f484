/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SECBIT_NO_SETUID_FIXUP
#define SECBIT_NO_SETUID_FIXUP 4
#endif

const char *fd_path(int fd, char *buf)
{
    snprintf(buf, FD_PATH_MAX, "/proc/self/fd/%d", fd);
    return buf;
}

union raw_handle {
    struct file_handle h;
    char bytes[sizeof(struct file_handle) + HANDLE_MAX];
};

int below_handle(int fd, struct handle *ret)
{
    union raw_handle raw = {.h = {.handle_bytes = HANDLE_MAX}};
    int mount_id;
    if (name_to_handle_at(fd, "", &raw.h, &mount_id, AT_EMPTY_PATH) < 0)
        return -errno;
    memset(ret, 0, sizeof(*ret));
    ret->type = raw.h.handle_type;
    ret->len = (uint8_t)raw.h.handle_bytes;
    memcpy(ret->bytes, raw.h.f_handle, raw.h.handle_bytes);
    return 0;
}

/* A held descriptor, opened again with other flags. Symbolic links are only ever wanted as O_PATH. */
static int reopen(int fd, int flags)
{
    char path[FD_PATH_MAX];
    int r = flags & O_PATH ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : open(fd_path(fd, path), flags | O_CLOEXEC);
    return r < 0 ? -errno : r;
}

int below_open(struct serve *s, uint64_t id, int flags)
{
    if (id == TABLE_ROOT) {
        int fd = openat(s->root_fd, ".", flags | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    struct node n;
    int r = table_get(s->table, id, &n);
    if (r < 0)
        return r;
    int held = n.flags & NODE_GONE ? fds_get(&s->fds, id, FDS_HELD) : -1;
    if (held >= 0)
        return reopen(held, flags);
    union raw_handle raw = {.h = {.handle_bytes = n.handle.len, .handle_type = n.handle.type}};
    memcpy(raw.h.f_handle, n.handle.bytes, n.handle.len);
    int fd = open_by_handle_at(s->root_fd, &raw.h, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int below_lookup(struct serve *s, int parent, const char *name, struct stat *ret_st, struct handle *ret_handle)
{
    auto_fd fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret_st) < 0)
        return -errno;
    /* What another file system mounts into the folder is not the volume's: its handles would mean other files here. */
    if (ret_st->st_dev != s->dev)
        return -EXDEV;
    int r = below_handle(fd, ret_handle);
    return r < 0 ? r : take_fd(&fd);
}

uint64_t below_ino(int parent, const char *name)
{
    struct stat st;
    return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

/* ---- credentials ------------------------------------------------------------------------------------------------- */

static struct __user_cap_data_struct ours[2]; /* frozen after caps_drop: what a thread has */

static int caps_set(const struct __user_cap_data_struct *data)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    return (int)syscall(SYS_capset, &h, data);
}

void caps_fsetid(bool on)
{
    struct __user_cap_data_struct d[2] = {ours[0], ours[1]};
    if (on)
        d[0].effective |= 1u << CAP_FSETID;
    caps_set(d);
}

/* Only the calling thread, so before there are others. ext4's quota and reserve let holders of CAP_SYS_RESOURCE pass:
 * files below are opened by the kernel with our credentials, hence nobody's. */
int caps_drop(struct err *err)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    if (syscall(SYS_capget, &h, ours) < 0)
        return err_sys(err, errno, "cannot read the capabilities");
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0) {
        err_sys(err, errno, "cannot keep capabilities over a change of the file-system uid");
        return err_advise(err, 3103, "a mount needs root with CAP_SYS_ADMIN, CAP_SETPCAP and CAP_DAC_READ_SEARCH");
    }
    ours[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    ours[0].effective = ours[0].permitted & ~(1u << CAP_FSETID);
    ours[0].inheritable = ours[1].inheritable = 0;
    ours[1].effective = ours[1].permitted;
    if (caps_set(ours) < 0)
        return err_sys(err, errno, "cannot drop capabilities");
    return 0;
}

struct guise guise_on(const struct serve *s, fuse_req_t req, mode_t mode)
{
    const struct fuse_ctx *c = fuse_req_ctx(req);
    setfsgid(s->config->has_group ? s->config->group : c->gid);
    setfsuid(c->uid);
    umask(c->umask);
    if (mode & S_ISGID)
        caps_fsetid(true);
    return (struct guise){.on = true};
}

void guise_off(struct guise *g)
{
    if (!g->on)
        return;
    int kept_errno = errno;
    g->on = false;
    setfsuid(0);
    setfsgid(0);
    umask(0);
    caps_fsetid(false);
    errno = kept_errno;
}
