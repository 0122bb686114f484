/* SPDX-License-Identifier: Apache-2.0 */
#include "here.h"
#include "local/walk.h"
#include "util/clock.h"

/* ---- the calls --------------------------------------------------------------------------------------------------- */

struct list_arg {
    const char *prefix, *start_after, *end_before;
    unsigned keys_max;
    bool delimited;
    struct str token;
};

static void list_done(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                      struct str next_token)
{
    struct here_call *c = ctx;
    for (size_t i = 0; i < count; i++) {
        sbuf_add(&c->data, objects[i].key);
        sbuf_addc(&c->data, '\n');
    }
    c->count = count;
    sbuf_add(&c->token, next_token);
    c->calls = r->skipped;
    call_keep(c, r);
}

static void make_list(struct here_call *c)
{
    const struct list_arg *a = c->arg;
    struct store_page p = {.prefix = str_of(a->prefix),
                           .start_after = str_of(a->start_after),
                           .end_before = str_of(a->end_before),
                           .keys_max = a->keys_max,
                           .delimited = a->delimited,
                           .token = a->token,
                           .ctx = c,
                           .on_done = list_done};
    store_list_page(c->here->store, &c->here->worker, &p);
}

static void assert_list(struct here *h, struct list_arg a, const char *want)
{
    struct here_call c = {0};
    assert_int_equal(call(h, &c, make_list, &a), 0);
    assert_string_equal(c.data.ptr ? c.data.ptr : "", want);
    call_free(&c);
}

struct get_arg {
    struct store_object object;
    uint64_t offset, len;
};

static int get_data(void *ctx, const char *bytes, size_t len)
{
    struct here_call *c = ctx;
    c->calls++;
    if (c->pauses) {
        c->pauses--;
        store_resume(c->job); /* the job is not paused: no effect */
        return WEB_PAUSE;
    }
    sbuf_add(&c->data, (struct str){bytes, len});
    return 0;
}

static void make_get(struct here_call *c)
{
    const struct get_arg *a = c->arg;
    struct store_get g = {
        .object = &a->object, .offset = a->offset, .len = a->len, .ctx = c, .on_data = get_data, .on_done = call_done};
    c->job = store_get(c->here->store, &c->here->worker, &g);
}

static void make_head(struct here_call *c)
{
    store_head(c->here->store, &c->here->worker, str_of(c->arg), call_done, c);
}

struct put_arg {
    struct store_write put;
    struct store_body body;
    struct str content;
};

static ssize_t body_read(void *ctx, char *buf, size_t room, uint64_t offset)
{
    const struct str *content = ctx;
    struct str piece = str_sub(*content, offset, room);
    memcpy(buf, piece.ptr, piece.len);
    return (ssize_t)piece.len;
}

static void make_put(struct here_call *c)
{
    struct put_arg *a = (struct put_arg *)(uintptr_t)c->arg;
    a->body.len = a->content.len;
    a->body.ctx = &a->content;
    if (!a->body.read)
        a->body.read = body_read;
    store_put(c->here->store, &c->here->worker, &a->put, &a->body, NULL, call_done, c);
}

static int put(struct here *h, struct put_arg a, struct here_call *c)
{
    *c = (struct here_call){0};
    int r = call(h, c, make_put, &a);
    call_free(c);
    return r;
}

