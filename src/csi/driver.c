/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "child.h"
#include "export/verdict.h"
#include "io/ticker.h"
#include "progress.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <stdio.h>

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* A volume that was made anew after its disk was lost keeps its id, which names the pool that it had. */
static struct space *adopted_by(struct driver *d, const char *id)
{
    struct err err;
    for (size_t i = 0; i < d->space_count; i++) {
        auto_volume v = NULL;
        if (space_find(d->spaces[i], str_of(id), &v, &err) == 0)
            return d->spaces[i];
    }
    return NULL;
}

struct space *driver_space_of(struct driver *d, const char *id)
{
    if (!spec_id_is_valid(str_of(id)))
        return NULL;
    for (size_t i = 0; i < d->space_count; i++)
        if (spec_id_is_of_pool(str_of(id), space_uuid(d->spaces[i])))
            return d->spaces[i];
    return adopted_by(d, id);
}

bool driver_may_clear(const struct driver *d, int r)
{
    return d->is_node && (r == -ERR_NOT_FOUND || r == -ERR_ABSENT);
}

static bool is_given_up(struct driver *d, const char *uuid)
{
    struct str rest = str_of(d->given_up), item;
    while (str_split(&rest, ',', &item))
        if (str_eq(item, str_of(uuid)))
            return true;
    for (size_t i = 0; i < d->space_count; i++)
        if (space_replaces(d->spaces[i], uuid, true))
            return true;
    return false;
}

static int pool_is_absent(struct driver *d, const char *id, struct err *err)
{
    char uuid[SPEC_UUID_LEN + 1];
    struct err why;
    auto_sbuf pools;
    sbuf_init(&pools, ERR_TEXT_MAX * DRIVER_POOLS_MAX);
    snprintf(uuid, sizeof uuid, "%.*s", SPEC_UUID_LEN, id + 3);
    if (is_given_up(d, uuid)) {
        err_set(err, ERR_NOT_FOUND, "there is no volume '%s': its pool %s was given up", id, uuid);
        return err_advise(err, 2046, "its data is lost: set onDataLoss: rehydrate, or delete the claim");
    }
    for (size_t i = 0; i < d->space_count; i++) {
        if (space_is_open(d->spaces[i]))
            sbuf_addf(&pools, "; pool '%s' is %s", space_name(d->spaces[i]), space_uuid(d->spaces[i]));
        else if (space_is_here(d->spaces[i], &why) < 0)
            sbuf_addf(&pools, "; %s", why.text);
    }
    err_set(err, ERR_ABSENT, "volume '%s': its pool %s is not here%s", id, uuid, pools.ptr);
    return err_advise(err, 3001, "mount the disk of the volume's pool, or configure that pool again");
}

int driver_find(struct driver *d, const char *id, struct space **ret_space, struct volume **ret, struct err *err)
{
    struct space *s = driver_space_of(d, id);
    if (need_field(id, "volume_id", err) < 0)
        return -ERR_INVALID;
    if (!s && spec_id_is_valid(str_of(id)))
        return pool_is_absent(d, id, err);
    if (!s)
        return err_set(err, ERR_NOT_FOUND, "there is no volume '%.128s'", id);
    int r = space_find(s, str_of(id), ret, err);
    if (r == 0)
        *ret_space = s;
    if (r == -ERR_CORRUPT && d->changed)
        d->changed(d->ctx, NULL); /* what its name is, only its order knows now */
    return r;
}

int driver_claim(struct driver *d, const char *id, struct claim *claim, struct space **ret_space, struct volume **ret,
                 struct err *err)
{
    auto_volume v = NULL;
    int r = need_field(id, "volume_id", err);
    if (r == 0)
        r = claim_take(&d->claims, id, claim, err);
    if (r == 0)
        r = driver_find(d, id, ret_space, &v, err);
    if (r == 0)
        r = claim_hold(claim, v->dir, v->path, err);
    if (r == 0)
        *ret = take(&v);
    return r;
}

int driver_want_job(struct driver *d, const struct volume *v, enum job_kind kind, bool fresh, struct job_view *ret,
                    struct err *err)
{
    if (d->jobs)
        return jobs_want(d->jobs, v->spec->id, v->path, kind, fresh, ret, err);
    *ret = (struct job_view){.state = child_lives(kind, v->path) ? JOB_RUNNING : JOB_FAILED};
    return 0;
}

void driver_tell(struct driver *d, const struct volume *v)
{
    if (d->changed)
        d->changed(d->ctx, v->spec->name);
}

