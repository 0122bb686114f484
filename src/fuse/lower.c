/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <fcntl.h>
#include <stdio.h>

const char *fd_path(int fd, char *buf)
{
    snprintf(buf, FD_PATH_MAX, "/proc/self/fd/%d", fd);
    return buf;
}

union raw_handle {
    struct file_handle h;
    char bytes[sizeof(struct file_handle) + HANDLE_MAX];
};

int lower_handle(int fd, struct table_handle *ret)
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

/* Opens a held descriptor again with other flags. Symbolic links are only opened as O_PATH. */
static int reopen(int fd, int flags)
{
    char path[FD_PATH_MAX];
    int r = flags & O_PATH ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : open(fd_path(fd, path), flags | O_CLOEXEC);
    return r < 0 ? -errno : r;
}

int lower_open(struct session *s, uint64_t id, int flags)
{
    if (id == TABLE_ROOT)
        return reopen(s->root_fd, flags);
    struct table_node n;
    int r = nodes_get(s->table, id, &n);
    if (r < 0)
        return r;
    int held = n.flags & NODE_GONE ? node_fds_get(&s->fds, id, NODE_FD_HELD) : -1;
    if (held >= 0)
        return reopen(held, flags);
    union raw_handle raw = {.h = {.handle_bytes = n.handle.len, .handle_type = n.handle.type}};
    memcpy(raw.h.f_handle, n.handle.bytes, n.handle.len);
    int fd = open_by_handle_at(s->root_fd, &raw.h, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Names come in runs of one directory, whose opening by its handle took 40 % of the CPU time of a create. Two, since a
 * rename has two. Only directories: a removed file must give its space back. An id never means another directory. */
static _Thread_local struct kept_dir {
    uint64_t id; /* 0: none */
    int fd;
} kept[2];

int lower_dir_kept(const struct session *s, uint64_t id)
{
    if (id == TABLE_ROOT)
        return s->root_fd;
    for (size_t k = 0; k < countof(kept); k++)
        if (kept[k].id == id)
            return kept[k].fd;
    return -1;
}

int lower_dir(struct session *s, uint64_t id)
{
    static _Thread_local size_t latest;
    int fd = lower_dir_kept(s, id);
    if (fd >= 0) {
        latest = kept[0].id == id ? 0 : 1;
        return fd;
    }
    fd = lower_open(s, id, O_PATH);
    if (fd < 0)
        return fd;
    latest = !latest;
    if (kept[latest].id)
        close(kept[latest].fd);
    kept[latest] = (struct kept_dir){id, fd};
    return fd;
}

int lower_chmod(int fd, mode_t mode)
{
    char path[FD_PATH_MAX];
    fsuid_keep_setid(true); /* the kernel has already cleared S_ISGID if the user may not set it */
    int r = chmod(fd_path(fd, path), mode & 07777) < 0 ? -errno : 0;
    fsuid_keep_setid(false);
    return r;
}

int lower_identify(const struct session *s, int fd, struct stat *ret_st, struct table_handle *ret_handle)
{
    if (fstat(fd, ret_st) < 0)
        return -errno;
    /* Another file system mounted in the directory is not the volume's: its handles would name other files. */
    return ret_st->st_dev == s->dev ? lower_handle(fd, ret_handle) : -EXDEV;
}

int lower_lookup(const struct session *s, int parent, const char *name, struct stat *ret_st,
                 struct table_handle *ret_handle)
{
    auto_fd fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? -errno : lower_identify(s, fd, ret_st, ret_handle);
    return r < 0 ? r : take_fd(&fd);
}

uint64_t lower_ino(int parent, const char *name)
{
    struct stat st;
    return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}
