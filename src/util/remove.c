/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a tree with a limited number of descriptors and without recursion. A tree may be deeper than any path: a
 * directory below the last open level is moved up to the root of the tree, and removed after the rest. Other processes
 * may change the tree during the run: each step names one entry of an open directory, follows no link and enters no
 * mount. */
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { LEVELS_MAX = 32 };

struct remove_level {
    DIR *entries; /* owned */
    char name[NAME_MAX + 1];
};

struct removal {
    struct remove_level levels[LEVELS_MAX]; /* the first is the root of the tree */
    unsigned depth;
    uint64_t key;         /* random, so that no existing entry has the name of a moved one */
    uint64_t moved, next; /* number of subtrees that were moved up, and the next to remove */
    struct err *err;      /* the first failure */
    int r;
};

static void fail(struct removal *w, const char *what, const char *name)
{
    if (w->r == 0 && errno == EXDEV)
        w->r = err_set(w->err, ERR_BUSY, "cannot remove '%s': something is mounted there", name);
    else if (w->r == 0)
        w->r = err_sys(w->err, errno, "cannot %s '%s'", what, name);
}

/* Clears what prevents a removal: the flags "immutable" and "append only", and a mode that denies the owner access to a
 * directory. Devices and pipes are not opened: that may have effects. */
static void unlock(int dir, const char *name)
{
    struct stat st;
    char path[40];
    int flags;
    auto_fd at = path_open_here(dir, name, O_PATH);
    if (at < 0 || fstat(at, &st) != 0 || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", at);
    if (S_ISDIR(st.st_mode) && (st.st_mode & S_IRWXU) != S_IRWXU)
        (void)!chmod(path, S_IRWXU);
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && flags & (FS_IMMUTABLE_FL | FS_APPEND_FL)) {
        flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
        (void)!ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

static bool is_denied(void)
{
    return errno == EPERM || errno == EACCES;
}

/* unlinkat(2); false: errno has the cause. */
static bool drop(int dir, const char *name, int flags)
{
    if (unlinkat(dir, name, flags) == 0 || errno == ENOENT)
        return true;
    if (!is_denied())
        return false;
    unlock(dir, ".");
    unlock(dir, name);
    return unlinkat(dir, name, flags) == 0 || errno == ENOENT;
}

static void push(struct removal *w, int own_fd, const char *name)
{
    struct remove_level *l = &w->levels[w->depth];
    l->entries = dir_stream(own_fd);
    if (!l->entries) {
        fail(w, "open the directory", name);
        return;
    }
    snprintf(l->name, sizeof l->name, "%s", name);
    w->depth++;
}

static void enter(struct removal *w, int dir, const char *name)
{
    int fd = path_open_here(dir, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && is_denied()) {
        unlock(dir, name);
        fd = path_open_here(dir, name, O_RDONLY | O_DIRECTORY);
    }
    if (fd >= 0)
        push(w, fd, name);
    else if (errno != ENOENT)
        fail(w, "open the directory", name);
}

static void name_moved(const struct removal *w, uint64_t number, char name[static 48])
{
    snprintf(name, 48, ".removed.%016" PRIx64 ".%" PRIu64, w->key, number);
}

static void move_up(struct removal *w, int dir, const char *name)
{
    char moved[48];
    name_moved(w, w->moved, moved);
    int root = dirfd(w->levels[0].entries);
    if (renameat(dir, name, root, moved) == 0) {
        w->moved++;
        return;
    }
    unlock(dir, name); /* `dir` allowed the attempt to remove it */
    if (renameat(dir, name, root, moved) == 0)
        w->moved++;
    else if (errno != ENOENT)
        fail(w, "move the directory", name);
}

static void remove_entry(struct removal *w, int dir, const char *name)
{
    if (drop(dir, name, 0))
        return;
    if (errno != EISDIR)
        fail(w, "remove", name);
    else if (w->depth < LEVELS_MAX)
        enter(w, dir, name);
    else if (!drop(dir, name, AT_REMOVEDIR)) /* most are not so deep, or are empty */
        move_up(w, dir, name);
}

/* The innermost directory is empty: remove it, or continue with the moved subtrees. */
static void leave(struct removal *w)
{
    char moved[48];
    struct remove_level *l = &w->levels[w->depth - 1];
    if (errno)
        fail(w, "read the directory", l->name);
    if (w->depth == 1 && w->next < w->moved) {
        name_moved(w, w->next++, moved);
        enter(w, dirfd(l->entries), moved);
        return;
    }
    closedir(l->entries);
    w->depth--;
    if (w->depth > 0 && !drop(dirfd(l[-1].entries), l->name, AT_REMOVEDIR))
        fail(w, "remove the directory", l->name);
}

int dir_remove(int dir, const char *name, struct err *err)
{
    struct removal w = {.key = clock_random(), .err = err};
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_sys(err, errno, "cannot remove '%s'", name);
    /* The caller gave the path of the root: its parents are not changed. */
    push(&w, openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), name);
    while (w.depth > 0) {
        DIR *entries = w.levels[w.depth - 1].entries;
        const struct dirent *e = dir_next(entries);
        if (e)
            remove_entry(&w, dirfd(entries), e->d_name);
        else
            leave(&w);
    }
    if (w.r == 0 && unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        fail(&w, "remove the directory", name);
    return w.r;
}
