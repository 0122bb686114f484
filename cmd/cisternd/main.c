/* SPDX-License-Identifier: Apache-2.0 */
/* cisternd - the driver. --role=standalone: CSI for the volumes of one machine, without any Kubernetes. */
#include "cli/opt.h"
#include "csi/service.h"
#include "http/serve.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

enum { EXIT_USAGE = 2, EXIT_ENVIRONMENT = 10 };

#define GRACE_NS (10 * NS_PER_SECOND)

static struct flags {
    const char *role, *endpoint, *node_id, *state, *metrics, *log_format, *log_level, *programs;
    struct opt_list pools;
    uint64_t reserve_percent, threads;
    bool help, version;
} flags = {.role = "standalone",
           .endpoint = "unix:///run/cistern/csi.sock",
           .state = "/run/cistern",
           .log_format = "text",
           .log_level = "info",
           .reserve_percent = 5};

static const struct opt table[] = {
    {"role", 0, OPT_TEXT, &flags.role, "ROLE", "standalone (node and controller are for Kubernetes)"},
    {"endpoint", 0, OPT_TEXT, &flags.endpoint, "URL", "unix:///PATH of the CSI socket"},
    {"pool", 0, OPT_LIST, &flags.pools, "[NAME=]DIR", "a folder for volumes; may be given again; NAME is 'default'"},
    {"node-id", 0, OPT_TEXT, &flags.node_id, "NAME", "of this machine; its host name"},
    {"state", 0, OPT_TEXT, &flags.state, "DIR", "for sockets; may be lost at a reboot"},
    {"metrics", 0, OPT_TEXT, &flags.metrics, "ADDR:PORT", "serve /metrics and /healthz there"},
    {"programs", 0, OPT_TEXT, &flags.programs, "DIR", "where cistern and cistern-keeper are; beside cisternd"},
    {"reserve-percent", 0, OPT_U64, &flags.reserve_percent, "N", "of a pool's disk, never given to volumes; 5"},
    {"threads", 0, OPT_U64, &flags.threads, "N", "calls served at once; 32"},
    {"log-format", 0, OPT_TEXT, &flags.log_format, "FORM", "text or json"},
    {"log-level", 0, OPT_TEXT, &flags.log_level, "LEVEL", "debug, info, warn or error"},
    {"help", 'h', OPT_FLAG, &flags.help, NULL, "this text"},
    {"version", 0, OPT_FLAG, &flags.version, NULL, "the version"},
    {0},
};

static int fail(const struct err *err, int code)
{
    char line[ERR_LINE_MAX];
    fprintf(stderr, "cisternd: %s\n", err_line(err, line, sizeof line));
    return code;
}

static void print_help(void)
{
    auto_sbuf b;
    sbuf_init(&b, 16384);
    sbuf_adds(&b, "Usage: cisternd --pool DIR [flags]\n\nServes CSI for the volumes of this machine.\n\n");
    opt_help(table, &b);
    fputs(b.ptr, stdout);
}

/* ---- flags to options -------------------------------------------------------------------------------------------- */

static int parse_log(struct err *err)
{
    enum log_level level;
    int r = log_level_parse(str_of(flags.log_level), &level, err);
    if (r < 0)
        return r;
    bool json = strcmp(flags.log_format, "json") == 0;
    if (!json && strcmp(flags.log_format, "text") != 0)
        return err_set(err, ERR_INVALID, "--log-format is text or json, not '%s'", flags.log_format);
    log_setup(STDERR_FILENO, level, json ? LOG_JSON : LOG_TEXT);
    return 0;
}

static int parse_flags(int argc, char **argv, struct err *err)
{
    int r = opt_parse(table, false, &argc, argv, err);
    if (r < 0 || flags.help || flags.version)
        return r;
    if (argc > 1)
        return err_set(err, ERR_INVALID, "what is '%s'? There are only flags here", argv[1]);
    if (strcmp(flags.role, "standalone") != 0)
        return err_set(err, ERR_INVALID, "--role is standalone, not '%s'", flags.role);
    if (strncmp(flags.endpoint, "unix://", 7) != 0)
        return err_set(err, ERR_INVALID, "--endpoint '%s' is not unix:///PATH", flags.endpoint);
    if (flags.pools.count == 0 || flags.pools.count > DRIVER_POOLS_MAX)
        return err_set(err, ERR_INVALID, "--pool must be given once at least, and %d times at most", DRIVER_POOLS_MAX);
    if (flags.reserve_percent > 90 || flags.threads > RPC_THREADS_MAX)
        return err_set(err, ERR_INVALID, "--reserve-percent is 0 to 90, --threads 1 to %d", RPC_THREADS_MAX);
    return parse_log(err);
}

