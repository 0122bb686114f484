/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the journal in two passes: the first finds the trusted ranges, the second applies them. */
#include "journal_format.h"
#include <inttypes.h>
#include <sys/stat.h>

enum { DISCARDS_MAX = 1024, READ_RECORDS = 4096 };

struct range {
    uint64_t from, to;
};

struct expected {
    const uint8_t *uid;
    const uint8_t *boot_id;
    uint32_t part_bytes;
};

struct replay {
    struct journal *j;
    const struct expected *expected;
    uint64_t size;          /* of the file, whole records */
    uint64_t end;           /* of the records that are right */
    uint64_t durable;       /* what is before it outlived everything */
    uint64_t this_boot;     /* position from which every run was of this boot; UINT64_MAX: none was */
    struct range *discards; /* borrowed: DISCARDS_MAX */
    size_t discard_count;
};

typedef int visit(struct replay *p, const struct journal_record *r, uint64_t at, struct err *err);

static int damaged(uint64_t at, const char *why, struct err *err)
{
    return err_fail(err, ERR_CORRUPT, CIS_JOURNAL_CORRUPT, "'%s' is damaged at byte %" PRIu64 ": %s", JOURNAL_FILE, at,
                    why);
}

/* Visits the records from `from` to `to`. Stops at the first one with a wrong checksum and sets *ret_stop to its
 * position; if ret_stop is NULL, skips such records. */
static int each_record(struct replay *p, uint64_t from, uint64_t to, visit *v, uint64_t *ret_stop, struct err *err)
{
    auto_mem struct journal_record *buffer = xcalloc(READ_RECORDS, sizeof *buffer);
    uint64_t at = from;
    while (at < to) {
        size_t want = min_u64(READ_RECORDS * sizeof *buffer, to - at);
        ssize_t got = pread(p->j->fd, buffer, want, (off_t)at);
        if (got != (ssize_t)want)
            return err_sys(err, got < 0 ? errno : EIO, "cannot read '%s'", JOURNAL_FILE);
        for (size_t i = 0; i < want / sizeof *buffer; i++, at += sizeof *buffer) {
            bool right = buffer[i].crc == journal_record_crc(&buffer[i], at);
            if (!right && ret_stop) {
                *ret_stop = at;
                return 0;
            }
            int r = right ? v(p, &buffer[i], at, err) : 0;
            if (r < 0)
                return r;
        }
    }
    if (ret_stop)
        *ret_stop = at;
    return 0;
}

static int check_head(const struct journal_record *r, uint64_t at, const struct expected *e, struct err *err)
{
    if (at != 0)
        return damaged(at, "a second head", err);
    if (r->c >> 32 != JOURNAL_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "the journal is of version %" PRIu64 ", this program reads version %d",
                       r->c >> 32, JOURNAL_VERSION);
    if (memcmp(&r->a, e->uid, INDEX_UID_BYTES) != 0)
        return damaged(at, "it belongs to another catalog", err);
    if ((uint32_t)r->c != e->part_bytes)
        return err_set(err, ERR_UNSUPPORTED,
                       "the journal has parts of %" PRIu32 " bytes, this program uses parts of %" PRIu32,
                       (uint32_t)r->c, e->part_bytes);
    return 0;
}

/* Several boots without a successful barrier discard from the same position: they are one range. */
static int discard(struct replay *p, uint64_t from, uint64_t to, struct err *err)
{
    struct range *last = p->discard_count ? &p->discards[p->discard_count - 1] : NULL;
    if (from > to)
        return damaged(to, "a discard record covers more than was written", err);
    if (last && from >= last->from && from <= last->to) {
        last->to = to;
        return 0;
    }
    if (p->discard_count == DISCARDS_MAX)
        return damaged(to, "too many failed barriers", err);
    p->discards[p->discard_count++] = (struct range){from, to};
    return 0;
}

