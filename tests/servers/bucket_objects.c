/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include "util/encode.h"
#include "util/json.h"
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

/* Sizes and contents repeat after this number of objects: few enough to keep all their digests. */
enum { VARIANTS = 1009, GROUPS_MAX = 16 };

enum shape { FLAT, DEEP, SKEWED };

struct variant {
    bool known;
    struct digest crc32c, crc32, crc64, md5;
};

struct group {
    char prefix[256];
    uint64_t first, count; /* of the whole numbering */
    uint64_t size_min, size_max;
    enum shape shape;
    struct variant *variants;
};

struct uploaded {
    char *key;
    uint64_t size, generation;
    struct digest crc32c, crc64, md5; /* md5: of several parts the MD5 of theirs */
    struct digest parts_crc32c;       /* over those of the parts */
    size_t part_count;
    struct content *content; /* held */
    char meta[512];
};

struct change {
    uint64_t index;
    unsigned times;
    bool removed;
};

struct rendered {
    int fd;
    uint64_t *at; /* count + 1 offsets */
};

struct digests_told told;
const char *bucket_name = "bench";
bool keep_content = true;
bool heedless_put, heedless_complete, composite, odd_roots, unconditional, old_fashioned;

static struct group groups[GROUPS_MAX];
static size_t group_count;
static uint64_t synthetic_count;
static int pattern_fd = -1;
static char *pattern;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* guards all that follows */
static struct uploaded **uploads;                          /* sorted by key */
static size_t upload_count, upload_room;
static struct change *changes;
static size_t change_count;
static uint64_t next_generation = 1800000000000000;
static struct rendered rendered[2] = {{.fd = -1}, {.fd = -1}};
static pthread_mutex_t variants_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- synthetic objects ------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static int shape_parse(struct str s, enum shape *ret, struct err *err)
{
    if (s.len == 0 || str_eq(s, STR("flat")))
        *ret = FLAT;
    else if (str_eq(s, STR("deep")))
        *ret = DEEP;
    else if (str_eq(s, STR("skewed")))
        *ret = SKEWED;
    else
        return err_set(err, ERR_INVALID, "'%.*s' is not a shape: flat, deep or skewed", STR_FMT(s));
    return 0;
}

static int size_parse(struct str s, struct group *g, struct err *err)
{
    struct str least;
    if (!str_split(&s, '-', &least))
        least = STR_NULL;
    int r = str_to_bytes(least, &g->size_min, err);
    g->size_max = g->size_min;
    if (r == 0 && s.ptr)
        r = str_to_bytes(s, &g->size_max, err);
    if (r == 0 && g->size_max < g->size_min)
        return err_set(err, ERR_INVALID, "a range of sizes runs backwards");
    return r;
}

int objects_add(struct str spec, struct err *err)
{
    struct str rest = spec, prefix, count, size, shape = STR_NULL;
    struct group *g = &groups[group_count];
    if (group_count == GROUPS_MAX)
        return err_set(err, ERR_NO_SPACE, "more than %d groups of objects", GROUPS_MAX);
    if (!str_split(&rest, ':', &prefix) || !str_split(&rest, ':', &count) || !str_split(&rest, ':', &size) ||
        prefix.len >= sizeof g->prefix)
        return err_set(err, ERR_INVALID, "'%.*s' is not PREFIX:COUNT:SIZE[-SIZE][:SHAPE]", STR_FMT(spec));
    if (rest.ptr)
        shape = rest;
    for (size_t i = 0; i < prefix.len; i++)
        if (!url_is_plain(prefix.ptr[i]))
            return err_set(err, ERR_INVALID, "the prefix of synthetic objects may not hold '%c'", prefix.ptr[i]);
    snprintf(g->prefix, sizeof g->prefix, "%.*s", STR_FMT(prefix));
    int r = str_to_u64(count, &g->count, err);
    if (r == 0)
        r = size_parse(size, g, err);
    if (r == 0)
        r = shape_parse(shape, &g->shape, err);
    if (r == 0)
        group_count++;
    return r;
}

static int by_prefix(const void *a, const void *b)
{
    return strcmp(((const struct group *)a)->prefix, ((const struct group *)b)->prefix);
}

