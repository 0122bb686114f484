/* SPDX-License-Identifier: Apache-2.0 */
#include "cisternd.h"
#include "csi/service.h"
#include "io/loop.h"
#include "pool/local_disks.h"
#include "pool/pool.h"
#include "proto/csi.pb-c.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <stdio.h>
#include <sys/stat.h>

#define PROBE_NS (3 * NS_PER_SECOND) /* below the liveness probe's timeoutSeconds */

struct daemon_flags flags = {
    .role = "standalone",
    .endpoint = "unix:///run/cistern/csi.sock",
    .state = "/run/cistern",
    .log_format = "text",
    .log_level = "info",
    .reserve_percent = 5,
    .metrics_interval_ns = 5 * NS_PER_SECOND,
    .controller = {
        .node_account = "cistern-node",
        .job = {.account = "cistern-job", .requests_cpu = "100m", .requests_memory = "64Mi", .limits_memory = "512Mi"},
        .require_opt_in = true,
        .job_ttl_seconds = 3600,
        .job_backoff_limit = 0}};

/* ---- --pool ------------------------------------------------------------------------------------------------------ */

struct pool_flags {
    char names[DRIVER_POOLS_MAX][64];
    char paths[DRIVER_POOLS_MAX][PATH_MAX];
    struct driver_pool items[DRIVER_POOLS_MAX];
};

/* "name=/path", or "/path" for the default pool, followed by options. */
static int parse_pool(const char *text, char (*name)[64], char (*path)[PATH_MAX], struct driver_pool *ret,
                      struct err *err)
{
    const char *equals = strchr(text, '=');
    struct str given = equals && text[0] != '/' ? (struct str){text, (size_t)(equals - text)} : STR(NAME_POOL_DEFAULT);
    struct pool_place place;
    if (given.len == 0 || given.len >= sizeof *name)
        return err_set(err, ERR_INVALID, "--pool '%s' is not [NAME=]DIR[,OPTION...]", text);
    int r = pool_place_parse(equals && text[0] != '/' ? equals + 1 : text, &place, err);
    if (r < 0)
        return err_wrap(err, "--pool '%s'", text);
    snprintf(*name, sizeof *name, "%.*s", STR_FMT(given));
    memcpy(*path, place.path, sizeof *path);
    *ret = (struct driver_pool){
        .name = *name, .path = *path, .require_mount = place.require_mount, .is_ephemeral = place.is_ephemeral};
    return 0;
}

/* The UUIDs of --forget-pool, as driver_options have them; the caller frees. */
static int parse_forgotten(char **ret, struct err *err)
{
    auto_sbuf b = SBUF(OPT_LIST_MAX * (SPEC_UUID_LEN + 1) + 1);
    for (size_t i = 0; i < flags.forgotten.count; i++) {
        const char *uuid = flags.forgotten.items[i];
        if (!spec_uuid_is_valid(str_of(uuid)))
            return err_set(err, ERR_INVALID, "--forget-pool '%s': not a pool's UUID: it has %d hexadecimal digits",
                           uuid, SPEC_UUID_LEN);
        sbuf_addf(&b, "%s%s", i ? "," : "", uuid);
    }
    return sbuf_take(&b, ret, err);
}

/* The directory for records of pools: --state, unless a reboot empties it. */
static const char *pool_records_dir(void)
{
    struct str state = str_of(flags.state);
    bool is_emptied = str_starts(state, STR("/run/")) || str_starts(state, STR("/var/run/"));
    return is_emptied ? "/var/lib/cistern" : flags.state;
}

static int parse_pools(struct pool_flags *ret, struct err *err)
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

/* ---- --disks: which disks of the node are which pool ------------------------------------------------------------- */

/* The caller parses it once; the driver borrows it until the end. */
static struct disk_flags {
    const char *models[OPT_LIST_MAX], *names[OPT_LIST_MAX], *wipe[OPT_LIST_MAX];
    char pool[64];
    struct local_disks_wanted wish;
} wanted[DRIVER_POOLS_MAX];

/* "model:PATTERN", "path:/dev/NAME", "wipe:SERIAL", "device:/dev/disk/by-partlabel/NAME" */
static int add(struct disk_flags *w, const char *text, struct err *err)
{
    struct local_disks_wanted *d = &w->wish;
    const char *path = "path:/dev/", *device = "device:/dev/";
    if (strncmp(text, "model:", 6) == 0 && text[6])
        w->models[d->model_count++] = text + 6;
    else if (strncmp(text, path, strlen(path)) == 0 && text[strlen(path)])
        w->names[d->name_count++] = text + strlen(path);
    else if (strncmp(text, "wipe:", 5) == 0 && text[5])
        w->wipe[d->wipe_count++] = text + 5;
    else if (strncmp(text, device, strlen(device)) == 0 && text[strlen(device)])
        d->device = text + strlen("device:");
    else
        return err_set(err, ERR_INVALID,
                       "--disks: '%s' is not model:PATTERN, path:/dev/NAME, wipe:SERIAL or device:/dev/NAME", text);
    if (d->device && d->model_count + d->name_count + d->wipe_count > 0)
        return err_set(err, ERR_INVALID, "--disks: pool '%s' has a device, and model, path or wipe", w->pool);
    return 0;
}

