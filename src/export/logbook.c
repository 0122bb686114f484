/* SPDX-License-Identifier: Apache-2.0 */
#include "logbook.h"
#include "logbook_line.h"
#include "pool/volume.h"
#include "util/file.h"
#include "util/map.h"
#include "util/mem.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

/* 32 M records of sent files take about 6 GiB; no volume has more. */
enum { FORMAT = 2, FORMAT_LOST = 3, SENT_MAX = 32 << 20, COMPACT_LEAST = 4096 };
/* No store accepts more parts, and no run has more uploads at once: a larger number is damage. */
enum { PARTS_MAX = 10000, UPLOADS_MAX = 65536 };
static const size_t memory_bytes_max = (size_t)8 << 30;

/* A file in the bucket, or one of which data was lost. It and its strings are in the logbook's arena. */
struct sent {
    struct map_node node;
    struct str path;
    struct stamp stamp;
    struct str tag;
};

struct logbook {
    int dir; /* owned */
    int fd;  /* owned; the file, for appending */
    char name[64 + 4];
    char unversioned[64];            /* its name in the previous format, which stated no version */
    char shown[80];                  /* in sentences */
    struct arena *memory;            /* owned */
    struct map sent, lost;           /* by path, by inode */
    struct logbook_upload **uploads; /* owned */
    size_t upload_room, upload_count;
    uint64_t lines;   /* in the file */
    off_t end;        /* of its last whole line */
    struct sbuf line; /* reused */
};

bool stamp_eq(const struct stamp *a, const struct stamp *b)
{
    return a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->inode == b->inode;
}

/* ---- sent and lost ----------------------------------------------------------------------------------------------- */

static struct sent *find_sent(const struct logbook *l, struct str path)
{
    struct sent *s;
    map_foreach_hash (&l->sent, str_hash(path, 0), s, node)
        if (str_eq(s->path, path))
            return s;
    return NULL;
}

static uint64_t inode_hash(uint64_t inode)
{
    return str_hash((struct str){(const char *)&inode, sizeof inode}, 0);
}

static struct sent *find_lost(const struct logbook *l, uint64_t inode)
{
    struct sent *s;
    map_foreach_hash (&l->lost, inode_hash(inode), s, node)
        if (s->stamp.inode == inode)
            return s;
    return NULL;
}

static struct sent *add_to(struct logbook *l, struct map *files, struct str path, uint64_t hash)
{
    struct sent *s = files->count < SENT_MAX ? arena_alloc(l->memory, sizeof *s) : NULL;
    if (!s || !arena_dup(l->memory, path, &s->path))
        return NULL;
    map_add(files, &s->node, hash);
    return s;
}

/* `s` NULL: there was no memory for it. */
static int set_state(struct logbook *l, struct sent *s, const struct stamp *stamp, struct str tag, struct err *err)
{
    if (!s || (!str_eq(s->tag, tag) && !arena_dup(l->memory, tag, &s->tag)))
        return err_set(err, ERR_NO_SPACE, "more than %d files were exported: the logbook is full", SENT_MAX);
    s->stamp = *stamp;
    return 0;
}

static int remember_sent(struct logbook *l, struct str path, const struct stamp *stamp, struct str tag, struct err *err)
{
    struct sent *s = find_sent(l, path);
    return set_state(l, s ? s : add_to(l, &l->sent, path, str_hash(path, 0)), stamp, tag, err);
}

static int remember_lost(struct logbook *l, struct str path, const struct stamp *stamp, struct err *err)
{
    struct sent *s = find_lost(l, stamp->inode);
    return set_state(l, s ? s : add_to(l, &l->lost, path, inode_hash(stamp->inode)), stamp, STR_NULL, err);
}

bool logbook_has(const struct logbook *l, struct str path, const struct stamp *stamp)
{
    const struct sent *s = find_sent(l, path);
    return s && stamp_eq(&s->stamp, stamp);
}

