/* SPDX-License-Identifier: Apache-2.0 */
/* store_tool - the functions of store.h on the command line, for the integration tests.
 *
 *     store_tool [--endpoint URL] [--anonymous] [--path-style] [--ca FILE] [--retries N] URI VERB [ARGUMENT...]
 *
 * Keys are percent-encoded there and back, since they may hold any byte. Every verb prints one JSON object a line. The
 * last one has `code` ("OK" or the error's name), `text`, `id`, `advice` and `requests`. The exit status is 0. */
#include "store/list.h"
#include "store/store.h"
#include "store/writable.h"
#include "util/json.h"
#include "util/str.h"
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>

struct tool {
    struct worker worker;
    struct store *store;
    struct mail mail;
    sem_t done;
    void (*make)(struct tool *t);
    char **args;
    struct sbuf key;
    int out;
    json *answer;
    struct store_object object; /* of the last answer; strings are the tool's own */
    char etag[2048];
    struct store_write upload;
    struct store_writable writable;
    struct store_part parts[1000];
    size_t part_count;
    unsigned number;
    struct store_body body;
    int file;
    enum hash_kind digest_kind;
    struct digest whole;
    uint64_t at;
    int code;
};

static const char *flag(struct tool *t, const char *name)
{
    for (char **a = t->args; *a; a++)
        if (strcmp(*a, name) == 0)
            return a[1] ? a[1] : "";
    return NULL;
}

static struct str text_flag(struct tool *t, const char *name)
{
    return str_of(flag(t, name));
}

static uint64_t number_flag(struct tool *t, const char *name, uint64_t otherwise)
{
    uint64_t n;
    struct err err;
    return flag(t, name) && str_to_u64(text_flag(t, name), &n, &err) == 0 ? n : otherwise;
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static void decode(struct str s, struct sbuf *b)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == '%' && i + 2 < s.len + 0) {
            sbuf_addc(b, (char)(hex(s.ptr[i + 1]) << 4 | hex(s.ptr[i + 2])));
            i += 2;
        } else {
            sbuf_addc(b, s.ptr[i]);
        }
}

