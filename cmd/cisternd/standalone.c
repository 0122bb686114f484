/* SPDX-License-Identifier: Apache-2.0 */
/* --role=standalone: CSI for the volumes of one machine, without Kubernetes. */
#include "cisternd.h"
#include "csi/service.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/log.h"
#include <limits.h>
#include <unistd.h>

static int serve(struct driver *d, const sigset_t *signals, struct err *err)
{
    struct rpc_server *server;
    auto_http_server metrics = NULL;
    int r = start_metrics((struct http_server_options){0}, &metrics, err);
    if (r == 0)
        r = serve_csi(driver_service(d), csi_log_call, NULL, &server, err);
    if (r < 0)
        return r;
    log_event(LOG_INFO, "serving", "endpoint", flags.endpoint, "version", CISTERN_VERSION, NULL);
    wait_for_signal(signals);
    rpc_server_stop(server, SERVE_GRACE_NS);
    rpc_server_free(server);
    return 0;
}

int role_standalone(const sigset_t *signals, struct err *err)
{
    char host[64] = "", programs[PATH_MAX];
    struct driver *d;
    gethostname(host, sizeof host - 1);
    int r = program_path("", programs, sizeof programs, err);
    if (r == 0)
        r = open_driver((struct driver_options){.node_id = flags.node_id ? flags.node_id : host,
                                                .programs = flags.programs ? flags.programs : programs},
                        &d, err);
    if (r < 0)
        return r;
    r = serve(d, signals, err);
    driver_close(d);
    return r;
}
