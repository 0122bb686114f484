/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of a store, byte by byte: heads, lengths, ranges, checksums, dates, documents. The first byte selects the
 * call and the kind of store. The replies to its requests follow in order, separated by lines of "====". Each call ends
 * once, with its result or with an error. */
#include "fuzz.h"
#include "store/store.h"
#include "util/clock.h"
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GET_BYTES = 10, RANGE_AT = 2, RANGE_BYTES = 5, PUT_BYTES = 3, HEAD_MAX = 32 << 10 };
#define ETAG "\"9e107d9d372bb6826bd81d3542a419d6\""
#define SEPARATOR "\n====\n"

/* ---- the server: a connection an answer, and none where the input ends ------------------------------------------- */

static struct {
    int fd, port;
    pthread_mutex_t lock; /* guards `left` and what it points to */
    struct str left;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct str next_answer(struct str *rest)
{
    struct str sep = STR(SEPARATOR), all = *rest;
    const char *at = all.len ? memmem(all.ptr, all.len, sep.ptr, sep.len) : NULL;
    size_t len = at ? (size_t)(at - all.ptr) : all.len;
    *rest = str_from(all, at ? len + sep.len : len);
    return str_sub(all, 0, len);
}

static void set_answers(struct str all)
{
    pthread_mutex_lock(&server.lock);
    server.left = all;
    pthread_mutex_unlock(&server.lock);
}

/* Of a copy: who asked may have heard enough, and be gone, before the end. */
static void give_answer(int fd)
{
    pthread_mutex_lock(&server.lock);
    struct str answer = next_answer(&server.left);
    auto_mem char *copy = str_dup(answer);
    pthread_mutex_unlock(&server.lock);
    (void)!send(fd, copy, answer.len, MSG_NOSIGNAL);
}

/* The whole request is read first: an end with bytes unread is a reset, which overtakes the answer. */
static void read_request(int fd)
{
    static char head[HEAD_MAX + 1];
    size_t len = 0, body = 0;
    char *end = NULL;
    while (!end && len < HEAD_MAX) {
        ssize_t n = recv(fd, head + len, HEAD_MAX - len, 0);
        if (n <= 0)
            return;
        len += (size_t)n;
        head[len] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    const char *length = strcasestr(head, "\r\ncontent-length: ");
    if (end && length)
        body = strtoul(length + 18, NULL, 10);
    for (size_t got = end ? len - (size_t)(end + 4 - head) : 0; got < body;) {
        ssize_t n = recv(fd, head, HEAD_MAX, 0);
        if (n <= 0)
            return;
        got += (size_t)n;
    }
}

static void *serve(void *arg)
{
    (void)arg;
    for (int fd; (fd = accept(server.fd, NULL, NULL)) >= 0; close(fd)) {
        read_request(fd);
        give_answer(fd);
    }
    return NULL;
}

static void start_server(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    pthread_t thread;
    server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_up = bind(server.fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(server.fd, 128) == 0 &&
                 getsockname(server.fd, (struct sockaddr *)&a, &len) == 0 &&
                 pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0;
    assert(is_up);
    server.port = ntohs(a.sin_port);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static struct {
    struct worker worker;
    struct mail mail;
    void (*make)(void); /* what the mail asks for */
    sem_t over;
    /* of the call under way */
    struct store *store;
    struct sbuf data;
    bool told;
    int code;
    unsigned requests;
} w;

static void check_reply(const struct store_reply *r)
{
    assert(!w.told);
    w.told = true;
    w.code = r->code;
    w.requests = r->requests;
    assert(r->retry_after_ns <= 300 * NS_PER_SECOND);
    if (r->code < 0)
        assert(r->err.code == (enum err_code) - r->code && r->err.text[0] && str_is_utf8(str_of(r->err.text)) &&
               str_is_utf8(str_of(r->err.advice)));
}

static void on_done(void *ctx, const struct store_reply *r)
{
    (void)ctx;
    check_reply(r);
    sem_post(&w.over);
}

static int on_data(void *ctx, const char *bytes, size_t len)
{
    (void)ctx;
    sbuf_add(&w.data, (struct str){bytes, len});
    return 0;
}

static void on_head(void *ctx, const struct store_object *told)
{
    (void)ctx;
    assert(!w.told && w.data.len == 0 && told->digest.kind <= HASH_SHA256);
}

static void on_page(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                    struct str next)
{
    (void)ctx;
    check_reply(r);
    for (size_t i = 0; r->code == 0 && i < count; i++)
        sbuf_add(&w.data, objects[i].key);
    assert(r->code == 0 || (!objects && count == 0 && next.len == 0));
    sem_post(&w.over);
}

static ssize_t read_body(void *ctx, char *buf, size_t room, uint64_t offset)
{
    struct str rest = str_from(STR("abc"), offset);
    (void)ctx;
    rest.len = min_u64(rest.len, room);
    memcpy(buf, rest.ptr, rest.len);
    return (ssize_t)rest.len;
}

static const struct store_object object = {
    .key = STR("a/b c"), .size_bytes = GET_BYTES, .etag = STR(ETAG), .generation = 7};
static const struct store_body body = {.len = PUT_BYTES, .read = read_body};
static const struct store_write upload = {.key = STR("a/b c"),
                                          .upload_id = STR("d1fd9b0a2ffa34e5d4b0ff0c7c7a3c04"),
                                          .idempotency_token = STR("mine"),
                                          .part_bytes = 5 << 20};

static void get(uint64_t offset, uint64_t len)
{
    const struct store_get g = {
        .object = &object, .offset = offset, .len = len, .on_head = on_head, .on_data = on_data, .on_done = on_done};
    store_get(w.store, &w.worker, &g);
}

static void get_whole(void)
{
    get(0, GET_BYTES);
}

static void get_range(void)
{
    get(RANGE_AT, RANGE_BYTES);
}

static void head(void)
{
    store_head(w.store, &w.worker, object.key, on_done, NULL);
}

static void list(bool delimited)
{
    const struct store_page p = {
        .prefix = STR("a/"), .start_after = STR("a/a"), .delimited = delimited, .on_done = on_page};
    store_list_page(w.store, &w.worker, &p);
}

static void list_all(void)
{
    list(false);
}

static void list_folders(void)
{
    list(true);
}

static void put(void)
{
    const struct store_write u = {
        .key = object.key, .condition = STORE_IF_ABSENT, .idempotency_token = upload.idempotency_token};
    store_put(w.store, &w.worker, &u, &body, NULL, on_done, NULL);
}

static void begin(void)
{
    store_upload_begin(w.store, &w.worker, &upload, on_done, NULL);
}

static void part(void)
{
    store_upload_part(w.store, &w.worker, &upload, 1, &body, NULL, on_done, NULL);
}

static void complete(void)
{
    static const struct store_part parts[] = {{.number = 1, .etag = STR("1"), .size_bytes = 5 << 20},
                                              {.number = 2, .etag = STR("2"), .size_bytes = PUT_BYTES}};
    store_upload_complete(w.store, &w.worker, &upload, &(struct store_parts){parts, countof(parts), {0}}, on_done,
                          NULL);
}

static void give_up(void)
{
    store_upload_abort(w.store, &w.worker, &upload, on_done, NULL);
}

static void sweep(void)
{
    store_upload_sweep(w.store, &w.worker, object.key, on_done, NULL);
}

static void delete (void)
{
    store_delete(w.store, &w.worker, object.key, on_done, NULL);
}

static void (*const calls[])(void) = {get_whole, get_range, head,     list_all, list_folders, put,
                                      begin,     part,      complete, give_up,  sweep,        delete};

/* ---- the world --------------------------------------------------------------------------------------------------- */

static void deliver(struct mail *m)
{
    (void)m;
    w.make();
}

/* A job is freed after its last word: what is done on the loop next finds it gone. */
static void settle(void)
{
    sem_post(&w.over);
}

static void run_on_loop(void (*make)(void))
{
    w.make = make;
    loop_post(w.worker.loop, &w.mail);
    while (sem_wait(&w.over) != 0) /* the fuzzer's own alarm */
        ;
}

static void set_up(void)
{
    static struct thread_pool *pool;
    struct err err;
    setenv("no_proxy", "*", 1);
    start_server();
    sem_init(&w.over, 0, 0);
    int r = thread_pool_new(1, &pool, &err);
    if (r == 0)
        r = worker_init(&w.worker, 0, pool, &(struct web_options){0}, false, &err);
    if (r == 0)
        r = loop_start(w.worker.loop, &err);
    assert(r == 0);
    w.mail.deliver = deliver;
}

/* A new store for each input: it keeps redirects and the time of replies. */
static struct store *open_store(const char *uri)
{
    char endpoint[64];
    struct store *s;
    struct err err;
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    const struct store_options o = {.uri = str_of(uri),
                                    .endpoint = endpoint,
                                    .region = "us-east-1",
                                    .auth = STORE_AUTH_ANONYMOUS,
                                    .retry = {.attempts_max = 1, .backoff_base_ns = 1, .backoff_cap_ns = 1}};
    int r = store_open(&o, &s, &err);
    assert(r == 0);
    return s;
}

/* The bytes given are those of the reply, in order, unless it was in chunks. A range is a reply that says so. */
static void check_bytes(struct str answers, size_t wanted)
{
    assert(w.data.len == wanted);
    assert(memmem(answers.ptr, answers.len, w.data.ptr, w.data.len) || strcasestr(answers.ptr, "chunked"));
    assert(wanted == GET_BYTES || strstr(answers.ptr, " 206"));
}

/* S3's document shows the result, or the existing object with this upload's own id. */
static void check_document(void (*make)(void), struct str answers)
{
    static const struct {
        void (*make)(void);
        struct str root;
    } rows[] = {{list_all, STR("ListBucketResult")},
                {list_folders, STR("ListBucketResult")},
                {begin, STR("UploadId")},
                {sweep, STR("ListMultipartUploadsResult")},
                {complete, STR("CompleteMultipartUploadResult")}};
    for (size_t i = 0; i < countof(rows); i++)
        if (make == rows[i].make)
            assert(memmem(answers.ptr, answers.len, rows[i].root.ptr, rows[i].root.len) ||
                   (make == complete && memmem(answers.ptr, answers.len, "mine", 4)));
}

/* No call is deaf: where there is no answer any more, it ends. Over a connection that was kept, and is dead, libcurl
 * sends a request once more. */
static void check_requests(struct str answers)
{
    unsigned given = 1;
    for (next_answer(&answers); answers.len > 0; next_answer(&answers))
        given++;
    assert(w.requests <= 2 * (given + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 1)
        return 0;
    if (!w.make)
        set_up();
    void (*make)(void) = calls[bytes[0] / 2 % countof(calls)];
    auto_mem char *text = str_dup(fuzz_str(bytes + 1, len - 1));
    struct str answers = {text, len - 1};
    set_answers(answers);
    sbuf_init(&w.data, 1 << 20);
    w.told = false;
    w.store = open_store(bytes[0] % 2 ? "gs://bucket/" : "s3://bucket/");
    run_on_loop(make);
    run_on_loop(settle);
    set_answers(STR_NULL);
    store_free(w.store);
    if (w.code == 0 && (make == get_whole || make == get_range))
        check_bytes(answers, make == get_whole ? GET_BYTES : RANGE_BYTES);
    if (w.code == 0 && bytes[0] % 2 == 0)
        check_document(make, answers);
    check_requests(answers);
    sbuf_done(&w.data);
    return 0;
}
