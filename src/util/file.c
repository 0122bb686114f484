/* SPDX-License-Identifier: Apache-2.0 */
#include "util/file.h"
#include "util/clock.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

void fd_limit_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int read_all(int fd, const char *name, size_t ceiling, struct sbuf *b, struct err *err)
{
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "cannot read '%s'", name);
        if (n == 0)
            return 0;
        sbuf_add(b, (struct str){chunk, (size_t)n});
        if (b->overflow)
            return err_set(err, ERR_INVALID, "'%s' is longer than %zu bytes", name, ceiling);
    }
}

static int read_whole(int fd, const char *name, size_t ceiling, char **ret, size_t *ret_len, struct err *err)
{
    auto_sbuf b = SBUF(ceiling);
    int r = read_all(fd, name, ceiling, &b, err);
    if (r < 0)
        return r;
    *ret_len = b.len;
    return sbuf_take(&b, ret, err);
}

int file_read(int dir, const char *name, size_t ceiling, char **ret, size_t *ret_len, struct err *err)
{
    /* Without O_NONBLOCK, the open of a FIFO waits for a writer. With it, a read waits for none. */
    auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fcntl(fd, F_SETFL, 0) != 0)
        return err_sys(err, errno, "cannot open '%s'", name);
    return read_whole(fd, name, ceiling, ret, ret_len, err);
}

static int not_regular(const char *name, struct err *err)
{
    return err_fail(err, ERR_CORRUPT, CIS_STATE_FILE_INVALID, "'%s' is not a regular file", name);
}

int file_open_state(int dir, const char *name, int flags, mode_t mode, int *ret_fd, struct err *err)
{
    struct stat st;
    auto_fd fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0 && (errno == ELOOP || errno == ENXIO || errno == EISDIR))
        return not_regular(name, err);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "cannot open '%s'", name);
    if (!S_ISREG(st.st_mode))
        return not_regular(name, err);
    *ret_fd = take_fd(&fd);
    return 0;
}

int file_read_state(int dir, const char *name, size_t ceiling, char **ret, size_t *ret_len, struct err *err)
{
    auto_fd fd = -1;
    int r = file_open_state(dir, name, O_RDONLY, 0, &fd, err);
    return r < 0 ? r : read_whole(fd, name, ceiling, ret, ret_len, err);
}

int file_write_all(int fd, const char *name, const void *bytes, size_t len, struct err *err)
{
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "cannot write '%s'", name);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int file_pwrite_all(int fd, const char *name, const void *bytes, size_t len, uint64_t offset, struct err *err)
{
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "cannot write '%s'", name);
        p += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static int write_synced(int dir, const char *name, struct str content, mode_t mode, struct err *err)
{
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(err, errno, "cannot create '%s'", name);
    int r = file_write_all(fd, name, content.ptr, content.len, err);
    if (r < 0)
        return r;
    if (fsync(fd) != 0)
        return err_sys(err, errno, "cannot flush '%s'", name);
    return 0;
}

int file_replace(int dir, const char *name, struct str content, mode_t mode, struct err *err)
{
    char temporary[NAME_MAX + 1];
    int n = snprintf(temporary, sizeof temporary, ".%s.%016" PRIx64, name, clock_random());
    if (n >= (int)sizeof temporary)
        return err_set(err, ERR_INVALID, "the name '%s' is too long", name);
    int r = write_synced(dir, temporary, content, mode, err);
    if (r == 0 && renameat(dir, temporary, dir, name) != 0)
        r = err_sys(err, errno, "cannot rename '%s' to '%s'", temporary, name);
    if (r < 0) {
        unlinkat(dir, temporary, 0);
        return r;
    }
    return dir_sync(dir, name, err);
}

int file_swap(int dir, const char *name, struct str content, mode_t mode, struct err *err)
{
    char temporary[NAME_MAX + 1];
    auto_fd fd = -1;
    snprintf(temporary, sizeof temporary, ".%s", name);
    int r = file_open_state(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC, mode, &fd, err);
    if (r == 0)
        r = file_write_all(fd, name, content.ptr, content.len, err);
    if (r == 0 && renameat(dir, temporary, dir, name) != 0)
        r = err_sys(err, errno, "cannot replace '%s'", name);
    return r;
}

bool file_is_locked(int dir, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    auto_fd fd = -1;
    return file_open_state(dir, name, O_RDWR, 0, &fd, ERR_IGNORED) == 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 &&
           lock.l_type != F_UNLCK;
}

