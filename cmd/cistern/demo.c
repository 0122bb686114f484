/* SPDX-License-Identifier: Apache-2.0 */
/* cistern demo: starts cistern-demo, a program of its own: gRPC would cost each mount process 12 MiB. As a child, it
 * cleans up also if this process is killed. */
#include "cistern.h"
#include "cli/exit.h"
#include "util/file.h"
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static pid_t child;

static void pass_on(int number)
{
    kill(child, number);
}

/* In a process group of its own: a signal for the whole group of this process reaches the child once. */
static int start(const char *program, char **argv)
{
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int e = posix_spawn(&child, program, NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    return e;
}

static int wait_for_child(void)
{
    int status;
    signal(SIGINT, pass_on);
    signal(SIGTERM, pass_on);
    if (signal(SIGHUP, SIG_IGN) != SIG_IGN) /* nohup ignores it, for the child too */
        signal(SIGHUP, pass_on);
    if (TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) == child && WIFEXITED(status))
        return WEXITSTATUS(status);
    return EXIT_SOME_FAILED;
}

int verb_demo(int, char **argv)
{
    struct err err;
    char program[PATH_MAX];
    if (program_path("cistern-demo", program, sizeof program, &err) < 0)
        return exit_with(&err, globals.json);
    int e = start(program, argv);
    if (e == 0)
        return wait_for_child();
    err_sys(&err, e, "cannot start '%s'", program);
    err_advise(&err, CIS_PROGRAM_NOT_INSTALLED);
    return exit_with(&err, globals.json);
}