static bool is_there(struct here *h, const char *path)
{
    return faccessat(h->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- listing ----------------------------------------------------------------------------------------------------- */

static void keys_come_in_order_of_their_bytes(void **state)
{
    struct here *h = *state;
    static const char *const names[] = {"a/x", "a-b", "a.b", "a0", "b/c/d", "b/c!", "b/c0", "Z", "\xc3\xa9", "a/a/a"};
    for (size_t i = 0; i < countof(names); i++)
        here_file(h, names[i], "x");
    assert_list(h, (struct list_arg){0}, "Z\na-b\na.b\na/a/a\na/x\na0\nb/c!\nb/c/d\nb/c0\n\xc3\xa9\n");
    assert_list(h, (struct list_arg){.prefix = "a"}, "a-b\na.b\na/a/a\na/x\na0\n");
    assert_list(h, (struct list_arg){.prefix = "b/c"}, "b/c!\nb/c/d\nb/c0\n");
    assert_list(h, (struct list_arg){.prefix = "b/c/"}, "b/c/d\n");
    assert_list(h, (struct list_arg){.prefix = "nothing/here"}, "");
    assert_list(h, (struct list_arg){.prefix = "../"}, "");
    assert_list(h, (struct list_arg){.prefix = "/"}, "");
    assert_list(h, (struct list_arg){.start_after = "a/a/a", .end_before = "b/c/d"}, "a/x\na0\nb/c!\n");
    assert_list(h, (struct list_arg){.start_after = "a/"}, "a/a/a\na/x\na0\nb/c!\nb/c/d\nb/c0\n\xc3\xa9\n");
    assert_list(h, (struct list_arg){.delimited = true}, "Z\na-b\na.b\na/\na0\nb/\n\xc3\xa9\n");
    assert_list(h, (struct list_arg){.prefix = "b/", .delimited = true}, "b/c!\nb/c/\nb/c0\n");
}

static void pages_join_without_a_gap_or_an_overlap(void **state)
{
    struct here *h = *state;
    auto_sbuf want, have;
    sbuf_init(&want, 1 << 20);
    sbuf_init(&have, 1 << 20);
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "d%d/f%03d", i / 100, i);
        here_file(h, name, "");
        sbuf_addf(&want, "%s\n", name);
    }
    for (int forget = 0; forget < 2; forget++) {
        struct sbuf token;
        sbuf_init(&token, 8192);
        sbuf_clear(&have);
        do {
            struct here_call c = {0};
            struct list_arg a = {.keys_max = 7, .token = sbuf_str(&token)};
            assert_int_equal(call(h, &c, make_list, &a), 0);
            assert_true(c.count <= 7);
            sbuf_add(&have, sbuf_str(&c.data));
            sbuf_clear(&token);
            sbuf_add(&token, sbuf_str(&c.token));
            if (forget && token.len) /* as if the walk had been crowded out */
                memcpy(token.ptr, "0123456789abcdef", 16);
            call_free(&c);
        } while (token.len);
        assert_string_equal(have.ptr, want.ptr);
        sbuf_done(&token);
    }
}

static void only_regular_files_inside_are_objects(void **state)
{
    struct here *h = *state;
    struct here_call c = {0};
    here_file(h, "file", "x");
    here_file(h, ".cistern-uploads/half", "x");
    assert_int_equal(symlinkat("file", h->dir, "inside"), 0);
    assert_int_equal(symlinkat("/etc/passwd", h->dir, "outside"), 0);
    assert_int_equal(symlinkat("../../etc/passwd", h->dir, "above"), 0);
    assert_int_equal(symlinkat("nothing", h->dir, "dangling"), 0);
    assert_int_equal(symlinkat(".", h->dir, "loop"), 0);
    assert_int_equal(mkfifoat(h->dir, "pipe", 0600), 0);
    assert_int_equal(call(h, &c, make_list, &(struct list_arg){0}), 0);
    assert_string_equal(c.data.ptr, "file\ninside\n");
    assert_int_equal(c.calls, 5); /* skipped, and counted */
    call_free(&c);
    static const char *const not_objects[] = {"outside", "above", "dangling", "loop", "pipe", "nothing"};
    for (size_t i = 0; i < countof(not_objects); i++) {
        struct here_call g = {0};
        struct get_arg a = {.object.key = str_of(not_objects[i]), .len = 1};
        assert_int_equal(call(h, &g, make_get, &a), -ERR_NOT_FOUND);
        assert_non_null(strstr(g.err.text, not_objects[i]));
        call_free(&g);
    }
}