int objects_begin(struct err *err)
{
    qsort(groups, group_count, sizeof groups[0], by_prefix);
    for (size_t i = 0; i < group_count; i++) {
        if (i > 0 && strncmp(groups[i - 1].prefix, groups[i].prefix, strlen(groups[i - 1].prefix)) == 0)
            return err_set(err, ERR_INVALID, "prefix '%s' begins with another's: '%s'", groups[i].prefix,
                           groups[i - 1].prefix);
        groups[i].first = synthetic_count;
        groups[i].variants = xcalloc(VARIANTS, sizeof *groups[i].variants);
        synthetic_count += groups[i].count;
    }
    pattern_fd = memfd_create("pattern", MFD_CLOEXEC);
    if (pattern_fd < 0 || ftruncate(pattern_fd, PATTERN_BYTES) < 0)
        return err_sys(err, errno, "cannot make the pattern");
    pattern = mmap(NULL, PATTERN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, pattern_fd, 0);
    if (pattern == MAP_FAILED)
        return err_sys(err, errno, "cannot map the pattern");
    for (uint64_t i = 0; i < PATTERN_BYTES / 8; i++)
        ((uint64_t *)(void *)pattern)[i] = mix(i + 1);
    return 0;
}

int objects_pattern_fd(void)
{
    return pattern_fd;
}

const char *objects_pattern(void)
{
    return pattern;
}

uint64_t objects_synthetic_count(void)
{
    return synthetic_count;
}

static const struct group *group_of(uint64_t index)
{
    size_t i = 0;
    while (index >= groups[i].first + groups[i].count)
        i++;
    return &groups[i];
}

/* Keys grow with the index: every number in them has a fixed width. */
static void key_of(uint64_t index, char *buf)
{
    const struct group *g = group_of(index);
    uint64_t i = index - g->first;
    char *end = buf + KEY_MAX_BYTES;
    char *at = stpcpy(buf, g->prefix);
    size_t room = (size_t)(end - at);
    if (g->shape == DEEP)
        snprintf(at, room, "%03" PRIu64 "/%02" PRIu64 "/%02" PRIu64 "/object-%09" PRIu64, i / 1000000, i / 10000 % 100,
                 i / 100 % 100, i);
    else if (g->shape == SKEWED) {
        /* Nine tenths behind one prefix of the middle; the rest in many small ones around it. */
        uint64_t low = g->count / 20, high = g->count / 20 * 19;
        bool hot = i >= low && i < high;
        snprintf(at, room, "%s%05" PRIu64 "/object-%09" PRIu64,
                 hot       ? "hot/"
                 : i < low ? "a"
                           : "z",
                 hot ? 0 : (i < low ? i : i - high) / 50, i);
    } else
        snprintf(at, room, "object-%09" PRIu64, i);
}

static uint64_t variant_size(const struct group *g, unsigned v)
{
    return g->size_min + (g->size_max > g->size_min ? mix(v + 77) % (g->size_max - g->size_min + 1) : 0);
}

static uint64_t variant_at(unsigned v, unsigned changed)
{
    return mix(v * 31 + changed * 1000003 + 5) % (PATTERN_BYTES / 64) * 64;
}

static void digest_pattern(enum hash_kind kind, uint64_t at, uint64_t len, struct digest *ret)
{
    struct hash h;
    hash_init(&h);
    hash_begin(&h, kind);
    while (len > 0) {
        uint64_t from = at % PATTERN_BYTES, n = min_u64(len, PATTERN_BYTES - from);
        hash_update(&h, pattern + from, n);
        at += n;
        len -= n;
    }
    hash_end(&h, ret);
    hash_done(&h);
}

static void digests_of(uint64_t at, uint64_t len, struct variant *v)
{
    if (told.crc32c)
        digest_pattern(HASH_CRC32C, at, len, &v->crc32c);
    if (told.crc32)
        digest_pattern(HASH_CRC32, at, len, &v->crc32);
    if (told.crc64)
        digest_pattern(HASH_CRC64NVME, at, len, &v->crc64);
    if (told.md5)
        digest_pattern(HASH_MD5, at, len, &v->md5);
    v->known = true;
}