int file_nameless(int dir, int *ret_fd, struct err *err)
{
    char name[40];
    int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        snprintf(name, sizeof name, ".nameless.%016" PRIx64, clock_random());
        fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 && unlinkat(dir, name, 0) != 0)
            fd_close(&fd);
    }
    if (fd < 0)
        return err_sys(err, errno, "cannot make a temporary file");
    *ret_fd = fd;
    return 0;
}

int dir_sync(int dir, const char *name_for_err, struct err *err)
{
    /* fsync needs a real descriptor: AT_FDCWD and O_PATH descriptors are opened again. */
    auto_fd fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        return err_sys(err, errno, "cannot flush the directory of '%s'", name_for_err);
    return 0;
}

static int open_directory(int dir, const char *name, int flags, int *ret_fd, struct err *err)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0)
        return err_sys(err, errno, "cannot open the directory '%s'", name);
    *ret_fd = fd;
    return 0;
}

int dir_open(int dir, const char *name, int *ret_fd, struct err *err)
{
    return open_directory(dir, name, 0, ret_fd, err);
}

int dir_make(int dir, const char *name, mode_t mode, int *ret_fd, struct err *err)
{
    if (mkdirat(dir, name, mode) != 0 && errno != EEXIST) {
        err_sys(err, errno, "cannot make the directory '%s'", name);
        return err->sys == ENOENT ? err_advise(err, CIS_DIRECTORY_UNUSABLE) : -(int)err->code;
    }
    /* A link of that name could lead to any directory, which would be written to and later removed. */
    if (open_directory(dir, name, O_NOFOLLOW, ret_fd, err) == 0)
        return 0;
    return err->sys == ENOTDIR ? err_advise(err, CIS_WRONG_FILE_TYPE) : -(int)err->code;
}

DIR *dir_stream(int own_fd)
{
    auto_fd fd = own_fd;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        take_fd(&fd);
    return d;
}

struct dirent *dir_next(DIR *d)
{
    struct dirent *e;
    do {
        errno = 0;
        e = readdir(d);
    } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e;
}

int dir_make_path(const char *path, mode_t mode, int *ret_fd, struct err *err)
{
    auto_mem char *at = str_dup(str_of(path));
    int refused = 0;
    for (char *slash = strchr(at + (at[0] == '/'), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(at, mode) != 0 && errno != EEXIST && !refused)
            refused = errno;
        *slash = '/';
    }
    if (mkdir(path, mode) != 0 && errno != EEXIST && !refused)
        refused = errno;
    /* mkdir may fail with another errno than EEXIST for an existing path: only the final open decides. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        err_sys(err, refused ? refused : errno, "cannot make the directory '%s'", path);
        if (err->sys == ENOENT && path_check_links(path, err) == 0)
            return err_advise(err, CIS_DIRECTORY_UNUSABLE);
        return err->sys == ENOTDIR ? err_advise(err, CIS_WRONG_FILE_TYPE) : -(int)err->code;
    }
    *ret_fd = fd;
    return 0;
}

/* The length of the parent directory in `path`, without the slashes behind it. */
static size_t parent_len(const char *path, size_t len)
{
    while (len > 0 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    while (len > 0 && path[len - 1] == '/')
        len--;
    return len;
}

size_t path_existing_len(const char *path)
{
    auto_mem char *at = str_dup(str_of(path));
    size_t len = strlen(at);
    while (len > 0 && access(at, F_OK) != 0) {
        len = parent_len(at, len);
        at[len] = '\0';
    }
    return len;
}

int path_check_links(const char *path, struct err *err)
{
    struct stat st;
    size_t len = path_existing_len(path);
    len += strspn(path + len, "/");
    len += strcspn(path + len, "/");
    auto_mem char *missing = str_dup(str_sub(str_of(path), 0, len));
    if (lstat(missing, &st) != 0 || !S_ISLNK(st.st_mode))
        return 0;
    return err_fail(err, ERR_INVALID, CIS_SYMLINK_IN_THE_WAY, "'%s' is a symbolic link to a path that does not exist",
                    missing);
}

bool path_is_within(const char *path, const char *dir)
{
    char at[PATH_MAX], top[PATH_MAX];
    auto_mem char *there = str_dup(str_sub(str_of(path), 0, path_existing_len(path)));
    if (!realpath(*there ? there : ".", at) || !realpath(dir, top))
        return false;
    size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);
    return strncmp(at, top, len) == 0 && (at[len] == '/' || at[len] == '\0');
}

void dir_remove_empty(const char *path, size_t keep_len)
{
    auto_mem char *at = str_dup(str_of(path));
    size_t len = strlen(at);
    while (len > keep_len && rmdir(at) == 0) {
        len = parent_len(at, len);
        at[len] = '\0';
    }
}

static int open_beneath(int dir, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_BENEATH | resolve};
    int fd;
    do
        fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    while (fd < 0 && (errno == EAGAIN || errno == EINTR)); /* EAGAIN: a directory of the path was renamed */
    return fd;
}

