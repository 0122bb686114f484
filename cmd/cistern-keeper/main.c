/* SPDX-License-Identifier: Apache-2.0 */
/* cistern-keeper - Holds the mounts across restarts of cisternd. */
#include "keeper/keeper.h"
#include "util/log.h"
#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "Usage: cistern-keeper [--socket PATH] [--mount-program FILE] [--log-level LEVEL] [--json]\n"
    "       cistern-keeper --probe [--socket PATH]\n\n"
    "Holds the /dev/fuse descriptors of this node's mounts, and restarts a mount process that crashes.\n"
    "Takes over from a keeper on the same socket. Ends at SIGTERM, after up to 20 s in which cisternd\n"
    "may connect: mounts survive if it holds duplicates of their descriptors.\n\n"
    "  cistern-keeper\n"
    "  cistern-keeper --socket /run/cistern/keeper.sock --log-level debug\n"
    "  cistern-keeper --probe\n\n"
    "  --socket PATH         listen on this socket (" KEEPER_SOCKET ")\n"
    "  --mount-program FILE  run this program for each mount (cistern-mount beside this program)\n"
    "  --log-level LEVEL     log from this level: debug, info, warn or error (info)\n"
    "  --json                log as JSON\n"
    "  --probe               only ask the keeper at the socket for its mounts: exits with 0 if it answers within 10 s\n"
    "  --help                print this help\n"
    "  --version             print the version\n";

static void on_event(const char *what, const char *volume_id, const struct err *why)
{
    if (why)
        log_err(LOG_WARN, what, why, "volume", volume_id, NULL);
    else
        log_event(LOG_INFO, what, "volume", volume_id, NULL);
}

/* -1 to go on, else the status to end with. */
static int parse(int argc, char **argv, struct keeper_options *o, bool *ret_probe)
{
    static const struct option flags[] = {
        {"socket", required_argument, NULL, 's'},    {"mount-program", required_argument, NULL, 'm'},
        {"log-level", required_argument, NULL, 'l'}, {"json", no_argument, NULL, 'j'},
        {"probe", no_argument, NULL, 'p'},           {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},         {0}};
    enum log_level level = LOG_INFO;
    enum log_form form = LOG_TEXT;
    for (int c; (c = getopt_long(argc, argv, "h", flags, NULL)) >= 0;) {
        if (c == 's')
            o->socket = optarg;
        else if (c == 'm')
            o->program = optarg;
        else if (c == 'j')
            form = LOG_JSON;
        else if (c == 'p')
            *ret_probe = true;
        else if (c == 'h')
            return puts(usage) < 0;
        else if (c == 'v')
            return puts("cistern-keeper " CISTERN_VERSION) < 0;
        else if (c != 'l' || log_level_parse(str_of(optarg), &level, ERR_IGNORED) < 0)
            return fputs(usage, stderr), 2;
    }
    if (optind < argc)
        return fputs(usage, stderr), 2;
    log_setup(STDERR_FILENO, level, form);
    return -1;
}

static int ask_keeper(const char *socket)
{
    struct err err;
    if (keeper_list(socket, NULL, NULL, &err) == 0)
        return 0;
    log_err(LOG_ERROR, "the keeper does not answer", &err, "socket", socket, NULL);
    return 10;
}

int main(int argc, char **argv)
{
    struct err err;
    bool probe = false;
    struct keeper_options o = {.socket = KEEPER_SOCKET, .ready_fd = -1, .take_over = true, .event = on_event};
    int status = parse(argc, argv, &o, &probe);
    if (status >= 0)
        return status;
    if (probe)
        return ask_keeper(o.socket);
    if (keeper_run(&o, &err) < 0) {
        log_err(LOG_ERROR, "the keeper cannot run", &err, "socket", o.socket, NULL);
        return 10;
    }
    return 0;
}