static int weigh(struct replay *p, const struct journal_record *r, uint64_t at, struct err *err)
{
    const struct expected *e = p->expected;
    if (at == 0 && r->kind != JOURNAL_HEAD)
        return damaged(at, "the head is missing", err);
    switch (r->kind) {
    case JOURNAL_HEAD:
        return check_head(r, at, e, err);
    case JOURNAL_RUN:
        p->j->runs++;
        if (memcmp(&r->a, e->boot_id, 16) != 0)
            p->this_boot = UINT64_MAX;
        else if (p->this_boot == UINT64_MAX)
            p->this_boot = at;
        return 0;
    case JOURNAL_DURABLE:
        if (r->a > at)
            return damaged(at, "a barrier record covers later records", err);
        p->durable = max_u64(p->durable, r->a);
        return 0;
    case JOURNAL_DISCARD:
        return discard(p, r->a, at, err);
    case JOURNAL_WRITTEN:
        return r->b == 0 || r->a > UINT32_MAX || r->b > JOURNAL_BATCH
                   ? damaged(at, "a record names objects that no catalog has", err)
                   : 0;
    case JOURNAL_PART:
        return r->a > UINT32_MAX || r->b > UINT32_MAX || r->digest_kind > HASH_CRC64NVME
                   ? damaged(at, "a record names a part that no object has", err)
                   : 0;
    case JOURNAL_VOID:
    case JOURNAL_CUT:
    case JOURNAL_COMPLETE:
    case JOURNAL_STALE:
        return 0;
    default:
        return damaged(at, "a record of an unknown kind", err);
    }
}

/* Looks for proof that the record with the wrong checksum was once valid. After a crash of the process only the end
 * can be torn, and no record follows it. After a power loss, pages that no barrier covered may be written in any
 * order. */
static int witness(struct replay *p, const struct journal_record *r, uint64_t, struct err *err)
{
    bool proves = p->this_boot != UINT64_MAX || (r->kind == JOURNAL_DURABLE && r->a > p->end);
    return proves ? damaged(p->end, "a record's checksum is wrong", err) : 0;
}

static bool is_trusted(const struct replay *p, uint64_t at)
{
    for (size_t i = 0; i < p->discard_count; i++)
        if (at >= p->discards[i].from && at < p->discards[i].to)
            return false;
    return at < p->durable || at >= p->this_boot;
}

static int apply(struct replay *p, const struct journal_record *r, uint64_t at, struct err *)
{
    struct journal *j = p->j;
    /* Records that revoke trust count even in ranges that are not trusted. */
    if (r->kind == JOURNAL_VOID || r->kind == JOURNAL_CUT)
        j->complete = false;
    if (r->kind == JOURNAL_VOID) {
        journal_set_whole(j, r->a, false);
        journal_forget_parts(j, r->a);
    }
    if (r->kind == JOURNAL_CUT)
        journal_forget_from(j, r->a);
    if (r->kind == JOURNAL_STALE)
        j->stale = true;
    /* Written after the barrier that it stands for, with an fsync of its own. */
    if (r->kind == JOURNAL_COMPLETE) {
        j->complete = true;
        j->completed_ns = (int64_t)r->c;
    }
    if (!is_trusted(p, at))
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

int journal_replay(struct journal *j, const uint8_t uid[INDEX_UID_BYTES], uint32_t part_bytes,
                   const uint8_t boot_id[16], struct err *err)
{
    const struct expected e = {uid, boot_id, part_bytes};
    struct stat st;
    if (fstat(j->fd, &st) != 0)
        return err_sys(err, errno, "cannot read '%s'", JOURNAL_FILE);
    auto_mem struct range *discards = xcalloc(DISCARDS_MAX, sizeof *discards);
    struct replay p = {.j = j,
                       .expected = &e,
                       .size = (uint64_t)st.st_size / sizeof(struct journal_record) * sizeof(struct journal_record),
                       .this_boot = UINT64_MAX,
                       .discards = discards};
    int r = each_record(&p, 0, p.size, weigh, &p.end, err);
    if (r == 0 && p.end < p.size)
        r = each_record(&p, p.end + sizeof(struct journal_record), p.size, witness, NULL, err);
    if (r == 0)
        r = each_record(&p, 0, p.end, apply, NULL, err);
    if (r < 0)
        return r;
    if (ftruncate(j->fd, (off_t)p.end) != 0)
        return err_sys(err, errno, "cannot cut the torn end of '%s'", JOURNAL_FILE);
    j->end = p.end;
    j->held = min_u64(p.durable, p.end);
    j->must_discard = p.this_boot == UINT64_MAX && j->held < j->end;
    return 0;
}
