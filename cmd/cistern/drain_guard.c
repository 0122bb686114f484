/* SPDX-License-Identifier: Apache-2.0 */
/* cistern hold: waits for SIGTERM, so that its pod delays the drain of a node. */
#include "cistern.h"
#include "cli/exit.h"
#include <signal.h>

static const char usage[] =
    "Usage: cistern hold\n\n"
    "Waits for SIGTERM. The controller runs it in a pod on each node that has files to export: a drain\n"
    "of the node waits for that pod.\n\n";

int verb_hold(int argc, char **argv)
{
    static const struct opt none[] = {{0}};
    sigset_t ends = ending_signals();
    int signal;
    int code = verb_begin(none, usage, &argc, argv);
    if (code >= 0)
        return code;
    sigprocmask(SIG_BLOCK, &ends, NULL);
    return sigwait(&ends, &signal) == 0 ? EXIT_DONE : EXIT_ENVIRONMENT;
}
