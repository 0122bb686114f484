/* SPDX-License-Identifier: Apache-2.0 */
/* cistern - buckets to local disks and back. A file a verb; here are the table of them and the flags that all share. */
#include "cistern.h"
#include "cli/exit.h"
#include "cli/term.h"
#include "io/web.h"
#include "util/seal.h"
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

struct globals globals = {.log_level = LOG_WARN};

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    bool works; /* what it does stands, whether or not it could be told */
    const char *help;
} verbs[] = {
    {"hydrate", verb_hydrate, true, "bring a bucket prefix to a folder, verified and resumable"},
    {"export", verb_export, true, "send a folder's files to a bucket, each confirmed by it"},
    {"ls", verb_ls, false, "list a bucket prefix"},
    {"doctor", verb_doctor, false, "what this machine offers, and what will not work on it"},
    {"status", verb_status, false, "how far this machine's volumes are, and what failed"},
    {"hold", verb_hold, true, "wait to be ended: its pod keeps a node from being drained before an export"},
    {"mount", verb_mount, true, "show a folder through FUSE, at the speed of the disk below"},
    {"demo", verb_demo, true, "show the whole life of a volume on this machine"},
};

static const char *log_level_text;
static const struct opt global_opts[] = {
    {"json", 0, OPT_FLAG, &globals.json, NULL, "one JSON object a line on stdout"},
    {"quiet", 'q', OPT_FLAG, &globals.quiet, NULL, "errors only"},
    {"no-progress", 0, OPT_FLAG, &globals.no_progress, NULL, "no progress (by itself where stderr is no terminal)"},
    {"log-level", 0, OPT_TEXT, &log_level_text, "LEVEL", "debug, info, warn or error"},
    {"retries", 0, OPT_U64, &globals.retries, "N",
     "attempts at each request, and of a store that refuses all (8, about half a minute)"},
    {"timeout", 0, OPT_DURATION, &globals.timeout_ns, "TIME", "how long passing errors are tried again (30m)"},
    {"stall", 0, OPT_DURATION, &globals.stall_ns, "TIME", "ask again when next to nothing came for so long (30s)"},
    {"endpoint", 0, OPT_TEXT, &globals.endpoint, "URL", "of an S3-compatible or GCS-compatible store"},
    {"region", 0, OPT_TEXT, &globals.region, "NAME", "of the bucket"},
    {"profile", 0, OPT_TEXT, &globals.profile, "NAME", "of ~/.aws/config and credentials"},
    {"ca-file", 0, OPT_TEXT, &globals.ca_file, "FILE", "certificates to trust instead of the system's"},
    {"anonymous", 0, OPT_FLAG, &globals.anonymous, NULL, "no credentials: public buckets"},
    {"path-style", 0, OPT_FLAG, &globals.path_style, NULL, "the bucket in the path instead of the host name"},
    {0},
};

static void print_help(FILE *out)
{
    auto_sbuf b;
    sbuf_init(&b, 16384);
    sbuf_adds(&b, "Usage: cistern VERB [flags]\n\n"
                  "Brings bytes from a bucket (s3://, gs://, file://) to local disk, and checkpoints back.\n\n"
                  "  cistern hydrate s3://bucket/dataset/ ./dataset\n"
                  "  cistern ls -l gs://bucket/models/\n\nVerbs:\n");
    for (size_t i = 0; i < countof(verbs); i++)
        sbuf_addf(&b, "  %-10s %s\n", verbs[i].name, verbs[i].help);
    sbuf_adds(&b, "\n`cistern VERB --help` tells about one. Flags that all verbs take:\n");
    opt_help(global_opts, &b);
    sbuf_adds(&b, "      --help              this text\n      --version           the version\n\n"
                  "Exit codes: 0 done, 1 some objects failed, 2 usage, 3 source not found, 4 access denied,\n"
                  "5 passing errors outlived the retries, 6 no space, 7 checksum or generation mismatch,\n"
                  "8 interrupted (the same command continues), 9 nothing matched, 10 environment.\n");
    fputs(b.ptr, out);
}

