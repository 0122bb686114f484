/* SPDX-License-Identifier: Apache-2.0 */
/* target.h - where a hydration writes, and where it keeps what it knows.
 *
 *   volume    the data folder of a volume that nobody sees yet: final names at once, the journal says what is whole
 *   staged    a DIR that does not exist: filled as .DIR.cistern/data, renamed once
 *   in place  a DIR that people can read: each file comes under a temporary name in DIR/.cistern-hydrate, and is
 *             renamed; an existing file is never truncated
 *
 * State is kept where the same command finds it again, under a lock that only one process holds.
 * home: made and finished by one thread; create, place and drop on any. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/stat.h>

/* What a file that a hydration wrote has of its object. A file with both counts as ours: its bytes are fetched again
 * and checked. What a person wrote or changed has another time. */
struct target_file {
    uint64_t size_bytes;
    int64_t mtime_ns; /* 0: not known, and then no file counts as ours */
};

enum target_kind { TARGET_VOLUME, TARGET_STAGED, TARGET_IN_PLACE };

#define TARGET_IN_PLACE_STATE ".cistern-hydrate"

struct target {
    enum target_kind kind;
    int state;        /* owned: catalog, journal, status */
    int data;         /* owned: paths are below it */
    int temporary;    /* owned: where people can read the files, else -1 */
    int lock;         /* owned */
    int parent;       /* owned: of DIR; a volume's is -1 */
    char *name;       /* owned: DIR's below `parent` */
    char *state_name; /* owned: below `parent`, in place below DIR */
    bool is_renamed;  /* staged: DIR has its name already */
    bool overwrite;   /* files of other people too */
    mode_t file_mode;
    mode_t dir_mode;
    uint32_t uid; /* of files; 0 leaves them ours */
    uint32_t gid;
};

/* The two descriptors are duplicated. ERR_BUSY: another process hydrates there. */
must_check int target_open_volume(int volume_dir, int data_dir, struct target **ret, struct err *err);
must_check int target_open_dir(const char *path, struct target **ret, struct err *err);
void target_free(struct target *own_t); /* leaves everything on disk as it is */
DEFINE_AUTO(target, struct target, target_free)
#define auto_target auto_with(auto_clean_target) struct target *

/* Can others read the files while they come, and take them away? */
bool target_is_seen(const struct target *t);

/* Forgets an earlier run: catalog, journal, and (where nobody sees them) the files. */
must_check int target_wipe(struct target *t, struct err *err);

/* Forgets what has a temporary name: ids are about to mean other objects. */
must_check int target_forget(struct target *t, struct err *err);

/* A file `name` in folder `dir` (below data) for writing, empty unless `keep`. `id` makes temporary names. */
must_check int target_create(const struct target *t, int dir, const char *name, uint64_t id, int flags, bool keep,
                             int *ret_fd, struct err *err);
/* It is whole: gives it its final name. Where people see the files, nothing of theirs is replaced (unless `overwrite`):
 * ERR_EXISTS, with sys EEXIST, and CIS1527. */
must_check int target_place(const struct target *t, int dir, const char *name, uint64_t id, struct target_file is,
                            struct err *err);

/* Has somebody else's file, link or device the object's name, so that it may not be written? Folders are another matter
 * (conflict.c). No link on the way is followed. */
bool target_is_taken(const struct target *t, struct str path, struct target_file is);
bool target_time_is(const struct stat *st, int64_t mtime_ns);
/* The error of such an object. */
int target_taken(struct err *err);
void target_drop(const struct target *t, int dir, const char *name, uint64_t id);

/* What an earlier run brought to `path` (below data) goes: a file, or with AT_REMOVEDIR an empty folder. No link on the
 * way is followed. 0 or an errno. */
must_check int target_unlink(const struct target *t, struct str path, int flags);
/* The same of an object's file, if it is there. */
must_check int target_remove(const struct target *t, struct str path, struct err *err);

/* The run came to its end: names DIR; `forget` also removes the state (a volume's stays: it is its record). */
must_check int target_finish(struct target *t, bool forget, bool durable, struct err *err);

/* The source cannot fit: takes away what this run wrote (in place: what has its final name stays). */
must_check int target_clean(struct target *t, struct err *err);

/* Bytes and files that still fit, or this where the file system does not say: what is added to it stays a number. */
#define TARGET_SPACE_UNKNOWN (UINT64_MAX / 2)
must_check int target_space(const struct target *t, uint64_t *ret_bytes, uint64_t *ret_files, uint64_t *ret_block,
                            struct err *err);
