/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"
#include "util/str.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SAID_MAX = 4096 };

/* A driver in a container has the PATH of its image, and a person's shell may lack /usr/sbin. */
static const char *const directories[] = {"/usr/sbin", "/sbin", "/usr/bin", "/bin"};

static int find_tool(const char *name, char path[64], struct err *err)
{
    for (size_t i = 0; i < countof(directories); i++) {
        snprintf(path, 64, "%s/%s", directories[i], name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    return err_fail(err, ERR_UNSUPPORTED, CIS_PROGRAM_MISSING, "the program '%s' is not installed here", name);
}

static int spawn(const char *path, const char *const argv[], int said, pid_t *ret_pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, said, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, said, STDERR_FILENO);
    /* A driver reads its signals from a descriptor and so has them blocked: its children must not inherit that. */
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    static const char *const env[] = {"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C", NULL};
    int errnum = posix_spawn(ret_pid, path, &files, &attr, (char *const *)argv, (char *const *)env);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return errnum;
}

/* The last line of the output: tools report their error there. */
static void last_line(int said, char *buf, size_t size)
{
    char text[SAID_MAX];
    off_t len = lseek(said, 0, SEEK_END);
    off_t from = len > (off_t)sizeof text ? len - (off_t)sizeof text : 0;
    ssize_t n = pread(said, text, sizeof text, from);
    struct str s = str_trim((struct str){text, n > 0 ? (size_t)n : 0});
    const char *newline = s.len ? memrchr(s.ptr, '\n', s.len) : NULL;
    if (newline)
        s = str_from(s, (size_t)(newline + 1 - s.ptr));
    snprintf(buf, size, "%.*s", STR_FMT(s));
}

int tool_run(const char *const argv[], struct err *err)
{
    char path[64], why[200];
    int r = find_tool(argv[0], path, err);
    if (r < 0)
        return r;
    auto_fd said = memfd_create("said", MFD_CLOEXEC);
    if (said < 0)
        return err_sys(err, errno, "cannot run '%s'", argv[0]);
    pid_t pid;
    int errnum = spawn(path, argv, said, &pid);
    if (errnum != 0)
        return err_sys(err, errnum, "cannot run '%s'", argv[0]);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "cannot wait for '%s'", argv[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    last_line(said, why, sizeof why);
    if (WIFSIGNALED(status))
        return err_set(err, ERR_IO, "'%s' was killed by signal %d", argv[0], WTERMSIG(status));
    return err_set(err, ERR_IO, "'%s' ended with status %d: %s", argv[0], WEXITSTATUS(status), why);
}
