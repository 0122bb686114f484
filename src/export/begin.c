/* SPDX-License-Identifier: Apache-2.0 */
/* Begins a file: the lease, then a new upload or that of an earlier run. */
#include "private.h"
#include "util/clock.h"
#include <fcntl.h>

/* ---- the object -------------------------------------------------------------------------------------------------- */

int upload_set_key(struct upload *u, struct err *err)
{
    auto_sbuf key = SBUF(2 * 4096 + KEY_BYTES_MAX);
    int r = key_make(store_prefix(u->run->o.store), u->path, u->size_bytes, u->version, &key, err);
    if (r < 0)
        return r;
    free(u->key);
    return sbuf_take(&key, &u->key, err);
}

static void flushed(struct disk_job *j)
{
    struct upload *u = container_of(j, struct upload, flush);
    struct err err;
    struct export_run *r = u->run;
    u->in_flight = 0;
    if (j->result < 0) {
        err_sys(&err, (int)-j->result, "cannot flush the logbook of the export");
        upload_ended(u);
        run_file_unrecorded(u, &err);
    } else {
        upload_become(u, UPLOAD_BEGINNING);
    }
    run_again(r);
}

/* The intent is on disk before the store is asked for an upload. If this process dies before it records the upload
 * ID, the next run can sweep the upload. */
static void note(struct upload *u)
{
    struct err err;
    struct export_run *r = u->run;
    int e = logbook_intend(r->logbook, u->path, str_of(u->key), str_of(u->token), &u->lease.stamp, u->part.bytes,
                           &u->multi, &err);
    if (e < 0) {
        run_file_unrecorded(u, &err);
        return;
    }
    upload_become(u, UPLOAD_NOTING);
    u->in_flight = 1;
    u->flush = (struct disk_job){.op = DISK_FDATASYNC, .fd = logbook_fd(r->logbook), .done = flushed};
    uring_submit(r->o.workers[0].uring, &u->flush);
}

/* Starts in UPLOAD_NEW, with a key and without an earlier upload. */
static void begin_fresh(struct upload *u)
{
    bool asks = u->run->o.policy->conflict != CONFLICT_OVERWRITE;
    bool was_sent = logbook_tag(u->run->logbook, u->path).len > 0;
    u->object.replaces[0] = '\0';
    u->object.is_own = u->object.existed_before = false;
    u->object.proof = PROOF_NONE;
    if (u->old_marker != MARKER_NONE)
        upload_become(u, UPLOAD_WITHDRAWING);
    else if (asks && (upload_is_large(u) || was_sent || u->object.needs_head))
        upload_become(u, UPLOAD_LOOKING);
    else
        upload_send(u);
}

void upload_send(struct upload *u)
{
    u->object.existed_before = false;
    if (upload_is_large(u))
        note(u);
    else
        upload_become(u, UPLOAD_PUTTING);
}

void upload_begin_again(struct upload *u)
{
    u->vanished = false;
    upload_become(u, UPLOAD_NEW);
    begin_fresh(u);
}

void upload_lost(struct upload *u)
{
    u->must_sweep |= u->multi != NULL; /* the object may exist all the same */
    upload_ended(u);
    upload_begin_again(u);
}

/* Can the upload of an earlier run be continued? Without an uploaded part there is nothing to continue, and its
 * checksum kind is unknown. */
static bool may_go_on(const struct upload *u)
{
    const struct logbook_upload *m = u->multi;
    bool has_parts = false;
    for (unsigned i = 0; i < m->part_count; i++)
        has_parts |= m->parts[i].size_bytes > 0;
    return m->upload_id && has_parts && upload_is_large(u) && stamp_eq(&m->stamp, &u->lease.stamp);
}

static void go_on(struct upload *u)
{
    const struct logbook_upload *m = u->multi;
    free(u->key);
    u->key = str_dup(str_of(m->key));
    u->part.bytes = m->part_bytes;
    u->part.count = u->part.left = m->part_count;
    for (unsigned i = 0; i < m->part_count; i++)
        if (m->parts[i].size_bytes > 0) {
            u->part.left--;
            u->sum.kind = m->parts[i].digest.kind;
        }
    upload_become(u, UPLOAD_SENDING);
}

