/* SPDX-License-Identifier: Apache-2.0 */
/* cistern-mount - the process of one mounted volume, started only by the keeper (or by `cistern mount`).
 * A program of its own because there is one for each volume: it loads no library but libfuse's. */
#include "fuse/session.h"
#include "util/log.h"

/* The volume comes over this socket; see struct keeper_options. */
enum { CONTROL_FD = 3 };

int main(int argc, char **argv)
{
    struct err err = {0};
    bool lost;
    log_setup(STDERR_FILENO, LOG_WARN, LOG_TEXT);
    if (argc != 2 || argv[1][0] == '-') {
        err_set(&err, ERR_INVALID, "cistern-mount is started by cistern-keeper; people use `cistern mount`");
        log_err(LOG_ERROR, "nothing to serve", &err, NULL);
        return 2;
    }
    if (session_serve(CONTROL_FD, &lost, &err) == 0)
        return 0;
    log_err(LOG_ERROR, "the volume cannot be served", &err, "volume", argv[1], NULL);
    return lost ? WIRE_EXIT_LOST : 10;
}
