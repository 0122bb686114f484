/* SPDX-License-Identifier: Apache-2.0 */
/* fail_call.c - Makes one system call of a program fail; preloaded with LD_PRELOAD. It sees calls through libc only, so
 * not those of io_uring (--io=pool). The environment sets it up:
 *
 * CISTERN_FAIL_AT=N: the Nth call that touches files or makes sockets fails.
 * CISTERN_FAIL_ERRNO: with this error (EIO).
 * CISTERN_FAIL_COUNT=FILE: gets the number of calls, so that a test knows when it has failed all of them.
 * CISTERN_FAIL_NAME: only calls of this name count.
 * CISTERN_FAIL_NOT: calls of this library do not count.
 * CISTERN_FAIL_TEXT: only writes of this text to a file count.
 * CISTERN_FAIL_PROGRAM: only calls of programs of this name count.
 * CISTERN_FAIL_ONCE=FILE: one failure only, whatever programs start after it.
 * CISTERN_FAIL_KILL: the process is killed in place of the call.
 * CISTERN_FAIL_STAYS: all later calls fail, too.
 * CISTERN_SLOW_RMDIR, _STAT, _FSYNC=N: each such call waits for N milliseconds, so that a race is lost.
 * CISTERN_SLOW_PWRITE=N: the same for a pwrite that ends with a part of 8 MiB.
 * CISTERN_FAST_CLOCK=N: the monotonic clock runs N times as fast. Waits last as long as ever, but for those for a
 * condition, which have a point in time.
 * CISTERN_CLOCK_BEHIND=N: the wall clock is N seconds behind that of the kernel, as if it had been set back.
 * CISTERN_PLAIN_FILES: every file system has only the features of NFS: no unnamed files, no renames with flags, no
 * allocation, no statement of its space. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static atomic_ulong calls;

static unsigned long number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : otherwise;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static bool is_meant_program(void)
{
    const char *program = getenv("CISTERN_FAIL_PROGRAM");
    return !program || strcmp(program, program_invocation_short_name) == 0;
}

static bool is_first(void)
{
    const char *path = getenv("CISTERN_FAIL_ONCE");
    int fd = path ? REAL(open)(path, O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        close(fd);
    return !path || fd >= 0;
}

static bool is_spared(const void *caller)
{
    const char *library = getenv("CISTERN_FAIL_NOT");
    Dl_info of;
    return library && dladdr(caller, &of) && strstr(of.dli_fname, library);
}

/* Is it this one's turn to fail? Sets errno if so. */
#define fails(name) fails_for(name, __builtin_return_address(0))
static bool fails_for(const char *name, const void *caller)
{
    static atomic_ulong at;
    const char *only = getenv("CISTERN_FAIL_NAME");
    if ((only && strcmp(only, name) != 0) || !is_meant_program() || is_spared(caller))
        return false;
    if (!at)
        at = number("CISTERN_FAIL_AT", ~0UL);
    unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    if (!(getenv("CISTERN_FAIL_STAYS") ? call >= at : call == at) || !is_first())
        return false;
    if (getenv("CISTERN_FAIL_KILL"))
        raise(SIGKILL);
    errno = (int)number("CISTERN_FAIL_ERRNO", EIO);
    return true;
}

static bool lacks(bool asked, int number)
{
    if (asked && getenv("CISTERN_PLAIN_FILES"))
        errno = number;
    return asked && getenv("CISTERN_PLAIN_FILES");
}

__attribute__((destructor)) static void tell_count(void)
{
    const char *path = getenv("CISTERN_FAIL_COUNT");
    FILE *f = path && is_meant_program() ? fopen(path, "we") : NULL;
    if (!f)
        return;
    fprintf(f, "%lu\n", atomic_load(&calls));
    fclose(f);
}

/* A mount process ends so, several threads at once: none may empty the file that another has filled. */
__attribute__((noreturn)) void _exit(int status)
{
    static atomic_flag is_ending = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&is_ending))
        pause();
    tell_count();
    for (;;)
        syscall(SYS_exit_group, status);
}

