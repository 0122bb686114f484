// SPDX-License-Identifier: Apache-2.0
/* Process 1 of a test machine, and of a pod's namespaces: reaps what is left to it, ends on SIGTERM. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig)
{
    (void)sig;
    _exit(EXIT_SUCCESS);
}

static void reap(int sig)
{
    (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void)
{
    struct sigaction on_term = {.sa_handler = end};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &on_term, NULL) < 0 || sigaction(SIGTERM, &on_term, NULL) < 0 ||
        sigaction(SIGCHLD, &on_child, NULL) < 0)
        return EXIT_FAILURE;
    for (;;)
        pause();
}
