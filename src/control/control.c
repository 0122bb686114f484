/* SPDX-License-Identifier: Apache-2.0 */
#include "control/control.h"
#include "private.h"
#include "util/log.h"

static void on_failure(void *, struct str key, const struct err *err, unsigned attempt, uint64_t)
{
    auto_mem char *name = str_dup(key);
    log_err(LOG_WARN, "a volume could not be reconciled", err, "name", name, "attempt", log_u64(attempt), NULL);
}

static bool is_ready(void *ctx)
{
    struct err not_yet;
    return informers_have_synced(ctx, &not_yet) == 0;
}

static const struct csi_controller_ops controller_ops = {
    .in_cluster = true,
    .set_parameter = spec_set_parameter,
    .is_ready = is_ready,
    .create = control_create,
    .delete = control_delete,
    .get = control_get,
    .list = control_list,
    .capacity = control_capacity,
    .expand = control_expand,
    .modify = control_modify,
};

struct csi_service *control_service(struct control *c)
{
    return &c->service;
}

int control_open(const struct control_options *o, struct control **ret, struct err *err)
{
    struct control *c = xcalloc(1, sizeof *c);
    c->o = *o;
    c->service = (struct csi_service){.controller = &controller_ops, .ctx = c};
    csi_service_init(&c->service);
    c->namespace = str_dup(o->namespace);
    c->o.namespace = str_of(c->namespace);
    struct kube_queue_options q = {
        .name = "sweep", .threads = 2, .ctx = c, .reconcile = sweep_reconcile, .on_failure = on_failure};
    int r = kube_queue_new(&q, &c->queue, err);
    if (r < 0) {
        control_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void control_stop(struct control *c)
{
    if (c)
        kube_queue_stop(c->queue);
}

void control_free(struct control *own_c)
{
    if (!own_c)
        return;
    kube_queue_free(own_c->queue);
    free(own_c->namespace);
    free(own_c);
}
