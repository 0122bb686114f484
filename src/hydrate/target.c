/* SPDX-License-Identifier: Apache-2.0 */
#include "hydrate/target.h"
#include "catalog/index.h"
#include "catalog/journal.h"
#include "hydrate/status.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define STAGED_DATA "data"
#define TEMPORARY "temporary"

static struct target *target_new(enum target_kind kind)
{
    struct target *t = xcalloc(1, sizeof *t);
    *t = (struct target){.kind = kind,
                         .state = -1,
                         .data = -1,
                         .temporary = -1,
                         .lock = -1,
                         .parent = -1,
                         .file_mode = 0644,
                         .dir_mode = 0755};
    return t;
}

void target_free(struct target *t)
{
    if (!t)
        return;
    fd_close(&t->temporary);
    fd_close(&t->data);
    fd_close(&t->state);
    fd_close(&t->parent);
    fd_close(&t->lock);
    free(t->name);
    free(t->state_name);
    free(t->parent_path);
    free(t);
}

static int take_lock(struct target *t, const char *what, struct err *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat st;
    int r = file_open_state(t->state, HYDRATE_LOCK_FILE, O_RDWR | O_CREAT, 0600, &t->lock, err);
    if (r < 0)
        return err_wrap(err, "cannot open the lock of '%s'", what);
    if (fcntl(t->lock, F_OFD_SETLK, &lock) != 0 && errno != EAGAIN && errno != EACCES) {
        err_sys(err, errno, "cannot lock '%s' against another hydration", what);
        return err_advise(err, CIS_DIRECTORY_NOT_LOCKABLE);
    }
    /* Without a link left, the run that held it is removing its state. */
    bool taken = fcntl(t->lock, F_OFD_SETLK, &lock) == 0 && fstat(t->lock, &st) == 0 && st.st_nlink > 0;
    if (taken)
        return 0;
    return err_fail(err, ERR_BUSY, CIS_HYDRATE_RUNNING, "'%s' is being hydrated by another process", what);
}

int target_open_volume(int volume_dir, int data_dir, struct target **ret, struct err *err)
{
    auto_target t = target_new(TARGET_VOLUME);
    t->state = fcntl(volume_dir, F_DUPFD_CLOEXEC, 3);
    t->data = fcntl(data_dir, F_DUPFD_CLOEXEC, 3);
    if (t->state < 0 || t->data < 0)
        return err_sys(err, errno, "cannot keep the volume's directory open");
    int r = take_lock(t, "the volume", err);
    if (r < 0)
        return r;
    *ret = take(&t);
    return 0;
}

/* ---- a directory ------------------------------------------------------------------------------------------------- */

/* Opens the parent directory of `path`, and makes the directories that are missing on the way. */
static int open_parent(struct target *t, const char *path, struct err *err)
{
    auto_mem char *parent = str_dup(str_of(path));
    size_t len = strlen(parent);
    while (len > 1 && parent[len - 1] == '/')
        parent[--len] = '\0';
    char *slash = strrchr(parent, '/');
    auto_mem char *name = str_dup(str_of(slash ? slash + 1 : parent));
    if (slash)
        slash[slash == parent] = '\0'; /* the root's own slash stays */
    t->parent_path = slash ? take(&parent) : str_dup(STR("."));
    t->parent_kept_len = path_existing_len(t->parent_path);
    t->name = take(&name);
    return dir_make_path(t->parent_path, 0777, &t->parent, err);
}

static int exists_below(int dir, const char *below, const char *name, bool *ret, struct err *err)
{
    char path[2 * NAME_MAX + 2];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", below, name);
    *ret = fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    return *ret || errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, errno, "cannot stat '%s'", path);
}