static void missing_directory_is_named(void **state)
{
    (void)state;
    struct here h = {0};
    struct here_call c = {0};
    struct err err;
    here_up(&h);
    store_free(h.store);
    assert_int_equal(store_open(&(struct store_options){.uri = STR("file:///tmp/no/such/")}, &h.store, &err), 0);
    assert_int_equal(call(&h, &c, make_list, &(struct list_arg){0}), -ERR_NOT_FOUND);
    assert_non_null(strstr(c.err.text, "/tmp/no/such"));
    assert_int_equal(c.err.id, 1405);
    call_free(&c);
    here_down(&h);
}

static void a_file_uri_names_one_object_or_a_tree(void **state)
{
    struct here *h = *state;
    struct err err;
    char uri[128];
    struct store *s;
    here_file(h, "d/one", "x");
    snprintf(uri, sizeof uri, "file://%s/d/one", h->folder);
    assert_int_equal(store_open(&(struct store_options){.uri = str_of(uri)}, &s, &err), 0);
    assert_true(str_eq(store_prefix(s), STR("one")));
    store_free(s);
    snprintf(uri, sizeof uri, "file://%s/d", h->folder);
    assert_int_equal(store_open(&(struct store_options){.uri = str_of(uri)}, &s, &err), 0);
    assert_true(str_eq(store_prefix(s), STR("")));
    assert_true(str_ends(store_bucket(s), STR("/d")));
    store_free(s);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void get_of_a_range_gives_its_bytes_or_an_error(void **state)
{
    struct here *h = *state;
    static const struct {
        uint64_t offset, len;
        const char *want;
    } ranges[] = {{0, 10, "0123456789"}, {3, 4, "3456"}, {9, 1, "9"}, {0, 0, ""}};
    here_file(h, "f", "0123456789");
    for (size_t i = 0; i < countof(ranges); i++) {
        struct here_call c = {0};
        struct get_arg a = {.object = {.key = STR("f")}, .offset = ranges[i].offset, .len = ranges[i].len};
        assert_int_equal(call(h, &c, make_get, &a), 0);
        assert_string_equal(c.data.ptr ? c.data.ptr : "", ranges[i].want);
        assert_int_equal(c.size_bytes, 10);
        call_free(&c);
    }
    struct here_call c = {0};
    struct get_arg past = {.object = {.key = STR("f")}, .offset = 8, .len = 5};
    assert_int_equal(call(h, &c, make_get, &past), -ERR_IO);
    assert_non_null(strstr(c.err.text, "ends after 10 bytes"));
    call_free(&c);
}

struct resumer {
    struct timer timer;
    struct here_call *call;
};

static void fire_resume(struct timer *t)
{
    struct resumer *r = container_of(t, struct resumer, timer);
    store_resume(r->call->job);
}

/* A resume before the pause would have no effect: the timer is set with the pause. */
static int pause_once(void *ctx, const char *bytes, size_t len)
{
    static struct resumer r;
    struct here_call *c = ctx;
    if (c->calls++ == 0) {
        r = (struct resumer){.timer.fire = fire_resume, .call = c};
        loop_timer_set(c->here->worker.loop, &r.timer, 20 * NS_PER_MS);
        return WEB_PAUSE;
    }
    sbuf_add(&c->data, (struct str){bytes, len});
    return 0;
}

static void make_paused_get(struct here_call *c)
{
    struct store_object o = {.key = STR("f")};
    struct store_get g = {.object = &o, .len = 3, .ctx = c, .on_data = pause_once, .on_done = call_done};
    c->job = store_get(c->here->store, &c->here->worker, &g);
}

static void refused_bytes_are_delivered_again(void **state)
{
    struct here *h = *state;
    struct here_call c = {0};
    here_file(h, "f", "abc");
    assert_int_equal(call(h, &c, make_paused_get, NULL), 0);
    assert_string_equal(c.data.ptr, "abc");
    assert_int_equal(c.calls, 2);
    call_free(&c);
}

static void make_cancelled_get(struct here_call *c)
{
    struct store_object o = {.key = STR("f")};
    struct store_get g = {.object = &o, .len = 3, .ctx = c, .on_data = get_data, .on_done = call_done};
    c->job = store_get(c->here->store, &c->here->worker, &g);
    store_cancel(c->job);
}

/* No caller resumes a job that it cancelled. */
static void a_cancelled_get_says_so_whatever_its_reader_does(void **state)
{
    here_file(*state, "f", "abc");
    for (unsigned pauses = 0; pauses < 2; pauses++) {
        struct here_call c = {.pauses = pauses};
        assert_int_equal(call(*state, &c, make_cancelled_get, NULL), -ERR_CANCELLED);
        call_free(&c);
    }
}

static void changed_file_is_reported_with_both_states(void **state)
{
    struct here *h = *state;
    struct here_call head = {0}, get = {0};
    here_file(h, "f", "before");
    assert_int_equal(call(h, &head, make_head, "f"), 0);
    here_file(h, "f", "after!!");
    struct get_arg a = {.object = {.key = STR("f"), .etag = str_of(head.etag)}, .len = 6};
    assert_int_equal(call(h, &get, make_get, &a), -ERR_CHANGED);
    assert_non_null(strstr(get.err.text, head.etag));
    assert_int_equal(get.err.id, 1409);
    assert_int_equal(get.data.len, 0);
    call_free(&head);
    call_free(&get);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void put_creates_the_object_and_nothing_else(void **state)
{
    struct here *h = *state;
    struct here_call c;
    static char large[3 << 20];
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * 7 >> 3);
    assert_int_equal(put(h, (struct put_arg){.put.key = STR("x/y/z"), .content = {large, sizeof large}}, &c), 0);
    assert_int_equal(c.size_bytes, sizeof large);
    assert_int_equal(c.digest.kind, HASH_CRC32C);
    assert_int_equal(put(h, (struct put_arg){.put.key = STR("empty"), .content = STR("")}, &c), 0);
    assert_list(h, (struct list_arg){0}, "empty\nx/y/z\n");
    assert_false(is_there(h, WALK_HIDDEN));
    struct here_call g = {0};
    struct get_arg a = {.object.key = STR("x/y/z"), .len = sizeof large};
    assert_int_equal(call(h, &g, make_get, &a), 0);
    assert_int_equal(g.data.len, sizeof large);
    assert_memory_equal(g.data.ptr, large, sizeof large);
    call_free(&g);
}

static void an_object_that_exists_is_not_overwritten_unasked(void **state)
{
    struct here *h = *state;
    struct here_call c;
    struct put_arg a = {.put = {.key = STR("k"), .condition = STORE_IF_ABSENT, .idempotency_token = STR("one")},
                        .content = STR("first")};
    assert_int_equal(put(h, a, &c), 0);
    assert_int_equal(put(h, a, &c), 0); /* its own: the first answer might have been lost */
    a.put.idempotency_token = STR("two");
    a.content = STR("other");
    assert_int_equal(put(h, a, &c), -ERR_EXISTS);
    assert_int_equal(c.err.id, 1412);
    struct here_call g = {0};
    struct get_arg get = {.object.key = STR("k"), .len = 5};
    assert_int_equal(call(h, &g, make_get, &get), 0);
    assert_string_equal(g.data.ptr, "first");
    call_free(&g);
    a.put.condition = STORE_IF_ANY;
    assert_int_equal(put(h, a, &c), 0);
    assert_false(is_there(h, WALK_HIDDEN));
}

static ssize_t give_up(void *ctx, char *buf, size_t room, uint64_t offset)
{
    (void)ctx;
    memset(buf, 'x', room);
    return offset == 0 ? (ssize_t)room : -1;
}

static void a_put_that_fails_leaves_nothing(void **state)
{
    struct here *h = *state;
    struct here_call c;
    static char large[2 << 20];
    struct put_arg a = {.put.key = STR("k"), .body.read = give_up, .content = {large, sizeof large}};
    assert_int_equal(put(h, a, &c), -ERR_CANCELLED);
    a.body.read = NULL;
    a.body.digest.kind = HASH_CRC32C; /* and bytes 0: not theirs */
    a.content = STR("abc");
    assert_int_equal(put(h, a, &c), -ERR_CORRUPT);
    assert_int_equal(c.err.id, 1423);
    assert_list(h, (struct list_arg){0}, "");
    assert_false(is_there(h, WALK_HIDDEN));
}

static void keys_that_cannot_be_paths_are_refused_by_name(void **state)
{
    struct here *h = *state;
    static const char *const bad[] = {"", "/a", "a//b", "a/", "../a", "a/./b", "a/.."};
    struct here_call c;
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(put(h, (struct put_arg){.put.key = str_of(bad[i]), .content = STR("x")}, &c), -ERR_INVALID);
        assert_non_null(strstr(c.err.text, bad[i]));
    }
    assert_int_equal(put(h, (struct put_arg){.put.key = STR("a/b"), .content = STR("x")}, &c), 0);
    assert_int_equal(put(h, (struct put_arg){.put.key = STR("a"), .content = STR("x")}, &c), -ERR_INVALID);
    assert_int_equal(put(h, (struct put_arg){.put.key = STR("a/b/c"), .content = STR("x")}, &c), -ERR_INVALID);
}

