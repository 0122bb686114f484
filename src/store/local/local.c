/* SPDX-License-Identifier: Apache-2.0 */
/* Visits the disk for a job: on the pool, one visit at a time. The caller's callbacks run on the loop between two. */
#include "local.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- the directory ----------------------------------------------------------------------------------------------- */

int local_root(struct local *l, bool make, int *ret, struct err *err)
{
    auto_lock(&l->lock);
    int r = 0;
    if (l->root < 0)
        r = dir_open(AT_FDCWD, l->path, &l->root, err);
    if (r == -ERR_NOT_FOUND && make)
        r = dir_make_path(l->path, 0777, &l->root, err);
    if (r == -ERR_NOT_FOUND)
        err_advise(err, CIS_BUCKET_NOT_FOUND);
    if (r == -ERR_DENIED && !make)
        err_advise(err, CIS_ACCESS_DENIED);
    if (r < 0 && !make && err->sys == ENOTDIR)
        r = err_fail(err, ERR_INVALID, CIS_URI_INVALID,
                     "'%.300s': Not a directory; for one file, write its path without the '/' at the end", l->path);
    *ret = l->root;
    return r;
}

struct str local_etag(const struct stat *st, char *buf)
{
    int n = snprintf(buf, LOCAL_ETAG_MAX, "\"%" PRIx64 ".%lx-%" PRIx64 "-%" PRIx64 "\"", (uint64_t)st->st_mtim.tv_sec,
                     st->st_mtim.tv_nsec, (uint64_t)st->st_size, (uint64_t)st->st_ino);
    return (struct str){buf, (size_t)n};
}

void local_describe(struct str key, const struct stat *st, char *etag, struct store_object *ret)
{
    *ret = (struct store_object){.key = key,
                                 .size_bytes = (uint64_t)st->st_size,
                                 .mtime_ns = time_from_spec(st->st_mtim),
                                 .etag = local_etag(st, etag)};
}

/* A damaged source file fails alone: the other files are on disk too, but may be fine. */
/* ---- a visit to the disk ----------------------------------------------------------------------------------------- */

static struct local_job *of_work(struct work *w)
{
    return container_of(w, struct local_job, work);
}

static void run_visit(struct work *w)
{
    struct local_job *j = of_work(w);
    uint64_t began = clock_now_ns();
    j->code = j->visit(j, &j->err);
    j->visit_ns = clock_now_ns() - began;
}

void local_end(struct local_job *j, int code)
{
    if (code < 0) {
        char name[STORE_JOB_NAME_MAX];
        enum err_id id = j->err.id                ? j->err.id
                         : code == -ERR_NOT_FOUND ? CIS_OBJECT_NOT_FOUND
                         : code == -ERR_DENIED    ? CIS_ACCESS_DENIED
                                                  : 0;
        err_wrap(&j->err, "%s", job_name(&j->job, name));
        j->err.id = id;
        job_fail(&j->job, &j->err);
    }
    job_count_request(&j->job, code < 0 ? err_code_name((enum err_code) - code) : "200", j->first_visit_ns,
                      j->visit_ns);
    j->running = false;
    job_done(&j->job);
}

void local_end_well(struct local_job *j)
{
    local_end(j, 0);
}

static void visited(struct work *w)
{
    struct local_job *j = of_work(w);
    j->running = false;
    if (j->first_visit_ns == 0)
        j->first_visit_ns = j->visit_ns;
    if (j->code < 0)
        local_end(j, j->code);
    else
        j->after(j);
}

void local_visit(struct local_job *j, local_visit_fn *visit, void (*after)(struct local_job *j))
{
    j->visit = visit;
    j->after = after;
    j->running = true;
    j->work = (struct work){.run = run_visit, .done = visited};
    thread_pool_submit(j->job.worker->threads, j->job.worker->loop, &j->work);
}

static void fire_after_rate(struct timer *t)
{
    struct local_job *j = container_of(t, struct local_job, pause);
    j->waiting = false;
    local_visit(j, j->visit, j->after);
}

/* Starts the next visit, which moves `bytes`, when the rate allows it. */
void local_visit_paced(struct local_job *j, uint64_t bytes, local_visit_fn *visit, void (*after)(struct local_job *j))
{
    struct rate *rate = j->job.args.rate;
    uint64_t wait_ns = rate ? rate_reserve(rate, bytes, clock_now_ns()) : 0;
    if (wait_ns == 0) {
        local_visit(j, visit, after);
        return;
    }
    j->visit = visit;
    j->after = after;
    j->waiting = true;
    j->pause.fire = fire_after_rate;
    loop_timer_set(j->job.worker->loop, &j->pause, wait_ns);
}
