/* SPDX-License-Identifier: Apache-2.0 */
/* cistern - Copies buckets to local disks and back. One file per verb; main.c has the verbs and the global flags. */
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

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    bool works;       /* succeeds even if its output cannot be written */
    const char *help; /* NULL: not listed; for the chart's Jobs and hooks */
} verbs[] = {
    {"hydrate", verb_hydrate, true, "copy a bucket prefix to a directory, verified and resumable"},
    {"export", verb_export, true, "upload a directory to a bucket; the bucket confirms each file"},
    {"ls", verb_ls, false, "list a bucket prefix"},
    {"doctor", verb_doctor, false, "check this machine, its pools and sources"},
    {"status", verb_status, false, "show the volumes of this machine, their progress and errors"},
    {"hold", verb_hold, true, NULL},
    {"probe", verb_probe, false, NULL},
    {"mount", verb_mount, true, "mount a directory through FUSE, at the speed of its disk"},
    {"demo", verb_demo, true, "run a volume through its life on this machine"},
};

static void print_help(FILE *out)
{
    auto_sbuf b = SBUF(16384);
    sbuf_adds(&b, "Usage: cistern VERB [flags]\n\n"
                  "Copies data from a bucket (s3://, gs://, file://) to local disk, and checkpoints back.\n\n"
                  "  cistern hydrate s3://bucket/dataset/ ./dataset\n"
                  "  cistern ls -l gs://bucket/models/\n\nVerbs:\n");
    for (size_t i = 0; i < countof(verbs); i++)
        if (verbs[i].help)
            sbuf_addf(&b, "  %-10s %s\n", verbs[i].name, verbs[i].help);
    sbuf_adds(&b, "\nRun `cistern VERB --help` for the flags of a verb. Flags of all verbs, with (default):\n");
    opt_help(global_opts, &b);
    sbuf_adds(&b, "      --help              print this help\n      --version           print the version\n\n"
                  "Exit codes:\n  0 done, 1 some objects failed, 2 usage, 3 source not found, 4 access denied,\n"
                  "  5 temporary errors persisted after all attempts, 6 no space, 7 checksum or generation mismatch,\n"
                  "  8 interrupted (run the command again to continue), 9 nothing matched, 10 environment.\n");
    fputs(b.ptr, out);
}

/* A truncated list must not look complete. */
static int flush_output(int code)
{
    struct err err;
    if (code != EXIT_DONE || term_flush(stdout, "standard output", &err) == 0)
        return code;
    err_advise(&err, CIS_OUTPUT_FAILED);
    exit_with(&err, false);
    return EXIT_ENVIRONMENT;
}

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < countof(verbs); i++)
        if (strcmp(name, verbs[i].name) == 0)
            return &verbs[i];
    return NULL;
}

/* Verbs of other tools. */
static const struct habit {
    const char *verbs, *hint;
} habits[] = {
    {" cp copy sync get put mv rsync download upload ",
     "`cistern hydrate URI DIR` copies from a bucket, `cistern export DIR URI` to it"},
    {" du size ", "`cistern ls --sum URI` counts objects and bytes"},
    {" stat head info ", "`cistern ls -l URI` shows size, time and checksum"},
    {" cat tail pipe ", "nothing is copied to stdout: `cistern hydrate URI DIR` fetches the object"},
    {" rm del delete rb mb mkdir ", "cistern deletes no objects and makes no buckets: use the tool of the store"},
    {" completion completions ", "the package installs completions for bash, zsh and fish"},
    {" login auth config configure ",
     "there is no login: the credentials of aws and gcloud are used, and `cistern doctor URI` shows them"},
};

static const char *hint_of(const char *verb)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", verb);
    for (size_t i = 0; i < countof(habits); i++)
        if (!strchr(verb, ' ') && strstr(habits[i].verbs, word))
            return habits[i].hint;
    return NULL;
}

/* A verb of another tool, or a misspelled one. */
static int unknown_verb(const char *name)
{
    const struct verb *nearest = NULL;
    const char *hint = hint_of(name);
    size_t least = SIZE_MAX;
    struct err err;
    if (opt_check_dash(name, &err) < 0)
        return usage_error(&err);
    for (size_t i = 0; i < countof(verbs); i++)
        if (verbs[i].help && str_is_nearer(str_of(verbs[i].name), str_of(name), &least))
            nearest = &verbs[i];
    if (hint)
        err_set(&err, ERR_INVALID, "unknown verb '%s'; %s", name, hint);
    else if (nearest)
        err_set(&err, ERR_INVALID, "unknown verb '%s'; did you mean %s?", name, nearest->name);
    else
        err_set(&err, ERR_INVALID, "unknown verb '%s'; `cistern --help` lists them", name);
    return usage_error(&err);
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_verb(int argc, char **argv)
{
    char help[] = "--help", *of_verb[] = {argv[1], help, NULL};
    const struct verb *v = find_verb(argv[1]);
    if (v) {
        int code = v->run(argc - 1, argv + 1);
        return v->works ? code : flush_output(code);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        puts("cistern " CISTERN_VERSION);
        return flush_output(EXIT_DONE);
    }
    bool wants_help = is_help(argv[1]);
    if (wants_help && argc > 2 && !is_help(argv[2])) {
        v = find_verb(argv[2]);
        of_verb[0] = argv[2];
        return v ? flush_output(v->run(2, of_verb)) : unknown_verb(argv[2]);
    }
    if (wants_help) {
        print_help(stdout);
        return flush_output(EXIT_DONE);
    }
    return unknown_verb(argv[1]);
}

/* If one of the three is closed, the next file that is opened would receive our output. */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    fd_close(&fd);
}

static char page_lost_line[ERR_LINE_MAX + 16]; /* a signal handler cannot format it */

static void catalog_page_lost(int)
{
    (void)!write(STDERR_FILENO, page_lost_line, strlen(page_lost_line));
    _exit(EXIT_ENVIRONMENT);
}

/* Catalogs are mapped: SIGBUS means that a page cannot be read, or that the file was truncated. */
static void catch_lost_pages(void)
{
    struct err err;
    char line[ERR_LINE_MAX];
    err_set(&err, ERR_IO, "catalog: cannot read a page: the disk failed or the file was truncated");
    err_advise(&err, CIS_CATALOG_PAGE_UNREADABLE);
    snprintf(page_lost_line, sizeof page_lost_line, "cistern: %s\n", err_line(&err, line, sizeof line));
    signal(SIGBUS, catalog_page_lost);
}

int main(int argc, char **argv)
{
    struct err err;
    seal_process(); /* the environment may hold keys */
    open_standard_streams();
    catch_lost_pages();
    signal(SIGXFSZ, SIG_IGN); /* write() then fails with EFBIG */
    web_keep_heap();
    setlocale(LC_CTYPE, "C.UTF-8");
    if (opt_parse(global_opts, NULL, true, &argc, argv, &err) < 0)
        return usage_error(&err);
    if (globals.log_level_text && log_level_parse(str_of(globals.log_level_text), &globals.log_level, &err) < 0)
        return usage_error(&err);
    if (globals.verbose && !globals.log_level_text)
        globals.log_level = LOG_INFO;
    globals.no_progress |= globals.log_level < LOG_WARN; /* live lines would overwrite the log */
    log_setup(STDERR_FILENO, globals.log_level, globals.json ? LOG_JSON : LOG_TEXT);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    return run_verb(argc, argv);
}
