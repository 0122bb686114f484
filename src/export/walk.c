/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

struct tree_walk {
    const struct walk_sink *sink;
    int top;          /* borrowed */
    dev_t dev;        /* of top: other file systems below are skipped */
    struct sbuf todo; /* directories still to read, each followed by a NUL; the last is next */
    struct sbuf path; /* of the current entry */
    size_t directory_len;
    bool empty; /* no entry of the current directory was seen yet */
};

static const char *const skip_names[] = {
    [WALK_LINK] = "symbolic link",
    [WALK_FIFO] = "fifo",
    [WALK_SOCKET] = "socket",
    [WALK_DEVICE] = "device",
    [WALK_EMPTY_DIRECTORY] = "empty directory",
    [WALK_OTHER_MOUNT] = "another file system, mounted here",
    [WALK_RECORDS] = "records of this export",
};

const char *walk_skip_name(enum walk_skip why)
{
    return skip_names[why];
}

static int report_error(struct tree_walk *w, struct str path, int errnum, const char *what, struct err *err)
{
    struct err why;
    if (path.len == 0)
        path = STR("."); /* the directory itself */
    (void)err_sys(&why, errnum, "cannot %s '%.*s'", what, (int)min_u64(path.len, 300), path.ptr);
    return w->sink->on_error(w->sink->ctx, path, &why, err);
}

static int push_directory(struct tree_walk *w, struct err *err)
{
    sbuf_add(&w->todo, sbuf_str(&w->path));
    sbuf_addc(&w->todo, '\0');
    if (w->todo.overflow)
        return err_set(err, ERR_NO_SPACE, "the names of the directories below take more than %d MiB",
                       WALK_DIRECTORIES_BYTES_MAX >> 20);
    return 0;
}

static int skip_special(struct tree_walk *w, mode_t mode, struct err *err)
{
    enum walk_skip why = S_ISLNK(mode)    ? WALK_LINK
                         : S_ISFIFO(mode) ? WALK_FIFO
                         : S_ISSOCK(mode) ? WALK_SOCKET
                                          : WALK_DEVICE;
    return w->sink->on_skip(w->sink->ctx, sbuf_str(&w->path), why, err);
}

static int see_entry(struct tree_walk *w, int fd, const struct dirent *e, struct err *err)
{
    if (e->d_type == DT_DIR)
        return push_directory(w, err);
    struct stat st;
    if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : report_error(w, sbuf_str(&w->path), errno, "look at", err);
    if (S_ISDIR(st.st_mode))
        return push_directory(w, err);
    if (!S_ISREG(st.st_mode))
        return skip_special(w, st.st_mode, err);
    struct walk_file f = {.path = sbuf_str(&w->path),
                          .size_bytes = (uint64_t)st.st_size,
                          .mtime_ns = time_from_spec(st.st_mtim),
                          .ctime_ns = time_from_spec(st.st_ctim),
                          .inode = st.st_ino};
    return w->sink->on_file(w->sink->ctx, &f, err);
}

static int check_stop(const struct tree_walk *w, struct err *err)
{
    if (!w->sink->is_stopped || !w->sink->is_stopped(w->sink->ctx))
        return 0;
    return err_set(err, ERR_CANCELLED, "stopped while the directory was read; repeat the command to continue");
}

static int read_entries(struct tree_walk *w, DIR *d, struct err *err)
{
    struct dirent *e;
    while ((e = dir_next(d)) != NULL) {
        if (check_stop(w, err) < 0)
            return -ERR_CANCELLED;
        w->empty = false;
        if (w->directory_len > 0)
            sbuf_addc(&w->path, '/');
        sbuf_adds(&w->path, e->d_name);
        int r = see_entry(w, dirfd(d), e, err);
        sbuf_cut(&w->path, w->directory_len);
        if (r < 0)
            return r;
    }
    return errno ? report_error(w, sbuf_str(&w->path), errno, "read the directory", err) : 0;
}

static int read_directory(struct tree_walk *w, struct err *err)
{
    auto_dir d = dir_stream(path_open(w->top, w->path.len ? w->path.ptr : ".", O_RDONLY | O_DIRECTORY));
    if (!d)
        return errno == ENOENT ? 0 : report_error(w, sbuf_str(&w->path), errno, "open the directory", err);
    struct stat st;
    if (fstat(dirfd(d), &st) != 0)
        return report_error(w, sbuf_str(&w->path), errno, "read the directory", err);
    if (st.st_dev != w->dev)
        return w->sink->on_skip(w->sink->ctx, sbuf_str(&w->path), WALK_OTHER_MOUNT, err);
    /* They are open for writing, so the export would wait for itself. */
    const struct stat *records = w->sink->records;
    if (records && st.st_ino == records->st_ino && st.st_dev == records->st_dev)
        return w->sink->on_skip(w->sink->ctx, sbuf_str(&w->path), WALK_RECORDS, err);
    w->empty = true;
    int r = read_entries(w, d, err);
    /* ext4 creates lost+found at the top of every file system; its content matters only if fsck put files there. */
    if (r == 0 && w->empty && w->directory_len > 0 && !str_eq(sbuf_str(&w->path), STR("lost+found")))
        r = w->sink->on_skip(w->sink->ctx, sbuf_str(&w->path), WALK_EMPTY_DIRECTORY, err);
    return r;
}

/* Takes the last directory of the list into w->path. */
static void pop_directory(struct tree_walk *w)
{
    size_t end = w->todo.len - 1, from = end;
    while (from > 0 && w->todo.ptr[from - 1] != '\0')
        from--;
    sbuf_set(&w->path, (struct str){w->todo.ptr + from, end - from});
    w->directory_len = w->path.len;
    sbuf_cut(&w->todo, from);
}

int walk_directory(int dir, struct str below, const struct walk_sink *sink, struct err *err)
{
    struct tree_walk w = {.sink = sink, .top = dir};
    struct stat st;
    if (fstat(dir, &st) != 0)
        return err_sys(err, errno, "cannot read the directory to export");
    w.dev = st.st_dev;
    sbuf_init(&w.todo, WALK_DIRECTORIES_BYTES_MAX);
    /* A path longer than the kernel accepts: opening it fails, and the failure is reported. */
    sbuf_init(&w.path, PATH_MAX + NAME_MAX + 2);
    sbuf_add(&w.todo, below);
    sbuf_addc(&w.todo, '\0');
    int r = 0;
    while (r == 0 && w.todo.len > 0) {
        pop_directory(&w);
        r = check_stop(&w, err);
        if (r == 0)
            r = read_directory(&w, err);
    }
    sbuf_done(&w.todo);
    sbuf_done(&w.path);
    return r;
}
