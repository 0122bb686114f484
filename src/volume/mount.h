/* SPDX-License-Identifier: Apache-2.0 */
/* mount.h - mount, bind, unmount, and the truth in mountinfo. Blocking. home: any thread. Paths are absolute. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* ---- the truth --------------------------------------------------------------------------------------------------- */

/* A line of /proc/self/mountinfo, octal escapes undone. Strings are owned. */
struct mount {
    uint64_t id;
    uint64_t parent;
    unsigned dev_major, dev_minor;
    char *root;    /* of the mounted file system; other than "/" for a bind of a folder */
    char *target;  /* where */
    char *options; /* of this mount: rw,nosuid,... */
    char *fs_type; /* ext4, fuse.cistern */
    char *source;  /* /dev/loop3 */
    char *super_options;
    bool read_only; /* this mount, or the file system as a whole */
};
void mount_done(struct mount *m); /* may run twice */

/* One line, without its newline. Pure. ERR_CORRUPT on anything that proc_pid_mountinfo(5) does not allow. */
must_check int mount_parse(struct str line, struct mount *ret, struct err *err);

/* The topmost mount at exactly this path, which need not be reachable any more (a dead FUSE answers no stat, and is
 * found all the same). *ret_found false: nothing is mounted there. mount_done() it if found. A symbolic link on the
 * way to the last segment is followed. */
must_check int mount_find(const char *path, struct mount *ret, bool *ret_found, struct err *err);

/* The mount that the existing directory `path` is in, to be mount_done(); *ret_is_root: it is the root of the file
 * system that is mounted there, rather than a directory in it. A bind mount of a directory is such a directory. */
must_check int mount_around(const char *path, struct mount *ret, bool *ret_is_root, struct err *err);

/* Only whether there is one. */
must_check int mount_is_at(const char *path, bool *ret, struct err *err);

/* Every mount at or below `path`, deepest and latest first, the order to unmount in. The caller mount_done()s each and
 * frees the array. */
must_check int mount_below(const char *path, struct mount **ret, size_t *ret_count, struct err *err);

/* Somewhere that shows the folder `path`, as a bind of it or of what is in it, elsewhere than at `path` itself, or by a
 * mount whose source is `source`: the caller frees; NULL in *ret: there is none. */
must_check int mount_that_shows(const char *path, const char *source, char **ret, struct err *err);

/* ---- acts -------------------------------------------------------------------------------------------------------- */

/* mount(2) with a sentence. `data` may be NULL. */
must_check int mount_make(const char *source, const char *target, const char *fs_type, unsigned long flags,
                          const char *data, struct err *err);

/* Binds `source` on `target`, both directories or both files; read-only from its first moment if asked. A relative
 * `source` starts at `dir`, and "" is what `dir` is open on, whatever is mounted over its path meanwhile. */
must_check int mount_bind(int dir, const char *source, const char *target, bool read_only, struct err *err);

/* Takes away every mount stacked at `path`; nothing there, or no such path, is success. Busy mounts are tried again
 * for `wait_ns`, then ERR_BUSY (CIS3010) or, if `lazy`, detached: gone from the tree at once, freed by the
 * last user. */
must_check int mount_unmount(const char *path, uint64_t wait_ns, bool lazy, struct err *err);

/* ---- bare mount points ------------------------------------------------------------------------------------------- */

/* Makes the folder `path` such that nothing can be written into it while nothing is mounted on it, so that a lost
 * mount never fills the node's disk: mode 0000, and the immutable flag, which also holds root. File systems without
 * that flag (and callers without CAP_LINUX_IMMUTABLE) get only the mode: *ret_immutable, which may be NULL, tells; it
 * is left alone where something is mounted already. Repeatable. ERR_EXISTS if the folder has content. */
must_check int mount_point_make(const char *path, bool *ret_immutable, struct err *err);

/* Removes a bare mount point made above; absent is success, one that is mounted on or has content is ERR_BUSY. */
must_check int mount_point_remove(const char *path, struct err *err);
