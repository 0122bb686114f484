/* SPDX-License-Identifier: Apache-2.0 */
#include "cistern.h"
#include "cli/exit.h"
#include <stdio.h>

int verb_hydrate(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr, "cistern: %s is not built in yet\n", argv[0]);
    return EXIT_ENVIRONMENT;
}