static int open_staged(struct target *t, const char *path, struct err *err)
{
    int r = dir_make(t->parent, t->state_name, 0700, &t->state, err);
    if (r < 0)
        return err_wrap(err, "cannot make the state directory of '%s' beside it", path);
    r = take_lock(t, path, err);
    if (r < 0)
        return r;
    if (!t->is_renamed)
        return dir_make(t->state, STAGED_DATA, 0777, &t->data, err);
    t->is_visible = true;
    r = dir_open(t->parent, t->name, &t->data, err);
    return r == 0 ? dir_make(t->state, TEMPORARY, 0700, &t->temporary, err) : r;
}

static int open_in_place(struct target *t, const char *path, struct err *err)
{
    t->is_visible = true;
    t->data = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->data < 0)
        return err_sys(err, errno, "cannot open the directory '%s'", path);
    free(t->state_name);
    t->state_name = str_dup(STR(TARGET_IN_PLACE_STATE));
    int r = dir_make(t->data, TARGET_IN_PLACE_STATE, 0700, &t->state, err);
    if (r < 0)
        return err_wrap(err, "cannot make the state directory in '%s'", path);
    r = take_lock(t, path, err);
    if (r == 0)
        r = dir_make(t->state, TEMPORARY, 0700, &t->temporary, err);
    return r;
}

/* "", "a/.", "a/..": a directory cannot be renamed to these. */
static bool is_nameless(struct str path)
{
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    struct str name = str_from(path, path_directory_len(path));
    return name.len == 0 || str_eq(name, STR(".")) || str_eq(name, STR(".."));
}

static int check_dir(const char *path, bool *ret_is_there, struct err *err)
{
    struct stat st;
    *ret_is_there = stat(path, &st) == 0;
    if (!*ret_is_there && errno != ENOENT && errno != ENOTDIR)
        return err_sys(err, errno, "cannot stat '%s'", path);
    if (*ret_is_there && !S_ISDIR(st.st_mode))
        return err_fail(err, ERR_EXISTS, CIS_WRONG_FILE_TYPE, "'%s' exists and is not a directory", path);
    if (!*ret_is_there && is_nameless(str_of(path)))
        return err_set(err, ERR_INVALID,
                       "'%s' does not exist and is not a valid directory name: end the path with a name", path);
    return *ret_is_there ? 0 : path_check_links(path, err);
}

/* For a DIR that exists. */
static int check_state(struct target *t, struct err *err)
{
    bool has_index, has_data;
    int r = exists_below(t->parent, t->state_name, INDEX_FILE, &has_index, err);
    if (r == 0)
        r = exists_below(t->parent, t->state_name, STAGED_DATA, &has_data, err);
    if (r < 0)
        return r;
    /* A crash between the rename of DIR and the removal of the state leaves a state without data: finish it. */
    t->is_renamed = has_index && !has_data;
    /* A crash during that removal leaves an incomplete state, which is useless. */
    return has_index || has_data ? 0 : dir_remove(t->parent, t->state_name, err);
}

static char *record_name(const struct target *t)
{
    auto_sbuf b = SBUF(PATH_MAX);
    sbuf_addf(&b, ".%s.cistern", t->name);
    return str_dup(sbuf_str(&b));
}

int target_open_dir(const char *path, struct target **ret, struct err *err)
{
    auto_target t = target_new(TARGET_STAGED);
    bool is_there = false;
    int r = check_dir(path, &is_there, err);
    if (r == 0)
        r = open_parent(t, path, err);
    if (r < 0)
        return r;
    t->state_name = record_name(t);
    if (is_there)
        r = check_state(t, err);
    if (r < 0)
        return r;
    t->kind = is_there && !t->is_renamed ? TARGET_IN_PLACE : TARGET_STAGED;
    r = t->kind == TARGET_STAGED ? open_staged(t, path, err) : open_in_place(t, path, err);
    if (r < 0)
        return r;
    *ret = take(&t);
    return 0;
}

bool target_is_visible(const struct target *t)
{
    return t->is_visible;
}

