/* SPDX-License-Identifier: Apache-2.0 */
#include "gcs.h"
#include "util/encode.h"
#include <inttypes.h>
#include <stdio.h>

/* ---- GET --------------------------------------------------------------------------------------------------------- */

static void build_get(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    gcs_begin(c, "GET", "/storage/v1", a->write.key);
    percent_encode_param("alt", STR("media"), &c->url);
    if (a->object.generation) {
        /* `generation` finds the version even if the bucket keeps old ones. `ifGenerationMatch` makes the store
         * check it, even if it ignores `generation`. */
        gcs_param_u64(c, "generation", a->object.generation);
        gcs_param_u64(c, "ifGenerationMatch", a->object.generation);
    }
    gcs_ask(c);
    if (call_is_ranged(c))
        call_header_range(c);
}

/* "crc32c=AAAAAA==,md5=..." */
static bool hash_header(const struct store_call *c, struct digest *ret)
{
    struct str rest = call_answer_header(c, "x-goog-hash"), field;
    while (str_split(&rest, ',', &field)) {
        field = str_trim(field);
        if (str_starts(field, STR("crc32c=")))
            return digest_parse_base64(HASH_CRC32C, str_from(field, 7), ret);
    }
    return false;
}

static void describe_get(struct store_call *c)
{
    struct store_object *o = &c->job.reply.object;
    struct str generation = call_answer_header(c, "x-goog-generation");
    *o = c->job.args.object;
    o->key = c->job.args.write.key;
    o->etag = call_keep(c, call_answer_header(c, "etag"));
    if (generation.len && str_to_u64(generation, &o->generation, ERR_IGNORED) < 0)
        o->generation = 0;
    hash_header(c, &o->digest); /* else the listing's checksum: the generation is the same */
}

static int changed(struct store_call *c, uint64_t now)
{
    err_set(&c->err, ERR_CHANGED, "generation %" PRIu64 " became %" PRIu64 " after it was listed",
            c->job.args.object.generation, now);
    return store_object_outdated(&c->err);
}

static int check_range(const struct store_call *c, int status, struct err *err)
{
    const struct job_args *a = &c->job.args;
    char want[64];
    struct str range = call_answer_header(c, "content-range");
    if (!call_is_ranged(c))
        return 0;
    int n = snprintf(want, sizeof want, "bytes %" PRIu64 "-%" PRIu64 "/", a->offset, a->offset + a->len - 1);
    if (status == 206 && str_eq_nocase(str_sub(range, 0, (size_t)n), (struct str){want, (size_t)n}))
        return 0;
    return err_fail(err, ERR_CORRUPT, CIS_REPLY_INVALID, "'%s' was requested, but the reply is %d '%.*s'", want, status,
                    STR_FMT(range));
}

static int head_get(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    describe_get(c);
    uint64_t generation = c->job.reply.object.generation;
    if (a->object.generation && generation && generation != a->object.generation)
        return changed(c, generation);
    int r = check_range(c, web_status(c->web), &c->err);
    if (r == 0)
        job_answered(&c->job);
    return r;
}

/* ---- replaced and deleted objects -------------------------------------------------------------------------------- */

static void build_metadata(struct store_call *c)
{
    gcs_begin(c, "GET", "/storage/v1", c->job.args.write.key);
    percent_encode_param("fields", STR(GCS_OBJECT_FIELDS), &c->url);
    gcs_ask(c);
}

static void answered_which(struct store_call *c, int status)
{
    uint64_t then = c->job.args.object.generation;
    if (c->success && gcs_describe(c, &c->err) == 0) {
        uint64_t now = c->job.reply.object.generation;
        c->job.reply.may_retry = now == then;
        call_end(c, now != then ? changed(c, now)
                                : err_fail(&c->err, ERR_AGAIN, CIS_OBJECT_NOT_FOUND,
                                           "404, but the metadata request finds the object"));
    } else if (c->success) {
        call_end(c, -(int)c->err.code);
    } else if (gcs_says_gone(c, status)) {
        err_set(&c->err, ERR_NOT_FOUND, "404: generation %" PRIu64 " is gone: the object was deleted", then);
        call_end(c, store_object_outdated(&c->err));
    } else {
        gcs_refused(c, status);
    }
}

static const struct call_steps which_steps = {build_metadata, NULL, NULL, answered_which};

static void answered_get(struct store_call *c, int status)
{
    if ((status == 404 || status == 412) && c->job.args.object.generation) {
        call_go(c, &which_steps);
    } else if (!c->success) {
        gcs_refused(c, status);
    } else {
        call_end(c, call_check_whole(c));
    }
}

const struct call_steps gcs_get_steps = {build_get, head_get, call_give, answered_get};

/* ---- HEAD -------------------------------------------------------------------------------------------------------- */

static void answered_head(struct store_call *c, int status)
{
    if (!c->success)
        gcs_refused(c, status);
    else
        call_end(c, gcs_describe(c, &c->err));
}

