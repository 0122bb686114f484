/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { SESSIONS_MAX = 1024, COMPOSE_MAX = 32, PAGE_MAX = 1000 };

struct session { /* a resumable upload */
    bool used;
    char id[32];
    char key[KEY_MAX_BYTES + 1];
    char meta[512];
    bool absent;
    struct piece *pieces;
    size_t count;
    uint64_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards sessions */
static struct session sessions[SESSIONS_MAX];
static unsigned session_serial;

static void json_add(struct sbuf *b, const char *s)
{
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            sbuf_addf(b, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            sbuf_addf(b, "\\u%04x", *s);
        else
            sbuf_addc(b, *s);
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

static void resource_add(const struct thing *t, struct sbuf *b)
{
    sbuf_adds(b, "{\"kind\":\"storage#object\",\"name\":\"");
    json_add(b, t->key);
    sbuf_addf(b,
              "\",\"bucket\":\"%s\",\"generation\":\"%" PRIu64 "\",\"metageneration\":\"1\",\"size\":\"%" PRIu64 "\"",
              bucket_name, t->generation, t->size);
    if (t->crc32c[0])
        sbuf_addf(b, ",\"crc32c\":\"%s\"", t->crc32c);
    if (t->md5[0])
        sbuf_addf(b, ",\"md5Hash\":\"%s\"", t->md5);
    if (t->meta[0]) { /* kept as header lines: "x-goog-meta-name: value" */
        struct str rest = str_of(t->meta), line;
        const char *comma = "";
        sbuf_adds(b, ",\"metadata\":{");
        while (str_split(&rest, '\n', &line)) {
            ssize_t colon = str_find(line, ':');
            if (colon < 12)
                continue;
            struct str value = str_trim(str_from(line, (size_t)colon + 1));
            sbuf_addf(b, "%s\"%.*s\":\"%.*s\"", comma, (int)colon - 12, line.ptr + 12, STR_FMT(value));
            comma = ",";
        }
        sbuf_adds(b, "}");
    }
    sbuf_addf(b, ",\"etag\":\"%s\",\"storageClass\":\"STANDARD\",\"updated\":\"2026-01-01T00:00:00.000Z\"}", t->etag);
}

/* Of an object in a list what our client asks for by `fields`, as Google's would answer. */
void entry_gcs(const struct thing *t, struct sbuf *b)
{
    sbuf_adds(b, "{\"name\":\"");
    json_add(b, t->key);
    sbuf_addf(b, "\",\"generation\":\"%" PRIu64 "\",\"size\":\"%" PRIu64 "\"", t->generation, t->size);
    if (t->crc32c[0])
        sbuf_addf(b, ",\"crc32c\":\"%s\"", t->crc32c);
    sbuf_adds(b, ",\"updated\":\"2026-01-01T00:00:00.000Z\"},");
}

static void resource_reply(const struct thing *t, struct reply *p)
{
    resource_add(t, &p->text);
    reply_text(p, 200, "application/json", sbuf_str(&p->text));
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
        sbuf_addf(&folders, "\"%.*s\",", folder, t.key);
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

/* The text of a member of a flat JSON body; enough for what clients send here. */
static bool json_text(const char *json, const char *member, char *buf, size_t room)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", member);
    const char *at = json ? strstr(json, quoted) : NULL;
    at = at ? strchr(at + strlen(quoted), ':') : NULL;
    at = at ? strchr(at, '"') : NULL;
    if (!at)
        return false;
    size_t n = 0;
    for (at++; *at && *at != '"' && n + 1 < room; at++) {
        if (*at == '\\' && at[1])
            at++;
        buf[n++] = *at;
    }
    buf[n] = '\0';
    return true;
}

/* "metadata":{"name":"value"} as header lines. */
static void meta_of(const char *json, char *buf, size_t room)
{
    const char *at = json ? strstr(json, "\"metadata\"") : NULL;
    char name[100], value[300];
    size_t used = 0;
    buf[0] = '\0';
    at = at ? strchr(at, '{') : NULL;
    while (at && sscanf(at + 1, " \"%99[^\"]\" : \"%299[^\"]\"", name, value) == 2 && used < room) {
        used += (size_t)snprintf(buf + used, room - used, "x-goog-meta-%s: %s\r\n", name, value);
        at = strstr(at, value);
        at = at ? strchr(at, ',') : NULL;
    }
}

static bool wants_absent(const struct request *r)
{
    char text[32];
    return request_query(r, "ifGenerationMatch", text, sizeof text) && strcmp(text, "0") == 0;
}

static void store_now(const char *key, bool absent, struct piece *pieces, size_t count, const char *meta,
                      struct reply *p)
{
    struct thing t;
    if (absent && objects_find(str_of(key), &t)) {
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

/* multipart/related: the resource, then the bytes. */
static void upload_related(const struct request *r, const struct piece *body, struct reply *p)
{
    char key[KEY_MAX_BYTES + 1], meta[512], boundary[200] = "--";
    struct str type = request_header(r, "Content-Type");
    char *mark = memmem(type.ptr ? type.ptr : "", type.len, "boundary=", 9);
    char *text = body->content, *end = text ? text + body->size : NULL;
    if (mark)
        snprintf(boundary + 2, sizeof boundary - 2, "%.*s", (int)strcspn(mark + 9, "\"\r\n; "),
                 mark[9] == '"' ? mark + 10 : mark + 9);
    if (mark && mark[9] == '"')
        snprintf(boundary + 2, sizeof boundary - 2, "%.*s", (int)strcspn(mark + 10, "\""), mark + 10);
    char *second = text ? strstr(text + 2, boundary) : NULL;
    char *bytes = second ? strstr(second, "\r\n\r\n") : NULL;
    char *last = bytes ? memmem(bytes + 4, (size_t)(end - bytes - 4), boundary, strlen(boundary)) : NULL;
    for (char *at = last; at; at = memmem(at + 1, (size_t)(end - at - 1), boundary, strlen(boundary)))
        last = at;
    if (!last || !(request_query(r, "name", key, sizeof key) || json_text(text, "name", key, sizeof key))) {
        gcs_error(p, 400, "invalid", "the parts of the body cannot be told apart");
        return;
    }
    meta_of(text, meta, sizeof meta);
    struct piece piece = {.size = (uint64_t)(last - bytes - 6)};
    piece.content = xcalloc(piece.size + 1, 1);
    memcpy(piece.content, bytes + 4, piece.size);
    digest_piece(&piece);
    store_now(key, wants_absent(r), &piece, 1, meta, p);
}

static void session_begin(const struct request *r, const struct piece *body, struct reply *p)
{
    struct session *s = NULL;
    for (unsigned i = 0; i < SESSIONS_MAX && !s; i++)
        s = sessions[i].used ? NULL : &sessions[i];
    if (!s) {
        gcs_error(p, 503, "backendError", "too many sessions are open");
        return;
    }
    *s = (struct session){.used = true, .absent = wants_absent(r)};
    snprintf(s->id, sizeof s->id, "session-%u", ++session_serial);
    if (!request_query(r, "name", s->key, sizeof s->key))
        json_text(body->content, "name", s->key, sizeof s->key);
    meta_of(body->content, s->meta, sizeof s->meta);
    struct str host = request_header(r, "Host");
    bool tls = str_eq(request_header(r, "x-bucket-server-tls"), STR("1"));
    sbuf_addf(&p->headers, "Location: http%s://%.*s/upload/storage/v1/b/%s/o?uploadType=resumable&upload_id=%s\r\n",
              tls ? "s" : "", STR_FMT(host), bucket_name, s->id);
    p->status = 200;
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
        store_now(s->key, s->absent, s->pieces, s->count, s->meta, p);
        free(s->pieces);
        *s = (struct session){0};
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
            free(s->pieces);
            *s = (struct session){0};
            p->status = 499;
        } else
            session_chunk(r, s, body, p);
    }
    pthread_mutex_unlock(&lock);
}

/* The key ends in "/compose", and the body names the sources. */
static void compose(const struct request *r, const struct piece *body, struct reply *p)
{
    struct piece pieces[COMPOSE_MAX] = {0};
    char key[KEY_MAX_BYTES + 1], name[KEY_MAX_BYTES + 1], meta[512];
    size_t count = 0;
    const char *at = body->content ? strstr(body->content, "\"sourceObjects\"") : NULL;
    snprintf(key, sizeof key, "%.*s", (int)(strlen(r->key) - strlen("/compose")), r->key);
    for (; at && (at = strstr(at, "\"name\"")) != NULL; at++) {
        struct thing t;
        if (count == COMPOSE_MAX || !json_text(at, "name", name, sizeof name) || !objects_find(str_of(name), &t)) {
            gcs_error(p, count == COMPOSE_MAX ? 400 : 404, "notFound", "a source cannot be composed");
            return;
        }
        struct piece *piece = &pieces[count++];
        auto_sbuf raw;
        sbuf_init(&raw, 64);
        piece->size = t.size;
        if (t.content) {
            piece->content = xcalloc(t.size + 1, 1);
            memcpy(piece->content, t.content, t.size);
            digest_piece(piece);
            continue;
        }
        struct err ignored;
        if (digest_parse_base64(HASH_CRC32C, str_of(t.crc32c), &piece->crc32c, &ignored) < 0 ||
            digest_parse_base64(HASH_CRC64NVME, str_of(t.crc64), &piece->crc64, &ignored) < 0) {
            gcs_error(p, 500, "backendError", "a source has no checksum");
            return;
        }
    }
    meta_of(body->content, meta, sizeof meta);
    store_now(key, wants_absent(r), pieces, count, meta, p);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static void object_request(const struct request *r, struct reply *p)
{
    struct thing t;
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
