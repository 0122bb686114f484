/* SPDX-License-Identifier: Apache-2.0 */
#include "format.h"
#include "journal_format.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>

bool journal_is_complete(const struct journal *j)
{
    return j->complete;
}

int64_t journal_completed_ns(const struct journal *j)
{
    return j->completed_ns;
}

unsigned journal_runs(const struct journal *j)
{
    return j->runs;
}

bool journal_is_stale(const struct journal *j)
{
    return j->stale;
}

bool journal_is_whole(struct journal *j, uint64_t id)
{
    auto_lock(&j->lock);
    return id / 64 < j->whole_words && (j->whole[id / 64] >> id % 64 & 1);
}

bool journal_has_part(struct journal *j, uint64_t id, uint32_t part, enum hash_kind kind, struct digest *ret)
{
    auto_lock(&j->lock);
    const struct journal_parts *p = journal_parts_of(j, id);
    if (!p || part >= p->room || !p->kinds[part] || (kind != HASH_NONE && p->kinds[part] != kind + 1))
        return false;
    *ret = (struct digest){.kind = p->kinds[part] - 1};
    digest_set_crc(ret, p->values[part]);
    return true;
}

bool journal_has_parts(struct journal *j, uint64_t id)
{
    auto_lock(&j->lock);
    return journal_parts_of(j, id) != NULL;
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

static void write_batch(struct journal *j)
{
    struct err err;
    for (size_t i = 0; i < j->batch_count; i++)
        j->batch[i].crc = journal_record_crc(&j->batch[i], j->end + i * sizeof *j->batch);
    size_t len = j->batch_count * sizeof *j->batch;
    j->batch_count = 0;
    /* After a failed write no record may follow: a gap would count as damage. */
    if (j->failed.code != 0 || len == 0)
        return;
    if (file_pwrite_all(j->fd, JOURNAL_FILE, j->batch, len, j->end, &err) < 0) {
        j->failed = err;
        return;
    }
    j->end += len;
}

static void append(struct journal *j, struct journal_record r)
{
    if (j->batch_count == JOURNAL_BATCH)
        write_batch(j);
    j->batch[j->batch_count++] = r;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Objects complete nearly in order: a sorted batch of them is a few runs. */
static void append_ids(struct journal *j)
{
    qsort(j->ids, j->id_count, sizeof *j->ids, compare_ids);
    for (size_t i = 0, n; i < j->id_count; i += n) {
        for (n = 1; i + n < j->id_count && j->ids[i + n] <= j->ids[i + n - 1] + 1; n++)
            ;
        append(j, (struct journal_record){
                      .kind = JOURNAL_WRITTEN, .a = j->ids[i], .b = j->ids[i + n - 1] - j->ids[i] + 1});
    }
    j->id_count = 0;
}

static int flush_locked(struct journal *j, struct err *err)
{
    append_ids(j);
    write_batch(j);
    return j->failed.code ? err_copy(err, &j->failed) : 0;
}

void journal_written(struct journal *j, uint64_t id)
{
    auto_lock(&j->lock);
    if (j->id_count == JOURNAL_BATCH)
        append_ids(j);
    j->ids[j->id_count++] = id;
    journal_set_whole(j, id, true);
    journal_forget_parts(j, id);
}

static void append_part(struct journal *j, uint64_t id, uint32_t part, uint8_t kind, uint64_t value)
{
    append(j, (struct journal_record){.kind = JOURNAL_PART, .digest_kind = kind, .a = id, .b = part, .c = value});
}

void journal_part_written(struct journal *j, uint64_t id, uint32_t part, const struct digest *digest)
{
    auto_lock(&j->lock);
    append_part(j, id, part, digest->kind, digest_crc(digest));
}

void journal_adopt_parts(struct journal *j, uint64_t id, struct journal *from, uint64_t from_id)
{
    const struct journal_parts *p = journal_parts_of(from, from_id);
    auto_lock(&j->lock);
    for (uint32_t part = 0; p && part < p->room; part++) {
        if (!p->kinds[part])
            continue;
        append_part(j, id, part, p->kinds[part] - 1, p->values[part]);
        journal_note_part(j, id, part, p->kinds[part] - 1, p->values[part]);
    }
}

void journal_mark_stale(struct journal *j)
{
    auto_lock(&j->lock);
    append(j, (struct journal_record){.kind = JOURNAL_STALE});
}

static int sync_file(struct journal *j, struct err *err)
{
    return fdatasync(j->fd) == 0 ? 0 : err_sys(err, errno, "cannot make the journal durable");
}

void journal_unwritten(struct journal *j, uint64_t id)
{
    auto_lock(&j->lock);
    append_ids(j);
    append(j, (struct journal_record){.kind = JOURNAL_VOID, .a = id});
    journal_set_whole(j, id, false);
    journal_forget_parts(j, id);
}

int journal_sync(struct journal *j, struct err *err)
{
    int r = journal_flush(j, err);
    return r == 0 ? sync_file(j, err) : r;
}

int journal_void(struct journal *j, uint64_t id, struct err *err)
{
    journal_unwritten(j, id);
    return journal_sync(j, err);
}

static bool knows_from(const struct journal *j, uint64_t id)
{
    bool any = j->parts_count > 0 && j->parts[j->parts_count - 1].id >= id;
    for (uint64_t word = id / 64; word < j->whole_words && !any; word++)
        any = (j->whole[word] & (word == id / 64 ? ~UINT64_C(0) << id % 64 : ~UINT64_C(0))) != 0;
    return any;
}

int journal_cut(struct journal *j, uint64_t count, struct err *err)
{
    int r = 0;
    pthread_mutex_lock(&j->lock);
    bool matters = knows_from(j, count);
    if (matters) {
        journal_forget_from(j, count);
        append(j, (struct journal_record){.kind = JOURNAL_CUT, .a = count});
        r = flush_locked(j, err);
    }
    pthread_mutex_unlock(&j->lock);
    /* Durable at once: the ids are about to be given to other objects. */
    return matters && r == 0 ? sync_file(j, err) : r;
}

int journal_flush(struct journal *j, struct err *err)
{
    auto_lock(&j->lock);
    return flush_locked(j, err);
}

int journal_barrier_begin(struct journal *j, struct err *err)
{
    auto_lock(&j->lock);
    int r = flush_locked(j, err);
    j->barrier_at = j->end;
    return r;
}

int journal_barrier_succeeded(struct journal *j, struct err *err)
{
    /* Sync the covered records first: a power loss during one fsync may keep the end and lose the middle, and a hole
     * before a JOURNAL_DURABLE record counts as damage. */
    int r = sync_file(j, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&j->lock);
    append(j, (struct journal_record){.kind = JOURNAL_DURABLE, .a = j->barrier_at});
    r = flush_locked(j, err);
    if (r == 0)
        j->held = j->barrier_at;
    pthread_mutex_unlock(&j->lock);
    return r == 0 ? sync_file(j, err) : r;
}

void journal_barrier_failed(struct journal *j, const struct err *why)
{
    pthread_mutex_lock(&j->lock);
    append_ids(j);
    append(j, (struct journal_record){.kind = JOURNAL_DISCARD, .a = j->held});
    int r = flush_locked(j, ERR_IGNORED);
    /* Later records may describe writes that the failed barrier lost. */
    if (j->failed.code == 0)
        j->failed = *why;
    pthread_mutex_unlock(&j->lock);
    /* If the record cannot be written, the records that no barrier covers are removed from the file. If this fails
     * too, the disk accepts no write at all. */
    if (r < 0 || sync_file(j, ERR_IGNORED) < 0)
        (void)!ftruncate(j->fd, (off_t)j->held);
}

int journal_complete(struct journal *j, uint64_t objects, uint64_t bytes, int64_t wall_ns, struct err *err)
{
    pthread_mutex_lock(&j->lock);
    append(j, (struct journal_record){.kind = JOURNAL_COMPLETE, .a = objects, .b = bytes, .c = (uint64_t)wall_ns});
    int r = flush_locked(j, err);
    j->completed_ns = wall_ns;
    j->complete = r == 0;
    pthread_mutex_unlock(&j->lock);
    return r == 0 ? sync_file(j, err) : r;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void journal_free(struct journal *j)
{
    if (!j)
        return;
    journal_state_done(j);
    free(j->batch);
    free(j->ids);
    fd_close(&j->fd);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

int journal_is_of(int dir, const uint8_t uid[INDEX_UID_BYTES], bool *ret, struct err *err)
{
    struct journal_record head;
    auto_fd fd = openat(dir, JOURNAL_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd >= 0 ? pread(fd, &head, sizeof head, 0) : errno == ENOENT ? 0 : -1;
    if (n < 0)
        return err_sys(err, errno, "cannot read '%s'", JOURNAL_FILE);
    *ret = n == sizeof head && head.crc == journal_record_crc(&head, 0) && head.kind == JOURNAL_HEAD &&
           memcmp(&head.a, uid, INDEX_UID_BYTES) == 0;
    return 0;
}

static int kernel_boot_id(uint8_t ret[16], struct err *err)
{
    auto_mem char *text = NULL;
    size_t len, n = 0;
    if (file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text, &len, err) < 0) {
        err->code = ERR_UNSUPPORTED; /* not ERR_NOT_FOUND, which the caller would read as a missing journal */
        return -ERR_UNSUPPORTED;
    }
    memset(ret, 0, 16);
    for (size_t i = 0; i < len && n < 32; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            continue;
        ret[n / 2] = (uint8_t)(ret[n / 2] << 4 | digit);
        n++;
    }
    return n == 32 ? 0 : err_set(err, ERR_IO, "the kernel's boot id is '%.40s'", text);
}

int journal_open(int dir, const uint8_t uid[INDEX_UID_BYTES], uint32_t part_bytes, const uint8_t boot_id[16],
                 struct journal **ret, struct err *err)
{
    uint8_t boot[16];
    struct journal_record run = {.kind = JOURNAL_RUN};
    int r = 0;
    if (boot_id)
        memcpy(boot, boot_id, sizeof boot);
    else
        r = kernel_boot_id(boot, err);
    if (r < 0)
        return r;
    auto_journal j = xcalloc(1, sizeof *j);
    pthread_mutex_init(&j->lock, NULL);
    j->batch = xcalloc(JOURNAL_BATCH, sizeof *j->batch);
    j->ids = xcalloc(JOURNAL_BATCH, sizeof *j->ids);
    r = file_open_state(dir, JOURNAL_FILE, O_RDWR | O_CREAT, 0600, &j->fd, err);
    if (r < 0)
        return r;
    r = journal_replay(j, uid, part_bytes, boot, err);
    if (r < 0)
        return r;
    if (j->end == 0) {
        struct journal_record head = {.kind = JOURNAL_HEAD, .c = (uint64_t)JOURNAL_VERSION << 32 | part_bytes};
        memcpy(&head.a, uid, INDEX_UID_BYTES);
        append(j, head);
    }
    /* Without this record the first barrier of this run would cover records that the power loss may have taken. */
    if (j->must_discard)
        append(j, (struct journal_record){.kind = JOURNAL_DISCARD, .a = j->held});
    memcpy(&run.a, boot, sizeof boot);
    append(j, run);
    j->runs++;
    r = journal_flush(j, err);
    if (r < 0)
        return r;
    *ret = take(&j);
    return 0;
}
