/* SPDX-License-Identifier: Apache-2.0 */
/* cistern probe: the kubelet runs it in the pod of a Job, and ends the Job if no answer comes. */
#include "io/probe.h"
#include "cistern.h"
#include "cli/exit.h"

static const char usage[] =
    "Usage: cistern probe VERB DIR\n\n"
    "Asks the `cistern hydrate` or `cistern export` that runs for the volume in DIR for an answer. Exits with 0 if it\n"
    "answers within 8 s, and neither its event loops nor its main thread has been stuck for ten minutes.\n\n";

int verb_probe(int argc, char **argv)
{
    static const struct opt none[] = {{0}};
    struct err err;
    int code = verb_begin(none, usage, &argc, argv);
    if (code >= 0)
        return code;
    if (argc != 3) {
        err_set(&err, ERR_INVALID, "probe needs VERB and DIR; see `cistern probe --help`");
        return usage_error(&err);
    }
    return probe_ask(argv[1], argv[2], &err) < 0 ? (int)exit_with(&err, globals.json) : EXIT_DONE;
}