int driver_space_named(struct driver *d, const char *name, struct space **ret, struct err *err)
{
    auto_sbuf names;
    sbuf_init(&names, ERR_TEXT_MAX);
    for (size_t i = 0; i < d->space_count; i++) {
        if (strcmp(space_name(d->spaces[i]), name) == 0) {
            *ret = d->spaces[i];
            return 0;
        }
        sbuf_addf(&names, "%s'%s'", i ? ", " : "", space_name(d->spaces[i]));
    }
    return err_set(err, ERR_INVALID, "pool '%s': there is none of that name, only %s", name, names.ptr);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

bool topology_is_here(const struct driver *d, const Csi__V1__Topology *t)
{
    const char *node = topology_node(t);
    return !node || strcmp(node, d->node_id) == 0;
}

Csi__V1__Volume *volume_message(struct driver *d, struct rpc_call *call, const char *id, uint64_t capacity_bytes)
{
    return volume_on_node(call, id, capacity_bytes, d->node_id);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool export_was_cut_short(const struct volume *v)
{
    struct err err;
    struct verdict verdict;
    if (!v->spec->export.uri)
        return false;
    verdict_init(&verdict);
    bool cut = verdict_read(v->dir, &verdict, &err) == 0 && verdict.state == VERDICT_RUNNING;
    verdict_done(&verdict);
    return cut;
}

/* What was under way when we died may still run, and then is found by its lock, or must go on. */
static int resume_volume(struct driver *d, struct space *s, const char *id, struct err *err)
{
    struct job_view view;
    char text[HEALTH_TEXT_MAX];
    bool failed;
    auto_volume v = NULL;
    int r = space_find(s, str_of(id), &v, err);
    if (r < 0)
        return r;
    bool whole = data_is_whole(v, text, &failed), cut = export_was_cut_short(v);
    if (!whole || cut)
        r = space_attach(s, str_of(id), err);
    if (r == 0 && !whole)
        r = driver_want_job(d, v, JOB_HYDRATE, false, &view, err);
    if (r == 0 && cut)
        r = driver_want_job(d, v, JOB_EXPORT_UNPUBLISH, false, &view, err);
    return r;
}

static void resume_one(struct driver *d, struct space *s, const char *id)
{
    struct err err;
    if (resume_volume(d, s, id, &err) < 0)
        log_err(LOG_WARN, "a volume cannot be taken up again", &err, "volume", id, NULL);
}

enum { PAGE = 256 };

static int resume_pool(struct driver *d, struct space *s, struct err *err)
{
    char after[SPEC_ID_LEN + 1] = "";
    size_t count;
    do {
        struct space_entry *entries;
        int r = space_list(s, str_of(after), PAGE, &entries, &count, err);
        if (r < 0)
            return r;
        for (size_t i = 0; i < count; i++)
            resume_one(d, s, entries[i].id);
        if (count > 0)
            memcpy(after, entries[count - 1].id, sizeof after);
        space_entries_free(entries, count);
    } while (count == PAGE);
    return 0;
}

/* Logged when it is news. Under .opening. */
static void note_trouble(struct driver *d, const struct space *s, const struct err *why)
{
    size_t i = 0;
    while (d->spaces[i] != s)
        i++;
    if (strcmp(d->trouble[i].text, why->text) != 0)
        log_err(LOG_ERROR, "a pool is not here: it is tried again", why, "pool", space_name(s), "path", space_path(s),
                NULL);
    d->trouble[i] = *why;
}

static void take_up(struct driver *d, struct space *s)
{
    struct err err;
    log_event(LOG_INFO, "pool opened", "pool", space_name(s), "path", space_path(s), "uuid", space_uuid(s), "backend",
              disk_backend_name(space_backend(s)), "why", space_backend_why(s), NULL);
    if (space_remember(s, &err) < 0)
        log_err(LOG_WARN, "a pool is not remembered: a disk that is missing later may not be noticed", &err, "pool",
                space_name(s), NULL);
    if (d->jobs && resume_pool(d, s, &err) < 0)
        log_err(LOG_WARN, "a pool's volumes cannot be taken up again", &err, "pool", space_name(s), NULL);
    trash_wake(d->trash);
}

int driver_open_pool(struct driver *d, struct space *s, const struct space_witness *w, struct err *err)
{
    pthread_mutex_lock(&d->opening);
    bool was_open = space_is_open(s);
    int r = was_open ? 0 : space_open(s, w, err);
    if (r < 0)
        note_trouble(d, s, err);
    else if (!was_open)
        take_up(d, s);
    pthread_mutex_unlock(&d->opening);
    if (r == 0 && !was_open && d->changed)
        d->changed(d->ctx, NULL);
    return r;
}

#define OPEN_AGAIN_NS (2 * NS_PER_SECOND)

/* A machine by itself has no other witness than its memory; on a node, the agent asks one. */
static uint64_t open_pools(void *ctx)
{
    static const struct space_witness nobody = {0};
    struct driver *d = ctx;
    struct err ignored; /* it was logged */
    uint64_t again_ns = TICKER_NEVER;
    for (size_t i = 0; i < d->space_count; i++)
        if (driver_open_pool(d, d->spaces[i], d->is_node ? NULL : &nobody, &ignored) < 0)
            again_ns = OPEN_AGAIN_NS;
    return again_ns;
}

static int make_pools(struct driver *d, const struct driver_options *o, struct err *err)
{
    d->trouble = xcalloc(o->pool_count, sizeof *d->trouble);
    for (size_t i = 0; i < o->pool_count; i++) {
        struct space_options s = {.path = o->pools[i].path,
                                  .name = o->pools[i].name,
                                  .node = o->node_id,
                                  .memory = o->memory,
                                  .given_up = o->given_up,
                                  .require_mount = o->pools[i].require_mount,
                                  .is_ephemeral = o->pools[i].is_ephemeral,
                                  .in_cluster = o->is_node,
                                  .reserve_percent = o->reserve_percent};
        int r = space_new(&s, &d->spaces[d->space_count], err);
        if (r < 0)
            return err_wrap(err, "pool '%s'", o->pools[i].name);
        d->space_count++;
    }
    return 0;
}

static int start_parts(struct driver *d, uint64_t gauges_ns, struct err *err)
{
    auto_sbuf program;
    sbuf_init(&program, 4096);
    sbuf_addf(&program, "%s/cistern", d->programs);
    int r = d->is_node ? 0 : jobs_start(program.ptr, &d->jobs, err);
    if (r == 0)
        r = trash_start(d->spaces, d->space_count, &d->trash, err);
    if (r == 0)
        r = mirror_start(d->keeper_socket, &d->mirror, err);
    if (r == 0)
        r = keeping_start(d->keeper_socket, d->is_node ? NULL : d->programs, d->mirror, &d->keeping, err);
    if (r == 0) {
        (void)open_pools(d); /* before the first call comes */
        r = ticker_start("pools", open_pools, d, &d->opener, err);
    }
    if (r == 0 && gauges_ns > 0)
        r = gauges_start(d->node_id, d->spaces, d->space_count, mounts_new(d->node_id, d->keeper_socket, d->mirror),
                         gauges_ns, &d->gauges, err);
    return r;
}

int driver_open(const struct driver_options *o, struct driver **ret, struct err *err)
{
    if (!o->node_id[0] || strlen(o->node_id) > 63)
        return err_set(err, ERR_INVALID, "the node id '%s' must have 1 to 63 bytes: it is a label's value", o->node_id);
    auto_sbuf socket;
    sbuf_init(&socket, 4096);
    sbuf_addf(&socket, "%s/keeper.sock", o->state_folder);
    struct driver *d = xcalloc(1, sizeof *d);
    claims_init(&d->claims);
    d->is_node = o->is_node;
    d->changed = o->changed;
    d->ctx = o->ctx;
    d->node_id = str_dup(str_of(o->node_id));
    d->programs = str_dup(str_of(o->programs));
    d->keeper_socket = str_dup(sbuf_str(&socket));
    d->given_up = str_dup(str_of(o->given_up ? o->given_up : ""));
    pthread_mutex_init(&d->opening, NULL);
    int r = make_pools(d, o, err);
    if (r == 0)
        r = start_parts(d, o->gauges_ns, err);
    if (r < 0) {
        driver_close(d);
        return r;
    }
    *ret = d;
    return 0;
}

void driver_close(struct driver *own_d)
{
    if (!own_d)
        return;
    ticker_stop(own_d->opener);
    gauges_stop(own_d->gauges);
    keeping_stop(own_d->keeping);
    mirror_stop(own_d->mirror);
    jobs_stop(own_d->jobs);
    trash_stop(own_d->trash);
    for (size_t i = 0; i < own_d->space_count; i++)
        space_close(own_d->spaces[i]);
    claims_done(&own_d->claims);
    pthread_mutex_destroy(&own_d->opening);
    free(own_d->trouble);
    free(own_d->given_up);
    free(own_d->node_id);
    free(own_d->programs);
    free(own_d->keeper_socket);
    free(own_d);
}
