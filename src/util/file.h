/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - reads, replaces and removes files; all paths are relative to a directory's descriptor.
 * home: any thread; every function may block on the disk. A descriptor stays valid when a parent is renamed. `dir` may
 * be AT_FDCWD.
 * Code: file.c, and remove.c for dir_remove(). */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <dirent.h>

/* Raises the limit of descriptors (RLIMIT_NOFILE) to its maximum, if the system allows it. */
void fd_limit_raise(void);

/* Reads the whole file; a longer one than `ceiling` is ERR_INVALID. A FIFO that nothing writes to is empty. *ret is
 * NUL-terminated; the caller frees it. */
must_check int file_read(int dir, const char *name, size_t ceiling, char **ret, size_t *ret_len, struct err *err);

/* Opens a state file in a directory that other users may write to: O_CLOEXEC, never through a symbolic link, and
 * without waiting for the other end of a FIFO. *ret_fd is the caller's. Not a regular file: ERR_CORRUPT
 * (CIS_STATE_FILE_INVALID). */
must_check int file_open_state(int dir, const char *name, int flags, mode_t mode, int *ret_fd, struct err *err);
/* file_read() of such a file. */
must_check int file_read_state(int dir, const char *name, size_t ceiling, char **ret, size_t *ret_len, struct err *err);

/* Replaces the file `name`: writes a dot file, syncs it, renames it, syncs the directory. After a crash the file has
 * either the old content or the new. */
must_check int file_replace(int dir, const char *name, struct str content, mode_t mode, struct err *err);

/* The same without a flush: after a crash the file may be empty. The dot file has one name: one writer at a time. */
must_check int file_swap(int dir, const char *name, struct str content, mode_t mode, struct err *err);

/* Does a process hold the open-file-description lock of this file? */
bool file_is_locked(int dir, const char *name);

/* Opens a file without a name in `dir`, to read and write; its last descriptor frees it. If the file system has no such
 * files (NFS, an overlay before Linux 6.1), it creates a file and unlinks it at once. */
must_check int file_nameless(int dir, int *ret_fd, struct err *err);

/* write(2) and pwrite(2) until all is written. `name` is for the error. */
must_check int file_write_all(int fd, const char *name, const void *bytes, size_t len, struct err *err);
must_check int file_pwrite_all(int fd, const char *name, const void *bytes, size_t len, uint64_t offset,
                               struct err *err);

/* Creates the directory if it is missing, and opens it; a link is an error. *ret_fd is the caller's. */
must_check int dir_make(int dir, const char *name, mode_t mode, int *ret_fd, struct err *err);
must_check int dir_open(int dir, const char *name, int *ret_fd, struct err *err);
must_check int dir_sync(int dir, const char *name_for_err, struct err *err);

/* A stream of a directory's entries, from the first. It takes `own_fd`, also on failure: NULL and errno then. A
 * negative `own_fd` is NULL, with errno unchanged. To keep a descriptor, open it again: dir_stream(openat(dir, ".",
 * ...)). */
must_check DIR *dir_stream(int own_fd);

static inline void dir_close(DIR *own_d)
{
    if (own_d)
        closedir(own_d);
}
DEFINE_AUTO(dir, DIR, dir_close)
#define auto_dir auto_with(auto_clean_dir) DIR *

/* The next entry except "." and "..", valid until the next call. NULL: errno is 0 at the end, else the failure. */
struct dirent *dir_next(DIR *d);

/* mkdir -p of a path that the user gave, links included; opens its end. *ret_fd is the caller's. */
must_check int dir_make_path(const char *path, mode_t mode, int *ret_fd, struct err *err);
/* The length of the leading part of `path` that exists. */
size_t path_existing_len(const char *path);
/* Of a path that does not exist: refuses a symbolic link on its way whose target is missing, where no directory can be
 * made. ERR_INVALID (CIS_SYMLINK_IN_THE_WAY). */
must_check int path_check_links(const char *path, struct err *err);
/* Whether `path` is `dir` or below it. Links are followed; what does not exist counts as below its parent. */
bool path_is_within(const char *path, const char *dir);
/* Removes `path` and its parents down to a leading part of `keep_len` bytes, as far as they are empty. */
void dir_remove_empty(const char *path, size_t keep_len);

/* Creates the directories of relative `path` (all but its last segment) below `dir`, never outside: no symbolic link is
 * followed (openat2 RESOLVE_BENEATH|NO_SYMLINKS), `path` must pass path_check. *ret_parent is the caller's;
 * *ret_name points into `path`. */
must_check int dir_make_parents(int dir, const char *path, mode_t mode, int *ret_parent, const char **ret_name,
                                struct err *err);

/* Open a path below `dir`, never outside. -1 and errno on failure. O_CLOEXEC is added to `flags`. */
int path_open(int dir, const char *path, int flags);       /* no link is followed */
int path_open_links(int dir, const char *path, int flags); /* links that stay inside are */
int path_open_here(int dir, const char *path, int flags);  /* no link is followed, no mount is entered: EXDEV */

/* Removes a tree of any depth, without following links or entering another mount; modes and flags that prevent the
 * removal are changed. Absent is success. After a failure it removes the rest, and returns the first failure. */
must_check int dir_remove(int dir, const char *name, struct err *err);

/* May `path` (relative, bytes of an object's key) become a file below a directory? ERR_INVALID names the reason: empty,
 * leading or doubled '/', a segment `.` or `..`, a NUL, a segment over 255 bytes, a path over 4,095. A trailing '/' is
 * refused too: the caller handles directory markers. */
must_check int path_check(struct str path, struct err *err);

/* Length of the path before the last segment: of "a/b/" for "a/b/c", and for "a/b/". */
size_t path_directory_len(struct str path);
struct str path_parent(struct str path); /* the same without its slash */

/* The path of `name` in the directory of the running program; "" gives that directory, with its slash. */
must_check int program_path(const char *name, char *ret, size_t size, struct err *err);
