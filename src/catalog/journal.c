/* SPDX-License-Identifier: Apache-2.0 */
#include "format.h"
#include "journal_format.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>

uint32_t journal_record_crc(const struct journal_record *r, uint64_t position)
{
    struct str pieces[] = {{(const char *)&position, sizeof position},
                           {(const char *)r + sizeof r->crc, sizeof *r - sizeof r->crc}};
    return crc32c_of(pieces, countof(pieces));
}

/* ---- what is known ----------------------------------------------------------------------------------------------- */

void journal_set_whole(struct journal *j, uint64_t id, bool whole)
{
    uint64_t word = id / 64, bit = UINT64_C(1) << id % 64;
    if (word >= j->whole_words) {
        if (!whole)
            return;
        uint64_t words = max_u64(word + 1, j->whole_words * 2);
        j->whole = xrealloc(j->whole, words, sizeof *j->whole);
        memset(j->whole + j->whole_words, 0, (words - j->whole_words) * sizeof *j->whole);
        j->whole_words = words;
    }
    if (((j->whole[word] & bit) != 0) == whole)
        return;
    j->whole[word] ^= bit;
    j->whole_count += whole ? 1 : (uint64_t)-1;
}

/* The place of an id's parts, or where they would be. */
static size_t parts_place(const struct journal *j, uint64_t id)
{
    size_t low = 0, high = j->parts_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (j->parts[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct journal_parts *parts_of(struct journal *j, uint64_t id)
{
    size_t at = parts_place(j, id);
    return at < j->parts_count && j->parts[at].id == id ? &j->parts[at] : NULL;
}

static struct journal_parts *parts_insert(struct journal *j, uint64_t id)
{
    size_t at = parts_place(j, id);
    if (j->parts_count == JOURNAL_PARTS_OBJECTS_MAX)
        return NULL;
    if (j->parts_count == j->parts_room) {
        j->parts_room = max_u64(64, j->parts_room * 2);
        j->parts = xrealloc(j->parts, j->parts_room, sizeof *j->parts);
    }
    memmove(&j->parts[at + 1], &j->parts[at], (j->parts_count - at) * sizeof *j->parts);
    j->parts[at] = (struct journal_parts){.id = id};
    j->parts_count++;
    return &j->parts[at];
}

void journal_note_part(struct journal *j, uint64_t id, uint32_t part, uint8_t kind, uint64_t value)
{
    struct journal_parts *p = parts_of(j, id);
    if (!p)
        p = parts_insert(j, id);
    if (!p)
        return;
    if (part >= p->room) {
        uint64_t room = max_u64((uint64_t)part + 1, min_u64((uint64_t)p->room * 2, UINT32_MAX));
        if (j->parts_total - p->room + room > JOURNAL_PARTS_MAX)
            return;
        p->values = xrealloc(p->values, room, sizeof *p->values);
        p->kinds = xrealloc(p->kinds, room, 1);
        memset(p->kinds + p->room, 0, room - p->room);
        j->parts_total += room - p->room;
        p->room = (uint32_t)room;
    }
    p->values[part] = value;
    p->kinds[part] = (uint8_t)(kind + 1);
}

static void parts_done(struct journal *j, struct journal_parts *p)
{
    j->parts_total -= p->room;
    free(p->values);
    free(p->kinds);
}

void journal_forget_parts(struct journal *j, uint64_t id)
{
    struct journal_parts *p = parts_of(j, id);
    if (!p)
        return;
    parts_done(j, p);
    size_t at = (size_t)(p - j->parts);
    memmove(p, p + 1, (j->parts_count - at - 1) * sizeof *p);
    j->parts_count--;
}

void journal_forget_from(struct journal *j, uint64_t id)
{
    while (j->parts_count > 0 && j->parts[j->parts_count - 1].id >= id)
        parts_done(j, &j->parts[--j->parts_count]);
    for (uint64_t word = j->whole_words; word-- > id / 64;) {
        uint64_t keep = word == id / 64 ? (UINT64_C(1) << id % 64) - 1 : 0;
        j->whole_count -= (uint64_t)__builtin_popcountll(j->whole[word] & ~keep);
        j->whole[word] &= keep;
    }
}

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
    pthread_mutex_lock(&j->lock);
    bool whole = id / 64 < j->whole_words && (j->whole[id / 64] >> id % 64 & 1);
    pthread_mutex_unlock(&j->lock);
    return whole;
}

uint64_t journal_whole_count(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    uint64_t n = j->whole_count;
    pthread_mutex_unlock(&j->lock);
    return n;
}

bool journal_has_part(struct journal *j, uint64_t id, uint32_t part, enum hash_kind kind, struct digest *ret)
{
    pthread_mutex_lock(&j->lock);
    const struct journal_parts *p = parts_of(j, id);
    uint64_t value = 0;
    bool has = p && part < p->room && p->kinds[part] && (kind == HASH_NONE || p->kinds[part] == kind + 1);
    uint8_t of_kind = has ? p->kinds[part] - 1 : HASH_NONE;
    if (has)
        value = p->values[part];
    pthread_mutex_unlock(&j->lock);
    if (!has)
        return false;
    *ret = (struct digest){.kind = of_kind};
    for (size_t size = hash_size(of_kind), i = size; i-- > 0; value >>= 8)
        ret->bytes[i] = (uint8_t)value;
    return true;
}

bool journal_has_parts(struct journal *j, uint64_t id)
{
    pthread_mutex_lock(&j->lock);
    bool has = parts_of(j, id) != NULL;
    pthread_mutex_unlock(&j->lock);
    return has;
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

static void write_batch(struct journal *j)
{
    struct err err;
    for (size_t i = 0; i < j->batch_count; i++)
        j->batch[i].crc = journal_record_crc(&j->batch[i], j->end + i * sizeof *j->batch);
    size_t len = j->batch_count * sizeof *j->batch;
    j->batch_count = 0;
    /* After a write that failed nothing may follow: a gap would look like damage. */
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

/* Objects become whole nearly in order: sorted, a batch of them is a few runs. */
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
    pthread_mutex_lock(&j->lock);
    if (j->id_count == JOURNAL_BATCH)
        append_ids(j);
    j->ids[j->id_count++] = id;
    journal_set_whole(j, id, true);
    journal_forget_parts(j, id);
    pthread_mutex_unlock(&j->lock);
}

static void append_part(struct journal *j, uint64_t id, uint32_t part, uint8_t kind, uint64_t value)
{
    append(j, (struct journal_record){.kind = JOURNAL_PART, .digest_kind = kind, .a = id, .b = part, .c = value});
}

void journal_part_written(struct journal *j, uint64_t id, uint32_t part, const struct digest *digest)
{
    uint64_t value = 0;
    for (size_t i = 0; i < min_u64(8, hash_size(digest->kind)); i++)
        value = value << 8 | digest->bytes[i];
    pthread_mutex_lock(&j->lock);
    append_part(j, id, part, digest->kind, value);
    pthread_mutex_unlock(&j->lock);
}

void journal_adopt_parts(struct journal *j, uint64_t id, struct journal *from, uint64_t from_id)
{
    const struct journal_parts *p = parts_of(from, from_id);
    pthread_mutex_lock(&j->lock);
    for (uint32_t part = 0; p && part < p->room; part++) {
        if (!p->kinds[part])
            continue;
        append_part(j, id, part, p->kinds[part] - 1, p->values[part]);
        journal_note_part(j, id, part, p->kinds[part] - 1, p->values[part]);
    }
    pthread_mutex_unlock(&j->lock);
}

void journal_stale(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    append(j, (struct journal_record){.kind = JOURNAL_STALE});
    pthread_mutex_unlock(&j->lock);
}

static int sync_file(struct journal *j, struct err *err)
{
    return fdatasync(j->fd) == 0 ? 0 : err_sys(err, errno, "cannot make the journal durable");
}

void journal_unwritten(struct journal *j, uint64_t id)
{
    pthread_mutex_lock(&j->lock);
    append_ids(j);
    append(j, (struct journal_record){.kind = JOURNAL_VOID, .a = id});
    journal_set_whole(j, id, false);
    journal_forget_parts(j, id);
    pthread_mutex_unlock(&j->lock);
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
    pthread_mutex_lock(&j->lock);
    int r = flush_locked(j, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_barrier_begin(struct journal *j, struct err *err)
{
    pthread_mutex_lock(&j->lock);
    int r = flush_locked(j, err);
    j->barrier_at = j->end;
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_barrier_held(struct journal *j, struct err *err)
{
    /* What the mark covers first: of one fsync that the power cuts short a disk may keep the end and lose the middle,
     * and a hole before a mark is damage. */
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
    struct err ignored;
    pthread_mutex_lock(&j->lock);
    append_ids(j);
    append(j, (struct journal_record){.kind = JOURNAL_DISCARD, .a = j->held});
    int r = flush_locked(j, &ignored);
    /* What is told from now on may have been written before the barrier, and be among what it lost. */
    if (j->failed.code == 0)
        j->failed = *why;
    pthread_mutex_unlock(&j->lock);
    /* Where it cannot be said, what no barrier vouches for is taken out of the file. If not even this can be done, the
     * disk takes nothing at all. */
    if (r < 0 || sync_file(j, &ignored) < 0)
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
    while (j->parts_count > 0)
        parts_done(j, &j->parts[--j->parts_count]);
    free(j->parts);
    free(j->whole);
    free(j->batch);
    free(j->ids);
    auto_clean_fd(&j->fd);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

int journal_is_of(int dir, const uint8_t uid[INDEX_UID_BYTES], bool *ret, struct err *err)
{
    struct journal_record head;
    auto_fd fd = openat(dir, JOURNAL_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
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
        err->code = ERR_UNSUPPORTED; /* nothing that was asked for is not found: this machine lacks something */
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
    j->fd = openat(dir, JOURNAL_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (j->fd < 0)
        return err_sys(err, errno, "cannot open '%s'", JOURNAL_FILE);
    r = journal_replay(j, uid, part_bytes, boot, err);
    if (r < 0)
        return r;
    if (j->end == 0) {
        struct journal_record head = {.kind = JOURNAL_HEAD, .c = (uint64_t)JOURNAL_VERSION << 32 | part_bytes};
        memcpy(&head.a, uid, INDEX_UID_BYTES);
        append(j, head);
    }
    /* Said aloud, or our own first barrier would vouch for what the power loss may have taken. */
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
