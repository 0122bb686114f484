/* SPDX-License-Identifier: Apache-2.0 */
#include "cisternd.h"
#include "proto/csi.pb-c.h"
#include "rpc/client.h"
#include "util/clock.h"
#include "util/log.h"
#include "volume/space.h"
#include <stdio.h>
#include <unistd.h>

#define PROBE_NS (3 * NS_PER_SECOND) /* below the liveness probe's timeoutSeconds */

/* "name=/path", or "/path" for the pool `default`, and options behind. */
static int parse_pool(const char *text, char (*name)[64], char (*path)[PATH_MAX], struct driver_pool *ret,
                      struct err *err)
{
    const char *equals = strchr(text, '=');
    struct str given = equals && text[0] != '/' ? (struct str){text, (size_t)(equals - text)} : STR("default");
    struct space_place place;
    if (given.len == 0 || given.len >= sizeof *name)
        return err_set(err, ERR_INVALID, "--pool '%s' is not [NAME=]DIR[,OPTION...]", text);
    int r = space_place_parse(equals && text[0] != '/' ? equals + 1 : text, &place, err);
    if (r < 0)
        return err_wrap(err, "--pool '%s'", text);
    snprintf(*name, sizeof *name, "%.*s", STR_FMT(given));
    memcpy(*path, place.path, sizeof *path);
    *ret = (struct driver_pool){
        .name = *name, .path = *path, .require_mount = place.require_mount, .is_ephemeral = place.is_ephemeral};
    return 0;
}

int parse_forgotten(char **ret, struct err *err)
{
    auto_sbuf b;
    sbuf_init(&b, OPT_LIST_MAX * (SPEC_UUID_LEN + 1) + 1);
    for (size_t i = 0; i < flags.forgotten.count; i++) {
        const char *uuid = flags.forgotten.items[i];
        if (!spec_uuid_is_valid(str_of(uuid)))
            return err_set(err, ERR_INVALID, "--forget-pool '%s' is no UUID of a pool: %d hexadecimal digits", uuid,
                           SPEC_UUID_LEN);
        sbuf_addf(&b, "%s%s", i ? "," : "", uuid);
    }
    return sbuf_take(&b, ret, err);
}

const char *memory_folder(void)
{
    struct str state = str_of(flags.state);
    bool is_emptied = str_starts(state, STR("/run/")) || str_starts(state, STR("/var/run/"));
    return is_emptied ? "/var/lib/cistern" : flags.state;
}

int parse_pools(struct pools *ret, struct err *err)
{
    for (size_t i = 0; i < flags.pools.count; i++) {
        int r = parse_pool(flags.pools.items[i], &ret->names[i], &ret->paths[i], &ret->items[i], err);
        if (r < 0)
            return r;
        for (size_t k = 0; k < i; k++)
            if (strcmp(ret->names[k], ret->names[i]) == 0)
                return err_set(err, ERR_INVALID, "--pool: two pools have the name '%s'", ret->names[i]);
    }
    return 0;
}

int own_folder(char *buf, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", buf, size - 1);
    if (n < 0)
        return err_sys(err, errno, "cannot read '/proc/self/exe'");
    buf[n] = '\0';
    *strrchr(buf, '/') = '\0';
    return 0;
}

bool socket_answers(struct sbuf *why)
{
    Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct err err;
    int status;
    auto_rpc_client client = rpc_client_new(endpoint_path());
    int r = rpc_call(client, "/csi.v1.Identity/Probe", &request.base, &csi__v1__probe_response__descriptor, PROBE_NS,
                     &reply, &status, &err);
    if (r == 0) {
        protobuf_c_message_free_unpacked(reply, NULL);
        return true;
    }
    log_err(LOG_WARN, "liveness: Identity.Probe failed on our own socket", &err, "endpoint", flags.endpoint, NULL);
    sbuf_addf(why, "Identity.Probe failed on '%s': %s", endpoint_path(), err.text);
    return false;
}

static bool is_alive(void *ctx, struct sbuf *why)
{
    (void)ctx;
    return socket_answers(why);
}

int start_metrics(struct serve_options o, struct serve **ret, struct err *err)
{
    o.listen = flags.metrics;
    if (!o.is_healthy)
        o.is_healthy = is_alive;
    int r = flags.metrics ? serve_start(&o, ret, err) : 0;
    if (r == 0 && flags.metrics)
        log_event(LOG_INFO, "metrics are served", "port", log_u64(serve_port(*ret)), NULL);
    return r < 0 ? err_wrap(err, "--metrics") : 0;
}

const char *endpoint_path(void)
{
    return flags.endpoint + strlen("unix://");
}

void wait_for_signal(const sigset_t *signals)
{
    int signal;
    while (sigwait(signals, &signal) != 0)
        ;
    log_event(LOG_INFO, "stopping", "signal", log_u64((uint64_t)signal), NULL);
}
