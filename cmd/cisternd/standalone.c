/* SPDX-License-Identifier: Apache-2.0 */
/* --role=standalone: CSI for the volumes of one machine, without any Kubernetes. */
#include "cisternd.h"
#include "contract/request.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRACE_NS (10 * NS_PER_SECOND)

static int serve(struct driver *d, const sigset_t *signals, struct err *err)
{
    struct rpc_server *server;
    auto_serve metrics = NULL;
    struct rpc_options o = {.socket_path = endpoint_path(),
                            .driver_name = NAME_DRIVER,
                            .threads = (unsigned)flags.threads,
                            .ctx = d,
                            .answered = call_answered};
    o.methods = driver_methods(d, &o.method_count);
    int r = start_metrics((struct serve_options){0}, &metrics, err);
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

int role_standalone(const sigset_t *signals, struct err *err)
{
    char host[64] = "", programs[PATH_MAX];
    struct pools pools;
    struct driver *d;
    gethostname(host, sizeof host - 1);
    auto_mem char *forgotten = NULL;
    int r = parse_pools(&pools, err);
    if (r == 0)
        r = parse_forgotten(&forgotten, err);
    if (r == 0)
        r = own_folder(programs, sizeof programs, err);
    if (r == 0 && mkdir(flags.state, 0700) != 0 && errno != EEXIST)
        r = err_sys(err, errno, "cannot make the folder '%s'", flags.state);
    if (r < 0)
        return r;
    struct driver_options o = {.node_id = flags.node_id ? flags.node_id : host,
                               .state_folder = flags.state,
                               .memory = memory_folder(),
                               .given_up = forgotten,
                               .programs = flags.programs ? flags.programs : programs,
                               .reserve_percent = (unsigned)flags.reserve_percent,
                               .gauges_ns = flags.metrics ? flags.metrics_interval_ns : 0,
                               .pools = pools.items,
                               .pool_count = flags.pools.count};
    r = driver_open(&o, &d, err);
    if (r < 0)
        return r;
    r = serve(d, signals, err);
    driver_close(d);
    return r;
}