static void put_key(json *j, struct str key)
{
    auto_sbuf b;
    sbuf_init(&b, 8192);
    for (size_t i = 0; i < key.len; i++) {
        unsigned char c = (unsigned char)key.ptr[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~/", c))
            sbuf_addc(&b, (char)c);
        else
            sbuf_addf(&b, "%%%02X", c);
    }
    json_set_str(j, "key", sbuf_str(&b));
}

static void put_object(json *j, const struct store_object *o)
{
    auto_sbuf digest;
    sbuf_init(&digest, 128);
    put_key(j, o->key);
    json_set_u64(j, "size", o->size_bytes);
    json_set_str(j, "etag", o->etag);
    json_set_i64(j, "mtime_ns", o->mtime_ns);
    json_set_u64(j, "generation", o->generation);
    if (o->digest.kind) {
        json_set_str(j, "digest_kind", str_of(hash_name((enum hash_kind)o->digest.kind)));
        digest_add_hex(&o->digest, &digest);
        json_set_str(j, "digest", sbuf_str(&digest));
    }
}

static void print(json *j)
{
    auto_mem char *text = json_text(j, 0);
    puts(text);
}

static void finish(struct tool *t, const struct store_reply *r)
{
    t->code = r->code;
    json_free(t->answer);
    t->answer = json_new_object();
    json_set_str(t->answer, "code", str_of(r->code < 0 ? err_code_name(r->err.code) : "OK"));
    json_set_u64(t->answer, "requests", r->requests);
    json_set_u64(t->answer, "skipped", r->skipped);
    json_set_bool(t->answer, "may_retry", r->may_retry);
    if (r->code < 0) {
        json_set_str(t->answer, "text", str_of(r->err.text));
        json_set_str(t->answer, "advice", str_of(r->err.advice));
        json_set_u64(t->answer, "id", r->err.id);
    } else {
        put_object(t->answer, &r->object);
    }
    t->object = r->object;
    snprintf(t->etag, sizeof t->etag, "%.*s", STR_FMT(r->upload_id.len ? r->upload_id : r->object.etag));
    t->object.etag = str_of(t->etag);
    sem_post(&t->done);
}

static void done(void *ctx, const struct store_reply *r)
{
    finish(ctx, r);
}

static void deliver(struct mail *m)
{
    struct tool *t = container_of(m, struct tool, mail);
    t->make(t);
}

static int run(struct tool *t, void (*make)(struct tool *t))
{
    t->make = make;
    t->mail.deliver = deliver;
    loop_post(t->worker.loop, &t->mail);
    sem_wait(&t->done);
    return t->code;
}

/* ---- verbs ------------------------------------------------------------------------------------------------------- */

static void page_done(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                      struct str next_token)
{
    struct tool *t = ctx;
    for (size_t i = 0; i < count; i++) {
        auto_json j = json_new_object();
        put_object(j, &objects[i]);
        print(j);
    }
    sbuf_clear(&t->key);
    sbuf_add(&t->key, next_token);
    finish(t, r);
}

static void make_page(struct tool *t)
{
    auto_sbuf prefix, after;
    sbuf_init(&prefix, 8192);
    sbuf_init(&after, 8192);
    decode(text_flag(t, "--prefix"), &prefix);
    decode(text_flag(t, "--start-after"), &after);
    struct store_page p = {.prefix = sbuf_str(&prefix),
                           .start_after = sbuf_str(&after),
                           .token = sbuf_str(&t->key),
                           .keys_max = (unsigned)number_flag(t, "--page", 0),
                           .delimited = flag(t, "--folders") != NULL,
                           .ctx = t,
                           .on_done = page_done};
    store_list_page(t->store, &t->worker, &p);
}

static void verb_list(struct tool *t)
{
    sbuf_clear(&t->key);
    while (run(t, make_page) == 0 && t->key.len > 0)
        ;
}

static void told(void *ctx, const struct store_object *o)
{
    (void)ctx;
    auto_json j = json_new_object();
    put_object(j, o);
    json_set_bool(j, "head", true);
    print(j);
}

static int data(void *ctx, const char *bytes, size_t len)
{
    struct tool *t = ctx;
    return write(t->out, bytes, len) == (ssize_t)len ? 0 : -ERR_IO;
}

static void make_get(struct tool *t)
{
    struct store_object o = {.key = sbuf_str(&t->key),
                             .etag = text_flag(t, "--etag"),
                             .generation = number_flag(t, "--generation", 0),
                             .size_bytes = number_flag(t, "--size", 0)};
    struct store_get g = {.object = &o,
                          .offset = number_flag(t, "--offset", 0),
                          .len = number_flag(t, "--len", o.size_bytes),
                          .ctx = t,
                          .on_head = told,
                          .on_data = data,
                          .on_done = done};
    store_get(t->store, &t->worker, &g);
}

static void make_head(struct tool *t)
{
    store_head(t->store, &t->worker, sbuf_str(&t->key), done, t);
}

static void make_delete(struct tool *t)
{
    store_delete(t->store, &t->worker, sbuf_str(&t->key), done, t);
}

static void make_sweep(struct tool *t)
{
    store_upload_sweep(t->store, &t->worker, sbuf_str(&t->key), done, t);
}

static void tested(void *ctx, const struct err *err)
{
    struct store_reply r = {.code = err ? -(int)err->code : 0};
    if (err)
        r.err = *err;
    done(ctx, &r);
}

static void make_writable(struct tool *t)
{
    t->writable = (struct store_writable){.store = t->store, .worker = &t->worker, .ctx = t, .on_done = tested};
    store_writable_test(&t->writable);
}

static ssize_t body_read(void *ctx, char *buf, size_t room, uint64_t offset)
{
    struct tool *t = ctx;
    return pread(t->file, buf, room, (off_t)(t->at + offset));
}

static struct digest digest_of_range(struct tool *t, uint64_t at, uint64_t len)
{
    char chunk[65536];
    struct hash h;
    struct digest d = {0};
    if (t->digest_kind == HASH_NONE)
        return d;
    hash_init(&h);
    hash_begin(&h, t->digest_kind);
    while (len > 0) {
        ssize_t n = pread(t->file, chunk, min_u64(sizeof chunk, len), (off_t)at);
        if (n <= 0)
            break;
        hash_update(&h, chunk, (size_t)n);
        at += (uint64_t)n;
        len -= (uint64_t)n;
    }
    hash_end(&h, &d);
    hash_done(&h);
    return d;
}

static void open_file(struct tool *t)
{
    static const enum hash_kind kinds[] = {HASH_CRC32, HASH_CRC32C, HASH_CRC64NVME, HASH_MD5, HASH_SHA256};
    t->file = open(t->args[1], O_RDONLY | O_CLOEXEC);
    if (t->file < 0) {
        perror(t->args[1]);
        exit(2);
    }
    for (size_t i = 0; i < countof(kinds); i++)
        if (str_eq(text_flag(t, "--digest"), str_of(hash_name(kinds[i]))))
            t->digest_kind = kinds[i];
}

static void make_put(struct tool *t)
{
    struct store_write u = {.key = sbuf_str(&t->key),
                            .condition = flag(t, "--if-same")     ? STORE_IF_SAME
                                         : flag(t, "--if-absent") ? STORE_IF_ABSENT
                                                                  : STORE_IF_ANY,
                            .match = text_flag(t, "--if-same"),
                            .idempotency_token = text_flag(t, "--upload-id"),
                            .content_type = text_flag(t, "--content-type")};
    store_put(t->store, &t->worker, &u, &t->body, NULL, done, t);
}

static void verb_put(struct tool *t)
{
    struct stat st;
    open_file(t);
    fstat(t->file, &st);
    t->body = (struct store_body){.len = (uint64_t)st.st_size,
                                  .digest = digest_of_range(t, 0, (uint64_t)st.st_size),
                                  .ctx = t,
                                  .read = body_read};
    if (flag(t, "--wrong-digest"))
        t->body.digest.bytes[0] ^= 1;
    run(t, make_put);
}

static void make_begin(struct tool *t)
{
    store_upload_begin(t->store, &t->worker, &t->upload, done, t);
}

static void make_part(struct tool *t)
{
    store_upload_part(t->store, &t->worker, &t->upload, t->number, &t->body, NULL, done, t);
}

static void make_complete(struct tool *t)
{
    store_upload_complete(t->store, &t->worker, &t->upload, &(struct store_parts){t->parts, t->part_count, t->whole},
                          done, t);
}

static void make_abort(struct tool *t)
{
    store_upload_abort(t->store, &t->worker, &t->upload, done, t);
}

static int send_parts(struct tool *t, uint64_t size, uint64_t part_bytes)
{
    t->part_count = size ? (size + part_bytes - 1) / part_bytes : 1;
    for (size_t i = t->part_count; i-- > 0;) { /* the last first: any order must do */
        t->at = i * part_bytes;
        t->number = (unsigned)i + 1;
        t->body.len = min_u64(part_bytes, size - t->at);
        t->body.digest = digest_of_range(t, t->at, t->body.len);
        if (run(t, make_part) < 0)
            return -1;
        t->parts[i] = (struct store_part){.number = t->number,
                                          .etag = {strdup(t->etag), strlen(t->etag)},
                                          .digest = t->object.digest.kind ? t->object.digest : t->body.digest,
                                          .size_bytes = t->body.len};
    }
    return 0;
}

/* upload KEY FILE PART_BYTES: until the step that --stop names ("begin", "parts"), then aborted with --abort. */
static void verb_upload(struct tool *t)
{
    struct stat st;
    char id[2048];
    struct str stop = text_flag(t, "--stop");
    struct err err;
    uint64_t part_bytes = 0;
    open_file(t);
    fstat(t->file, &st);
    if (str_to_u64(str_of(t->args[2]), &part_bytes, &err) < 0)
        exit(2);
    if (!flag(t, "--digest"))
        t->digest_kind = store_caps(t->store)->upload_digest;
    t->whole = digest_of_range(t, 0, (uint64_t)st.st_size);
    t->body = (struct store_body){.ctx = t, .read = body_read};
    t->upload = (struct store_write){.key = sbuf_str(&t->key),
                                     .condition = flag(t, "--if-absent") ? STORE_IF_ABSENT : STORE_IF_ANY,
                                     .idempotency_token = text_flag(t, "--upload-id"),
                                     .digest_kind = t->digest_kind,
                                     .part_bytes = part_bytes};
    if (run(t, make_begin) < 0)
        return;
    snprintf(id, sizeof id, "%s", t->etag);
    t->upload.upload_id = str_of(id);
    if (str_eq(stop, STR("begin")) || send_parts(t, (uint64_t)st.st_size, part_bytes) < 0)
        return;
    if (flag(t, "--wrong-digest"))
        t->whole.bytes[0] ^= 1;
    if (flag(t, "--abort"))
        run(t, make_abort);
    else if (!str_eq(stop, STR("parts")) && run(t, make_complete) == 0 && flag(t, "--twice"))
        run(t, make_complete);
}

static const struct {
    const char *name;
    void (*verb)(struct tool *t);
    void (*make)(struct tool *t);
} verbs[] = {{"list", verb_list, NULL},     {"get", NULL, make_get},          {"head", NULL, make_head},
             {"delete", NULL, make_delete}, {"sweep", NULL, make_sweep},      {"put", verb_put, NULL},
             {"upload", verb_upload, NULL}, {"writable", NULL, make_writable}};

static void run_verb(struct tool *t, const char *name)
{
    for (size_t i = 0; i < countof(verbs); i++)
        if (strcmp(name, verbs[i].name) == 0) {
            if (verbs[i].verb)
                verbs[i].verb(t);
            else
                run(t, verbs[i].make);
            return;
        }
    fprintf(stderr, "store_tool: no verb '%s'\n", name);
    exit(2);
}

static void fail(const struct err *err)
{
    auto_json j = json_new_object();
    json_set_str(j, "code", str_of(err_code_name(err->code)));
    json_set_str(j, "text", str_of(err->text));
    json_set_str(j, "advice", str_of(err->advice));
    json_set_u64(j, "id", err->id);
    print(j);
    exit(0);
}

/* The flags before the URI; returns the URI's place. */
static int read_flags(int argc, char **argv, struct store_options *o)
{
    int i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--anonymous") == 0) {
            o->auth = STORE_AUTH_ANONYMOUS;
            continue;
        }
        if (strcmp(argv[i], "--path-style") == 0) {
            o->path_style = true;
            continue;
        }
        if (strcmp(argv[i], "--endpoint") == 0)
            o->endpoint = value;
        else if (strcmp(argv[i], "--ca") == 0)
            o->ca_file = value;
        else if (strcmp(argv[i], "--profile") == 0)
            o->profile = value;
        else if (strcmp(argv[i], "--billing") == 0)
            o->billing = value;
        else if (strcmp(argv[i], "--retries") == 0)
            o->retry.attempts_max = (unsigned)strtoul(value, NULL, 10);
        i++;
    }
    return i;
}

