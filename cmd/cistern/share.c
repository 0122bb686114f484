/* SPDX-License-Identifier: Apache-2.0 */
#include "cistern.h"
#include "cli/exit.h"
#include "pool/volume.h"
#include "util/clock.h"
#include "util/uri.h"
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

struct globals globals = {.log_level = LOG_WARN};

const struct opt global_opts[] = {
    {"json", 0, OPT_FLAG, &globals.json, NULL, "print one JSON object per line on stdout"},
    {"quiet", 'q', OPT_FLAG, &globals.quiet, NULL, "print errors only"},
    {"verbose", 'v', OPT_FLAG, &globals.verbose, NULL, "log retries and other events, as --log-level info does"},
    {"no-progress", 0, OPT_FLAG, &globals.no_progress, NULL, "hide progress (default where stderr is not a terminal)"},
    {"log-level", 0, OPT_TEXT, &globals.log_level_text, "LEVEL",
     "log from this level: debug (each request), info (retries), warn or error (warn)"},
    {"retries", 0, OPT_U64, &globals.retries, "N", "try each request at most N times (8)", .least = 1, .most = 1000},
    {"timeout", 0, OPT_DURATION, &globals.timeout_ns, "TIME", "retry temporary errors for at most this long (30m)",
     .least = 1},
    {"stall", 0, OPT_DURATION, &globals.stall_ns, "TIME",
     "retry a request that received almost nothing for this long (30s, at most --timeout)", .least = 1},
    {"endpoint", 0, OPT_TEXT, &globals.endpoint, "URL",
     "connect to this S3-compatible or GCS-compatible store (the vendor's)", .least = 1},
    {"region", 0, OPT_TEXT, &globals.region, "NAME", "use this bucket region (from the environment or profile)",
     .least = 1},
    {"profile", 0, OPT_TEXT, &globals.profile, "NAME",
     "use this profile of ~/.aws/config and ~/.aws/credentials (default)", .least = 1},
    {"ca-file", 0, OPT_TEXT, &globals.ca_file, "FILE", "trust these CA certificates instead of the system's",
     .least = 1},
    {"anonymous", 0, OPT_FLAG, &globals.anonymous, NULL, "send no credentials, for public buckets"},
    {"requester-pays", 0, OPT_FLAG, &globals.requester_pays, NULL,
     "accept the costs of requests to a requester-pays bucket (s3://)"},
    {"billing-project", 0, OPT_TEXT, &globals.billing_project, "PROJECT",
     "bill this project for requests to a requester-pays bucket (gs://)", .least = 1},
    {"path-style", 0, OPT_FLAG, &globals.path_style, NULL, "put the bucket into the URL path instead of the host name"},
    /* Names of these verbs in other tools. */
    {"endpoint-url", 0, OPT_TEXT, &globals.endpoint, "URL", NULL, .least = 1},
    {"no-sign-request", 0, OPT_FLAG, &globals.anonymous, NULL, NULL},
    {0},
};

/* ---- flags ------------------------------------------------------------------------------------------------------- */

int usage_error(const struct err *err)
{
    fprintf(stderr, "cistern: %s\n", err->text);
    return EXIT_USAGE;
}

int check_volume_flags(const struct opt *table, const char *const *taken, struct err *err)
{
    static const char why[] = "is not for --volume: a volume is copied as its volume.json specifies; remove the flag";
    if (globals.retries || globals.timeout_ns)
        return err_set(err, ERR_INVALID, "--%s %s", globals.retries ? "retries" : "timeout", why);
    return opt_refuse_others(table, taken, why, err);
}

int filter_fill(struct filter *f, const char *const *include, size_t include_count, const char *const *exclude,
                size_t exclude_count, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < include_count && r == 0; i++)
        r = filter_add(f, false, str_of(include[i]), err);
    for (size_t i = 0; i < exclude_count && r == 0; i++)
        r = filter_add(f, true, str_of(exclude[i]), err);
    return r;
}

