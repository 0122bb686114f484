/* SPDX-License-Identifier: Apache-2.0 */
/* A small object: one GET into one slice, checked, then written by one open, write and close. */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

int marker_make(struct hydrate_lane *l, const struct index_entry *e, struct err *err)
{
    int dir;
    const char *name;
    struct sbuf *b = &l->key;
    /* Its path ends in '/': make it as the parent of a file that is never created. */
    sbuf_clear(b);
    sbuf_add(b, e->path);
    sbuf_addc(b, 'x');
    return tree_parent(&l->tree, b->ptr, &dir, &name, err);
}

static int write_file(struct hydrate_lane *l, int dir, const char *name, uint64_t id, const struct index_entry *e,
                      const void *bytes, struct err *err)
{
    auto_fd fd = -1;
    int r = target_create(l->h->target, dir, name, id, O_WRONLY, false, &fd, err);
    if (r < 0)
        return r;
    if (e->size_bytes > 0)
        r = file_write_all(fd, name, bytes, e->size_bytes, err);
    if (r == 0)
        r = times_set(fd, e->mtime_ns, err);
    if (r == 0)
        r = target_place(l->h->target, dir, name, id, object_file(e), err);
    if (r < 0)
        target_drop(l->h->target, dir, name, id); /* others may succeed, and then users see DIR */
    return r;
}

int small_write(struct hydrate_lane *l, uint64_t id, const struct index_entry *e, const void *bytes, struct err *err)
{
    char path[PATH_MAX];
    int dir;
    const char *name;
    memcpy(path, e->path.ptr, e->path.len); /* path_check() let it pass: shorter than PATH_MAX */
    path[e->path.len] = '\0';
    int r = tree_parent(&l->tree, path, &dir, &name, err);
    if (r == 0)
        r = write_file(l, dir, name, id, e, bytes, err);
    if (r < 0)
        return r;
    atomic_fetch_add(&l->h->barrier.unsynced_bytes, e->size_bytes + 4096);
    return 0;
}

void small_discard(struct hydrate_lane *l, const struct index_entry *e)
{
    struct err err;
    /* In place, the file of this name may be a user's. */
    if (!target_is_visible(l->h->target) && target_remove(l->h->target, e->path, &err) < 0)
        run_failed(l->h, FAULT_OTHER, &err);
}

int small_data(struct hydrate_job *j, const char *bytes, size_t len)
{
    memcpy((char *)j->slices[0].bytes + j->received, bytes, len);
    j->received += len;
    atomic_fetch_add_explicit(&j->lane->h->progress.received, len, memory_order_relaxed);
    return 0;
}

void small_complete(struct hydrate_job *j, const struct digest *reply)
{
    struct hydrate_lane *l = j->lane;
    struct hydrate *h = l->h;
    struct digest got, want = digest_wanted(h, &j->entry);
    struct err err;
    /* The answer may know a CRC where the listing knew none, or only an MD5, which costs a hundred times as much. */
    if (h->o.verify == HYDRATE_VERIFY_AUTO)
        want = digest_better(&want, reply);
    if (want.kind != HASH_NONE) {
        hash_begin(&l->hash, want.kind);
        hash_update(&l->hash, j->slices[0].bytes, j->entry.size_bytes);
        hash_end(&l->hash, &got);
        if (!digest_eq(&got, &want)) {
            job_mismatch(j, &want, &got);
            return;
        }
    }
    enum hydrate_fault_kind kind;
    int r = small_write(l, j->id, &j->entry, j->slices[0].bytes, &err);
    if (r < 0 && (r = conflict_resolve(l, j->id, &j->entry, &kind, &err)) == 0)
        r = small_write(l, j->id, &j->entry, j->slices[0].bytes, &err);
    if (r < 0)
        job_object_failed(j, kind, &err);
    else if (r > 0)
        job_release(j);
    if (r != 0)
        return;
    if (want.kind == HASH_NONE)
        atomic_fetch_add(&h->progress.size_only, 1);
    atomic_fetch_add(&h->progress.bytes_done, j->entry.size_bytes);
    object_completed(h, j->id);
    job_release(j);
}