const struct stamp *logbook_stamp(const struct logbook *l, struct str path)
{
    const struct sent *s = find_sent(l, path);
    return s ? &s->stamp : NULL;
}

const struct stamp *logbook_lost(const struct logbook *l, uint64_t inode)
{
    const struct sent *s = find_lost(l, inode);
    return s ? &s->stamp : NULL;
}

struct str logbook_tag(const struct logbook *l, struct str path)
{
    const struct sent *s = find_sent(l, path);
    return s ? s->tag : STR_NULL;
}

/* ---- uploads ----------------------------------------------------------------------------------------------------- */

static void free_upload(struct logbook_upload *u)
{
    if (!u)
        return;
    free(u->path);
    free(u->key);
    free(u->upload_id);
    free(u->parts);
    free(u);
}

struct logbook_upload *logbook_find_upload(const struct logbook *l, struct str path)
{
    for (size_t i = 0; i < l->upload_count; i++)
        if (str_eq(path, str_of(l->uploads[i]->path)))
            return l->uploads[i];
    return NULL;
}

bool logbook_is_empty(const struct logbook *l)
{
    return l->sent.count == 0 && l->lost.count == 0 && l->upload_count == 0;
}

size_t logbook_upload_count(const struct logbook *l)
{
    return l->upload_count;
}

struct logbook_upload *logbook_upload_at(const struct logbook *l, size_t i)
{
    return l->uploads[i];
}

static int remember_upload(struct logbook *l, const struct logbook_line *r, struct logbook_upload **ret,
                           struct err *err)
{
    uint64_t parts = r->part_bytes ? (r->stamp.size_bytes + r->part_bytes - 1) / r->part_bytes : 0;
    if (parts == 0 || parts > PARTS_MAX || l->upload_count == UPLOADS_MAX)
        return err_set(err, ERR_INVALID, "the upload of '%.*s' is invalid: it has %" PRIu64 " parts",
                       (int)min_u64(r->path.len, 200), r->path.ptr, parts);
    struct logbook_upload *u = xcalloc(1, sizeof *u);
    u->path = str_dup(r->path);
    u->key = str_dup(r->key);
    snprintf(u->token, sizeof u->token, "%.*s", STR_FMT(r->token));
    u->stamp = r->stamp;
    u->part_bytes = r->part_bytes;
    u->part_count = (unsigned)parts;
    u->parts = xcalloc(parts, sizeof *u->parts);
    if (l->upload_count == l->upload_room) {
        l->upload_room = l->upload_room ? l->upload_room * 2 : 16;
        l->uploads = xrealloc(l->uploads, l->upload_room, sizeof(struct logbook_upload *));
    }
    l->uploads[l->upload_count++] = u;
    *ret = u;
    return 0;
}

static void forget_upload(struct logbook *l, struct logbook_upload *own_u)
{
    for (size_t i = 0; i < l->upload_count; i++)
        if (l->uploads[i] == own_u)
            l->uploads[i] = l->uploads[--l->upload_count];
    free_upload(own_u);
}

