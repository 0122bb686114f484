/* SPDX-License-Identifier: Apache-2.0 */
#include "mounts.h"
#include "fuse/counts.h"
#include "util/clock.h"
#include "util/metric.h"

struct mounts {
    char *node;                /* owned */
    const char *keeper_socket; /* borrowed */
    struct mirror *mirror;     /* borrowed */
    struct counts told;        /* what the metrics have already */
    uint64_t restarts;         /* of the mount processes that there are, as of the last look */
    bool has_looked;
    struct metric *ops, *seconds;
    struct metric_series *handovers, *passed, *plain;
};

static struct metric_series *node_counter(const struct mounts *m, const char *name, const char *help,
                                          const char *result)
{
    return metric_series(metric_new(METRIC_COUNTER, name, help, "node,result", NULL), m->node, result);
}

struct mounts *mounts_new(const char *node, const char *keeper_socket, struct mirror *mirror)
{
    static const char opens[] = "cistern_fuse_passthrough_opens_total";
    static const char opens_help[] = "Opened files whose reads and writes the kernel does by itself, and others.";
    struct mounts *m = xcalloc(1, sizeof *m);
    m->node = str_dup(str_of(node));
    m->keeper_socket = keeper_socket;
    m->mirror = mirror;
    m->ops = metric_new(METRIC_COUNTER, "cistern_fuse_ops_total", "Requests that mount processes answered.",
                        "op,result", NULL);
    m->seconds = metric_new(METRIC_HISTOGRAM, "cistern_fuse_op_seconds", "From a request's arrival to its answer.",
                            "op,result", counts_bounds_seconds);
    m->handovers = node_counter(m, "cistern_fuse_handover_total",
                                "Mount processes that were started again on a mount that lives.", "ok");
    m->passed = node_counter(m, opens, opens_help, "ok");
    m->plain = node_counter(m, opens, opens_help, "plain");
    return m;
}

void mounts_free(struct mounts *own_m)
{
    if (!own_m)
        return;
    free(own_m->node);
    free(own_m);
}

static void add_restarts(const struct keeper_status *s, void *sum)
{
    *(uint64_t *)sum += s->restarts;
}

/* A mount that goes takes its number along: the sum may fall, and only what it rises by is counted. */
static void count_handovers(struct mounts *m)
{
    struct err ignored;
    uint64_t now = 0;
    if (keeper_list(m->keeper_socket, add_restarts, &now, &ignored) < 0)
        return;
    if (m->has_looked && now > m->restarts)
        metric_add(m->handovers, now - m->restarts);
    m->restarts = now;
    m->has_looked = true;
}

static void add_cell(const struct mounts *m, enum counts_op op, enum counts_result result,
                     const struct counts_cell *done)
{
    const char *label = result == COUNTS_OK ? "ok" : "error";
    uint64_t count = 0;
    for (size_t i = 0; i <= COUNTS_BOUNDS; i++)
        count += done->within[i];
    if (count == 0)
        return;
    metric_add(metric_series(m->ops, counts_op_name(op), label), count);
    metric_observed(metric_series(m->seconds, counts_op_name(op), label), done->within, done->within[COUNTS_BOUNDS],
                    (double)done->ns / (double)NS_PER_SECOND);
}

static void count_requests(struct mounts *m)
{
    struct counts now, done;
    mirror_counts(m->mirror, &now);
    done = now;
    counts_sum(&done, &m->told, -1);
    for (int op = 0; op < COUNTS_OPS; op++)
        for (int result = 0; result < COUNTS_RESULTS; result++)
            add_cell(m, (enum counts_op)op, (enum counts_result)result, &done.ops[op][result]);
    metric_add(m->passed, done.opens_passed);
    metric_add(m->plain, done.opens_plain);
    m->told = now;
}

void mounts_look(struct mounts *m)
{
    count_handovers(m);
    count_requests(m);
}