/* ---- uploads ----------------------------------------------------------------------------------------------------- */

struct upload_arg {
    struct store_write upload;
    unsigned number;
    struct str content;
    struct store_body body;
    struct store_part parts[3];
    size_t count;
    struct digest whole;
};

static void make_begin(struct here_call *c)
{
    struct upload_arg *a = (struct upload_arg *)(uintptr_t)c->arg;
    store_upload_begin(c->here->store, &c->here->worker, &a->upload, call_done, c);
}

static void make_part(struct here_call *c)
{
    struct upload_arg *a = (struct upload_arg *)(uintptr_t)c->arg;
    a->body = (struct store_body){.len = a->content.len, .ctx = &a->content, .read = body_read};
    store_upload_part(c->here->store, &c->here->worker, &a->upload, a->number, &a->body, NULL, call_done, c);
}

static void make_complete(struct here_call *c)
{
    struct upload_arg *a = (struct upload_arg *)(uintptr_t)c->arg;
    store_upload_complete(c->here->store, &c->here->worker, &a->upload,
                          &(struct store_parts){a->parts, a->count, a->whole}, call_done, c);
}

static void make_abort(struct here_call *c)
{
    struct upload_arg *a = (struct upload_arg *)(uintptr_t)c->arg;
    store_upload_abort(c->here->store, &c->here->worker, &a->upload, call_done, c);
}

