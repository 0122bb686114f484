/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"
#include <inttypes.h>
#include <stdio.h>

void faults_init(struct hydrate_faults *f)
{
    pthread_mutex_init(&f->lock, NULL);
    f->ring = xcalloc(FAULTS_MAX, sizeof *f->ring);
    f->kept = xcalloc(HYDRATE_ERRORS_KEPT, sizeof *f->kept);
}

void faults_done(struct hydrate_faults *f)
{
    free(f->ring);
    free(f->kept);
    pthread_mutex_destroy(&f->lock);
}

static void fault_fill(struct hydrate_fault *f, struct str path, const struct err *err, unsigned attempts)
{
    char line[ERR_LINE_MAX];
    *f = (struct hydrate_fault){.id = err->id, .code = err->code, .attempts = attempts, .time_ns = clock_wall_ns()};
    snprintf(f->object, sizeof f->object, "%.*s", (int)min_u64(path.len, sizeof f->object - 1),
             path.ptr ? path.ptr : "");
    snprintf(f->message, sizeof f->message, "%s", err_line(err, line, sizeof line));
}

enum hydrate_fault_kind fault_kind_of_reply(const struct store_reply *r)
{
    if (r->code == -ERR_CHANGED)
        return FAULT_LISTING;
    return err_kind_of(r->err.id) == ERR_KIND_OBJECT_NOT_FOUND ? FAULT_GONE : FAULT_OTHER;
}

bool fault_is_fatal(const struct err *err)
{
    switch (err->sys) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EIO:
    case ENODEV:
    case ENXIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return true;
    default:
        return false;
    }
}

void run_failed(struct hydrate *h, enum hydrate_fault_kind kind, const struct err *err)
{
    struct hydrate_faults *f = &h->faults;
    pthread_mutex_lock(&f->lock);
    bool is_from_cancel = err->code == ERR_CANCELLED && f->is_cancelled;
    if (!f->has_fatal && !is_from_cancel) {
        f->has_fatal = true;
        f->fatal_kind = kind;
        f->fatal = *err;
    }
    pthread_mutex_unlock(&f->lock);
    atomic_store(&h->stopping, true);
    coordinator_wake(h);
}

#define OUTAGE_LEAST_NS (10 * NS_PER_SECOND)

void outage_check(struct hydrate *h, uint64_t refused_for_ns, uint64_t retry_limit_ns, const struct err *last)
{
    struct err err;
    char text[TIME_TEXT_MAX];
    if (refused_for_ns < max_u64(retry_limit_ns, OUTAGE_LEAST_NS))
        return;
    err_copy(&err, last);
    err_wrap(&err, "the store has refused every request for an object for %s; the last one",
             duration_text(refused_for_ns, text));
    err_advise(&err, CIS_STORE_REFUSES_ALL);
    run_failed(h, FAULT_OTHER, &err);
}

bool fault_is_allowed(const struct hydrate *h, enum hydrate_fault_kind kind)
{
    return h->o.skip_missing && kind == FAULT_GONE;
}

static void record(struct hydrate_faults *f, struct str path, const struct err *err, unsigned attempts)
{
    f->codes |= UINT64_C(1) << err->code;
    if (f->count < FAULTS_MAX)
        fault_fill(&f->ring[(f->first + f->count++) % FAULTS_MAX], path, err, attempts);
    else
        f->unnamed++;
    if (f->kept_count < HYDRATE_ERRORS_KEPT)
        fault_fill(&f->kept[f->kept_count++], path, err, attempts);
}

void object_failed(struct hydrate *h, enum hydrate_fault_kind kind, struct str path, const struct err *err,
                   unsigned attempts)
{
    if (fault_is_allowed(h, kind)) {
        atomic_fetch_add(&h->progress.objects_missing, 1);
        return;
    }
    struct err full = *err;
    uint64_t limit = h->o.errors_max ? h->o.errors_max : 1000;
    err_name(&full, path);
    if (fault_is_fatal(err)) {
        run_failed(h, FAULT_OTHER, &full);
        return;
    }
    bool is_kept = err->sys == EEXIST; /* another file has the name: target.c */
    uint64_t failed = is_kept ? 0 : atomic_fetch_add(&h->progress.objects_failed, 1) + 1;
    atomic_fetch_add(&h->progress.objects_kept, is_kept);
    pthread_mutex_lock(&h->faults.lock);
    h->faults.is_stale |= kind != FAULT_OTHER;
    record(&h->faults, path, &full, attempts);
    pthread_mutex_unlock(&h->faults.lock);
    if (failed <= limit)
        return;
    struct err many;
    err_copy(&many, &full);
    err_wrap(&many, "gave up after %" PRIu64 " failed objects; the last one", failed);
    run_failed(h, FAULT_OTHER, &many);
}

bool hydrate_next_fault(struct hydrate *h, struct hydrate_fault *ret)
{
    struct hydrate_faults *f = &h->faults;
    auto_lock(&f->lock);
    bool any = f->count > 0;
    if (any) {
        *ret = f->ring[f->first];
        f->first = (f->first + 1) % FAULTS_MAX;
        f->count--;
    }
    return any;
}

uint64_t hydrate_faults_unnamed(struct hydrate *h)
{
    auto_lock(&h->faults.lock);
    return h->faults.unnamed;
}

bool hydrate_is_incomplete(struct hydrate *h)
{
    auto_lock(&h->faults.lock);
    return h->faults.fatal_kind == FAULT_INCOMPLETE;
}

bool hydrate_found_nothing(struct hydrate *h)
{
    auto_lock(&h->faults.lock);
    return h->faults.fatal_kind == FAULT_EMPTY;
}

enum err_code hydrate_common_fault(struct hydrate *h)
{
    auto_lock(&h->faults.lock);
    uint64_t codes = h->faults.codes;
    return __builtin_popcountll(codes) == 1 ? (enum err_code)__builtin_ctzll(codes) : (enum err_code)0;
}
