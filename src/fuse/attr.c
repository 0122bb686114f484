/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the attributes of a file: for GETATTR, and for STATX, which adds the time of birth. */
#include "kernel.h"
#include "private.h"
#include <fcntl.h>
#include <sys/sysmacros.h>

/* Reads the attributes. Returns a descriptor of the node, borrowed or *own_fd, or -errno. */
static int read_open(struct session *s, uint64_t id, int *own_fd, struct stat *ret, double *ret_timeout)
{
    struct table_node n;
    int r = nodes_get(s->table, id, &n);
    if (r == 0 && n.writers == 0 && n.flags & NODE_DIRTY) {
        node_settle(s, id);
        r = nodes_get(s->table, id, &n);
    }
    if (r < 0)
        return r;
    int fd = lower_dir_kept(s, id);
    if (fd < 0)
        fd = *own_fd = lower_open(s, id, O_PATH);
    if (fd < 0)
        return fd;
    if (fstat(fd, ret) < 0)
        return -errno;
    group_show(s, fd, ret);
    *ret_timeout = node_attr_timeout(s, &n);
    return fd;
}

int attr_read(struct session *s, uint64_t id, struct stat *ret, double *ret_timeout)
{
    auto_fd own = -1;
    int fd = read_open(s, id, &own, ret, ret_timeout);
    return fd < 0 ? fd : 0;
}

static struct kernel_statx_time time_of(struct timespec t)
{
    return (struct kernel_statx_time){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}

static int read_statx(struct session *s, uint64_t id, struct kernel_statx_out *ret)
{
    struct stat st;
    struct statx x;
    double timeout = 0;
    auto_fd own = -1;
    int fd = read_open(s, id, &own, &st, &timeout);
    if (fd < 0)
        return fd;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BTIME, &x) < 0)
        return -errno;
    *ret = (struct kernel_statx_out){
        .attr_valid = (uint64_t)timeout,
        .mask = STATX_BASIC_STATS | (x.stx_mask & STATX_BTIME),
        .blksize = (uint32_t)st.st_blksize,
        .nlink = (uint32_t)st.st_nlink,
        .uid = st.st_uid,
        .gid = st.st_gid,
        .mode = (uint16_t)st.st_mode,
        .ino = st.st_ino,
        .size = (uint64_t)st.st_size,
        .blocks = (uint64_t)st.st_blocks,
        .atime = time_of(st.st_atim),
        .btime = {.sec = x.stx_btime.tv_sec, .nsec = x.stx_btime.tv_nsec},
        .ctime = time_of(st.st_ctim),
        .mtime = time_of(st.st_mtim),
        .rdev_major = major(st.st_rdev),
        .rdev_minor = minor(st.st_rdev),
    };
    return 0;
}

void attr_serve_statx(struct session *s, uint64_t unique, uint64_t id)
{
    struct kernel_statx_out out;
    int r = read_statx(s, id, &out);
    device_reply(s, unique, r, &out, sizeof(out));
}