static void text_of(const struct digest *d, char *buf, size_t room, bool hex)
{
    auto_sbuf b;
    sbuf_init(&b, 100);
    if (d->kind != HASH_NONE)
        hex ? digest_add_hex(d, &b) : digest_add_base64(d, &b);
    snprintf(buf, room, "%s", b.len ? b.ptr : "");
}

static void tell(struct thing *t, const struct variant *v)
{
    text_of(&v->crc32c, t->crc32c, sizeof t->crc32c, false);
    text_of(&v->crc32, t->crc32, sizeof t->crc32, false);
    text_of(&v->crc64, t->crc64, sizeof t->crc64, false);
    text_of(&v->md5, t->md5, sizeof t->md5, false);
    /* An ETag with a dash is not an MD5. */
    if (v->md5.kind == HASH_MD5)
        text_of(&v->md5, t->etag, sizeof t->etag, true);
    else
        snprintf(t->etag, sizeof t->etag, "%016" PRIx64 "%016" PRIx64 "-2", mix(t->generation), mix(t->generation + 1));
}

static const struct change *change_of(uint64_t index)
{
    for (size_t i = 0; i < change_count; i++)
        if (changes[i].index == index)
            return &changes[i];
    return NULL;
}

/* Under the lock. False if it was removed. */
static bool synthetic_thing(uint64_t index, struct thing *t)
{
    const struct group *g = group_of(index);
    const struct change *c = change_count ? change_of(index) : NULL;
    unsigned v = (unsigned)((index - g->first) % VARIANTS), changed = c ? c->times : 0;
    if (c && c->removed)
        return false;
    key_of(index, t->key);
    t->size = variant_size(g, v);
    t->pattern_at = variant_at(v, changed);
    t->generation = 1700000000000000 + index * 1000 + changed;
    t->content = NULL;
    t->synthetic = true;
    t->meta[0] = '\0';
    struct variant fresh = {0}, *known = changed ? &fresh : &g->variants[v];
    pthread_mutex_lock(&variants_lock);
    if (!known->known)
        digests_of(t->pattern_at, t->size, known);
    pthread_mutex_unlock(&variants_lock);
    tell(t, known);
    return true;
}