bool target_has_files(const struct target *t)
{
    if (!target_is_visible(t))
        return false;
    auto_dir d = dir_stream(openat(t->data, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    while (d && (e = dir_next(d)) != NULL)
        if (strcmp(e->d_name, TARGET_IN_PLACE_STATE) != 0)
            return true;
    return false;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const char *temporary_name(uint64_t id, char buf[32])
{
    snprintf(buf, 32, "%" PRIu64, id);
    return buf;
}

int target_create(const struct target *t, int dir, const char *name, uint64_t id, int flags, bool keep, int *ret_fd,
                  struct err *err)
{
    char temporary[32];
    bool is_seen = target_is_visible(t);
    const char *at = is_seen ? temporary_name(id, temporary) : name;
    struct stat st;
    /* Before the bytes of a large object are fetched. */
    if (is_seen && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return err_sys(err, EISDIR, "cannot create '%s'", name);
    flags |= O_CREAT | O_CLOEXEC | O_NOFOLLOW | (keep ? 0 : O_TRUNC);
    int fd = (int)TEMP_FAILURE_RETRY(openat(is_seen ? t->temporary : dir, at, flags, t->file_mode));
    if (fd < 0)
        return err_sys(err, errno, "cannot create '%s'", name);
    if ((t->uid || t->gid) && TEMP_FAILURE_RETRY(fchown(fd, t->uid, t->gid)) != 0) {
        int r = err_sys(err, errno, "cannot give '%s' to user %" PRIu32, name, t->uid);
        close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

int target_foreign_error(struct err *err)
{
    err_set(err, ERR_EXISTS, "kept the file of this name, which no hydration has written");
    err->sys = EEXIST;
    return err_advise(err, CIS_FOREIGN_FILE);
}

/* A chosen fraction of the mtime marks an outdated file. One file in 10^9 has it by chance. */
enum { OUTDATED_NS = 871436925 };

bool target_is_outdated(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_mtim.tv_nsec == OUTDATED_NS;
}

/* Within what file systems keep of a time: microseconds, or whole seconds, of which FAT keeps every second one. */
bool target_time_matches(const struct stat *st, int64_t mtime_ns)
{
    if (target_is_outdated(st))
        return false;
    const int64_t coarse_ns = st->st_mtim.tv_nsec == 0 ? 2 * (int64_t)NS_PER_SECOND : 1000;
    int64_t apart_ns;
    return !__builtin_sub_overflow(time_from_spec(st->st_mtim), mtime_ns, &apart_ns) && apart_ns <= coarse_ns &&
           apart_ns >= -coarse_ns;
}

/* A file that a hydration wrote has the object's time. It may be shorter than the object: a power loss takes bytes,
 * never the time, which is set before the file gets its name. */
static bool is_foreign(int dir, const char *name, struct target_file is)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode) || target_is_outdated(&st))
        return false;
    return !S_ISREG(st.st_mode) || (uint64_t)st.st_size > is.size_bytes || is.mtime_ns == 0 ||
           !target_time_matches(&st, is.mtime_ns);
}

/* Opens the parent directory of `path`, whose last segment is *ret_name, in `text`. -1: see errno. */
static int open_parent_of(const struct target *t, struct str path, char text[PATH_MAX], const char **ret_name)
{
    size_t parent = path_directory_len(path);
    snprintf(text, PATH_MAX, "%.*s", STR_FMT(path));
    if (parent > 0)
        text[parent - 1] = '\0';
    *ret_name = text + parent;
    return path_open(t->data, parent > 0 ? text : ".", O_PATH | O_DIRECTORY);
}

bool target_stat(const struct target *t, struct str path, struct stat *ret)
{
    char text[PATH_MAX];
    if (path.len == 0 || path.len >= sizeof text)
        return false;
    memcpy(text, path.ptr, path.len);
    text[path.len] = '\0';
    return fstatat(t->data, text, ret, AT_SYMLINK_NOFOLLOW) == 0;
}

/* By kind and size only: not every file system keeps times, and reading costs as much as fetching. */
bool target_stat_matches(const struct stat *st, struct str path, uint64_t size_bytes)
{
    return S_ISDIR(st->st_mode) ? path.ptr[path.len - 1] == '/'
                                : S_ISREG(st->st_mode) && (uint64_t)st->st_size == size_bytes;
}

bool target_has_foreign(const struct target *t, struct str path, struct target_file is)
{
    char text[PATH_MAX];
    const char *name;
    if (t->overwrite || !target_is_visible(t))
        return false;
    auto_fd dir = open_parent_of(t, path, text, &name);
    return dir >= 0 && is_foreign(dir, name, is);
}

/* Some file systems refuse the flag (NFS). linkat(2) never replaces an existing name on any. */
static int name_new(int from, const char *name, int dir, const char *to)
{
    int r = renameat2(from, name, dir, to, RENAME_NOREPLACE);
    if (r == 0 || (errno != EINVAL && errno != ENOSYS))
        return r;
    r = linkat(from, name, dir, to, 0);
    return r == 0 ? unlinkat(from, name, 0) : r;
}

int target_place(const struct target *t, int dir, const char *name, uint64_t id, struct target_file is, struct err *err)
{
    char temporary[32];
    if (!target_is_visible(t))
        return 0;
    temporary_name(id, temporary);
    int r = t->overwrite ? renameat(t->temporary, temporary, dir, name) : name_new(t->temporary, temporary, dir, name);
    if (r != 0 && !t->overwrite && (errno == EEXIST || errno == EPERM || errno == EOPNOTSUPP)) {
        if (is_foreign(dir, name, is))
            return target_foreign_error(err);
        r = renameat(t->temporary, temporary, dir, name);
    }
    return r == 0 ? 0 : err_sys(err, errno, "cannot rename the new file to '%s'", name);
}

void target_drop(const struct target *t, int dir, const char *name, uint64_t id)
{
    char temporary[32];
    if (target_is_visible(t))
        unlinkat(t->temporary, temporary_name(id, temporary), 0);
    else
        unlinkat(dir, name, 0);
}

int target_unlink(const struct target *t, struct str path, int flags)
{
    char text[PATH_MAX];
    const char *name;
    auto_fd dir = open_parent_of(t, path, text, &name);
    return dir >= 0 && unlinkat(dir, name, flags) == 0 ? 0 : errno;
}

int target_remove(const struct target *t, struct str path, struct err *err)
{
    int e = target_unlink(t, path, 0);
    /* A directory of that name, or a file in place of a parent directory, is another object's. */
    if (e == 0 || e == ENOENT || e == EISDIR || e == ENOTDIR || e == ELOOP)
        return 0;
    return err_sys(err, e, "cannot remove '%.*s'", (int)min_u64(path.len, 200), path.ptr);
}

int target_mark_outdated(const struct target *t, struct str path, struct err *err)
{
    char text[PATH_MAX];
    const char *name;
    struct stat st;
    auto_fd dir = open_parent_of(t, path, text, &name);
    if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
        const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {st.st_mtim.tv_sec, OUTDATED_NS}};
        bool is_set = utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_set && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && target_is_outdated(&st))
            return 0;
    }
    return target_remove(t, path, err);
}

