/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong: with one object, or with the run. */
#include "private.h"
#include <inttypes.h>
#include <stdio.h>

static void fault_fill(struct hydrate_fault *f, struct str path, const struct err *err, unsigned attempts)
{
    char line[ERR_LINE_MAX];
    *f = (struct hydrate_fault){.id = err->id, .code = err->code, .attempts = attempts, .time_ns = clock_wall_ns()};
    snprintf(f->object, sizeof f->object, "%.*s", (int)min_u64(path.len, sizeof f->object - 1),
             path.ptr ? path.ptr : "");
    snprintf(f->message, sizeof f->message, "%s", err_line(err, line, sizeof line));
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

void hydrate_fail(struct hydrate *h, const struct err *err)
{
    pthread_mutex_lock(&h->lock);
    bool is_our_word = err->code == ERR_CANCELLED && h->is_cancelled;
    if (!h->has_fatal && !is_our_word) {
        h->has_fatal = true;
        h->fatal = *err;
    }
    pthread_mutex_unlock(&h->lock);
    atomic_store(&h->stopping, true);
    driver_nudge(h);
}

/* The object itself: what else is not found, its bucket or a folder of ours, is another failure. */
static bool is_gone(const struct err *err)
{
    return err->code == ERR_NOT_FOUND && err->id == 1404;
}

/* Would another listing help? The object is another one by now, or people mend its name in the source. */
static bool is_of_listing(const struct err *err)
{
    return err->code == ERR_CHANGED || is_gone(err) || err->id == 1512 || err->id == 1514 || err->id == 1515;
}

bool fault_is_allowed(const struct hydrate *h, const struct err *err)
{
    return h->o.skip_missing && is_gone(err);
}

void hydrate_object_failed(struct hydrate *h, struct str path, const struct err *err, unsigned attempts)
{
    if (fault_is_allowed(h, err)) {
        atomic_fetch_add(&h->objects_missing, 1);
        return;
    }
    struct err full = *err;
    uint64_t limit = h->o.errors_max ? h->o.errors_max : 1000;
    err_name(&full, path);
    if (fault_is_fatal(err)) {
        hydrate_fail(h, &full);
        return;
    }
    bool is_kept = err->sys == EEXIST; /* by target.c */
    uint64_t failed = is_kept ? 0 : atomic_fetch_add(&h->objects_failed, 1) + 1;
    atomic_fetch_add(&h->objects_kept, is_kept);
    pthread_mutex_lock(&h->lock);
    h->fault_codes |= UINT64_C(1) << err->code;
    h->is_stale |= is_of_listing(err);
    if (h->fault_count < FAULTS_MAX) {
        fault_fill(&h->faults[(h->fault_first + h->fault_count) % FAULTS_MAX], path, &full, attempts);
        h->fault_count++;
    } else {
        h->faults_unnamed++;
    }
    if (h->first_fault_count < HYDRATE_ERRORS_KEPT)
        fault_fill(&h->first_faults[h->first_fault_count++], path, &full, attempts);
    pthread_mutex_unlock(&h->lock);
    if (failed <= limit)
        return;
    struct err many;
    err_copy(&many, &full);
    err_wrap(&many, "gave up after %" PRIu64 " objects that failed, the last one", failed);
    hydrate_fail(h, &many);
}

bool hydrate_next_fault(struct hydrate *h, struct hydrate_fault *ret)
{
    pthread_mutex_lock(&h->lock);
    bool any = h->fault_count > 0;
    if (any) {
        *ret = h->faults[h->fault_first];
        h->fault_first = (h->fault_first + 1) % FAULTS_MAX;
        h->fault_count--;
    }
    pthread_mutex_unlock(&h->lock);
    return any;
}

uint64_t hydrate_faults_unnamed(struct hydrate *h)
{
    pthread_mutex_lock(&h->lock);
    uint64_t unnamed = h->faults_unnamed;
    pthread_mutex_unlock(&h->lock);
    return unnamed;
}

enum err_code hydrate_common_fault(struct hydrate *h)
{
    pthread_mutex_lock(&h->lock);
    uint64_t codes = h->fault_codes;
    pthread_mutex_unlock(&h->lock);
    return __builtin_popcountll(codes) == 1 ? (enum err_code)__builtin_ctzll(codes) : (enum err_code)0;
}
