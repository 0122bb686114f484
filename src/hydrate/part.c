/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a part through slices that are aligned for O_DIRECT. */
#include "private.h"

static void written(struct disk_job *d)
{
    struct job_slice *s = container_of(d, struct job_slice, io);
    struct hydrate_job *j = s->job;
    struct hydrate *h = j->lane->h;
    s->busy = false;
    s->fill = 0;
    j->busy--;
    if (d->result < 0)
        j->io_error = (int)-d->result;
    else if ((size_t)d->result != d->len)
        j->io_error = ENOSPC; /* what a short write to a file means */
    else
        atomic_fetch_add(&h->barrier.unsynced_bytes, d->len);
    if (j->state == JOB_DRAIN) {
        job_advance(j);
    } else if (j->get && j->io_error) {
        store_cancel(j->get);
    } else if (j->get && j->paused) {
        job_pause(j, false);
        store_resume(j->get);
    }
}

static void submit(struct hydrate_job *j, struct job_slice *s)
{
    uint32_t align = j->large->align;
    size_t len = s->fill;
    if (align && len % align) {
        /* The end of the object, padded: the surplus is cut off before the object counts as whole. */
        size_t padded = (len + align - 1) / align * align;
        memset((char *)s->bytes + len, 0, padded - len);
        len = padded;
    }
    s->io = (struct disk_job){
        .op = DISK_WRITE, .fd = j->large->fd, .bytes = s->bytes, .len = len, .offset = s->offset, .done = written};
    s->busy = true;
    j->busy++;
    j->filling = -1;
    uring_submit(j->lane->worker.uring, &s->io);
}

/* Chooses the slice to fill: one of the job that is written, or a new one if the budget has it. */
static bool next_slice(struct hydrate_job *j)
{
    int empty = -1;
    for (int i = 0; i < JOB_SLICES; i++) {
        struct job_slice *s = &j->slices[i];
        if (s->bytes && !s->busy) {
            empty = i;
            break;
        }
        if (!s->bytes && empty < 0)
            empty = i;
    }
    if (empty < 0)
        return false;
    if (!j->slices[empty].bytes)
        j->slices[empty].bytes = budget_take(j->lane->h->budget, SLICE_BYTES, NULL);
    if (!j->slices[empty].bytes)
        return false;
    j->filling = empty;
    j->slices[empty].fill = 0;
    j->slices[empty].offset = j->offset + j->received;
    return true;
}

int part_data(struct hydrate_job *j, const char *bytes, size_t len)
{
    /* After a pause libcurl delivers the whole chunk again: skip the bytes that were taken. */
    size_t at = min_u64(j->skip, len);
    j->skip -= at;
    while (at < len) {
        if (j->filling < 0 && !next_slice(j)) {
            j->skip = at;
            job_pause(j, true);
            return WEB_PAUSE;
        }
        struct job_slice *s = &j->slices[j->filling];
        size_t n = min_u64(len - at, SLICE_BYTES - s->fill);
        hash_copy_out(&j->hash, (char *)s->bytes + s->fill, bytes + at, n);
        s->fill += n;
        at += n;
        j->received += n;
        atomic_fetch_add_explicit(&j->lane->h->progress.received, n, memory_order_relaxed);
        if (s->fill == SLICE_BYTES)
            submit(j, s);
    }
    return j->io_error ? -ERR_IO : 0;
}

void part_flush(struct hydrate_job *j)
{
    if (j->filling >= 0 && j->slices[j->filling].fill > 0)
        submit(j, &j->slices[j->filling]);
    j->filling = -1;
}

void part_complete(struct hydrate_job *j)
{
    struct hydrate_large *g = j->large;
    struct digest d = {.kind = HASH_NONE};
    if (j->hash.kind != HASH_NONE)
        hash_end(&j->hash, &d);
    j->large = NULL;
    large_part_done(j->lane, g, j->part, &d);
    job_release(j);
}