static int empty(struct target *t, const char *name, int *fd, struct err *err)
{
    fd_close(fd);
    int r = dir_remove(t->state, name, err);
    return r < 0 ? r : dir_make(t->state, name, 0777, fd, err);
}

int target_drop_temporary(struct target *t, struct err *err)
{
    return target_is_visible(t) ? empty(t, TEMPORARY, &t->temporary, err) : 0;
}

int target_wipe(struct target *t, struct err *err)
{
    /* The journal first: without it the rest has no meaning. */
    static const char *const names[] = {JOURNAL_FILE, INDEX_PARTIAL_FILE, INDEX_FILE};
    for (size_t i = 0; i < countof(names); i++)
        if (unlinkat(t->state, names[i], 0) != 0 && errno != ENOENT)
            return err_sys(err, errno, "cannot remove '%s'", names[i]);
    if (t->kind == TARGET_VOLUME)
        return 0;
    return target_is_visible(t) ? target_drop_temporary(t, err) : empty(t, STAGED_DATA, &t->data, err);
}

/* Without the flag, which some file systems refuse (NFS), a directory replaces only an empty directory. */
static int name_data(const struct target *t)
{
    int r = renameat2(t->state, STAGED_DATA, t->parent, t->name, RENAME_NOREPLACE);
    return r != 0 && (errno == EINVAL || errno == ENOSYS) ? renameat(t->state, STAGED_DATA, t->parent, t->name) : r;
}

