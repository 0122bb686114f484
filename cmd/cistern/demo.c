/* SPDX-License-Identifier: Apache-2.0 */
/* cistern demo: starts cistern-demo, a program of its own: gRPC would cost each mount process 12 MiB. */
#include "cistern.h"
#include "cli/exit.h"

int verb_demo(int argc, char **argv)
{
    (void)argc;
    struct err err;
    auto_sbuf path = SBUF(4096);
    char self[3072];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    const char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    sbuf_add(&path, (struct str){self, slash ? (size_t)(slash + 1 - self) : 0});
    sbuf_adds(&path, "cistern-demo");
    execv(path.ptr, argv);
    err_sys(&err, errno, "cannot start '%s'", path.ptr);
    err_advise(&err, CIS_PROGRAM_NOT_INSTALLED);
    return exit_with(&err, globals.json);
}
