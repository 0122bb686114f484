/* SPDX-License-Identifier: Apache-2.0 */
/* Replay, in two passes: the first finds out what may be trusted, the second applies it. */
#include "journal_format.h"
#include "util/file.h"
#include <inttypes.h>
#include <sys/stat.h>

enum { DISCARDS_MAX = 1024, READ_RECORDS = 4096 };

struct range {
    uint64_t from, to;
};

struct trust {
    uint64_t size;          /* of the file, whole records */
    uint64_t end;           /* of the records that are right */
    uint64_t durable;       /* what is before it outlived everything */
    uint64_t this_boot;     /* from here on every run was of this boot; UINT64_MAX: none was */
    struct range *discards; /* owned */
    size_t discard_count;
};

typedef int visit(struct journal *j, struct trust *t, const struct journal_record *r, uint64_t at, void *ctx,
                  struct err *err);

static int damaged(uint64_t at, const char *why, struct err *err)
{
    err_set(err, ERR_CORRUPT, "'%s' is damaged at byte %" PRIu64 ": %s", JOURNAL_FILE, at, why);
    return err_advise(err, 1505, "start over without it (--no-resume)");
}

/* Visits the records from `from` to `to`. Stops at the first whose checksum is wrong: *ret_stop is its place. */
static int each_record(struct journal *j, struct trust *t, uint64_t from, uint64_t to, bool skip_bad, visit *v,
                       void *ctx, uint64_t *ret_stop, struct err *err)
{
    auto_mem struct journal_record *buffer = xcalloc(READ_RECORDS, sizeof *buffer);
    uint64_t at = from;
    while (at < to) {
        size_t want = min_u64(READ_RECORDS * sizeof *buffer, to - at);
        ssize_t got = pread(j->fd, buffer, want, (off_t)at);
        if (got != (ssize_t)want)
            return err_sys(err, got < 0 ? errno : EIO, "cannot read '%s'", JOURNAL_FILE);
        for (size_t i = 0; i < want / sizeof *buffer; i++, at += sizeof *buffer) {
            bool right = buffer[i].crc == journal_record_crc(&buffer[i], at);
            if (!right && !skip_bad) {
                *ret_stop = at;
                return 0;
            }
            int r = right ? v(j, t, &buffer[i], at, ctx, err) : 0;
            if (r < 0)
                return r;
        }
    }
    *ret_stop = at;
    return 0;
}

struct expected {
    const uint8_t *uid;
    const uint8_t *boot_id;
    uint32_t part_bytes;
};

static int check_head(const struct journal_record *r, uint64_t at, const struct expected *e, struct err *err)
{
    if (at != 0)
        return damaged(at, "a head in its middle", err);
    if (r->c >> 32 != JOURNAL_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "the journal is of version %" PRIu64 ", this program reads version %d",
                       r->c >> 32, JOURNAL_VERSION);
    if (memcmp(&r->a, e->uid, INDEX_UID_BYTES) != 0)
        return damaged(at, "it belongs to another catalog", err);
    if ((uint32_t)r->c != e->part_bytes)
        return err_set(err, ERR_UNSUPPORTED,
                       "the journal counts in parts of %" PRIu32 " bytes, this program in %" PRIu32, (uint32_t)r->c,
                       e->part_bytes);
    return 0;
}

static int weigh(struct journal *j, struct trust *t, const struct journal_record *r, uint64_t at, void *ctx,
                 struct err *err)
{
    const struct expected *e = ctx;
    if (at == 0 && r->kind != JOURNAL_HEAD)
        return damaged(at, "it begins without a head", err);
    switch (r->kind) {
    case JOURNAL_HEAD:
        return check_head(r, at, e, err);
    case JOURNAL_RUN:
        j->runs++;
        if (memcmp(&r->a, e->boot_id, 16) != 0)
            t->this_boot = UINT64_MAX;
        else if (t->this_boot == UINT64_MAX)
            t->this_boot = at;
        return 0;
    case JOURNAL_DURABLE:
        if (r->a > at)
            return damaged(at, "a barrier that covers what came after it", err);
        t->durable = max_u64(t->durable, r->a);
        return 0;
    case JOURNAL_DISCARD:
        if (r->a > at || t->discard_count == DISCARDS_MAX)
            return damaged(at, "more discarded than there is", err);
        t->discards[t->discard_count++] = (struct range){r->a, at};
        return 0;
    case JOURNAL_WRITTEN:
        return r->b == 0 || r->a > UINT32_MAX || r->b > JOURNAL_BATCH ? damaged(at, "objects no catalog has", err) : 0;
    case JOURNAL_PART:
        return r->a > UINT32_MAX || r->b > UINT32_MAX || r->digest_kind > HASH_CRC64NVME
                   ? damaged(at, "a part that no object has", err)
                   : 0;
    case JOURNAL_VOID:
    case JOURNAL_CUT:
    case JOURNAL_COMPLETE:
        return 0;
    default:
        return damaged(at, "a record of an unknown kind", err);
    }
}