int path_open(int dir, const char *path, int flags)
{
    return open_beneath(dir, path, flags, RESOLVE_NO_SYMLINKS);
}

int path_open_here(int dir, const char *path, int flags)
{
    return open_beneath(dir, path, flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

int path_open_links(int dir, const char *path, int flags)
{
    return open_beneath(dir, path, flags, RESOLVE_NO_MAGICLINKS);
}

/* One level: opens `segment` below `at`; creates it if it is missing. */
static int open_or_make(int at, const char *segment, mode_t mode)
{
    int fd = path_open(at, segment, O_RDONLY | O_DIRECTORY);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (TEMP_FAILURE_RETRY(mkdirat(at, segment, mode)) != 0 && errno != EEXIST)
        return -1;
    return path_open(at, segment, O_RDONLY | O_DIRECTORY);
}

static int make_each(int dir, struct str parents, mode_t mode, int *ret_fd, struct err *err)
{
    struct str rest = parents, segment;
    auto_fd at = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return err_sys(err, errno, "cannot open the directory of '%.*s'", STR_FMT(parents));
    while (str_split(&rest, '/', &segment)) {
        char name[NAME_MAX + 1];
        memcpy(name, segment.ptr, segment.len);
        name[segment.len] = '\0';
        int next = open_or_make(at, name, mode);
        if (next < 0)
            return err_sys(err, errno, "cannot make the directory '%.*s'",
                           (int)(segment.ptr + segment.len - parents.ptr), parents.ptr);
        close(at);
        at = next;
    }
    *ret_fd = take_fd(&at);
    return 0;
}

int dir_make_parents(int dir, const char *path, mode_t mode, int *ret_parent, const char **ret_name, struct err *err)
{
    int r = path_check(str_of(path), err);
    if (r < 0)
        return r;
    const char *slash = strrchr(path, '/');
    struct str parents = slash ? (struct str){path, (size_t)(slash - path)} : STR_NULL;
    r = make_each(dir, parents, mode, ret_parent, err);
    if (r < 0)
        return r;
    *ret_name = slash ? slash + 1 : path;
    return 0;
}

static int bad_path(struct str path, const char *why, struct err *err)
{
    return err_set(err, ERR_INVALID, "'%.*s' cannot be a file name here: %s", (int)min_u64(path.len, 200),
                   path.ptr ? path.ptr : "", why);
}

int path_check(struct str path, struct err *err)
{
    struct str rest = path, segment;
    if (path.len == 0)
        return bad_path(path, "it is empty", err);
    if (path.len >= PATH_MAX)
        return bad_path(path, "it is longer than 4095 bytes", err);
    if (memchr(path.ptr, '\0', path.len))
        return bad_path(path, "it contains a NUL byte", err);
    while (str_split(&rest, '/', &segment)) {
        if (segment.len == 0)
            return bad_path(path, "it has an empty segment (a leading, doubled or trailing '/')", err);
        if (str_eq(segment, STR(".")) || str_eq(segment, STR("..")))
            return bad_path(path, "it has a segment '.' or '..'", err);
        if (segment.len > NAME_MAX)
            return bad_path(path, "it has a segment longer than 255 bytes", err);
    }
    return 0;
}

size_t path_directory_len(struct str path)
{
    const char *slash = path.len ? memrchr(path.ptr, '/', path.len) : NULL;
    return slash ? (size_t)(slash + 1 - path.ptr) : 0;
}

struct str path_parent(struct str path)
{
    size_t len = path_directory_len(path);
    return str_sub(path, 0, len ? len - 1 : 0);
}

int program_path(const char *name, char *ret, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);
    if (n < 0)
        return err_sys(err, errno, "cannot read '/proc/self/exe'");
    size_t used = path_directory_len((struct str){ret, (size_t)n});
    if ((size_t)snprintf(ret + used, size - used, "%s", name) >= size - used)
        return err_set(err, ERR_INVALID, "the path of '%s' is too long", name);
    return 0;
}
