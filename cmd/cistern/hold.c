/* SPDX-License-Identifier: Apache-2.0 */
/* cistern hold: does nothing until it is told to end. */
#include "cistern.h"
#include "cli/exit.h"
#include <signal.h>

static const char usage[] =
    "Usage: cistern hold\n\n"
    "Waits for SIGTERM. Cistern's controller runs it in a pod on each node with files that are not\n"
    "in the bucket yet, so that whoever drains the node waits for their export.\n\n";

int verb_hold(int argc, char **argv)
{
    static const struct opt none[] = {{0}};
    sigset_t ends;
    int signal;
    int code = verb_begin(none, usage, &argc, argv);
    if (code >= 0)
        return code;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    return sigwait(&ends, &signal) == 0 ? EXIT_DONE : EXIT_ENVIRONMENT;
}