/* "name=/path", or "/path" for the pool `default`. */
static int parse_pool(const char *text, char (*name)[64], struct driver_pool *ret, struct err *err)
{
    const char *equals = strchr(text, '=');
    struct str given = equals && text[0] != '/' ? (struct str){text, (size_t)(equals - text)} : STR("default");
    const char *path = equals && text[0] != '/' ? equals + 1 : text;
    if (given.len == 0 || given.len >= sizeof *name || path[0] != '/')
        return err_set(err, ERR_INVALID, "--pool '%s' is not [NAME=]DIR with an absolute DIR", text);
    snprintf(*name, sizeof *name, "%.*s", STR_FMT(given));
    *ret = (struct driver_pool){.name = *name, .path = path};
    return 0;
}

static int parse_pools(char (*names)[64], struct driver_pool *ret, struct err *err)
{
    for (size_t i = 0; i < flags.pools.count; i++) {
        int r = parse_pool(flags.pools.items[i], &names[i], &ret[i], err);
        if (r < 0)
            return r;
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0)
                return err_set(err, ERR_INVALID, "--pool: two pools have the name '%s'", names[i]);
    }
    return 0;
}

/* The folder that this program is in. */
static int own_folder(char *buf, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", buf, size - 1);
    if (n < 0)
        return err_sys(err, errno, "cannot read '/proc/self/exe'");
    buf[n] = '\0';
    *strrchr(buf, '/') = '\0';
    return 0;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void wait_for_signal(const sigset_t *signals)
{
    int signal;
    while (sigwait(signals, &signal) != 0)
        ;
    log_event(LOG_INFO, "stopping", "signal", log_u64((uint64_t)signal), NULL);
}

static int start_metrics(struct serve **ret, struct err *err)
{
    struct serve_options o = {.listen = flags.metrics};
    int r = flags.metrics ? serve_start(&o, ret, err) : 0;
    if (r == 0 && flags.metrics)
        log_event(LOG_INFO, "metrics are served", "port", log_u64(serve_port(*ret)), NULL);
    return r < 0 ? err_wrap(err, "--metrics") : 0;
}

static int serve(struct driver *d, const sigset_t *signals, struct err *err)
{
    struct rpc_server *server;
    auto_serve metrics = NULL;
    struct rpc_options o = {.socket_path = flags.endpoint + 7,
                            .driver_name = NAME_DRIVER,
                            .threads = (unsigned)flags.threads,
                            .ctx = d,
                            .answered = driver_answered};
    o.methods = driver_methods(&o.method_count);
    int r = start_metrics(&metrics, err);
    if (r == 0)
        r = rpc_server_start(&o, &server, err);
    if (r < 0)
        return r;
    log_event(LOG_INFO, "serving", "endpoint", flags.endpoint, "version", CISTERN_VERSION, NULL);
    wait_for_signal(signals);
    rpc_server_stop(server, GRACE_NS);
    rpc_server_free(server);
    return 0;
}

static int run(const sigset_t *signals, struct err *err)
{
    char names[DRIVER_POOLS_MAX][64], host[64] = "", programs[PATH_MAX];
    struct driver_pool pools[DRIVER_POOLS_MAX];
    struct driver *d;
    gethostname(host, sizeof host - 1);
    int r = parse_pools(names, pools, err);
    if (r == 0)
        r = own_folder(programs, sizeof programs, err);
    if (r == 0 && mkdir(flags.state, 0700) != 0 && errno != EEXIST)
        r = err_sys(err, errno, "cannot make the folder '%s'", flags.state);
    if (r < 0)
        return r;
    struct driver_options o = {.node_id = flags.node_id ? flags.node_id : host,
                               .state_folder = flags.state,
                               .programs = flags.programs ? flags.programs : programs,
                               .reserve_percent = (unsigned)flags.reserve_percent,
                               .has_gauges = flags.metrics != NULL,
                               .pools = pools,
                               .pool_count = flags.pools.count};
    r = driver_open(&o, &d, err);
    if (r < 0)
        return r;
    r = serve(d, signals, err);
    driver_close(d);
    return r;
}

int main(int argc, char **argv)
{
    struct err err;
    sigset_t signals;
    if (parse_flags(argc, argv, &err) < 0)
        return fail(&err, EXIT_USAGE);
    if (flags.help || flags.version) {
        flags.help ? print_help() : (void)puts(CISTERN_VERSION);
        return 0;
    }
    /* Before the first thread, so that all of them leave these to us. A child that ends is told by its descriptor. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    return run(&signals, &err) < 0 ? fail(&err, EXIT_ENVIRONMENT) : 0;
}
