/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"
#include "record.h"
#include "util/file.h"
#include "util/mem.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

/* A file of 16 M records of sent files is some 3 GiB; more than that is no volume of ours. */
enum { SENT_MAX = 32 << 20, COMPACT_LEAST = 4096 };
static const size_t PATHS_BYTES_MAX = (size_t)4 << 30;

struct sent {
    struct str path; /* in the arena; ptr NULL: a free slot */
    struct stamp stamp;
};

struct ledger {
    int dir; /* owned */
    int fd;  /* owned; the file, for appending */
    char name[64];
    struct arena *paths; /* owned */
    struct sent *sent;   /* owned; open addressing, a power of two */
    size_t sent_room, sent_count;
    struct ledger_upload **uploads; /* owned */
    size_t upload_room, upload_count;
    uint64_t lines;   /* in the file */
    struct sbuf line; /* reused */
};

bool stamp_eq(const struct stamp *a, const struct stamp *b)
{
    return a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->inode == b->inode;
}

/* ---- sent ---------------------------------------------------------------------------------------------------------
 */

static size_t slot_of(const struct sent *table, size_t room, struct str path)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < path.len; i++)
        h = (h ^ (unsigned char)path.ptr[i]) * UINT64_C(0x100000001b3);
    size_t at = (size_t)(h ^ h >> 32) & (room - 1);
    while (table[at].path.ptr && !str_eq(table[at].path, path))
        at = (at + 1) & (room - 1);
    return at;
}

static void grow_sent(struct ledger *l)
{
    size_t room = l->sent_room ? l->sent_room * 2 : 1024;
    struct sent *bigger = xcalloc(room, sizeof *bigger);
    for (size_t i = 0; i < l->sent_room; i++)
        if (l->sent[i].path.ptr)
            bigger[slot_of(bigger, room, l->sent[i].path)] = l->sent[i];
    free(l->sent);
    l->sent = bigger;
    l->sent_room = room;
}

static int remember_sent(struct ledger *l, struct str path, const struct stamp *s, struct err *err)
{
    if (l->sent_count * 4 >= l->sent_room * 3)
        grow_sent(l);
    struct sent *at = &l->sent[slot_of(l->sent, l->sent_room, path)];
    if (!at->path.ptr) {
        if (l->sent_count == SENT_MAX || !arena_dup(l->paths, path, &at->path))
            return err_set(err, ERR_NO_SPACE, "more files were exported than can be remembered (%d)", SENT_MAX);
        l->sent_count++;
    }
    at->stamp = *s;
    return 0;
}

bool ledger_has(const struct ledger *l, struct str path, const struct stamp *s)
{
    if (l->sent_count == 0)
        return false;
    const struct sent *at = &l->sent[slot_of(l->sent, l->sent_room, path)];
    return at->path.ptr && stamp_eq(&at->stamp, s);
}

/* ---- uploads ------------------------------------------------------------------------------------------------------
 */

static void upload_free(struct ledger_upload *u)
{
    if (!u)
        return;
    free(u->path);
    free(u->key);
    free(u->id);
    free(u->parts);
    free(u);
}

struct ledger_upload *ledger_find_upload(const struct ledger *l, struct str path)
{
    for (size_t i = 0; i < l->upload_count; i++)
        if (str_eq(path, str_of(l->uploads[i]->path)))
            return l->uploads[i];
    return NULL;
}

size_t ledger_upload_count(const struct ledger *l)
{
    return l->upload_count;
}

struct ledger_upload *ledger_upload_at(const struct ledger *l, size_t i)
{
    return l->uploads[i];
}

static int remember_upload(struct ledger *l, const struct record *r, struct ledger_upload **ret, struct err *err)
{
    uint64_t parts = r->part_bytes ? (r->stamp.size_bytes + r->part_bytes - 1) / r->part_bytes : 0;
    if (parts == 0 || parts > LEDGER_PARTS_MAX || l->upload_count == LEDGER_UPLOADS_MAX)
        return err_set(err, ERR_INVALID, "an upload of '%.*s' in %" PRIu64 " parts", (int)min_u64(r->path.len, 200),
                       r->path.ptr, parts);
    struct ledger_upload *u = xcalloc(1, sizeof *u);
    u->path = str_dup(r->path);
    u->key = str_dup(r->key);
    snprintf(u->uid, sizeof u->uid, "%.*s", STR_FMT(r->uid));
    u->stamp = r->stamp;
    u->part_bytes = r->part_bytes;
    u->part_count = (unsigned)parts;
    u->parts = xcalloc(parts, sizeof *u->parts);
    if (l->upload_count == l->upload_room) {
        l->upload_room = l->upload_room ? l->upload_room * 2 : 16;
        l->uploads = xrealloc(l->uploads, l->upload_room, sizeof(struct ledger_upload *));
    }
    l->uploads[l->upload_count++] = u;
    *ret = u;
    return 0;
}