/* Behind a record that is wrong: what proves that it once was right? After a crash of ours alone the end can be torn,
 * and nothing stands behind a torn end. After a power loss, pages that no barrier covered may have gone in any order.
 */
static int witness(struct journal *j, struct trust *t, const struct journal_record *r, uint64_t at, void *ctx,
                   struct err *err)
{
    (void)j;
    (void)at;
    (void)ctx;
    bool proves = t->this_boot != UINT64_MAX || (r->kind == JOURNAL_DURABLE && r->a > t->end);
    return proves ? damaged(t->end, "a record's checksum is wrong", err) : 0;
}

static bool is_trusted(const struct trust *t, uint64_t at)
{
    for (size_t i = 0; i < t->discard_count; i++)
        if (at >= t->discards[i].from && at < t->discards[i].to)
            return false;
    return at < t->durable || at >= t->this_boot;
}

static int apply(struct journal *j, struct trust *t, const struct journal_record *r, uint64_t at, void *ctx,
                 struct err *err)
{
    (void)ctx;
    (void)err;
    /* What takes trust away holds even where what gives it would not. */
    if (r->kind == JOURNAL_VOID || r->kind == JOURNAL_CUT)
        j->complete = false;
    if (r->kind == JOURNAL_VOID) {
        journal_set_whole(j, r->a, false);
        journal_forget_parts(j, r->a);
    }
    if (r->kind == JOURNAL_CUT)
        journal_forget_from(j, r->a);
    /* Written after the barrier that it stands for, with an fsync of its own. */
    if (r->kind == JOURNAL_COMPLETE) {
        j->complete = true;
        j->completed_ns = (int64_t)r->c;
    }
    if (!is_trusted(t, at))
        return 0;
    if (r->kind == JOURNAL_PART)
        journal_note_part(j, r->a, (uint32_t)r->b, r->digest_kind, r->c);
    for (uint64_t i = 0; r->kind == JOURNAL_WRITTEN && i < r->b; i++) {
        journal_set_whole(j, r->a + i, true);
        if (j->parts_count > 0)
            journal_forget_parts(j, r->a + i);
    }
    return 0;
}

static void trust_done(struct trust *t)
{
    free(t->discards);
}

int journal_replay(struct journal *j, const uint8_t uid[INDEX_UID_BYTES], uint32_t part_bytes,
                   const uint8_t boot_id[16], struct err *err)
{
    struct expected e = {uid, boot_id, part_bytes};
    struct stat st;
    if (fstat(j->fd, &st) != 0)
        return err_sys(err, errno, "cannot read '%s'", JOURNAL_FILE);
    auto_with(trust_done) struct trust t = {.this_boot = UINT64_MAX};
    t.discards = xcalloc(DISCARDS_MAX, sizeof *t.discards);
    t.size = (uint64_t)st.st_size / sizeof(struct journal_record) * sizeof(struct journal_record);
    uint64_t stop;
    int r = each_record(j, &t, 0, t.size, false, weigh, &e, &t.end, err);
    if (r == 0 && t.end < t.size)
        r = each_record(j, &t, t.end + sizeof(struct journal_record), t.size, true, witness, NULL, &stop, err);
    if (r == 0)
        r = each_record(j, &t, 0, t.end, false, apply, NULL, &stop, err);
    if (r < 0)
        return r;
    if (ftruncate(j->fd, (off_t)t.end) != 0)
        return err_sys(err, errno, "cannot cut the torn end of '%s'", JOURNAL_FILE);
    j->end = t.end;
    j->held = min_u64(t.durable, t.end);
    j->must_discard = t.this_boot == UINT64_MAX && j->held < j->end;
    return 0;
}