static void prepare(struct tool *t)
{
    t->out = -1;
    sem_init(&t->done, 0, 0);
    sbuf_init(&t->key, 16384);
    if (t->args[0] && strncmp(t->args[0], "--", 2) != 0)
        decode(str_of(t->args[0]), &t->key);
    else
        sbuf_adds(&t->key, "");
    if (flag(t, "--out"))
        t->out = open(flag(t, "--out"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

int main(int argc, char **argv)
{
    static struct tool t;
    struct store_options o = {.retry = {.attempts_max = 1, .backoff_base_ns = 1000000}};
    struct thread_pool *pool;
    struct err err;
    int i = read_flags(argc, argv, &o);
    if (argc - i < 2)
        return 2;
    o.uri = str_of(argv[i]);
    t.args = argv + i + 2;
    prepare(&t);
    if (store_open(&o, &t.store, &err) < 0)
        fail(&err);
    struct web_options web = {0};
    store_trust(t.store, &web);
    if (thread_pool_new(2, &pool, &err) < 0 || worker_init(&t.worker, 0, pool, &web, true, &err) < 0 ||
        loop_start(t.worker.loop, &err) < 0)
        fail(&err);
    run_verb(&t, argv[i + 1]);
    print(t.answer);
    worker_done(&t.worker);
    thread_pool_free(pool);
    store_free(t.store);
    sbuf_done(&t.key);
    json_free(t.answer);
    return 0;
}