/* The state directory is in DIR, or beside it. */
static int remove_state(const struct target *t, struct err *err)
{
    return dir_remove(t->kind == TARGET_IN_PLACE ? t->data : t->parent, t->state_name, err);
}

/* DIR may have been moved or replaced during the run. */
static int check_name(const struct target *t, struct err *err)
{
    struct stat named, filled;
    bool is_same = fstatat(t->parent, t->name, &named, AT_EMPTY_PATH) == 0 && fstat(t->data, &filled) == 0 &&
                   named.st_dev == filled.st_dev && named.st_ino == filled.st_ino;
    if (is_same)
        return 0;
    return err_fail(err, ERR_BUSY, CIS_DIRECTORY_REPLACED, "'%s' was replaced by another directory during the run",
                    t->name);
}

static int keep_record(const struct target *t, struct err *err)
{
    int r = dir_remove(t->state, TEMPORARY, err);
    if (r < 0 || t->kind != TARGET_IN_PLACE)
        return r;
    /* Beside DIR, not in it: DIR holds the objects and nothing else. It may be a mount point, or "." */
    auto_mem char *record = record_name(t);
    bool is_kept =
        !is_nameless(str_of(t->name)) && renameat2(t->data, t->state_name, t->parent, record, RENAME_NOREPLACE) == 0;
    return is_kept ? 0 : remove_state(t, err);
}

int target_finish(struct target *t, bool whole, bool durable, struct err *err)
{
    int r = 0;
    if (t->kind == TARGET_VOLUME)
        return 0;
    if (t->kind == TARGET_STAGED && !t->is_renamed) {
        if (name_data(t) != 0 && errno != ENOENT)
            return err_sys(err, errno, "cannot rename the new directory to '%s'", t->name);
        t->is_renamed = true;
        if (durable)
            r = dir_sync(t->parent, t->name, err);
    }
    if (r == 0)
        r = check_name(t, err);
    if (r == 0 && whole)
        r = keep_record(t, err);
    return r;
}

static int empty_volume(int dir, struct err *err)
{
    auto_dir d = dir_stream(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot read the volume's directory");
    struct dirent *e;
    while ((e = dir_next(d)) != NULL) {
        int r = strcmp(e->d_name, "lost+found") == 0 ? 0 : dir_remove(dir, e->d_name, err);
        if (r < 0)
            return r;
    }
    return errno ? err_sys(err, errno, "cannot read the volume's directory") : 0;
}

int target_clean(struct target *t, struct err *err)
{
    int r = target_wipe(t, err);
    if (r < 0)
        return r;
    /* No pod has used the volume yet: a hydration wrote all files in it. */
    if (t->kind == TARGET_VOLUME)
        return empty_volume(t->data, err);
    r = remove_state(t, err);
    if (r == 0)
        dir_remove_empty(t->parent_path, t->parent_kept_len);
    return r;
}

int target_space(const struct target *t, uint64_t *ret_bytes, uint64_t *ret_files, uint64_t *ret_block, struct err *err)
{
    struct statvfs v;
    if (fstatvfs(t->data, &v) != 0)
        return err_sys(err, errno, "cannot read the free space of the file system");
    *ret_bytes = v.f_blocks ? (uint64_t)v.f_bavail * v.f_frsize : TARGET_SPACE_UNKNOWN; /* some FUSE file systems */
    *ret_files = v.f_files ? v.f_favail : TARGET_SPACE_UNKNOWN;                         /* btrfs and others */
    *ret_block = v.f_frsize ? v.f_frsize : 4096;
    return 0;
}
