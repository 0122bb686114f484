/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - whole reads, atomic replace, fsync of file and folder, paths under a folder's descriptor.
 * home: any thread; everything here may block on the disk. Folders are named by descriptor: a rename above cannot
 * lead us astray. AT_FDCWD is allowed wherever a `dir` is taken. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <dirent.h>

/* As many descriptors as the process may open at all (RLIMIT_NOFILE); a wish, not a promise. */
void fd_limit_raise(void);

/* Reads the whole file; a longer one than `ceiling` is ERR_NO_SPACE. *ret is NUL-terminated; the caller frees it. */
must_check int file_read(int dir, const char *name, size_t ceiling, char **ret, size_t *ret_len, struct err *err);

/* Puts `content` at `name`: written under a dot-name, fsynced, renamed over, folder fsynced. A crash leaves the old
 * content or the new one, whole. */
must_check int file_replace(int dir, const char *name, struct str content, mode_t mode, struct err *err);

/* A file without a name in `dir`, to read and write, gone with its last descriptor. A file system that has no such
 * (NFS, an overlay of before Linux 6.1) holds one whose name was taken away at once. */
must_check int file_nameless(int dir, int *ret_fd, struct err *err);

/* write(2) and pwrite(2) until all is written. `name` is for the sentence. */
must_check int file_write_all(int fd, const char *name, const void *bytes, size_t len, struct err *err);
must_check int file_pwrite_all(int fd, const char *name, const void *bytes, size_t len, uint64_t offset,
                               struct err *err);

/* mkdir, where "exists already" is success; then opens it, if it is no link. *ret_fd is the caller's. */
must_check int dir_make(int dir, const char *name, mode_t mode, int *ret_fd, struct err *err);
must_check int dir_open(int dir, const char *name, int *ret_fd, struct err *err);
must_check int dir_sync(int dir, const char *name_for_err, struct err *err);

/* A folder's entries, read from its beginning. `own_fd` is the stream's from here on, and closed where that fails: NULL
 * then, and errno says why; below zero is NULL with errno as it is. A descriptor that is still wanted is opened again:
 * dir_stream(openat(dir, ".", ...)). */
must_check DIR *dir_stream(int own_fd);

static inline void dir_close(DIR *own_d)
{
    if (own_d)
        closedir(own_d);
}
DEFINE_AUTO(dir, DIR, dir_close)
#define auto_dir auto_with(auto_clean_dir) DIR *

/* The next entry but "." and "..", the stream's until the next call. NULL: errno is 0 at the end, else the failure. */
struct dirent *dir_next(DIR *d);

/* mkdir -p of a path that is the user's own, links included, and opens its end. *ret_fd is the caller's. */
must_check int dir_make_path(const char *path, mode_t mode, int *ret_fd, struct err *err);

/* Makes the folders on the way to relative `path` (all but its last segment) below `dir`, never leaving it: no symbolic
 * link is followed (openat2 RESOLVE_BENEATH|NO_SYMLINKS), `path` must pass path_check. *ret_parent is the caller's;
 * *ret_name points into `path`. */
must_check int dir_make_parents(int dir, const char *path, mode_t mode, int *ret_parent, const char **ret_name,
                                struct err *err);

/* Opens what is below `dir`, and never leaves it. -1, and errno says why. O_CLOEXEC is added to `flags`. */
int path_open(int dir, const char *path, int flags);       /* no link is followed */
int path_open_links(int dir, const char *path, int flags); /* those that stay inside are */
int path_open_here(int dir, const char *path, int flags);  /* no link, and no mount is entered: EXDEV */

/* Removes a tree of any depth, without following links or entering another mount; modes and flags that are in the way
 * are taken away. Absent is success. After a failure it goes on: what can be removed is gone, and the first failure is
 * returned. */
must_check int dir_remove(int dir, const char *name, struct err *err);

/* May `path` (relative, bytes of an object's key) become a file below a folder? ERR_INVALID names the reason: empty,
 * leading or doubled '/', a segment `.` or `..`, a NUL, a segment over 255 bytes, a whole over 4,095. A trailing '/' is
 * refused too: folder markers are the caller's business. */
must_check int path_check(struct str path, struct err *err);

/* Bytes of what is before its last segment: "a/b/" of "a/b/c", and of itself. */
size_t path_folder_len(struct str path);
struct str path_parent(struct str path); /* the same without its slash */
