/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include "util/json.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { SESSIONS_MAX = 1024, COMPOSE_MAX = 32, PAGE_MAX = 1000 };

/* A client's metadata of its new object. */
struct resource {
    char key[KEY_MAX_BYTES + 1];
    char meta[512]; /* as header lines */
};

struct session { /* a resumable upload */
    bool used;
    char id[32];
    struct resource resource;
    bool absent;
    struct piece *pieces;
    size_t count;
    uint64_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards sessions */
static struct session sessions[SESSIONS_MAX];
static unsigned session_serial;

/* A string as JSON has it, quotes and all. */
static void json_add(struct sbuf *b, struct str s)
{
    auto_json j = json_new_str(s);
    auto_mem char *text = json_text(j, 0);
    sbuf_adds(b, text);
}

static void gcs_error(struct reply *p, int status, const char *reason, const char *what)
{
    sbuf_clear(&p->text);
    sbuf_addf(&p->text,
              "{\"error\":{\"code\":%d,\"message\":\"%s\",\"errors\":[{\"domain\":\"global\",\"reason\":\"%s\","
              "\"message\":\"%s\"}]}}",
              status, what, reason, what);
    reply_text(p, status, "application/json", sbuf_str(&p->text));
}

/* Kept as header lines: "x-goog-meta-name: value". */
static json *metadata_json(const char *meta)
{
    json *j = json_new_object();
    struct str rest = str_of(meta), value, name;
    while (str_split(&rest, '\n', &value)) {
        size_t prefix = strlen(str_starts(value, STR("x-goog-")) ? "x-goog-meta-" : "x-amz-meta-");
        if (!str_split(&value, ':', &name) || name.len <= prefix)
            continue;
        auto_mem char *text = str_dup(str_from(name, prefix));
        json_set_member(j, text, json_new_str(str_trim(value)));
    }
    return j;
}

/* 64-bit numbers are strings in this API. */
static void set_number(json *j, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    json_set_str(j, name, str_of(text));
}

static void resource_reply(const struct thing *t, struct reply *p)
{
    auto_json j = json_new_object();
    json_set_str(j, "kind", STR("storage#object"));
    json_set_str(j, "name", str_of(t->key));
    json_set_str(j, "bucket", str_of(bucket_name));
    set_number(j, "generation", t->generation);
    set_number(j, "metageneration", 1);
    set_number(j, "size", t->size);
    if (t->crc32c[0])
        json_set_str(j, "crc32c", str_of(t->crc32c));
    if (t->md5[0])
        json_set_str(j, "md5Hash", str_of(t->md5));
    if (t->meta[0])
        json_set(j, "metadata", metadata_json(t->meta));
    json_set_str(j, "etag", str_of(t->etag));
    json_set_str(j, "storageClass", STR("STANDARD"));
    json_set_str(j, "updated", STR("2026-01-01T00:00:00.000Z"));
    auto_mem char *text = json_text(j, 0);
    reply_text(p, 200, "application/json", str_of(text));
}

/* Of an object in a list what our client asks for by `fields`, as Google's would answer. */
void entry_gcs(const struct thing *t, struct sbuf *b)
{
    sbuf_adds(b, "{\"name\":");
    json_add(b, str_of(t->key));
    sbuf_addf(b, ",\"generation\":\"%" PRIu64 "\",\"size\":\"%" PRIu64 "\"", t->generation, t->size);
    if (t->crc32c[0])
        sbuf_addf(b, ",\"crc32c\":\"%s\"", t->crc32c);
    sbuf_adds(b, ",\"updated\":\"2026-01-01T00:00:00.000Z\"},");
}

/* ---- listing ----------------------------------------------------------------------------------------------------- */

struct page {
    char prefix[KEY_MAX_BYTES + 1], delimiter[8];
    char from[KEY_MAX_BYTES + 1]; /* a token (past it) or startOffset (at it) */
    char end[KEY_MAX_BYTES + 1];
    bool past;
    uint64_t max;
};

static void page_parse(const struct request *r, struct page *g)
{
    char text[3 * KEY_MAX_BYTES];
    request_query(r, "prefix", g->prefix, sizeof g->prefix);
    request_query(r, "delimiter", g->delimiter, sizeof g->delimiter);
    request_query(r, "startOffset", g->from, sizeof g->from);
    request_query(r, "endOffset", g->end, sizeof g->end);
    g->past = false;
    if (request_query(r, "pageToken", text, sizeof text)) {
        size_t n = 0;
        unsigned code;
        for (const char *at = text; sscanf(at, "%2x", &code) == 1 && n + 1 < sizeof g->from; at += 2)
            g->from[n++] = (char)code;
        g->from[n] = '\0';
        g->past = true;
    }
    g->max = request_query(r, "maxResults", text, sizeof text) ? strtoull(text, NULL, 10) : PAGE_MAX;
    g->max = g->max == 0 ? PAGE_MAX : min_u64(g->max, PAGE_MAX);
}

static void page_begin(bool truncated, const char *last, struct sbuf *b)
{
    sbuf_adds(b, "{\"kind\":\"storage#objects\",");
    if (truncated) {
        sbuf_adds(b, "\"nextPageToken\":\"");
        sbuf_add_hex(b, last, strlen(last));
        sbuf_adds(b, "\",");
    }
}

static void page_seek(const struct page *g, struct cursor *from)
{
    bool beyond = strcmp(g->from, g->prefix) >= 0 && g->from[0];
    objects_seek(from, str_of(beyond ? g->from : g->prefix), beyond && g->past);
}

static bool page_fast(const struct page *g, struct reply *p)
{
    struct cursor from;
    struct objects_page page;
    char past[KEY_MAX_BYTES + 8];
    page_seek(g, &from);
    snprintf(past, sizeof past, "%s\xff\xff", g->prefix);
    bool ends = g->end[0] && strcmp(g->end, past) < 0;
    if (g->delimiter[0] || !objects_page(GCS, &from, ends ? g->end : past, g->max, &page))
        return false;
    page_begin(page.truncated, page.last, &p->text);
    sbuf_adds(&p->text, "\"items\":[");
    reply_text(p, 200, "application/json", sbuf_str(&p->text));
    /* Without the last comma. */
    reply_add(p, (struct segment){.from = SEGMENT_FILE, .fd = page.fd, .at = page.at, .len = page.len - 1});
    reply_add(p, (struct segment){.from = SEGMENT_TEXT, .text = "]}", .len = 2});
    return true;
}

static void page_slow(const struct page *g, struct reply *p)
{
    auto_sbuf items, folders;
    struct cursor c;
    struct thing t;
    char last[KEY_MAX_BYTES + 8] = "", skip[KEY_MAX_BYTES + 8];
    uint64_t count = 0;
    bool truncated = false;
    sbuf_init(&items, 64 << 20);
    sbuf_init(&folders, 64 << 20);
    page_seek(g, &c);
    while (objects_next(&c, &t) && strncmp(t.key, g->prefix, strlen(g->prefix)) == 0 &&
           !(g->end[0] && strcmp(t.key, g->end) >= 0)) {
        if (count++ == g->max) {
            truncated = true;
            break;
        }
        const char *slash = g->delimiter[0] ? strstr(t.key + strlen(g->prefix), g->delimiter) : NULL;
        if (!slash) {
            snprintf(last, sizeof last, "%s", t.key);
            entry_gcs(&t, &items);
            continue;
        }
        int folder = (int)(slash - t.key) + (int)strlen(g->delimiter);
        json_add(&folders, (struct str){t.key, (size_t)folder});
        sbuf_addc(&folders, ',');
        snprintf(skip, sizeof skip, "%.*s\xff\xff", folder, t.key);
        snprintf(last, sizeof last, "%s", skip);
        objects_seek(&c, str_of(skip), false);
    }
    page_begin(truncated, last, &p->text);
    sbuf_addf(&p->text, "\"prefixes\":[%.*s],\"items\":[", (int)(folders.len ? folders.len - 1 : 0),
              folders.ptr ? folders.ptr : "");
    sbuf_add(&p->text, str_sub(sbuf_str(&items), 0, items.len ? items.len - 1 : 0));
    sbuf_adds(&p->text, "]}");
    reply_text(p, 200, "application/json", sbuf_str(&p->text));
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void read_metadata(const json *j, char *buf, size_t room)
{
    size_t used = 0;
    for (void *i = json_iter(j); i && used < room; i = json_iter_next(j, i)) {
        struct str name = json_iter_key(i), value;
        if (json_as_str(json_iter_value(i), &value))
            used +=
                (size_t)snprintf(buf + used, room - used, "x-goog-meta-%.*s: %.*s\r\n", STR_FMT(name), STR_FMT(value));
    }
}

/* The name may be in the query instead, where uploads have it. False: it is in neither. */
static bool read_resource(const struct request *r, const json *j, struct resource *ret)
{
    struct str name;
    *ret = (struct resource){0};
    read_metadata(json_at(j, "metadata"), ret->meta, sizeof ret->meta);
    if (request_query(r, "name", ret->key, sizeof ret->key))
        return true;
    if (!json_as_str(json_at(j, "name"), &name) || name.len > KEY_MAX_BYTES)
        return false;
    memcpy(ret->key, name.ptr, name.len);
    return true;
}

static bool wants_absent(const struct request *r)
{
    char text[32];
    return request_query(r, "ifGenerationMatch", text, sizeof text) && strcmp(text, "0") == 0;
}

/* Takes the content of the pieces. */
static void store_now(const char *key, bool absent, struct piece *pieces, size_t count, const char *meta,
                      struct reply *p)
{
    struct thing t;
    if (absent && objects_have(str_of(key))) {
        pieces_free(pieces, count);
        gcs_error(p, 412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.");
        return;
    }
    objects_put(str_of(key), pieces, count, meta, &t);
    resource_reply(&t, p);
}

static void digest_piece(struct piece *piece)
{
    static const enum hash_kind kinds[] = {HASH_CRC32C, HASH_CRC64NVME, HASH_MD5};
    struct digest *to[] = {&piece->crc32c, &piece->crc64, &piece->md5};
    for (size_t i = 0; i < countof(kinds); i++)
        *to[i] = digest_of(kinds[i], (struct str){piece->content, piece->size});
}

/* The parts of a body of multipart/related, which are the resource and the bytes. */
static bool split_related(const struct request *r, const struct piece *body, struct str *ret_resource,
                          struct str *ret_bytes)
{
    char boundary[200];
    struct str type = request_header(r, "Content-Type"), parts[2];
    const char *mark = type.len ? memmem(type.ptr, type.len, "boundary=", 9) : NULL;
    const char *at = body->content, *end = at ? at + body->size : NULL;
    if (!mark || !at)
        return false;
    mark += 9 + (mark[9] == '"');
    snprintf(boundary, sizeof boundary, "\r\n--%.*s", (int)strcspn(mark, "\"\r\n; "), mark);
    for (size_t i = 0; i < countof(parts); i++) {
        const char *from = memmem(at, (size_t)(end - at), "\r\n\r\n", 4);
        const char *to = from ? memmem(from + 4, (size_t)(end - from - 4), boundary, strlen(boundary)) : NULL;
        if (!to)
            return false;
        parts[i] = (struct str){from + 4, (size_t)(to - from - 4)};
        at = to;
    }
    *ret_resource = parts[0];
    *ret_bytes = parts[1];
    return true;
}

static void upload_related(const struct request *r, const struct piece *body, struct reply *p)
{
    struct str text, bytes;
    struct err err;
    struct resource resource;
    auto_json j = NULL;
    if (!split_related(r, body, &text, &bytes) || json_parse(text, "the resource", &j, &err) < 0 ||
        !read_resource(r, j, &resource)) {
        gcs_error(p, 400, "invalid", "the body is not a resource and its bytes");
        return;
    }
    struct piece piece = {.size = bytes.len, .content = xcalloc(bytes.len + 1, 1)};
    memcpy(piece.content, bytes.ptr, bytes.len);
    digest_piece(&piece);
    store_now(resource.key, wants_absent(r), &piece, 1, resource.meta, p);
}

static void session_begin(const struct request *r, const struct piece *body, struct reply *p)
{
    struct session *s = NULL;
    struct err err;
    auto_json j = NULL;
    for (unsigned i = 0; i < SESSIONS_MAX && !s; i++)
        s = sessions[i].used ? NULL : &sessions[i];
    if (!s) {
        gcs_error(p, 503, "backendError", "too many sessions are open");
        return;
    }
    *s = (struct session){.used = true, .absent = wants_absent(r)};
    snprintf(s->id, sizeof s->id, "session-%u", ++session_serial);
    if (body->size > 0 && json_parse((struct str){body->content, body->size}, "the resource", &j, &err) < 0)
        j = NULL;
    if (!read_resource(r, j, &s->resource)) {
        *s = (struct session){0};
        gcs_error(p, 400, "required", "the object has no name");
        return;
    }
    struct str host = request_header(r, "Host");
    bool tls = str_eq(request_header(r, "x-bucket-server-tls"), STR("1"));
    sbuf_addf(&p->headers, "Location: http%s://%.*s/upload/storage/v1/b/%s/o?uploadType=resumable&upload_id=%s\r\n",
              tls ? "s" : "", STR_FMT(host), bucket_name, s->id);
    p->status = 200;
}

static void session_end(struct session *s)
{
    pieces_free(s->pieces, s->count);
    free(s->pieces);
    *s = (struct session){0};
}

static void session_chunk(const struct request *r, struct session *s, struct piece *body, struct reply *p)
{
    char text[100];
    uint64_t from = 0, to = 0, total = UINT64_MAX;
    struct str range = request_header(r, "Content-Range");
    snprintf(text, sizeof text, "%.*s", STR_FMT(str_sub(range, 0, 99)));
    bool whole = range.ptr == NULL;
    bool query = sscanf(text, "bytes */%" SCNu64, &total) == 1 || strcmp(text, "bytes */*") == 0;
    if (!whole && !query)
        sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to, &total);
    if (!query && from != s->size) {
        gcs_error(p, 400, "invalid", "the chunk does not begin where the last one ended");
        return;
    }
    if (!query || whole) {
        s->pieces = xrealloc(s->pieces, s->count + 1, sizeof *s->pieces);
        s->pieces[s->count++] = *body;
        s->size += body->size;
        body->content = NULL;
    }
    if (whole || s->size == total) {
        store_now(s->resource.key, s->absent, s->pieces, s->count, s->resource.meta, p);
        session_end(s);
        return;
    }
    if (s->size > 0)
        sbuf_addf(&p->headers, "Range: bytes=0-%" PRIu64 "\r\n", s->size - 1);
    p->status = 308;
}

static void upload_answer(const struct request *r, struct piece *body, struct reply *p)
{
    char type[32], id[64], key[KEY_MAX_BYTES + 1];
    request_query(r, "uploadType", type, sizeof type);
    if (strcmp(type, "media") == 0 && request_query(r, "name", key, sizeof key)) {
        store_now(key, wants_absent(r), body, 1, "", p);
        return;
    }
    if (strcmp(type, "multipart") == 0) {
        upload_related(r, body, p);
        return;
    }
    pthread_mutex_lock(&lock);
    struct session *s = NULL;
    if (!request_query(r, "upload_id", id, sizeof id))
        session_begin(r, body, p);
    else {
        for (unsigned i = 0; i < SESSIONS_MAX && !s; i++)
            s = sessions[i].used && strcmp(sessions[i].id, id) == 0 ? &sessions[i] : NULL;
        if (!s)
            gcs_error(p, 404, "notFound", "there is no such upload");
        else if (str_eq(r->method, STR("DELETE"))) {
            session_end(s);
            p->status = 499;
        } else
            session_chunk(r, s, body, p);
    }
    pthread_mutex_unlock(&lock);
}

/* Appends a copy of an object. */
static bool add_source(const json *source, struct piece *ret)
{
    struct str name;
    auto_thing t = {.content = NULL};
    if (!json_as_str(json_at(source, "name"), &name) || !objects_find(name, &t))
        return false;
    *ret = (struct piece){.size = t.size};
    if (t.content) {
        ret->content = xcalloc(t.size + 1, 1);
        memcpy(ret->content, t.content->bytes, t.size);
        digest_piece(ret);
        return true;
    }
    return digest_parse_base64(HASH_CRC32C, str_of(t.crc32c), &ret->crc32c) &&
           digest_parse_base64(HASH_CRC64NVME, str_of(t.crc64), &ret->crc64);
}

/* The key ends in "/compose", and the body names the sources. */
static void compose(const struct request *r, const struct piece *body, struct reply *p)
{
    struct piece pieces[COMPOSE_MAX] = {0};
    char key[KEY_MAX_BYTES + 1], meta[512] = "";
    struct err err;
    auto_json j = NULL;
    snprintf(key, sizeof key, "%.*s", (int)(strlen(r->key) - strlen("/compose")), r->key);
    if (json_parse((struct str){body->content, body->size}, "the composition", &j, &err) < 0) {
        gcs_error(p, 400, "parseError", "the body is not JSON");
        return;
    }
    const json *sources = json_at(j, "sourceObjects");
    size_t count = json_count(sources);
    if (count < 1 || count > COMPOSE_MAX) {
        gcs_error(p, 400, "invalid", "a composition has 1 to 32 sources");
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (!add_source(json_item(sources, i), &pieces[i])) {
            pieces_free(pieces, count);
            gcs_error(p, 404, "notFound", "a source is not there");
            return;
        }
    read_metadata(json_at(j, "destination.metadata"), meta, sizeof meta);
    store_now(key, wants_absent(r), pieces, count, meta, p);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static void object_request(const struct request *r, struct reply *p)
{
    auto_thing t = {.content = NULL};
    char text[32];
    bool media = request_query(r, "alt", text, sizeof text) && strcmp(text, "media") == 0;
    bool there = objects_find(str_of(r->key), &t);
    if (there && request_query(r, "generation", text, sizeof text) && strtoull(text, NULL, 10) != t.generation)
        there = false;
    if (!there)
        gcs_error(p, 404, "notFound", "No such object");
    else if (precondition_fails(r, &t))
        gcs_error(p, 412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.");
    else if (str_eq(r->method, STR("DELETE"))) {
        objects_remove(str_of(r->key));
        p->status = 204;
    } else if (media)
        object_answer(r, &t, p);
    else
        resource_reply(&t, p);
}

void gcs_answer(const struct request *r, struct piece *body, struct reply *p)
{
    struct page g;
    if (strcmp(r->bucket, bucket_name) != 0)
        gcs_error(p, 404, "notFound", "The specified bucket does not exist.");
    else if (str_starts(r->path, STR("/upload/")))
        upload_answer(r, body, p);
    else if (str_eq(r->method, STR("POST")) && str_ends(str_of(r->key), STR("/compose")))
        compose(r, body, p);
    else if (r->key[0])
        object_request(r, p);
    else if (!str_ends(r->path, STR("/o"))) {
        sbuf_addf(&p->text, "{\"kind\":\"storage#bucket\",\"name\":\"%s\",\"location\":\"EU\"}", bucket_name);
        reply_text(p, 200, "application/json", sbuf_str(&p->text));
    } else {
        page_parse(r, &g);
        if (!page_fast(&g, p))
            page_slow(&g, p);
    }
}
