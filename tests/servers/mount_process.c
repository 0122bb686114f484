/* SPDX-License-Identifier: Apache-2.0 */
/* The mount process with its kill points in: built from the same files with CISTERN_TEST_POINTS, started by the keeper
 * in the place of `cistern mount`. CISTERN_TEST_KILL says where it dies (src/fuse/serve.h). Never shipped. */
#include "session.h"
#include <stdio.h>

int main(void)
{
    struct err err = {0};
    char line[ERR_LINE_MAX];
    bool lost;
    if (session_serve(3, &lost, &err) == 0)
        return 0;
    fprintf(stderr, "mount_process: %s\n", err_line(&err, line, sizeof(line)));
    return lost ? SESSION_LOST : 10;
}