static void make_sweep(struct here_call *c)
{
    struct upload_arg *a = (struct upload_arg *)(uintptr_t)c->arg;
    store_upload_sweep(c->here->store, &c->here->worker, a->upload.key, call_done, c);
}

static void begin(struct here *h, struct upload_arg *a, struct here_call *c)
{
    *c = (struct here_call){0};
    assert_int_equal(call(h, c, make_begin, a), 0);
    a->upload.upload_id = str_of(c->etag);
    call_free(c);
}

static void send_part(struct here *h, struct upload_arg *a, unsigned number, const char *content)
{
    struct here_call c = {0};
    a->number = number;
    a->content = str_of(content);
    assert_int_equal(call(h, &c, make_part, a), 0);
    a->parts[number - 1] = (struct store_part){.number = number, .digest = c.digest, .size_bytes = strlen(content)};
    call_free(&c);
}

static void parts_in_any_order_make_the_whole(void **state)
{
    struct here *h = *state;
    struct upload_arg a = {.upload = {.key = STR("d/big"), .part_bytes = 4, .idempotency_token = STR("u1")},
                           .count = 3};
    struct here_call id, c = {0}, again = {0}, wrong = {0};
    begin(h, &a, &id);
    send_part(h, &a, 3, "ij");
    send_part(h, &a, 1, "abcd");
    send_part(h, &a, 2, "efgh");
    assert_list(h, (struct list_arg){0}, "");
    a.whole = digest_of(HASH_CRC32C, STR("abcdefghij"));
    a.whole.bytes[0] ^= 1;
    assert_int_equal(call(h, &wrong, make_complete, &a), -ERR_CORRUPT);
    a.whole.bytes[0] ^= 1;
    assert_int_equal(call(h, &c, make_complete, &a), 0);
    assert_true(digest_eq(&c.digest, &a.whole));
    assert_int_equal(c.size_bytes, 10);
    assert_int_equal(call(h, &again, make_complete, &a), 0); /* the answer was lost, and it is asked again */
    assert_list(h, (struct list_arg){0}, "d/big\n");
    assert_false(is_there(h, WALK_HIDDEN));
    call_free(&c);
    call_free(&again);
    call_free(&wrong);
}

