/* SPDX-License-Identifier: Apache-2.0 */
/* mount.h - Mounts, binds and unmounts, and reads mountinfo. Blocking. home: any thread. Paths are absolute.
 * Code: mount.c and mountinfo.c. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* ---- mountinfo --------------------------------------------------------------------------------------------------- */

/* The fields of a line of /proc/self/mountinfo that we use, octal escapes undone. Strings are owned. */
struct mount {
    uint64_t id;
    uint64_t parent;
    unsigned dev_major, dev_minor;
    char *root;    /* root within the mounted file system; not "/" for a bind of a directory */
    char *target;  /* where */
    char *fs_type; /* ext4, fuse.cistern */
    char *source;  /* /dev/loop3 */
    char *label;   /* the SELinux label of all its files: its option context=; NULL: none */
};
void mount_done(struct mount *m); /* may run twice */
void mount_list_free(struct mount *own_mounts, size_t count);

/* One line, without its newline. Pure. ERR_CORRUPT on anything that proc_pid_mountinfo(5) does not allow. */
must_check int mount_parse(struct str line, struct mount *ret, struct err *err);

/* The topmost mount at exactly this path, reachable or not: a dead FUSE mount, which fails stat, is found too.
 * *ret_found false: nothing is mounted there; if true, the caller calls mount_done(). Symbolic links before the last
 * segment are followed. */
must_check int mount_find(const char *path, struct mount *ret, bool *ret_found, struct err *err);

/* The mount that contains the existing directory `path`; the caller calls mount_done(). *ret_is_root: the directory
 * is the root of the mounted file system. A bind mount of a subdirectory is not. */
must_check int mount_around(const char *path, struct mount *ret, bool *ret_is_root, struct err *err);

/* Is anything mounted at the path? */
must_check int mount_is_at(const char *path, bool *ret, struct err *err);

/* Every mount at or below `path`, in the order in which to unmount: deepest and latest first. The caller calls
 * mount_list_free(). */
must_check int mount_below(const char *path, struct mount **ret, size_t *ret_count, struct err *err);

/* Finds a mount other than `path` itself that shows the directory `path` or a part of it, as a bind or by its source
 * `source`. The caller frees *ret; NULL: not found. */
must_check int mount_that_shows(const char *path, const char *source, char **ret, struct err *err);

/* ---- mounting ---------------------------------------------------------------------------------------------------- */

/* mount(2) with a sentence. `data` may be NULL. */
must_check int mount_make(const char *source, const char *target, const char *fs_type, unsigned long flags,
                          const char *data, struct err *err);

/* Binds `source` on `target`, both directories or both files; read-only from its first moment if asked. A relative
 * `source` starts at `dir`; "" is the directory open as `dir`, even if its path is mounted over. */
must_check int mount_bind(int dir, const char *source, const char *target, bool read_only, struct err *err);

/* Does this kernel run SELinux, so that mount(2) takes the option context=? Else it refuses the option. */
bool mount_takes_context(void);

/* Removes every mount stacked at `path`; success if nothing is mounted, or the path does not exist. Retries busy
 * mounts for `wait_ns`, then fails with ERR_BUSY (CIS_MOUNT_BUSY). If `lazy`, detaches them instead: out of the
 * tree at once, freed by their last user. */
must_check int mount_unmount(const char *path, uint64_t wait_ns, bool lazy, struct err *err);

/* ---- bare mount points ------------------------------------------------------------------------------------------- */

/* Makes the directory `path` unwritable while nothing is mounted on it, so that a lost mount never fills the
 * node's disk. It gets mode 0000, and the immutable flag, which also stops root, if the file system and our
 * capabilities allow it. A mount point in use is left as it is. Repeatable. ERR_EXISTS if the directory has content. */
must_check int mount_point_make(const char *path, struct err *err);

/* Removes a bare mount point made above. Success if it is absent; ERR_BUSY if it is mounted on or has content. */
must_check int mount_point_remove(const char *path, struct err *err);