void upload_start(struct upload *u)
{
    struct err err;
    u->part.bytes = key_part_bytes(u->size_bytes, store_caps(u->run->o.store)->parts_max);
    u->part.count = (unsigned)((u->size_bytes + u->part.bytes - 1) / u->part.bytes);
    if (u->file == NO_FILE && u->multi) {
        upload_become(u, UPLOAD_CLEANING);
        return;
    }
    if (upload_set_key(u, &err) < 0) {
        run_file_failed(u, &err);
        return;
    }
    u->multi = logbook_find_upload(u->run->logbook, u->path);
    u->must_sweep = u->multi != NULL;
    if (!u->multi) {
        begin_fresh(u);
    } else if (may_go_on(u)) {
        go_on(u);
    } else {
        upload_become(u, UPLOAD_CLEANING);
    }
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Time until the file counts as settled, by its ctime, which no program can set. If the clock was set back, do not
 * wait until it catches up: the lease alone shows that no process writes. */
static uint64_t unsettled_ns(const struct export_run *r, const struct file_lease *h)
{
    int64_t age = clock_wall_ns() - h->stamp.ctime_ns;
    return age >= 0 && (uint64_t)age < r->settle_ns ? r->settle_ns - (uint64_t)age : 0;
}

/* A large file that is not in the page cache is read with O_DIRECT: the cache belongs to the pods. */
static void choose_direct(const struct file_lease *h)
{
    struct {
        uint64_t off, len;
    } range = {0, 0};
    struct {
        uint64_t cache, dirty, writeback, evicted, recently_evicted;
    } stat = {0};
    const long nr_cachestat = 451;
    if (h->stamp.size_bytes <= KEY_PART_BYTES || syscall(nr_cachestat, h->fd, &range, &stat, 0) != 0)
        return;
    if (stat.cache * 4096 < h->stamp.size_bytes / 2)
        (void)fcntl(h->fd, F_SETFL, O_RDONLY | O_NONBLOCK | O_DIRECT); /* refused: then through the cache */
}

uint64_t run_memory_needed(const struct export_run *r, uint64_t size_bytes)
{
    if (size_bytes > KEY_OBJECT_BYTES_MAX)
        return 0;
    return key_part_bytes(size_bytes, store_caps(r->o.store)->parts_max) + SLICE_BYTES;
}

/* The buffers cannot hold one of its parts: it grew while it waited, or the memory is limited. The code is one that
 * concerns this file only: the run goes on with the others. */
static void fail_too_large(struct upload *own_u)
{
    const struct export_run *r = own_u->run;
    uint64_t limit_needed = 2 * run_memory_needed(r, own_u->size_bytes);
    struct err err;
    char size[BYTES_TEXT_MAX], limit[BYTES_TEXT_MAX];
    bytes_text(own_u->size_bytes, size);
    if (limit_needed <= r->memory_limit)
        err_fail(&err, ERR_RANGE, CIS_FILE_NOT_EXPORTED,
                 "'%.*s' grew to %s, more than the buffers of this run can send", STR_FMT(own_u->path), size);
    else
        err_fail(&err, ERR_RANGE, CIS_FILE_NOT_EXPORTED, "'%.*s' has %s: to send it needs a memory limit of %s",
                 STR_FMT(own_u->path), size, bytes_text(limit_needed, limit));
    run_file_failed(own_u, &err);
}

/* The file existed when the run began. The next run sees whether it was removed or renamed. */
static void fail_gone(struct upload *own_u)
{
    struct err err;
    err_fail(&err, ERR_CHANGED, CIS_FILE_REMOVED_DURING_EXPORT, "'%.*s' was removed or renamed while the export ran",
             STR_FMT(str_sub(own_u->path, 0, 300)));
    run_file_failed(own_u, &err);
}

/* The kernel drops a page that it could not write, and the file then reads as before. It reports that once to the next
 * descriptor that asks, so the logbook keeps it. A rename may have changed the path and the ctime since. */
static int check_writes(const struct export_run *r, const struct upload *u, struct err *err)
{
    const struct stamp *is = &u->lease.stamp, *lost = logbook_lost(r->logbook, is->inode);
    bool is_lost = r->o.must_lease && sync_file_range(u->lease.fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 &&
                   errno != EPERM && errno != ENOSYS; /* a seccomp profile */
    if (is_lost && logbook_add_lost(r->logbook, u->path, is, err) < 0)
        return err_wrap(err, "the disk lost data of '%.*s'", STR_FMT(str_sub(u->path, 0, 200)));
    if (!is_lost && !(lost && lost->size_bytes == is->size_bytes && lost->mtime_ns == is->mtime_ns))
        return 0;
    return err_fail(err, ERR_IO, CIS_WRITES_LOST, "the disk lost data that a program wrote to '%.*s'",
                    STR_FMT(str_sub(u->path, 0, 300)));
}

void run_start_file(struct export_run *r, size_t file)
{
    struct upload *u = run_new_upload(r);
    struct err err;
    u->file = (ssize_t)file;
    u->path = r->plan.files[file].path;
    u->size_bytes = r->plan.files[file].size_bytes;
    const struct err *barred = checkpoint_barred(u);
    if (barred) {
        run_file_failed(u, barred);
        return;
    }
    int e = file_lease_open(r->o.data, u->path.ptr, r->o.must_lease, &u->lease, &err);
    if (e == -ERR_NOT_FOUND) {
        fail_gone(u);
    } else if (e == -ERR_AGAIN) {
        run_file_waits(u, 0, err.text);
    } else if (e < 0) {
        run_file_failed(u, &err);
    } else if (unsettled_ns(r, &u->lease) > 0) {
        run_file_waits(u, unsettled_ns(r, &u->lease), NULL);
    } else if (check_writes(r, u, &err) < 0) {
        run_file_failed(u, &err);
    } else {
        u->size_bytes = u->lease.stamp.size_bytes;
        if (run_memory_needed(r, u->size_bytes) > r->memory_bytes) {
            fail_too_large(u);
            return;
        }
        choose_direct(&u->lease);
        run_make_token(u->path, &u->lease.stamp, u->token);
        upload_start(u);
    }
}

/* Aborts an upload of an earlier run that this run does not continue. */
void run_add_chore(struct export_run *r, struct logbook_upload *m)
{
    struct upload *u = run_new_upload(r);
    u->multi = m;
    u->path = str_of(m->path);
    u->size_bytes = m->stamp.size_bytes;
    upload_start(u);
}