static int usage_error(const struct err *err)
{
    fprintf(stderr, "cistern: %s\n", err->text);
    return EXIT_USAGE;
}

struct store_options store_defaults(const char *uri)
{
    return (struct store_options){
        .uri = str_of(uri),
        .endpoint = globals.endpoint,
        .region = globals.region,
        .profile = globals.profile,
        .ca_file = globals.ca_file,
        .path_style = globals.path_style,
        .auth = globals.anonymous ? STORE_AUTH_ANONYMOUS : STORE_AUTH_CHAIN,
        .retry = {.attempts_max = (unsigned)min_u64(globals.retries, 1000), .elapsed_max_ns = globals.timeout_ns}};
}

struct store_retry store_retry_of(const struct spec_source *s)
{
    return (struct store_retry){.attempts_max = (unsigned)s->retry_attempts_max,
                                .elapsed_max_ns = s->retry_elapsed_max_ns,
                                .backoff_base_ns = s->retry_backoff_base_ns,
                                .backoff_cap_ns = s->retry_backoff_cap_ns};
}

int verb_begin(const struct opt *table, const char *usage, int *argc, char **argv)
{
    struct err err;
    for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            auto_sbuf b;
            sbuf_init(&b, 16384);
            sbuf_adds(&b, usage);
            opt_help(table, &b);
            sbuf_adds(&b, "\nFlags that all verbs take: `cistern --help`.\n");
            fputs(b.ptr, stdout);
            return EXIT_DONE;
        }
    return opt_parse(table, false, argc, argv, &err) < 0 ? usage_error(&err) : -1;
}

/* Half a list must not pass for a whole one. */
static int told(int code)
{
    struct err err;
    if (code != EXIT_DONE || term_flush(stdout, "standard output", &err) == 0)
        return code;
    err_advise(&err, 9103, "what was told is not all there is; look at where the output goes");
    exit_with(&err, false);
    return EXIT_ENVIRONMENT;
}

static int run_verb(int argc, char **argv)
{
    struct err err;
    for (size_t i = 0; i < countof(verbs); i++)
        if (strcmp(argv[1], verbs[i].name) == 0) {
            int code = verbs[i].run(argc - 1, argv + 1);
            return verbs[i].works ? code : told(code);
        }
    if (strcmp(argv[1], "--version") == 0) {
        puts("cistern " CISTERN_VERSION);
        return told(EXIT_DONE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return told(EXIT_DONE);
    }
    err_set(&err, ERR_INVALID, "unknown verb '%s'; `cistern --help` lists them", argv[1]);
    return usage_error(&err);
}

/* Where one of the three is closed, the next file that is opened would get its number, and our sentences. */
static void keep_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Catalogs are mapped: of a page that the disk cannot give, or that somebody cut off, this is how one hears. */
static void page_is_lost(int number)
{
    static const char line[] = "cistern: a page of the catalog cannot be read (CIS1519); the disk fails, or somebody "
                               "cut the file short: see to it, then --no-resume lists anew\n";
    (void)number;
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(EXIT_ENVIRONMENT);
}

int main(int argc, char **argv)
{
    struct err err;
    seal_process(); /* whatever the verb: an environment with keys in it is there already */
    keep_standard_streams();
    signal(SIGBUS, page_is_lost);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write that tells so */
    web_keep_buffers();
    setlocale(LC_CTYPE, "C.UTF-8");
    if (opt_parse(global_opts, true, &argc, argv, &err) < 0)
        return usage_error(&err);
    if (log_level_text && log_level_parse(str_of(log_level_text), &globals.log_level, &err) < 0)
        return usage_error(&err);
    log_setup(STDERR_FILENO, globals.log_level, globals.json ? LOG_JSON : LOG_TEXT);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    return run_verb(argc, argv);
}
