/* SPDX-License-Identifier: Apache-2.0 */
/* cistern doctor - Checks what Cistern needs of this machine, and leaves nothing behind. */
#include "doctor.h"
#include "cistern.h"
#include "cli/exit.h"
#include "pool/pool.h"

static const char usage[] = "Usage: cistern doctor [URI...] [flags]\n\n"
                            "Checks kernel, privileges, limits, FUSE, pools and URIs by trying them. It shows where "
                            "the credentials for a URI\n"
                            "come from, and tries each right. For an export it writes an object of one byte below the "
                            "URI and deletes it.\n"
                            "In a bucket with versioning it deletes the versions that it made, too. Exits with 10 if a "
                            "check failed.\n\n"
                            "  cistern doctor --pool /mnt/disks/cistern\n"
                            "  cistern doctor s3://bucket/run-7/ --as-export\n\nFlags:\n";

static struct {
    struct opt_list pools;
    struct doctor_purpose purpose;
} flags;

static const struct opt opts[] = {
    {"pool", 0, OPT_LIST, &flags.pools, "DIR[,OPTION...]",
     "check this pool or empty directory, with cisternd's options (repeatable)"},
    {"as-source", 0, OPT_FLAG, &flags.purpose.is_source, NULL,
     "try the rights that hydrating the URIs needs (default)"},
    {"as-export", 0, OPT_FLAG, &flags.purpose.is_export, NULL, "try the rights that exporting to the URIs needs"},
    {0},
};

int verb_doctor(int argc, char **argv)
{
    struct err err;
    int ends = verb_begin(opts, usage, &argc, argv);
    if (ends >= 0)
        return ends;
    if (argc == 1 && (flags.purpose.is_source || flags.purpose.is_export)) {
        err_set(&err, ERR_INVALID, "--as-source and --as-export try the rights of a URI: `cistern doctor URI --as-%s`",
                flags.purpose.is_export ? "export" : "source");
        return usage_error(&err);
    }
    flags.purpose.is_source |= !flags.purpose.is_export;
    doctor_machine();
    struct pool_place first;
    bool has_pool = flags.pools.count > 0 && pool_place_parse(flags.pools.items[0], &first, ERR_IGNORED) == 0;
    doctor_fuse(has_pool && access(first.path, F_OK) == 0 ? first.path : "/var/tmp");
    for (size_t i = 0; i < flags.pools.count; i++)
        doctor_pool(flags.pools.items[i]);
    for (int i = 1; i < argc; i++)
        doctor_uri(argv[i], &flags.purpose);
    return doctor_print_summary() ? EXIT_DONE : EXIT_ENVIRONMENT;
}
