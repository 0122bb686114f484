/* SPDX-License-Identifier: Apache-2.0 */
#include "export/verdict.h"
#include "io/ticker.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"

static bool export_was_cut_short(const struct volume *v)
{
    struct verdict verdict;
    if (!v->spec->export.uri.text)
        return false;
    verdict_init(&verdict);
    bool cut = verdict_read(v->dir, &verdict, ERR_IGNORED) == 0 && verdict.state == VERDICT_RUNNING;
    verdict_done(&verdict);
    return cut;
}

/* Jobs of an earlier driver may still run and are found by their lock; others are started again. */
static int resume_volume(struct driver *d, struct pool *p, const struct volume_id *id, struct err *err)
{
    struct driver_job_view view;
    auto_volume v = NULL;
    int r = pool_find_volume(p, id, &v, err);
    if (r < 0)
        return r;
    bool whole = volume_is_hydrated(v), cut = export_was_cut_short(v);
    if (!whole || cut)
        r = pool_attach_volume(p, id, err);
    if (r == 0 && !whole)
        r = driver_request_job(d, v, JOB_HYDRATE, false, &view, err);
    if (r == 0 && cut)
        r = driver_request_job(d, v, JOB_EXPORT_UNPUBLISH, false, &view, err);
    return r;
}

static void resume_one(struct driver *d, struct pool *p, const struct volume_id *id)
{
    struct err err;
    if (resume_volume(d, p, id, &err) < 0)
        log_err(LOG_WARN, "jobs of a volume cannot be resumed", &err, "volume", id->text, NULL);
}

static int resume_pool(struct driver *d, struct pool *p, struct err *err)
{
    size_t count;
    struct pool_entry *entries;
    int r = pool_list_volumes(p, &(struct volume_id){0}, SIZE_MAX, &entries, &count, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++)
        resume_one(d, p, &entries[i].volume_id);
    pool_entries_free(entries, count);
    return 0;
}

/* Logs an error that differs from the last one. Under .opening. */
static void log_open_failure(struct driver *d, const struct pool *p, const struct err *why)
{
    size_t i = 0;
    while (d->pools[i] != p)
        i++;
    if (strcmp(d->open_errors[i].text, why->text) != 0)
        log_err(LOG_ERROR, "pool cannot be opened: retrying", why, "pool", pool_name(p), "path", pool_path(p), NULL);
    d->open_errors[i] = *why;
}

static void after_open(struct driver *d, struct pool *p)
{
    struct err err;
    log_event(LOG_INFO, "pool opened", "pool", pool_name(p), "path", pool_path(p), "uuid", pool_uuid(p), "backend",
              spec_backend_name(pool_backend(p)), "why", pool_backend_why(p), NULL);
    if (pool_remember(p, &err) < 0)
        log_err(LOG_WARN, "pool identity not saved: a missing disk may not be detected later", &err, "pool",
                pool_name(p), NULL);
    if (d->jobs && resume_pool(d, p, &err) < 0)
        log_err(LOG_WARN, "jobs of a pool's volumes cannot be resumed", &err, "pool", pool_name(p), NULL);
    ticker_wake(d->trash);
}

int driver_open_pool(struct driver *d, struct pool *p, const struct pool_witness *w, struct err *err)
{
    pthread_mutex_lock(&d->opening);
    bool was_open = pool_is_open(p);
    int r = was_open ? 0 : pool_open(p, w, err);
    if (r < 0)
        log_open_failure(d, p, err);
    else if (!was_open)
        after_open(d, p);
    pthread_mutex_unlock(&d->opening);
    if (r == 0 && !was_open && d->changed)
        d->changed(d->ctx, NULL);
    return r;
}

#define OPEN_AGAIN_NS (2 * NS_PER_SECOND)
#define EMPTY_AGAIN_NS (60 * NS_PER_SECOND)

/* In the background: a million files take a while. Starts with the volumes of an earlier run. */
static uint64_t empty_trash(void *ctx)
{
    struct driver *d = ctx;
    struct err err;
    uint64_t rest_ns = TICKER_NEVER;
    for (size_t i = 0; i < d->pool_count; i++)
        if (pool_is_open(d->pools[i]) && pool_empty_trash(d->pools[i], &err) < 0) {
            log_err(LOG_WARN, "trash cannot be emptied", &err, "pool", pool_name(d->pools[i]), NULL);
            rest_ns = EMPTY_AGAIN_NS;
        }
    return rest_ns; /* after_open() and a deletion wake it */
}