/* The first index whose key is >= key (> key if past). */
static uint64_t synthetic_seek(struct str key, bool past)
{
    uint64_t low = 0, high = synthetic_count;
    char buf[KEY_MAX_BYTES + 1];
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        key_of(mid, buf);
        int c = str_cmp(str_of(buf), key);
        if (c < 0 || (past && c == 0))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* ---- uploaded objects -------------------------------------------------------------------------------------------- */

static size_t upload_seek(struct str key, bool past)
{
    size_t low = 0, high = upload_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = str_cmp(str_of(uploads[mid]->key), key);
        if (c < 0 || (past && c == 0))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void uploaded_thing(const struct uploaded *u, struct thing *t)
{
    struct variant v = {.md5 = u->part_count == 1 ? u->md5 : (struct digest){0}};
    if (told.crc32c)
        v.crc32c = u->crc32c;
    if (told.crc64)
        v.crc64 = u->crc64;
    snprintf(t->key, sizeof t->key, "%s", u->key);
    t->size = u->size;
    t->generation = u->generation;
    t->content = u->content;
    t->synthetic = false;
    memcpy(t->meta, u->meta, sizeof t->meta);
    tell(t, &v);
    if (u->part_count > 1 && composite) {
        text_of(&u->parts_crc32c, t->crc32c, sizeof t->crc32c, false);
        snprintf(t->crc32c + 8, sizeof t->crc32c - 8, "-%zu", u->part_count);
        t->crc64[0] = '\0';
    }
    if (u->part_count > 1 && u->md5.kind == HASH_MD5) {
        text_of(&u->md5, t->etag, sizeof t->etag, true);
        snprintf(t->etag + 32, sizeof t->etag - 32, "-%zu", u->part_count);
    }
}

static bool find_locked(struct str key, struct thing *t)
{
    size_t at = upload_seek(key, false);
    if (at < upload_count && str_eq(str_of(uploads[at]->key), key)) {
        uploaded_thing(uploads[at], t);
        return true;
    }
    uint64_t index = synthetic_seek(key, false);
    return index < synthetic_count && synthetic_thing(index, t) && str_eq(str_of(t->key), key);
}

bool objects_find(struct str key, struct thing *ret)
{
    pthread_rwlock_rdlock(&lock);
    bool found = find_locked(key, ret);
    ret->content = found ? content_hold(ret->content) : NULL;
    pthread_rwlock_unlock(&lock);
    return found;
}

void thing_done(struct thing *t)
{
    content_drop(t->content);
    t->content = NULL;
}

bool objects_have(struct str key)
{
    auto_thing t;
    return objects_find(key, &t);
}

static bool change_synthetic(struct str key, bool remove)
{
    uint64_t index = synthetic_seek(key, false);
    struct thing t;
    if (index >= synthetic_count || !synthetic_thing(index, &t) || !str_eq(str_of(t.key), key))
        return false;
    struct change *c = (struct change *)change_of(index);
    if (!c) {
        changes = xrealloc(changes, change_count + 1, sizeof *changes);
        c = &changes[change_count++];
        *c = (struct change){.index = index};
    }
    c->times++;
    c->removed = remove;
    return true;
}

bool objects_change(struct str key)
{
    pthread_rwlock_wrlock(&lock);
    bool there = change_synthetic(key, false);
    pthread_rwlock_unlock(&lock);
    return there;
}

void objects_heal(void)
{
    pthread_rwlock_wrlock(&lock);
    change_count = 0;
    pthread_rwlock_unlock(&lock);
}

static void uploaded_free(struct uploaded *own_u)
{
    content_drop(own_u->content);
    free(own_u->key);
    free(own_u);
}

void objects_remove(struct str key)
{
    pthread_rwlock_wrlock(&lock);
    size_t at = upload_seek(key, false);
    if (at < upload_count && str_eq(str_of(uploads[at]->key), key)) {
        uploaded_free(uploads[at]);
        memmove(&uploads[at], &uploads[at + 1], (--upload_count - at) * sizeof *uploads);
    } else
        (void)change_synthetic(key, true);
    pthread_rwlock_unlock(&lock);
}

static struct digest crc32c_of_parts(const struct piece *pieces, size_t count)
{
    auto_mem char *all = xcalloc(count, 4);
    for (size_t i = 0; i < count; i++)
        memcpy(all + 4 * i, pieces[i].crc32c.bytes, 4);
    return digest_of(HASH_CRC32C, (struct str){all, 4 * count});
}

static struct digest md5_of_parts(const struct piece *pieces, size_t count)
{
    struct hash h;
    struct digest d;
    if (pieces[0].md5.kind != HASH_MD5 || count == 1)
        return pieces[0].md5;
    hash_init(&h);
    hash_begin(&h, HASH_MD5);
    for (size_t i = 0; i < count; i++)
        hash_update(&h, pieces[i].md5.bytes, hash_size(HASH_MD5));
    hash_end(&h, &d);
    hash_done(&h);
    return d;
}

static struct uploaded *upload_new(struct str key, struct piece *pieces, size_t count, const char *meta)
{
    struct uploaded *u = xcalloc(1, sizeof *u);
    u->key = str_dup(key);
    snprintf(u->meta, sizeof u->meta, "%s", meta);
    u->md5 = md5_of_parts(pieces, count);
    u->parts_crc32c = crc32c_of_parts(pieces, count);
    u->part_count = count;
    u->crc32c = pieces[0].crc32c;
    u->crc64 = pieces[0].crc64;
    u->size = pieces[0].size;
    for (size_t i = 1; i < count; i++) {
        digest_combine(&u->crc32c, &pieces[i].crc32c, pieces[i].size);
        digest_combine(&u->crc64, &pieces[i].crc64, pieces[i].size);
        u->size += pieces[i].size;
    }
    u->content = content_new(pieces, count);
    return u;
}

void objects_put(struct str key, struct piece *pieces, size_t count, const char *meta, struct thing *ret)
{
    if (!keep_content)
        pieces_free(pieces, count);
    struct uploaded *u = upload_new(key, pieces, count, meta);
    pthread_rwlock_wrlock(&lock);
    u->generation = next_generation++;
    size_t at = upload_seek(key, false);
    if (at < upload_count && str_eq(str_of(uploads[at]->key), key)) {
        uploaded_free(uploads[at]);
        uploads[at] = u;
    } else {
        if (upload_count == upload_room) {
            upload_room = upload_room ? 2 * upload_room : 64;
            uploads = xrealloc(uploads, upload_room, sizeof *uploads);
        }
        memmove(&uploads[at + 1], &uploads[at], (upload_count - at) * sizeof *uploads);
        uploads[at] = u;
        upload_count++;
    }
    uploaded_thing(u, ret);
    ret->content = NULL;
    pthread_rwlock_unlock(&lock);
}

void objects_text_of_uploads(struct sbuf *b)
{
    struct thing t;
    pthread_rwlock_rdlock(&lock);
    for (size_t i = 0; i < upload_count; i++) {
        auto_json j = json_new_object();
        uploaded_thing(uploads[i], &t);
        json_set_str(j, "key", str_of(t.key));
        json_set_u64(j, "size", t.size);
        json_set_str(j, "crc32c", str_of(t.crc32c));
        json_set_str(j, "crc64nvme", str_of(t.crc64));
        auto_mem char *text = json_text(j, 0);
        sbuf_addf(b, "%s\n", text);
    }
    pthread_rwlock_unlock(&lock);
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

void objects_seek(struct cursor *c, struct str key, bool past)
{
    pthread_rwlock_rdlock(&lock);
    *c = (struct cursor){.synthetic = synthetic_seek(key, past), .uploaded = upload_seek(key, past)};
    pthread_rwlock_unlock(&lock);
}

bool objects_next(struct cursor *c, struct thing *ret)
{
    bool found = false;
    char synthetic[KEY_MAX_BYTES + 1];
    pthread_rwlock_rdlock(&lock);
    while (!found && (c->synthetic < synthetic_count || c->uploaded < upload_count)) {
        int order = c->uploaded == upload_count ? -1 : 1;
        if (c->synthetic < synthetic_count && c->uploaded < upload_count) {
            key_of(c->synthetic, synthetic);
            order = strcmp(synthetic, uploads[c->uploaded]->key);
        }
        if (order >= 0) {
            c->synthetic += order == 0; /* an upload covers the synthetic object of its name */
            uploaded_thing(uploads[c->uploaded++], ret);
            ret->content = NULL;
            found = true;
        } else
            found = synthetic_thing(c->synthetic++, ret);
    }
    pthread_rwlock_unlock(&lock);
    return found;
}

static void render(enum protocol p, struct rendered *out)
{
    auto_sbuf b;
    struct thing t;
    uint64_t written = 0;
    sbuf_init(&b, 16 << 20);
    out->at = xcalloc(synthetic_count + 1, sizeof *out->at);
    out->fd = memfd_create("rendered", MFD_CLOEXEC);
    for (uint64_t i = 0; i <= synthetic_count; i++) {
        out->at[i] = written + b.len;
        if (i < synthetic_count && synthetic_thing(i, &t))
            p == S3 ? entry_s3(&t, &b) : entry_gcs(&t, &b);
        if (b.len > 8 << 20 || i == synthetic_count) {
            written += b.len;
            ssize_t n = write(out->fd, b.ptr, b.len);
            assert(n == (ssize_t)b.len);
            sbuf_clear(&b);
        }
    }
}

bool objects_page(enum protocol p, const struct cursor *from, const char *end, uint64_t max, struct objects_page *ret)
{
    uint64_t until = synthetic_seek(str_of(end), false);
    if (max == 0 || until <= from->synthetic)
        return false;
    pthread_rwlock_rdlock(&lock);
    bool plain = upload_count == 0 && change_count == 0, ready = rendered[p].fd >= 0;
    pthread_rwlock_unlock(&lock);
    if (!plain)
        return false;
    if (!ready) {
        pthread_rwlock_wrlock(&lock);
        if (rendered[p].fd < 0)
            render(p, &rendered[p]);
        pthread_rwlock_unlock(&lock);
    }
    uint64_t past = min_u64(until, from->synthetic + max), at = rendered[p].at[from->synthetic];
    *ret = (struct objects_page){.count = past - from->synthetic,
                                 .truncated = past < until,
                                 .fd = rendered[p].fd,
                                 .at = at,
                                 .len = rendered[p].at[past] - at};
    key_of(past - 1, ret->last);
    return true;
}