static struct logbook_upload *upload_of_token(const struct logbook *l, struct str token)
{
    for (size_t i = 0; i < l->upload_count; i++)
        if (str_eq(token, str_of(l->uploads[i]->token)))
            return l->uploads[i];
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int check_format(const struct logbook *l, unsigned format, struct err *err)
{
    if (format <= FORMAT_LOST)
        return 0;
    return err_fail(err, ERR_UNSUPPORTED, CIS_EXPORT_RECORD_VERSION,
                    "'%s': format %u of a newer Cistern; this one reads formats up to %d", l->shown, format,
                    FORMAT_LOST);
}

static void replay_part(struct logbook_upload *u, const struct logbook_line *r)
{
    if (r->number < 1 || r->number > u->part_count || r->etag.len >= LOGBOOK_ETAG_MAX)
        return;
    struct logbook_part *p = &u->parts[r->number - 1];
    *p = (struct logbook_part){.size_bytes = r->part_bytes, .digest = r->digest};
    memcpy(p->etag, r->etag.ptr, r->etag.len);
}

static int replay(struct logbook *l, const struct logbook_line *r, struct err *err)
{
    struct logbook_upload *u = r->token.len ? upload_of_token(l, r->token) : NULL;
    switch (r->kind) {
    case LINE_SENT:
        return remember_sent(l, r->path, &r->stamp, r->etag, err);
    case LINE_LOST:
        return remember_lost(l, r->path, &r->stamp, err);
    case LINE_INTENT:
        return u ? 0 : remember_upload(l, r, &u, err);
    case LINE_BEGUN:
        if (u && !u->upload_id)
            u->upload_id = str_dup(r->upload_id);
        return 0;
    case LINE_PART:
        if (u)
            replay_part(u, r);
        return 0;
    case LINE_ENDED:
        if (u)
            forget_upload(l, u);
        return 0;
    case LINE_VERSION:
        return check_format(l, r->number, err);
    }
    return 0;
}

static int read_lines(struct logbook *l, FILE *in, off_t *ret_good, struct err *err)
{
    auto_mem char *text = NULL;
    auto_mem char *room = xcalloc(1, LINE_BYTES_MAX);
    size_t text_room = 0;
    ssize_t n;
    while ((n = getline(&text, &text_room, in)) > 0) {
        struct logbook_line r;
        if (n > LINE_BYTES_MAX || text[n - 1] != '\n' ||
            !logbook_line_parse((struct str){text, (size_t)n - 1}, room, &r))
            break;
        int e = replay(l, &r, err);
        if (e < 0)
            return e;
        *ret_good += n;
        l->lines++;
    }
    return ferror(in) ? err_sys(err, errno, "cannot read '%s'", l->shown) : 0;
}

static void close_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

static int read_file(struct logbook *l, int own_fd, off_t *ret_good, struct err *err)
{
    auto_fd fd = own_fd;
    auto_with(close_file) FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!in)
        return err_sys(err, errno, "cannot read '%s'", l->shown);
    (void)take_fd(&fd);
    return read_lines(l, in, ret_good, err);
}

