/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>

/* Unlocks before it closes: a child that another thread has just forked keeps a copy of the descriptor, and so the
 * lock, until its exec. */
void directory_lock_release(struct directory_lock *h)
{
    if (h->dir >= 0)
        flock(h->dir, LOCK_UN);
    fd_close(&h->dir);
    free(h->path);
    h->path = NULL;
}

static const char *directory_name(const struct pool *p, int parent)
{
    return parent == p->volumes ? "volumes" : parent == p->making ? "making" : "trash";
}

/* Another call may have moved the directory between opening and locking it. ERR_NOT_FOUND counts as deleted, so
 * return it only if the disk says so. */
static int check_stayed(int parent, const char *id, int dir, struct err *err)
{
    struct stat here, there;
    bool is_there = fstatat(parent, id, &there, AT_SYMLINK_NOFOLLOW) == 0;
    if ((!is_there && errno != ENOENT) || fstat(dir, &here) != 0)
        return err_sys(err, errno, "cannot stat the volume '%s'", id);
    if (!is_there || here.st_ino != there.st_ino)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' does not exist", id);
    return 0;
}

int directory_lock_take(struct pool *p, int parent, const char *id, struct directory_lock *ret, struct err *err)
{
    auto_directory_lock h = {.dir = -1};
    int r = pool_is_here(p, err);
    if (r < 0)
        return r;
    r = dir_open(parent, id, &h.dir, err);
    if (r == -ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' does not exist", id);
    if (r < 0)
        return r;
    if (flock(h.dir, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return err_sys(err, errno, "cannot lock the volume '%s'", id);
        return err_fail(err, ERR_PENDING, CIS_VOLUME_CHANGING, "another call works on the volume '%s'", id);
    }
    r = check_stayed(parent, id, h.dir, err);
    if (r == 0)
        r = directory_lock_moved(p, parent, id, &h, err);
    if (r < 0)
        return r;
    ret->dir = take_fd(&h.dir);
    ret->path = take(&h.path);
    return 0;
}

int directory_lock_moved(const struct pool *p, int parent, const char *id, struct directory_lock *h, struct err *err)
{
    auto_sbuf path = SBUF(PATH_MAX);
    sbuf_addf(&path, "%s/%s/%s", p->path, directory_name(p, parent), id);
    free(h->path);
    h->path = NULL;
    return sbuf_take(&path, &h->path, err);
}

struct disk directory_lock_disk(const struct directory_lock *h, const struct spec *spec)
{
    return (struct disk){.backend = (enum spec_backend)spec->backend,
                         .dir = h->dir,
                         .path = h->path,
                         .capacity_bytes = spec->capacity_bytes,
                         .project = (uint32_t)spec->project};
}