static int gather(struct disk_flags *w, struct err *err)
{
    size_t len = strlen(w->pool);
    w->wish = (struct local_disks_wanted){.pool = w->pool, .models = w->models, .names = w->names, .wipe = w->wipe};
    for (size_t i = 0; i < flags.disks.count; i++) {
        const char *item = flags.disks.items[i];
        if (strncmp(item, w->pool, len) != 0 || item[len] != '=')
            continue;
        int r = add(w, item + len + 1, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool has_pool(const struct pool_flags *pools, const char *item)
{
    const char *equals = strchr(item, '=');
    for (size_t i = 0; equals && i < flags.pools.count; i++)
        if (strlen(pools->names[i]) == (size_t)(equals - item) &&
            strncmp(pools->names[i], item, (size_t)(equals - item)) == 0)
            return true;
    return false;
}

static int parse_disks(struct pool_flags *pools, struct err *err)
{
    for (size_t i = 0; i < flags.disks.count; i++)
        if (!has_pool(pools, flags.disks.items[i]))
            return err_set(err, ERR_INVALID, "--disks '%s' is not POOL=... of a pool given with --pool",
                           flags.disks.items[i]);
    for (size_t i = 0; i < flags.pools.count; i++) {
        struct disk_flags *w = &wanted[i];
        snprintf(w->pool, sizeof w->pool, "%s", pools->names[i]);
        int r = gather(w, err);
        if (r < 0)
            return r;
        if (w->wish.model_count + w->wish.name_count > 0 || w->wish.device)
            pools->items[i].disks = &w->wish;
    }
    return 0;
}

/* ---- opening the parts of several roles -------------------------------------------------------------------------- */

int open_driver(struct driver_options o, struct driver **ret, struct err *err)
{
    struct pool_flags pools;
    auto_mem char *forgotten = NULL;
    int r = parse_pools(&pools, err);
    if (r == 0)
        r = parse_forgotten(&forgotten, err);
    if (r == 0 && o.is_node)
        r = parse_disks(&pools, err);
    if (r == 0 && mkdir(flags.state, 0700) != 0 && errno != EEXIST)
        r = err_sys(err, errno, "cannot make the directory '%s'", flags.state);
    if (r < 0)
        return r;
    o.state_directory = flags.state;
    o.memory = pool_records_dir();
    o.given_up = forgotten;
    o.reserve_percent = (unsigned)flags.reserve_percent;
    o.metrics_ns = flags.metrics ? flags.metrics_interval_ns : 0;
    o.pools = pools.items;
    o.pool_count = flags.pools.count;
    return driver_open(&o, ret, err);
}

int serve_csi(struct csi_service *csi,
              void (*answered)(void *ctx, const char *path, const struct err *err, uint64_t took_ns),
              void *answered_ctx, struct rpc_server **ret, struct err *err)
{
    struct rpc_options o = {.socket_path = endpoint_path(),
                            .driver_name = NAME_DRIVER,
                            .threads = (unsigned)flags.threads,
                            .methods = csi->methods,
                            .method_count = csi->method_count,
                            .ctx = csi,
                            .answered = answered,
                            .answered_ctx = answered_ctx};
    return rpc_server_start(&o, ret, err);
}

#define LOOP_STUCK_NS (60 * NS_PER_SECOND) /* no turn of a healthy loop lasts as long */

/* Calls Identity.Probe on the CSI socket, as the kubelet does. */
static bool socket_answers(struct sbuf *why)
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

/* Unhealthy only if a restart of this process helps. It does not help if the API server is down. If the keeper is down,
 * this process holds the only copy of the mounts' descriptors, and a restart would lose them. */
static bool is_alive(void *, struct sbuf *why)
{
    char stuck[LOOP_NAME_MAX];
    if (!socket_answers(why))
        return false;
    if (!loop_find_stuck(LOOP_STUCK_NS, stuck))
        return true;
    sbuf_addf(why, "the thread '%s' is stuck", stuck);
    return false;
}

int start_metrics(struct http_server_options o, struct http_server **ret, struct err *err)
{
    o.listen = flags.metrics;
    o.is_healthy = is_alive;
    int r = flags.metrics ? http_server_start(&o, ret, err) : 0;
    if (r == 0 && flags.metrics)
        log_event(LOG_INFO, "metrics are served", "port", log_u64(http_server_port(*ret)), NULL);
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