/* compact() writes its records to the new file. */
static int read_unversioned(struct logbook *l, bool *ret_found, struct err *err)
{
    off_t good = 0;
    auto_fd fd = -1;
    int r = file_open_state(l->dir, l->unversioned, O_RDONLY, 0, &fd, err);
    *ret_found = r == 0;
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    return read_file(l, take_fd(&fd), &good, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int append(struct logbook *l, const struct logbook_line *r, struct err *err)
{
    sbuf_clear(&l->line);
    logbook_line_add(r, &l->line);
    if (l->line.overflow)
        return err_set(err, ERR_INTERNAL, "a record of '%s' is longer than %d bytes", l->shown, LINE_BYTES_MAX);
    int e = file_write_all(l->fd, l->shown, l->line.ptr, l->line.len, err);
    if (e == 0) {
        l->lines++;
        l->end += (off_t)l->line.len;
        return 0;
    }
    /* A full disk may accept half a line. The next line would join it, and all lines after it would be lost. */
    if (ftruncate(l->fd, l->end) != 0)
        return err_sys(err, errno, "cannot cut a torn line off '%s'", l->shown);
    return e;
}

int logbook_add(struct logbook *l, struct str path, const struct stamp *s, struct str key, struct str tag,
                struct err *err)
{
    struct logbook_line r = {.kind = LINE_SENT, .path = path, .key = key, .etag = tag, .stamp = *s};
    int e = remember_sent(l, path, s, tag, err);
    return e < 0 ? e : append(l, &r, err);
}

/* Only a logbook with such a line has the newer format, so that others can be read after a rollback. */
static int write_version(struct logbook *l, struct err *err)
{
    struct logbook_line r = {.kind = LINE_VERSION, .number = l->lost.count > 0 ? FORMAT_LOST : FORMAT};
    return append(l, &r, err);
}

int logbook_add_lost(struct logbook *l, struct str path, const struct stamp *s, struct err *err)
{
    struct logbook_line r = {.kind = LINE_LOST, .path = path, .stamp = *s};
    int e = remember_lost(l, path, s, err);
    if (e == 0)
        e = write_version(l, err);
    if (e == 0)
        e = append(l, &r, err);
    return e < 0 ? e : logbook_flush(l, err);
}

static struct logbook_line line_of_upload(const struct logbook_upload *u)
{
    return (struct logbook_line){.kind = LINE_INTENT,
                                 .path = str_of(u->path),
                                 .key = str_of(u->key),
                                 .token = str_of(u->token),
                                 .stamp = u->stamp,
                                 .part_bytes = u->part_bytes};
}

int logbook_intend(struct logbook *l, struct str path, struct str key, struct str token, const struct stamp *s,
                   uint64_t part_bytes, struct logbook_upload **ret, struct err *err)
{
    struct logbook_line r = {
        .kind = LINE_INTENT, .path = path, .key = key, .token = token, .stamp = *s, .part_bytes = part_bytes};
    int e = append(l, &r, err);
    return e < 0 ? e : remember_upload(l, &r, ret, err);
}

int logbook_begun(struct logbook *l, struct logbook_upload *u, struct str upload_id, struct err *err)
{
    struct logbook_line r = {.kind = LINE_BEGUN, .token = str_of(u->token), .upload_id = upload_id};
    int e = append(l, &r, err);
    if (e == 0)
        u->upload_id = str_dup(upload_id);
    return e;
}

static struct logbook_line line_of_part(const struct logbook_upload *u, unsigned number, const struct logbook_part *p)
{
    return (struct logbook_line){.kind = LINE_PART,
                                 .token = str_of(u->token),
                                 .number = number,
                                 .part_bytes = p->size_bytes,
                                 .digest = p->digest,
                                 .etag = str_of(p->etag)};
}

int logbook_part(struct logbook *l, struct logbook_upload *u, unsigned number, const struct logbook_part *part,
                 struct err *err)
{
    struct logbook_line r = line_of_part(u, number, part);
    int e = append(l, &r, err);
    if (e == 0)
        u->parts[number - 1] = *part;
    return e;
}

void logbook_ended(struct logbook *l, struct logbook_upload *own_u)
{
    struct logbook_line r = {.kind = LINE_ENDED, .token = str_of(own_u->token)};
    (void)!append(l, &r, ERR_IGNORED);
    forget_upload(l, own_u);
}

int logbook_fd(const struct logbook *l)
{
    return l->fd;
}

int logbook_flush(struct logbook *l, struct err *err)
{
    if (fdatasync(l->fd) != 0)
        return err_sys(err, errno, "cannot flush '%s'", l->shown);
    return 0;
}

/* ---- compaction -------------------------------------------------------------------------------------------------- */

static int write_upload(struct logbook *l, const struct logbook_upload *u, struct err *err)
{
    struct logbook_line intent = line_of_upload(u),
                        begun = {.kind = LINE_BEGUN, .token = intent.token, .upload_id = str_of(u->upload_id)};
    int r = append(l, &intent, err);
    if (r == 0 && u->upload_id)
        r = append(l, &begun, err);
    for (unsigned i = 0; i < u->part_count && r == 0; i++)
        if (u->parts[i].size_bytes > 0) {
            struct logbook_line part = line_of_part(u, i + 1, &u->parts[i]);
            r = append(l, &part, err);
        }
    return r;
}

static int write_live(struct logbook *l, struct err *err)
{
    l->lines = 0;
    l->end = 0;
    int r = write_version(l, err);
    for (size_t i = 0; i < l->upload_count && r == 0; i++)
        r = write_upload(l, l->uploads[i], err);
    const struct sent *s;
    map_foreach (&l->sent, s, node) {
        struct logbook_line sent = {.kind = LINE_SENT, .path = s->path, .stamp = s->stamp, .etag = s->tag};
        if (r == 0)
            r = append(l, &sent, err);
    }
    map_foreach (&l->lost, s, node) {
        struct logbook_line lost = {.kind = LINE_LOST, .path = s->path, .stamp = s->stamp};
        if (r == 0)
            r = append(l, &lost, err);
    }
    return r;
}

static bool is_mostly_dead(const struct logbook *l)
{
    return l->lines >= COMPACT_LEAST && l->lines >= 2 * (l->sent.count + l->lost.count + l->upload_count);
}

/* Compacts the logbook, which would grow without limit if a file is sent again and again. The new file is renamed
 * only when it is complete and flushed: a crash leaves the old one or the new one. */
static int compact(struct logbook *l, struct err *err)
{
    char temporary[sizeof l->name + 8];
    snprintf(temporary, sizeof temporary, ".%s.new", l->name);
    int fd;
    int r = file_open_state(l->dir, temporary, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600, &fd, err);
    if (r < 0)
        return r;
    close(l->fd);
    l->fd = fd;
    r = write_live(l, err);
    if (r == 0)
        r = logbook_flush(l, err);
    if (r == 0 && renameat(l->dir, temporary, l->dir, l->name) != 0)
        r = err_sys(err, errno, "cannot replace '%s'", l->shown);
    return r < 0 ? r : dir_sync(l->dir, l->shown, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void name_logbook(struct logbook *l, struct str destination)
{
    uint8_t sum[32];
    sha256(destination, sum);
    char hex[17];
    snprintf(l->unversioned, sizeof l->unversioned, "logbook-%s", hex_text(sum, 8, hex));
    snprintf(l->name, sizeof l->name, "%s.log", l->unversioned);
    snprintf(l->shown, sizeof l->shown, VOLUME_EXPORT "/%s", l->name);
}

static int read_logbook(struct logbook *l, struct err *err)
{
    int r = read_file(l, fcntl(l->fd, F_DUPFD_CLOEXEC, 0), &l->end, err);
    /* A torn end is cut off, or the next line would join it and be lost as well. */
    if (r == 0 && ftruncate(l->fd, l->end) != 0)
        r = err_sys(err, errno, "cannot cut the torn end off '%s'", l->shown);
    return r == 0 && l->end == 0 ? write_version(l, err) : r;
}

int logbook_open(int export_dir, struct str destination, struct logbook **ret, struct err *err)
{
    auto_logbook l = xcalloc(1, sizeof *l);
    l->fd = -1;
    l->dir = fcntl(export_dir, F_DUPFD_CLOEXEC, 0);
    l->memory = arena_new(1 << 18, memory_bytes_max);
    sbuf_init(&l->line, LINE_BYTES_MAX);
    name_logbook(l, destination);
    if (l->dir < 0)
        return err_sys(err, errno, "cannot keep the directory of '%s' open", l->shown);
    bool has_unversioned = false;
    int r = file_open_state(l->dir, l->name, O_RDWR | O_CREAT | O_APPEND, 0600, &l->fd, err);
    if (r == 0)
        r = dir_sync(l->dir, l->shown, err);
    if (r == 0)
        r = read_unversioned(l, &has_unversioned, err);
    if (r == 0)
        r = read_logbook(l, err);
    if (r == 0 && (has_unversioned || is_mostly_dead(l)))
        r = compact(l, err);
    if (r == 0 && has_unversioned && unlinkat(l->dir, l->unversioned, 0) != 0)
        r = err_sys(err, errno, "cannot remove '" VOLUME_EXPORT "/%s'", l->unversioned);
    if (r < 0)
        return r;
    *ret = take(&l);
    return 0;
}

void logbook_free(struct logbook *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->upload_count; i++)
        free_upload(l->uploads[i]);
    free(l->uploads);
    map_done(&l->sent);
    map_done(&l->lost);
    arena_free(l->memory);
    sbuf_done(&l->line);
    fd_close(&l->fd);
    fd_close(&l->dir);
    free(l);
}
