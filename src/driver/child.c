/* SPDX-License-Identifier: Apache-2.0 */
#include "child.h"
#include "export/verdict.h"
#include "hydrate/status.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static int prepare(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr, int log)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int e = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_adddup2(files, log, 1);
    if (!e)
        e = posix_spawn_file_actions_adddup2(files, 1, 2);
    if (!e)
        e = posix_spawn_file_actions_addclosefrom_np(files, 3);
    if (!e)
        e = posix_spawnattr_setsigmask(attr, &none);
    if (!e)
        e = posix_spawnattr_setsigdefault(attr, &all);
    if (!e)
        e = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    return e;
}

int child_spawn(char *const argv[], const char *log, struct child *ret, struct err *err)
{
    pid_t pid;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    const char *path = log ? log : "/dev/null";
    auto_fd out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); /* here, so that an error names it */
    if (out < 0)
        return err_sys(err, errno, "cannot create '%s'", path);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    int e = prepare(&files, &attr, out);
    if (!e)
        e = posix_spawn(&pid, argv[0], &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    int fd = e ? -1 : pidfd_open(pid, 0); /* a child keeps its pid until it is reaped */
    if (!e && fd < 0) {
        e = errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (e)
        return err_sys(err, e, "cannot start '%s %s'", argv[0], argv[1] ? argv[1] : "");
    *ret = (struct child){.pid = pid, .fd = fd};
    return 0;
}

bool child_reap(struct child *c, siginfo_t *ret)
{
    *ret = (siginfo_t){0};
    if (waitid(P_PIDFD, (id_t)c->fd, ret, WEXITED | WNOHANG) == 0 ? ret->si_pid == 0 : errno == EINTR)
        return false;
    child_close(c);
    return true;
}

void child_close(struct child *c)
{
    fd_close(&c->fd);
    *c = NO_CHILD;
}

static int open_directory(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int child_start(const char *program, enum job_kind kind, const char *path, struct child *ret, struct err *err)
{
    char log[PATH_MAX];
    const char *words[JOB_KIND_WORDS_MAX];
    job_kind_command(kind, program, path, words);
    if (snprintf(log, sizeof log, "%s/%s.log", path, job_kind_verb(kind)) >= (int)sizeof log)
        return err_set(err, ERR_INVALID, "path '%s': too long", path);
    int r = child_spawn((char *const *)words, log, ret, err);
    if (r != -ERR_NO_SPACE || kind == JOB_HYDRATE)
        return r;
    auto_fd dir = open_directory(path);
    return dir >= 0 && verdict_spend_reserve(dir) ? child_spawn((char *const *)words, log, ret, err) : r;
}

/* ---- knowing ----------------------------------------------------------------------------------------------------- */

static bool read_verdict(int dir, struct verdict *v)
{
    verdict_init(v);
    return verdict_read(dir, v, ERR_IGNORED) == 0;
}

bool child_lives(enum job_kind kind, const char *path)
{
    auto_fd dir = open_directory(path);
    if (dir < 0)
        return false;
    if (kind == JOB_HYDRATE)
        return hydrate_is_alive(dir);
    struct verdict v;
    bool lives = read_verdict(dir, &v) && v.alive;
    verdict_done(&v);
    return lives;
}

static bool hydration_succeeded(int dir)
{
    auto_mem struct hydrate_status *s = xcalloc(1, sizeof *s);
    return hydrate_status_read(dir, s, ERR_IGNORED) == 0 && s->phase == HYDRATE_DONE;
}

bool child_succeeded(enum job_kind kind, const char *path)
{
    auto_fd dir = open_directory(path);
    if (dir < 0)
        return false;
    if (kind == JOB_HYDRATE)
        return hydration_succeeded(dir);
    struct verdict v;
    bool done = read_verdict(dir, &v) && v.state == VERDICT_DONE;
    /* An earlier run for unpublish does not count: files may have been written after it. */
    if (kind == JOB_EXPORT_RELEASE)
        done = done && v.purpose == VERDICT_FOR_RELEASE;
    verdict_done(&v);
    return done;
}

/* ---- ending -------------------------------------------------------------------------------------------------------
 * A process that an earlier driver started is not a child of this one. A file with its pid may be old, so the process
 * table is searched for its command line. */

static bool is_like(pid_t pid, const char *first, const char *argument)
{
    char name[64], line[2 * PATH_MAX];
    snprintf(name, sizeof name, "/proc/%ld/cmdline", (long)pid);
    auto_fd fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (n <= 0)
        return false;
    struct str rest = {line, (size_t)n}, word;
    bool has_argument = false;
    for (unsigned i = 0; str_split(&rest, '\0', &word); i++) {
        if (i == 1 && !str_eq(word, str_of(first)))
            return false;
        has_argument |= i > 1 && str_eq(word, str_of(argument));
    }
    return has_argument;
}

void child_signal_like(const char *first, const char *argument, int signal)
{
    auto_dir proc = dir_stream(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    uint64_t pid;
    while (proc && (e = dir_next(proc)) != NULL)
        if (str_to_u64(str_of(e->d_name), &pid, ERR_IGNORED) == 0) {
            auto_fd fd = pidfd_open((pid_t)pid, 0); /* before the check: the pid may be used again after it */
            if (fd >= 0 && is_like((pid_t)pid, first, argument))
                pidfd_send_signal(fd, signal, NULL, 0);
        }
}

void child_signal_all(enum job_kind kind, const char *path, int signal)
{
    child_signal_like(job_kind_verb(kind), path, signal);
}