static void an_aborted_or_swept_upload_is_gone(void **state)
{
    struct here *h = *state;
    struct upload_arg a = {.upload = {.key = STR("big"), .part_bytes = 4}, .count = 1};
    struct here_call id, c = {0}, again = {0}, lost = {0}, swept = {0};
    begin(h, &a, &id);
    send_part(h, &a, 1, "abcd");
    assert_true(is_there(h, WALK_HIDDEN));
    assert_int_equal(call(h, &c, make_abort, &a), 0);
    assert_false(is_there(h, WALK_HIDDEN));
    assert_int_equal(call(h, &again, make_abort, &a), 0);
    assert_int_equal(call(h, &lost, make_complete, &a), -ERR_NOT_FOUND);
    begin(h, &a, &id);
    assert_int_equal(call(h, &swept, make_sweep, &a), 0);
    assert_false(is_there(h, WALK_HIDDEN));
    call_free(&c);
    call_free(&again);
    call_free(&lost);
    call_free(&swept);
}

static void make_delete(struct here_call *c)
{
    store_delete(c->here->store, &c->here->worker, str_of(c->arg), call_done, c);
}

static void deleting_twice_is_fine(void **state)
{
    struct here *h = *state;
    here_file(h, "d/f", "x");
    for (int i = 0; i < 2; i++) {
        struct here_call c = {0};
        assert_int_equal(call(h, &c, make_delete, "d/f"), 0);
        call_free(&c);
    }
    assert_list(h, (struct list_arg){0}, "");
}

static void make_head_digest(struct here_call *c)
{
    store_head_digest(c->here->store, &c->here->worker, STR("f"), *(const uint64_t *)c->arg, HASH_CRC32C, call_done, c);
}

static void an_object_of_the_size_that_was_asked_for_is_read_for_its_checksum(void **state)
{
    struct here_call same = {0}, other = {0};
    here_file(*state, "f", "123456789");
    assert_int_equal(call(*state, &same, make_head_digest, &(uint64_t){9}), 0);
    assert_memory_equal(same.digest.bytes, "\xe3\x06\x92\x83", 4);
    assert_int_equal(call(*state, &other, make_head_digest, &(uint64_t){8}), 0);
    assert_int_equal(other.digest.kind, HASH_NONE);
}

static int up(void **state)
{
    static struct here h;
    h = (struct here){0};
    here_up(&h);
    *state = &h;
    return 0;
}

static int down(void **state)
{
    here_down(*state);
    return 0;
}

#define HERE(test) cmocka_unit_test_setup_teardown(test, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HERE(keys_come_in_order_of_their_bytes),
        HERE(pages_join_without_a_gap_or_an_overlap),
        HERE(only_regular_files_inside_are_objects),
        cmocka_unit_test(missing_directory_is_named),
        HERE(a_file_uri_names_one_object_or_a_tree),
        HERE(get_of_a_range_gives_its_bytes_or_an_error),
        HERE(refused_bytes_are_delivered_again),
        HERE(a_cancelled_get_says_so_whatever_its_reader_does),
        HERE(changed_file_is_reported_with_both_states),
        HERE(put_creates_the_object_and_nothing_else),
        HERE(an_object_that_exists_is_not_overwritten_unasked),
        HERE(a_put_that_fails_leaves_nothing),
        HERE(keys_that_cannot_be_paths_are_refused_by_name),
        HERE(parts_in_any_order_make_the_whole),
        HERE(an_aborted_or_swept_upload_is_gone),
        HERE(deleting_twice_is_fine),
        HERE(an_object_of_the_size_that_was_asked_for_is_read_for_its_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
