/* SPDX-License-Identifier: Apache-2.0 */
/* Reads directories. None is kept open: an offset means the same for every descriptor of the lower directory. */
#include "private.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { READ_BYTES = 16384 };

struct linux_dirent64 {
    uint64_t d_ino;
    int64_t d_off;
    unsigned short d_reclen;
    unsigned char d_type;
    char d_name[];
};

struct dir_reader {
    struct request *request;
    fuse_req_t req;
    int dir;
    bool plus;
    char *out;
    size_t len, room;
    uint32_t entries;
};

static bool is_dot(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* 0: added; 1: no room. */
static int add(struct dir_reader *l, const struct linux_dirent64 *d)
{
    struct stat st = {.st_ino = d->d_ino, .st_mode = (mode_t)d->d_type << 12};
    char *at = l->out + l->len;
    size_t left = l->room - l->len;
    if (!l->plus) {
        size_t n = fuse_add_direntry(l->req, at, left, d->d_name, &st, d->d_off);
        if (n > left)
            return 1;
        l->len += n;
        return 0;
    }
    /* Checked before it is counted: an entry that does not fit must not be counted. */
    if (fuse_add_direntry_plus(l->req, NULL, 0, d->d_name, NULL, 0) > left || l->entries == COUNTED_MAX)
        return 1;
    struct fuse_entry_param e = {.attr = st};
    int r = is_dot(d->d_name) ? 0 : node_entry(l->request, l->dir, d->d_name, &e);
    /* A name without attributes: a lookup reports the error. Without the name, an empty reply would end the listing. */
    if (r < 0)
        e = (struct fuse_entry_param){.attr = st};
    l->len += fuse_add_direntry_plus(l->req, at, left, d->d_name, &e, d->d_off);
    l->entries++;
    return 0;
}

static int list(struct dir_reader *l)
{
    char raw[READ_BYTES] __attribute__((aligned(8)));
    for (;;) {
        long n = syscall(SYS_getdents64, l->dir, raw, sizeof(raw));
        if (n <= 0)
            return n < 0 ? -errno : 0;
        for (long at = 0; at < n;) {
            const struct linux_dirent64 *d = (const struct linux_dirent64 *)(raw + at);
            if (add(l, d))
                return 0;
            at += d->d_reclen;
        }
    }
}

static void read_directory(fuse_req_t req, fuse_ino_t ino, size_t room, off_t offset, bool plus)
{
    struct request *rq = request_current();
    auto_mem char *out = xcalloc(1, room);
    auto_fd dir = lower_open(rq->session, ino, O_RDONLY | O_DIRECTORY);
    struct dir_reader l = {.request = rq, .req = req, .dir = dir, .plus = plus, .out = out, .room = room};
    int r = dir;
    if (dir >= 0)
        r = offset && lseek(dir, offset, SEEK_SET) < 0 ? -errno : list(&l);
    test_point(rq->session, "readdir", "before-reply");
    if (r < 0 && l.len == 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_buf(req, out, l.len);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t room, off_t offset, struct fuse_file_info *)
{
    read_directory(req, ino, room, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t room, off_t offset, struct fuse_file_info *)
{
    read_directory(req, ino, room, offset, true);
}

/* No opendir: the kernel then needs no state here, and keeps its cache of a directory's names between opens. */
void ops_dir(struct fuse_lowlevel_ops *o)
{
    o->readdir = op_readdir;
    o->readdirplus = op_readdirplus;
}