int check_dir_argument(const char *dir, const char *from, const char *to, struct err *err)
{
    if (dir[0] == '~' && (dir[1] == '/' || dir[1] == '\0'))
        return err_set(err, ERR_INVALID,
                       "'%s': the shell did not expand '~', as inside quotes: write \"$HOME%s\", or ./%s", dir, dir + 1,
                       dir);
    if (dir[0] == '\0')
        return err_set(err, ERR_INVALID, "DIR is empty, as when a variable is not set: write the path of a directory");
    if (dir[strspn(dir, "/")] == '\0')
        return err_set(
            err, ERR_INVALID,
            "'%s' is the root directory, as when a variable before the slash is not set: write the path of a "
            "directory below it",
            dir);
    if (strcmp(dir, "-") == 0)
        return err_set(err, ERR_INVALID,
                       "'-' is not a directory, and nothing is copied from stdin or to stdout: write the path of a "
                       "directory, or ./-");
    if (isalpha((unsigned char)dir[0]) && dir[1] == ':' && dir[2] == '\\')
        return err_set(err, ERR_INVALID, "'%s' is a Windows path: write a path of this system, or ./%s", dir, dir);
    if (!strstr(dir, "://"))
        return 0;
    if (str_starts(str_of(dir), STR("file://")))
        return err_set(err, ERR_INVALID, "DIR is a path, and '%s' is a URI: write %s", dir, dir + strlen("file://"));
    return err_set(err, ERR_INVALID,
                   "DIR is a path, and '%s' is a URI; between two buckets: `cistern hydrate %s DIR`, then `cistern "
                   "export DIR %s`",
                   dir, from, to);
}

int check_export_ends(const char *dir, const char *uri, struct err *err)
{
    size_t len = strlen(uri);
    if (strstr(dir, "://") && !strstr(uri, "://"))
        return err_set(err, ERR_INVALID,
                       "export sends DIR to URI: `cistern export %s %s`; `cistern hydrate` is the way back", uri, dir);
    int r = check_dir_argument(dir, dir, uri, err);
    if (r < 0)
        return r;
    if (strchr(uri, '*'))
        return err_set(err, ERR_INVALID,
                       "'%s' has a wildcard: name the prefix that the keys begin with, and choose files with --include",
                       uri);
    if (len > 0 && uri[len - 1] == ' ')
        return err_set(err, ERR_INVALID, "'%s' ends with a blank: remove the blank from the end of the URI", uri);
    return 0;
}

int parse_choice(const char *flag, const char *text, const char *const *names, size_t count, unsigned *ret,
                 struct err *err)
{
    auto_sbuf list = SBUF(256);
    for (size_t i = 0; text && i < count; i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (unsigned)i;
            return 0;
        }
    if (!text)
        return 0;
    for (size_t i = 0; i < count; i++)
        sbuf_addf(&list, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    return err_set(err, ERR_INVALID, "%s is %s, not '%s'", flag, list.ptr, text);
}

int parse_since(const char *since, int64_t *ret, struct err *err)
{
    uint64_t ago_ns;
    *ret = INT64_MIN;
    if (!since)
        return 0;
    if (str_to_duration(str_of(since), &ago_ns, ERR_IGNORED) == 0) {
        *ret = clock_wall_ns() - (int64_t)min_u64(ago_ns, INT64_MAX);
        return 0;
    }
    if (time_parse(str_of(since), ret, ERR_IGNORED) < 0)
        return err_set(err, ERR_INVALID, "--since '%.100s': write a time as 2026-11-21T09:00:00Z, or an age as 2h",
                       since);
    if (*ret > clock_wall_ns())
        return err_set(err, ERR_INVALID,
                       "--since '%.100s': this time is in the future: correct it, or the clock of this machine", since);
    return 0;
}

/* Each kind of store has its own flag for the payer: the other one would be ignored. */
static int check_payer(int argc, char **argv, struct err *err)
{
    for (int i = 1; i < argc; i++) {
        const struct scheme *scheme = uri_split(str_of(argv[i])).scheme;
        if (!scheme || scheme->is_path)
            continue;
        if (globals.billing_project && !scheme->bills_project)
            return err_set(err, ERR_INVALID, "--billing-project has no effect with '%s': write --requester-pays",
                           argv[i]);
        if (globals.requester_pays && !globals.billing_project && scheme->bills_project)
            return err_set(err, ERR_INVALID,
                           "--requester-pays has no effect with '%s': write --billing-project PROJECT", argv[i]);
    }
    return 0;
}

int verb_begin(const struct opt *table, const char *usage, int *argc, char **argv)
{
    struct err err;
    for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            auto_sbuf b = SBUF(16384);
            sbuf_adds(&b, usage);
            opt_help(table, &b);
            sbuf_adds(&b, "\nFlags of all verbs, with (default):\n");
            opt_help(global_opts, &b);
            fputs(b.ptr, stdout);
            return EXIT_DONE;
        }
    int r = opt_parse(table, global_opts, false, argc, argv, &err);
    if (r == 0)
        r = check_payer(*argc, argv, &err);
    return r < 0 ? usage_error(&err) : -1;
}