static void forget_upload(struct ledger *l, struct ledger_upload *own_u)
{
    for (size_t i = 0; i < l->upload_count; i++)
        if (l->uploads[i] == own_u)
            l->uploads[i] = l->uploads[--l->upload_count];
    upload_free(own_u);
}

static struct ledger_upload *upload_of_uid(const struct ledger *l, struct str uid)
{
    for (size_t i = 0; i < l->upload_count; i++)
        if (str_eq(uid, str_of(l->uploads[i]->uid)))
            return l->uploads[i];
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------------------------
 */

static void replay_part(struct ledger_upload *u, const struct record *r)
{
    if (r->number < 1 || r->number > u->part_count || r->etag.len >= LEDGER_ETAG_MAX)
        return;
    struct ledger_part *p = &u->parts[r->number - 1];
    *p = (struct ledger_part){.size_bytes = r->part_bytes, .digest = r->digest};
    memcpy(p->etag, r->etag.ptr, r->etag.len);
}

static int replay(struct ledger *l, const struct record *r, struct err *err)
{
    struct ledger_upload *u = r->uid.len ? upload_of_uid(l, r->uid) : NULL;
    switch (r->kind) {
    case RECORD_SENT:
        return remember_sent(l, r->path, &r->stamp, err);
    case RECORD_INTENT:
        return u ? 0 : remember_upload(l, r, &u, err);
    case RECORD_BEGUN:
        if (u && !u->id)
            u->id = str_dup(r->id);
        return 0;
    case RECORD_PART:
        if (u)
            replay_part(u, r);
        return 0;
    case RECORD_ENDED:
        if (u)
            forget_upload(l, u);
        return 0;
    }
    return 0;
}

static int read_lines(struct ledger *l, FILE *in, off_t *ret_good, struct err *err)
{
    auto_mem char *text = NULL;
    auto_mem char *room = xcalloc(1, RECORD_LINE_MAX);
    size_t text_room = 0;
    ssize_t n;
    while ((n = getline(&text, &text_room, in)) > 0) {
        struct record r;
        if (n > RECORD_LINE_MAX || text[n - 1] != '\n' || !record_parse((struct str){text, (size_t)n - 1}, room, &r))
            break;
        int e = replay(l, &r, err);
        if (e < 0)
            return e;
        *ret_good += n;
        l->lines++;
    }
    return ferror(in) ? err_sys(err, errno, "cannot read '%s'", l->name) : 0;
}

static void close_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

static int read_ledger(struct ledger *l, struct err *err)
{
    off_t good = 0;
    auto_fd copy = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
    auto_with(close_file) FILE *in = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (!in)
        return err_sys(err, errno, "cannot read '%s'", l->name);
    (void)take_fd(&copy);
    int r = read_lines(l, in, &good, err);
    /* A torn end is cut off, or the next line would be glued to it and be lost as well. */
    if (r == 0 && ftruncate(l->fd, good) != 0)
        r = err_sys(err, errno, "cannot cut the torn end off '%s'", l->name);
    return r;
}

/* ---- writing ------------------------------------------------------------------------------------------------------
 */

static int append(struct ledger *l, const struct record *r, struct err *err)
{
    sbuf_clear(&l->line);
    record_add(r, &l->line);
    if (l->line.overflow)
        return err_set(err, ERR_INTERNAL, "a record of '%s' is longer than %d bytes", l->name, RECORD_LINE_MAX);
    l->lines++;
    return file_write_all(l->fd, l->name, l->line.ptr, l->line.len, err);
}

int ledger_add(struct ledger *l, struct str path, const struct stamp *s, struct str key, struct err *err)
{
    struct record r = {.kind = RECORD_SENT, .path = path, .key = key, .stamp = *s};
    int e = remember_sent(l, path, s, err);
    return e < 0 ? e : append(l, &r, err);
}

static struct record record_of_upload(const struct ledger_upload *u)
{
    return (struct record){.kind = RECORD_INTENT,
                           .path = str_of(u->path),
                           .key = str_of(u->key),
                           .uid = str_of(u->uid),
                           .stamp = u->stamp,
                           .part_bytes = u->part_bytes};
}

int ledger_intend(struct ledger *l, struct str path, struct str key, struct str uid, const struct stamp *s,
                  uint64_t part_bytes, struct ledger_upload **ret, struct err *err)
{
    struct record r = {
        .kind = RECORD_INTENT, .path = path, .key = key, .uid = uid, .stamp = *s, .part_bytes = part_bytes};
    int e = append(l, &r, err);
    return e < 0 ? e : remember_upload(l, &r, ret, err);
}

int ledger_begun(struct ledger *l, struct ledger_upload *u, struct str id, struct err *err)
{
    struct record r = {.kind = RECORD_BEGUN, .uid = str_of(u->uid), .id = id};
    int e = append(l, &r, err);
    if (e == 0)
        u->id = str_dup(id);
    return e;
}

static struct record record_of_part(const struct ledger_upload *u, unsigned number, const struct ledger_part *p)
{
    return (struct record){.kind = RECORD_PART,
                           .uid = str_of(u->uid),
                           .number = number,
                           .part_bytes = p->size_bytes,
                           .digest = p->digest,
                           .etag = str_of(p->etag)};
}

int ledger_part(struct ledger *l, struct ledger_upload *u, unsigned number, const struct ledger_part *part,
                struct err *err)
{
    struct record r = record_of_part(u, number, part);
    int e = append(l, &r, err);
    if (e == 0)
        u->parts[number - 1] = *part;
    return e;
}

void ledger_ended(struct ledger *l, struct ledger_upload *own_u)
{
    struct err ignored;
    struct record r = {.kind = RECORD_ENDED, .uid = str_of(own_u->uid)};
    int harmless = append(l, &r, &ignored);
    (void)harmless;
    forget_upload(l, own_u);
}

int ledger_fd(const struct ledger *l)
{
    return l->fd;
}

int ledger_flush(struct ledger *l, struct err *err)
{
    if (fdatasync(l->fd) != 0)
        return err_sys(err, errno, "cannot flush '%s'", l->name);
    return 0;
}

/* ---- compaction ---------------------------------------------------------------------------------------------------
 */

static int write_upload(struct ledger *l, const struct ledger_upload *u, struct err *err)
{
    struct record intent = record_of_upload(u), begun = {.kind = RECORD_BEGUN, .uid = intent.uid, .id = str_of(u->id)};
    int r = append(l, &intent, err);
    if (r == 0 && u->id)
        r = append(l, &begun, err);
    for (unsigned i = 0; i < u->part_count && r == 0; i++)
        if (u->parts[i].size_bytes > 0) {
            struct record part = record_of_part(u, i + 1, &u->parts[i]);
            r = append(l, &part, err);
        }
    return r;
}

static int write_live(struct ledger *l, struct err *err)
{
    int r = 0;
    l->lines = 0;
    for (size_t i = 0; i < l->upload_count && r == 0; i++)
        r = write_upload(l, l->uploads[i], err);
    for (size_t i = 0; i < l->sent_room && r == 0; i++)
        if (l->sent[i].path.ptr) {
            struct record s = {.kind = RECORD_SENT, .path = l->sent[i].path, .stamp = l->sent[i].stamp};
            r = append(l, &s, err);
        }
    return r;
}

/* A file that changes and is sent again and again must not make the ledger grow for ever. The new one takes the name
 * only when it is whole and flushed: a crash leaves the old one or the new one. */
static int compact(struct ledger *l, struct err *err)
{
    char temporary[sizeof l->name + 8];
    if (l->lines < COMPACT_LEAST || l->lines < 2 * (l->sent_count + l->upload_count))
        return 0;
    snprintf(temporary, sizeof temporary, ".%s.new", l->name);
    int fd = openat(l->dir, temporary, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "cannot create '%s'", temporary);
    close(l->fd);
    l->fd = fd;
    int r = write_live(l, err);
    if (r == 0)
        r = ledger_flush(l, err);
    if (r == 0 && renameat(l->dir, temporary, l->dir, l->name) != 0)
        r = err_sys(err, errno, "cannot replace '%s'", l->name);
    return r < 0 ? r : dir_sync(l->dir, l->name, err);
}

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

static void name_ledger(struct ledger *l, struct str destination)
{
    uint8_t sum[32];
    sha256(destination, sum);
    int at = snprintf(l->name, sizeof l->name, "ledger-");
    for (int i = 0; i < 8; i++)
        at += snprintf(l->name + at, sizeof l->name - (size_t)at, "%02x", sum[i]);
}

int ledger_open(int export_dir, struct str destination, struct ledger **ret, struct err *err)
{
    auto_ledger l = xcalloc(1, sizeof *l);
    l->fd = -1;
    l->dir = fcntl(export_dir, F_DUPFD_CLOEXEC, 0);
    l->paths = arena_new(1 << 18, PATHS_BYTES_MAX);
    sbuf_init(&l->line, RECORD_LINE_MAX);
    name_ledger(l, destination);
    if (l->dir < 0)
        return err_sys(err, errno, "cannot keep the folder of '%s' open", l->name);
    l->fd = openat(l->dir, l->name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (l->fd < 0)
        return err_sys(err, errno, "cannot open '%s'", l->name);
    int r = dir_sync(l->dir, l->name, err);
    if (r == 0)
        r = read_ledger(l, err);
    if (r == 0)
        r = compact(l, err);
    if (r < 0)
        return r;
    *ret = take(&l);
    return 0;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->upload_count; i++)
        upload_free(l->uploads[i]);
    free(l->uploads);
    free(l->sent);
    arena_free(l->paths);
    sbuf_done(&l->line);
    if (l->fd >= 0)
        close(l->fd);
    if (l->dir >= 0)
        close(l->dir);
    free(l);
}
