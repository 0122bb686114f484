/* SPDX-License-Identifier: Apache-2.0 */
/* target.h - opens the directory that a hydration fills, and its state directory.
 *
 *   volume    the data directory of a volume that no pod uses yet: final names at once; the journal lists whole objects
 *   staged    a DIR that does not exist: filled as .DIR.cistern/data, renamed once
 *   in place  an existing DIR, which users can read: each file is written under a temporary name in
 * DIR/.cistern-hydrate and then renamed; an existing file is never truncated
 *
 * The state is where the same command finds it again, also after the end, under a lock that only one process holds.
 * home: made and finished by one thread; create, place and drop on any. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/stat.h>

/* The attributes by which a hydration recognises a file that it wrote: a user's file has another time. The bytes of a
 * recognised file are fetched again and checked. */
struct target_file {
    uint64_t size_bytes;
    int64_t mtime_ns; /* 0: unknown, and then no file is recognised */
};

enum target_kind { TARGET_VOLUME, TARGET_STAGED, TARGET_IN_PLACE };

#define TARGET_IN_PLACE_STATE ".cistern-hydrate"

struct target {
    enum target_kind kind;
    int state;              /* owned: catalog, journal, status */
    int data;               /* owned: paths are below it */
    bool is_visible;        /* frozen: users can read the files. `temporary` is exchanged while others ask for this */
    int temporary;          /* owned: DIR, if is_visible, else -1 */
    int lock;               /* owned */
    int parent;             /* owned: of DIR; a volume's is -1 */
    char *name;             /* owned: DIR's below `parent` */
    char *state_name;       /* owned: below `parent`, in place below DIR */
    char *parent_path;      /* owned: as the user gave it; a volume has none */
    size_t parent_kept_len; /* of parent_path: the part that existed before this run */
    bool is_renamed;        /* staged: DIR has its name already */
    bool overwrite;         /* users' files too */
    mode_t file_mode;
    mode_t dir_mode;
    uint32_t uid; /* of files; 0: the process's own */
    uint32_t gid;
};

/* The two descriptors are duplicated. ERR_BUSY: another process hydrates there. */
must_check int target_open_volume(int volume_dir, int data_dir, struct target **ret, struct err *err);
must_check int target_open_dir(const char *path, struct target **ret, struct err *err);
void target_free(struct target *own_t); /* leaves everything on disk as it is */
DEFINE_AUTO(target, struct target, target_free)
#define auto_target auto_with(auto_clean_target) struct target *

/* Whether users can read and remove files during the run. */
bool target_is_visible(const struct target *t);

/* Whether users can read DIR, and it holds a file. */
bool target_has_files(const struct target *t);

/* Removes the state of an earlier run: catalog, journal, and the files if users cannot see them. */
must_check int target_wipe(struct target *t, struct err *err);

/* Removes the temporary files: their ids will belong to other objects. */
must_check int target_drop_temporary(struct target *t, struct err *err);

/* Opens `name` in the directory `dir` (below data) for writing, empty unless `keep`. `id` makes temporary names. */
must_check int target_create(const struct target *t, int dir, const char *name, uint64_t id, int flags, bool keep,
                             int *ret_fd, struct err *err);
/* Gives a whole file its final name. A file that no hydration wrote is kept (unless `overwrite`): ERR_EXISTS, with sys
 * EEXIST, and CIS_FOREIGN_FILE. */
must_check int target_place(const struct target *t, int dir, const char *name, uint64_t id, struct target_file is,
                            struct err *err);

/* Whether a file, link or device that no hydration wrote has the object's name. conflict.c handles directories. No link
 * on the way is followed. */
bool target_has_foreign(const struct target *t, struct str path, struct target_file is);
bool target_time_matches(const struct stat *st, int64_t mtime_ns);
must_check bool target_stat(const struct target *t, struct str path, struct stat *ret); /* false: no such entry */
/* Whether *st may be the object, by kind and size. */
must_check bool target_stat_matches(const struct stat *st, struct str path, uint64_t size_bytes);

/* Marks a file that a hydration wrote and whose object has another version now: target_place() replaces it. The mark is
 * the nanoseconds of its time, so a user's change removes it. A file that cannot be marked is removed. */
must_check int target_mark_outdated(const struct target *t, struct str path, struct err *err);
bool target_is_outdated(const struct stat *st);

/* The error of such an object. */
int target_foreign_error(struct err *err);
void target_drop(const struct target *t, int dir, const char *name, uint64_t id);

/* Removes `path` (below data): a file, or with AT_REMOVEDIR an empty directory. No symbolic link of the path is
 * followed. 0 or an errno. */
must_check int target_unlink(const struct target *t, struct str path, int flags);
/* Removes an object's file, if it exists. */
must_check int target_remove(const struct target *t, struct str path, struct err *err);

/* Ends the run: gives DIR its name. If it is `whole`, the state becomes the record .DIR.cistern beside it, by which the
 * next run finds changed objects. It is removed if it cannot be there. A volume's state is left as it is. */
must_check int target_finish(struct target *t, bool whole, bool durable, struct err *err);

/* Removes all that this run made, the files of a source that cannot fit included (in place: those with their final
 * name stay). */
must_check int target_clean(struct target *t, struct err *err);

/* Bytes and files that still fit. If the file system does not report them: this, which can be added to safely. */
#define TARGET_SPACE_UNKNOWN (UINT64_MAX / 2)
must_check int target_space(const struct target *t, uint64_t *ret_bytes, uint64_t *ret_files, uint64_t *ret_block,
                            struct err *err);