const struct call_steps gcs_head_steps = {build_metadata, NULL, NULL, answered_head};

/* ---- LIST -------------------------------------------------------------------------------------------------------- */

static void build_list(struct store_call *c)
{
    const struct store_page *p = &c->job.args.page;
    gcs_begin(c, "GET", "/storage/v1", STR_NULL);
    percent_encode_param("fields", STR("nextPageToken,prefixes,items(name,size,generation,updated,crc32c)"), &c->url);
    if (p->prefix.len)
        percent_encode_param("prefix", p->prefix, &c->url);
    if (p->keys_max)
        gcs_param_u64(c, "maxResults", p->keys_max);
    if (p->delimited)
        percent_encode_param("delimiter", STR("/"), &c->url);
    if (p->start_after.len)
        percent_encode_param("startOffset", p->start_after, &c->url); /* inclusive: the key itself is skipped below */
    if (p->end_before.len)
        percent_encode_param("endOffset", p->end_before, &c->url);
    if (p->token.len)
        percent_encode_param("pageToken", p->token, &c->url);
    gcs_ask(c);
}

/* JSON null: not set. */
static bool has_size(const json *item)
{
    struct str text;
    uint64_t number;
    const json *size = json_at(item, "size");
    return size && (json_as_str(size, &text) || json_get_u64(item, "size", &number, ERR_IGNORED) == 0);
}

static int add_items(struct object_page *page, const json *items, struct str after, struct err *err)
{
    size_t count = json_count(items);
    for (size_t i = 0; i < count; i++) {
        struct store_object o;
        int r = gcs_read_object(json_item(items, i), &o, err);
        if (r == 0 && !has_size(json_item(items, i))) /* without this check it would count as an empty page */
            r = err_set(err, ERR_CORRUPT, "'%.*s' in the list has no size", STR_FMT(str_sub(o.key, 0, 200)));
        if (r < 0)
            return r;
        if (after.len && str_cmp(o.key, after) <= 0)
            continue;
        if (!object_page_add(page, &o))
            return err_set(err, ERR_CORRUPT, "the answer lists more than %d objects on one page", PAGE_OBJECTS_MAX);
    }
    return 0;
}

static int add_prefixes(struct object_page *page, const json *prefixes, struct err *err)
{
    for (size_t i = 0; i < json_count(prefixes); i++) {
        struct store_object o = {0};
        if (!json_as_str(json_item(prefixes, i), &o.key) || !object_page_add(page, &o))
            return err_set(err, ERR_CORRUPT, "the answer's prefixes are not a list of names");
    }
    return 0;
}

/* An empty list has no members that identify it: another document must not count as one. */
static int check_list(const json *root, const json **ret_items, const json **ret_prefixes, struct err *err)
{
    if (json_kind_of(root) != '{')
        return err_set(err, ERR_INVALID, "the list is not an object");
    if (json_at(root, "error"))
        return err_set(err, ERR_CORRUPT, "the reply is an error, although its status is a success");
    int r = json_opt_list(root, "items", ret_items, err);
    return r == 0 ? json_opt_list(root, "prefixes", ret_prefixes, err) : r;
}

int gcs_parse_list(struct str document, struct str after, struct object_page *page, struct sbuf *ret_token,
                   struct err *err)
{
    struct str token = STR_NULL;
    const json *items = NULL, *prefixes = NULL;
    auto_json root = NULL;
    object_page_clear(page);
    int r = json_parse(document, "the list", &root, err);
    if (r == 0)
        r = check_list(root, &items, &prefixes, err);
    if (r == 0)
        r = json_opt_str(root, "nextPageToken", &token, err);
    if (r == 0)
        r = add_items(page, items, after, err);
    size_t objects = page->count;
    if (r == 0)
        r = add_prefixes(page, prefixes, err);
    if (r < 0)
        return call_garbled(err);
    object_page_end(page);
    if (page->count > objects && objects > 0) /* both lists are sorted; merge them into one page */
        object_page_sort(page);
    sbuf_set(ret_token, token);
    if (ret_token->overflow) /* without it the listing would count as complete */
        return err_fail(err, ERR_CORRUPT, CIS_REPLY_INVALID, "the token of the next page has %zu bytes", token.len);
    return 0;
}

static void answered_list(struct store_call *c, int status)
{
    struct gcs_job *j = gcs_of(c);
    if (!c->success) {
        gcs_refused(c, status);
        return;
    }
    int r = gcs_parse_list(sbuf_str(&c->got), c->job.args.page.start_after, &j->page, &j->token, &c->err);
    c->job.objects = j->page.objects;
    c->job.object_count = j->page.count;
    c->job.next_token = sbuf_str(&j->token);
    call_end(c, r);
}

const struct call_steps gcs_list_steps = {build_list, NULL, NULL, answered_list};