sigset_t ending_signals(void)
{
    struct sigaction hangup;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&set, SIGHUP);
    return set;
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

uint64_t request_stall_ns(uint64_t usual_ns)
{
    uint64_t ns = globals.stall_ns ? globals.stall_ns : usual_ns;
    return globals.timeout_ns ? min_u64(ns, globals.timeout_ns) : ns;
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
        .billing = globals.billing_project  ? globals.billing_project
                   : globals.requester_pays ? ""
                                            : NULL,
        .auth = globals.anonymous ? STORE_AUTH_ANONYMOUS : STORE_AUTH_CHAIN,
        .retry = {.attempts_max = (unsigned)globals.retries, .elapsed_max_ns = globals.timeout_ns}};
}

struct store_retry store_retry_of(const struct spec_source *s)
{
    return (struct store_retry){.attempts_max = (unsigned)s->retry.attempts_max,
                                .elapsed_max_ns = s->retry.elapsed_max_ns,
                                .backoff_base_ns = s->retry.backoff_base_ns,
                                .backoff_cap_ns = s->retry.backoff_cap_ns};
}

const char *retry_text(struct store *const *stores, size_t count, char buf[RETRY_TEXT_MAX])
{
    for (size_t i = 0; i < count; i++)
        if (store_retrying(stores[i], buf, RETRY_TEXT_MAX))
            return buf;
    return NULL;
}

uint64_t retry_count(struct store *const *stores, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += store_retries(stores[i]);
    return sum;
}

static bool was_replaced(struct retry_reload *f)
{
    struct stat st;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" VOLUME_SPEC, f->volume_dir);
    if (stat(path, &st) != 0 ||
        (st.st_ino == f->inode && st.st_mtim.tv_sec == f->changed.tv_sec && st.st_mtim.tv_nsec == f->changed.tv_nsec))
        return false;
    f->inode = st.st_ino;
    f->changed = st.st_mtim;
    return true;
}

int open_named_volume(const char *directory, struct volume **ret, struct err *err)
{
    int r = volume_open(directory, ret, err);
    return r == -ERR_NOT_FOUND ? err_advise(err, CIS_VOLUME_DIRECTORY) : r;
}

void retry_reload(struct retry_reload *f, struct store *const *stores, size_t count)
{
    struct volume *v;
    uint64_t now_ns = clock_now_ns();
    if (!f->volume_dir || now_ns - f->looked_ns < NS_PER_SECOND)
        return;
    f->looked_ns = now_ns;
    if (!was_replaced(f) || volume_open(f->volume_dir, &v, ERR_IGNORED) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        store_set_retry(stores[i], store_retry_of(&v->spec->source));
    volume_close(v);
}
