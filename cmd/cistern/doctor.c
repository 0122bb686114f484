/* SPDX-License-Identifier: Apache-2.0 */
/* cistern doctor - what this machine offers, and what will not work on it: a list of what passed, what is worth a
 * warning and what failed. It changes nothing that lasts. */
#include "doctor.h"
#include "cistern.h"
#include "cli/exit.h"
#include "cli/term.h"
#include "volume/space.h"
#include <stdio.h>

static const char usage[] = "Usage: cistern doctor [flags]\n\n"
                            "Looks at what Cistern needs of this machine, by trying it. Exit code 10 if anything "
                            "failed.\n\n"
                            "  cistern doctor --pool /mnt/disks/cistern --source s3://bucket/prefix/\n\n";

static struct {
    struct opt_list pools;
    struct opt_list sources;
} flags;

static const struct opt opts[] = {
    {"pool", 0, OPT_LIST, &flags.pools, "DIR[,OPTION...]",
     "a pool, or the folder that is to be one, with the options that cisternd has; may be given again"},
    {"source", 0, OPT_LIST, &flags.sources, "URI", "a source to list; may be given again"},
    {0},
};

static unsigned counts[DOCTOR_FAIL + 1];

static void print_line(enum doctor_result result, const char *check, const char *text)
{
    static const char *const names[] = {"pass", "warn", "fail"};
    counts[result]++;
    if (globals.json) {
        auto_sbuf b;
        sbuf_init(&b, TERM_LINE_MAX);
        term_json_begin(&b, "check");
        term_json_str(&b, "check", str_of(check));
        term_json_str(&b, "result", str_of(names[result]));
        term_json_str(&b, "message", str_of(text));
        term_json_end(&b, stdout);
    } else if (!globals.quiet || result == DOCTOR_FAIL) {
        printf("%s  %-12s %s\n", names[result], check, text);
        fflush(stdout);
    }
}

void doctor_say(enum doctor_result result, const char *check, const char *fmt, ...)
{
    char text[ERR_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_line(result, check, text);
}

void doctor_say_err(enum doctor_result result, const char *check, const struct err *err)
{
    char line[ERR_LINE_MAX];
    print_line(result, check, err_line(err, line, sizeof line));
}

static void print_sum(void)
{
    if (!globals.json) {
        printf("%u passed, %u warned, %u failed\n", counts[DOCTOR_PASS], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
        return;
    }
    auto_sbuf b;
    sbuf_init(&b, TERM_LINE_MAX);
    term_json_begin(&b, "summary");
    term_json_u64(&b, "pass", counts[DOCTOR_PASS]);
    term_json_u64(&b, "warn", counts[DOCTOR_WARN]);
    term_json_u64(&b, "fail", counts[DOCTOR_FAIL]);
    term_json_end(&b, stdout);
}

int verb_doctor(int argc, char **argv)
{
    struct err err;
    int ends = verb_begin(opts, usage, &argc, argv);
    if (ends >= 0)
        return ends;
    if (argc > 1) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s'; pools and sources have flags", argv[1]);
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
    print_sum();
    return counts[DOCTOR_FAIL] ? EXIT_ENVIRONMENT : EXIT_DONE;
}