/* Standalone, only the recorded pools show which pool belongs here; on a node the agent asks the API server. */
static uint64_t open_pools(void *ctx)
{
    static const struct pool_witness no_earlier_pool = {0};
    struct driver *d = ctx;
    uint64_t again_ns = TICKER_NEVER;
    for (size_t i = 0; i < d->pool_count; i++)
        if (driver_open_pool(d, d->pools[i], d->is_node ? NULL : &no_earlier_pool, ERR_IGNORED) < 0)
            again_ns = OPEN_AGAIN_NS;
    return again_ns;
}

static int make_pools(struct driver *d, const struct driver_options *o, struct err *err)
{
    d->open_errors = xcalloc(o->pool_count, sizeof *d->open_errors);
    for (size_t i = 0; i < o->pool_count; i++) {
        struct pool_options options = {.path = o->pools[i].path,
                                       .name = o->pools[i].name,
                                       .node = o->node_id,
                                       .memory = o->memory,
                                       .given_up = o->given_up,
                                       .require_mount = o->pools[i].require_mount,
                                       .is_ephemeral = o->pools[i].is_ephemeral,
                                       .disks = o->pools[i].disks,
                                       .in_cluster = o->is_node,
                                       .reserve_percent = o->reserve_percent};
        int r = pool_new(&options, &d->pools[d->pool_count], err);
        if (r < 0)
            return err_wrap(err, "pool '%s'", o->pools[i].name);
        d->pool_count++;
    }
    return 0;
}

static int start_parts(struct driver *d, uint64_t metrics_ns, struct err *err)
{
    auto_sbuf program = SBUF(4096);
    sbuf_addf(&program, "%s/cistern", d->programs);
    int r = d->is_node ? 0 : jobs_start(program.ptr, &d->jobs, err);
    if (r == 0)
        r = ticker_start("trash", empty_trash, d, &d->trash, err);
    if (r == 0)
        r = mirror_start(d->keeper_socket, &d->mirror, err);
    if (r == 0)
        r = driver_keeper_start(d->keeper_socket, d->is_node ? NULL : d->programs, d->mirror, &d->keeper, err);
    if (r == 0) {
        (void)open_pools(d); /* before the first call comes */
        r = ticker_start("pools", open_pools, d, &d->opener, err);
    }
    if (r == 0 && metrics_ns > 0)
        r = driver_metrics_start(d->node_id, d->pools, d->pool_count, d->keeper_socket, d->mirror, metrics_ns,
                                 &d->metrics, err);
    return r;
}

int driver_open(const struct driver_options *o, struct driver **ret, struct err *err)
{
    if (!o->node_id[0] || strlen(o->node_id) > 63)
        return err_set(err, ERR_INVALID, "node id '%s': invalid: a label's value has 1 to 63 bytes", o->node_id);
    auto_sbuf socket = SBUF(4096);
    sbuf_addf(&socket, "%s/keeper.sock", o->state_directory);
    struct driver *d = xcalloc(1, sizeof *d);
    volume_locks_init(&d->locks);
    d->is_node = o->is_node;
    d->changed = o->changed;
    d->ctx = o->ctx;
    d->node_id = str_dup(str_of(o->node_id));
    d->programs = str_dup(str_of(o->programs));
    d->keeper_socket = str_dup(sbuf_str(&socket));
    d->given_up = str_dup(str_of(o->given_up ? o->given_up : ""));
    pthread_mutex_init(&d->opening, NULL);
    d->service = (struct csi_service){.controller = d->is_node ? NULL : &driver_controller_ops,
                                      .node = &driver_node_ops,
                                      .ctx = d,
                                      .node_id = d->node_id,
                                      .volumes_max = d->is_node ? KEEPER_VOLUMES_MAX : 0};
    csi_service_init(&d->service);
    int r = make_pools(d, o, err);
    if (r == 0)
        r = start_parts(d, o->metrics_ns, err);
    if (r < 0) {
        driver_close(d);
        return r;
    }
    *ret = d;
    return 0;
}

struct csi_service *driver_service(struct driver *d)
{
    return &d->service;
}

void driver_close(struct driver *own_d)
{
    if (!own_d)
        return;
    ticker_stop(own_d->opener);
    driver_metrics_stop(own_d->metrics);
    driver_keeper_stop(own_d->keeper);
    mirror_stop(own_d->mirror);
    jobs_stop(own_d->jobs);
    ticker_stop(own_d->trash);
    for (size_t i = 0; i < own_d->pool_count; i++)
        pool_close(own_d->pools[i]);
    volume_locks_done(&own_d->locks);
    pthread_mutex_destroy(&own_d->opening);
    free(own_d->open_errors);
    free(own_d->given_up);
    free(own_d->node_id);
    free(own_d->programs);
    free(own_d->keeper_socket);
    free(own_d);
}
