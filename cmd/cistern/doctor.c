/* SPDX-License-Identifier: Apache-2.0 */
/* cistern doctor - Checks what Cistern needs of this machine, and leaves nothing behind. */
#include "doctor.h"
#include "cistern.h"
#include "cli/exit.h"
#include "pool/space.h"

static const char usage[] =
    "Usage: cistern doctor [flags]\n\n"
    "Checks kernel, privileges, limits, FUSE, pools and sources by trying them. Exits with 10 if a "
    "check failed.\n\n"
    "  cistern doctor --pool /mnt/disks/cistern\n"
    "  cistern doctor --source s3://bucket/prefix/ --json\n\nFlags:\n";

static struct {
    struct opt_list pools;
    struct opt_list sources;
} flags;

static const struct opt opts[] = {
    {"pool", 0, OPT_LIST, &flags.pools, "DIR[,OPTION...]",
     "check this pool or empty directory, with cisternd's options (repeatable)"},
    {"source", 0, OPT_LIST, &flags.sources, "URI", "list this source (repeatable)"},
    {0},
};

int verb_doctor(int argc, char **argv)
{
    struct err err;
    int ends = verb_begin(opts, usage, &argc, argv);
    if (ends >= 0)
        return ends;
    if (argc > 1) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s': use --pool and --source", argv[1]);
        return exit_with(&err, globals.json);
    }
    doctor_machine();
    struct space_place first;
    bool has_pool = flags.pools.count > 0 && space_place_parse(flags.pools.items[0], &first, &err) == 0;
    doctor_fuse(has_pool ? first.path : "/var/tmp");
    for (size_t i = 0; i < flags.pools.count; i++)
        doctor_pool(flags.pools.items[i]);
    for (size_t i = 0; i < flags.sources.count; i++)
        doctor_source(flags.sources.items[i]);
    doctor_print_summary();
    return doctor_has_failed() ? EXIT_ENVIRONMENT : EXIT_DONE;
}