#define FAIL_INT(name, params, ...)                                                                                    \
    int name params                                                                                                    \
    {                                                                                                                  \
        return fails(#name) ? -1 : REAL(name)(__VA_ARGS__);                                                            \
    }
#define FAIL_SSIZE(name, params, ...)                                                                                  \
    ssize_t name params                                                                                                \
    {                                                                                                                  \
        return fails(#name) ? -1 : REAL(name)(__VA_ARGS__);                                                            \
    }

/* A mode is there only with O_CREAT or O_TMPFILE; reading one that is not does no harm on any ABI that we run on. */
#define FAIL_OPEN(name, params, last, ...)                                                                             \
    int name params                                                                                                    \
    {                                                                                                                  \
        va_list args;                                                                                                  \
        va_start(args, last);                                                                                          \
        mode_t mode = va_arg(args, mode_t);                                                                            \
        va_end(args);                                                                                                  \
        return lacks((flags & O_TMPFILE) == O_TMPFILE, EOPNOTSUPP) || fails(#name) ? -1                                \
                                                                                   : REAL(name)(__VA_ARGS__, mode);    \
    }

FAIL_OPEN(open, (const char *path, int flags, ...), flags, path, flags)
FAIL_OPEN(open64, (const char *path, int flags, ...), flags, path, flags)
FAIL_OPEN(openat, (int dir, const char *path, int flags, ...), flags, dir, path, flags)
FAIL_OPEN(openat64, (int dir, const char *path, int flags, ...), flags, dir, path, flags)
FAIL_SSIZE(pread, (int fd, void *buf, size_t len, off_t offset), fd, buf, len, offset)
FAIL_SSIZE(pread64, (int fd, void *buf, size_t len, off64_t offset), fd, buf, len, offset)
FAIL_INT(fdatasync, (int fd), fd)
FAIL_INT(syncfs, (int fd), fd)
FAIL_INT(sync_file_range, (int fd, off64_t offset, off64_t len, unsigned flags), fd, offset, len, flags)
FAIL_INT(ftruncate, (int fd, off_t len), fd, len)
FAIL_INT(ftruncate64, (int fd, off64_t len), fd, len)
FAIL_INT(mkdirat, (int dir, const char *path, mode_t mode), dir, path, mode)
FAIL_INT(renameat, (int from, const char *a, int to, const char *b), from, a, to, b)
FAIL_INT(linkat, (int from, const char *a, int to, const char *b, int flags), from, a, to, b, flags)
FAIL_INT(fstat, (int fd, struct stat *st), fd, st)
FAIL_INT(statx, (int dir, const char *path, int flags, unsigned mask, struct statx *st), dir, path, flags, mask, st)
FAIL_INT(futimens, (int fd, const struct timespec times[2]), fd, times)
FAIL_INT(socket, (int domain, int type, int protocol), domain, type, protocol)
FAIL_INT(socketpair, (int domain, int type, int protocol, int pair[2]), domain, type, protocol, pair)
FAIL_INT(accept4, (int fd, struct sockaddr *a, socklen_t *len, int flags), fd, a, len, flags)
FAIL_INT(epoll_create1, (int flags), flags)
FAIL_INT(signalfd, (int fd, const sigset_t *mask, int flags), fd, mask, flags)
FAIL_INT(inotify_init1, (int flags), flags)
FAIL_INT(inotify_add_watch, (int fd, const char *path, uint32_t mask), fd, path, mask)
FAIL_INT(memfd_create, (const char *name, unsigned flags), name, flags)
FAIL_INT(pipe2, (int pair[2], int flags), pair, flags)
FAIL_INT(mkdir, (const char *path, mode_t mode), path, mode)
FAIL_INT(rename, (const char *a, const char *b), a, b)
FAIL_INT(fchmod, (int fd, mode_t mode), fd, mode)
FAIL_INT(fchown, (int fd, uid_t user, gid_t group), fd, user, group)
FAIL_INT(mount, (const char *what, const char *where, const char *type, unsigned long flags, const void *data), what,
         where, type, flags, data)
FAIL_INT(umount2, (const char *where, int flags), where, flags)
FAIL_INT(eventfd, (unsigned value, int flags), value, flags)

static void wait_at_the_end_of_a_part(off_t end)
{
    if (end % (8 << 20) == 0)
        usleep((useconds_t)number("CISTERN_SLOW_PWRITE", 0) * 1000);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t offset)
{
    wait_at_the_end_of_a_part(offset + (off_t)len);
    return fails("pwrite") ? -1 : REAL(pwrite)(fd, buf, len, offset);
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t offset)
{
    wait_at_the_end_of_a_part(offset + (off_t)len);
    return fails("pwrite64") ? -1 : REAL(pwrite64)(fd, buf, len, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    return lacks(true, EOPNOTSUPP) || fails("fallocate") ? -1 : REAL(fallocate)(fd, mode, offset, len);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t len)
{
    return lacks(true, EOPNOTSUPP) || fails("fallocate64") ? -1 : REAL(fallocate64)(fd, mode, offset, len);
}

int renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
    return lacks(flags != 0, EINVAL) || fails("renameat2") ? -1 : REAL(renameat2)(from, a, to, b, flags);
}

int fstatvfs(int fd, struct statvfs *st)
{
    int r = fails("fstatvfs") ? -1 : REAL(fstatvfs)(fd, st);
    if (lacks(r == 0, errno))
        st->f_blocks = st->f_bavail = st->f_files = st->f_favail = 0;
    return r;
}

int unlinkat(int dir, const char *path, int flags)
{
    static atomic_ulong slow = ~0UL;
    if (slow == ~0UL)
        slow = number("CISTERN_SLOW_RMDIR", 0);
    if (flags & AT_REMOVEDIR)
        usleep((useconds_t)slow * 1000);
    return fails("unlinkat") ? -1 : REAL(unlinkat)(dir, path, flags);
}

int fsync(int fd)
{
    static atomic_ulong slow = ~0UL;
    if (slow == ~0UL)
        slow = number("CISTERN_SLOW_FSYNC", 0);
    if (slow > 0)
        usleep((useconds_t)slow * 1000);
    return fails("fsync") ? -1 : REAL(fsync)(fd);
}

int fstatat(int dir, const char *path, struct stat *st, int flags)
{
    static atomic_ulong slow = ~0UL;
    if (slow == ~0UL)
        slow = number("CISTERN_SLOW_STAT", 0);
    if (slow > 0)
        usleep((useconds_t)slow * 1000);
    return fails("fstatat") ? -1 : REAL(fstatat)(dir, path, st, flags);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *a,
                char *const argv[], char *const env[])
{
    return fails("posix_spawn") ? errno : REAL(posix_spawn)(pid, path, actions, a, argv, env);
}

/* Of these, libraries make some of their own and cannot live without: only by name. */
static bool is_named(const char *name)
{
    const char *only = getenv("CISTERN_FAIL_NAME");
    return only && strcmp(only, name) == 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    return is_named("pthread_create") && fails("pthread_create") ? EAGAIN : REAL(pthread_create)(thread, a, run, arg);
}

/* Only anonymous memory counts, which the allocator requests; mappings of files do not. */
void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
    bool counts = fd >= 0 || is_named("mmap");
    return counts && fails("mmap") ? MAP_FAILED : REAL(mmap)(at, len, protection, flags, fd, offset);
}

DIR *fdopendir(int fd)
{
    return fails("fdopendir") ? NULL : REAL(fdopendir)(fd);
}

/* Plain reads and writes fail on files alone: an eventfd has no EIO, and a program that cannot say on its standard
 * streams what failed cannot be judged. */
static bool is_file(int fd)
{
    struct stat st;
    return REAL(fstat)(fd, &st) == 0 && S_ISREG(st.st_mode);
}

ssize_t read(int fd, void *buf, size_t len)
{
    return is_file(fd) && fails("read") ? -1 : REAL(read)(fd, buf, len);
}

static bool is_meant(const void *buf, size_t len)
{
    const char *text = getenv("CISTERN_FAIL_TEXT");
    return !text || memmem(buf, len, text, strlen(text));
}

ssize_t write(int fd, const void *buf, size_t len)
{
    bool counts = fd > STDERR_FILENO && is_file(fd) && is_meant(buf, len);
    return counts && fails("write") ? -1 : REAL(write)(fd, buf, len);
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

static int64_t nanoseconds(const struct timespec *t)
{
    return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

static struct timespec to_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int64_t real_now(void)
{
    struct timespec t;
    REAL(clock_gettime)(CLOCK_MONOTONIC, &t);
    return nanoseconds(&t);
}

/* `of` in the time of the program, from when it was asked first. */
static int64_t fast(int64_t of)
{
    static _Atomic int64_t began;
    int64_t none = 0;
    atomic_compare_exchange_strong(&began, &none, of);
    return began + (of - began) * (int64_t)(is_meant_program() ? number("CISTERN_FAST_CLOCK", 1) : 1);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock == CLOCK_MONOTONIC) {
        *t = to_timespec(fast(real_now()));
        return 0;
    }
    int r = REAL(clock_gettime)(clock, t);
    if (clock == CLOCK_REALTIME)
        t->tv_sec -= (time_t)number("CISTERN_CLOCK_BEHIND", 0);
    return r;
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until)
{
    int64_t now = real_now();
    struct timespec at = to_timespec(now + nanoseconds(until) - fast(now));
    return REAL(pthread_cond_clockwait)(c, lock, clock, clock == CLOCK_MONOTONIC ? &at : until);
}
