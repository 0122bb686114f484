/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads in one request, and in parts. The JSON API has no parallel multipart upload, and the XML API's takes no
 * precondition. So parts are objects under GCS_HIDDEN, which are composed when all are uploaded. The checksum is
 * verified before the object gets its key. */
#include "gcs.h"
#include "upload_id.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/hash.h"
#include <inttypes.h>
#include <stdio.h>

/* A resource with the content type, the storage class and the idempotency token of the job. The caller frees. */
static json *new_resource(const struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    json *j = json_new_object();
    json_set_strings(
        j, {"contentType", a->write.content_type.len ? a->write.content_type : STR("application/octet-stream")},
        {"?storageClass", a->write.storage_class}, {"?metadata.cistern-upload-id", a->write.idempotency_token},
        {"?metadata.cistern-owner", a->write.owner});
    return j;
}

static void add_condition(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    if (a->write.condition != STORE_IF_ANY)
        percent_encode_param("ifGenerationMatch", a->write.condition == STORE_IF_SAME ? a->write.match : STR("0"),
                             &c->url);
}

/* Starts an upload in one multipart/related request: the resource, with the checksum that the store must verify,
 * and the bytes. `is_final`: with the job's metadata and condition. */
static void send_object(struct store_call *c, struct str name, bool is_final)
{
    const struct digest *d = &c->job.args.body.digest;
    char boundary[48];
    auto_sbuf type = SBUF(128), sum = SBUF(64);
    auto_json j = is_final ? new_resource(c) : json_new_object();
    json_set_str(j, "name", name);
    if (d->kind == HASH_CRC32C || d->kind == HASH_MD5) {
        digest_add_base64(d, &sum);
        json_set_str(j, d->kind == HASH_CRC32C ? "crc32c" : "md5Hash", sbuf_str(&sum));
    }
    gcs_begin(c, "POST", "/upload/storage/v1", STR_NULL);
    percent_encode_param("uploadType", STR("multipart"), &c->url);
    percent_encode_param("fields", STR(GCS_OBJECT_FIELDS), &c->url);
    if (is_final)
        add_condition(c);
    gcs_ask(c);
    snprintf(boundary, sizeof boundary, "cistern-%016" PRIx64 "%016" PRIx64, clock_random(), clock_random());
    auto_mem char *text = json_text(j, 0);
    sbuf_addf(&c->sent,
              "--%s\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n%s\r\n--%s\r\ncontent-type: ", boundary,
              text, boundary);
    sbuf_add(&c->sent,
             c->job.args.write.content_type.len ? c->job.args.write.content_type : STR("application/octet-stream"));
    sbuf_adds(&c->sent, "\r\n\r\n");
    sbuf_addf(&c->behind, "\r\n--%s--\r\n", boundary);
    sbuf_addf(&type, "multipart/related; boundary=%s", boundary);
    call_header(c, "content-type", sbuf_str(&type));
    c->sends_body = true;
}

/* ---- PUT --------------------------------------------------------------------------------------------------------- */

static void build_put(struct store_call *c)
{
    send_object(c, c->job.args.write.key, true);
}

/* The object has its key and reply.object is set: delete its parts. */
static void published(struct store_call *c)
{
    gcs_of(c)->confirmed = c->job.reply;
    call_go(c, &gcs_sweep_steps);
}

static void owner_head_done(struct store_call *c, const struct store_reply *r)
{
    bool is_missing = r->status == 404;
    if (is_missing && c->job.args.write.condition != STORE_IF_SAME) {
        call_end_contradicted(c);
    } else if (is_missing || (r->code == 0 && !call_is_ours(c, r))) {
        call_end_exists(c);
    } else if (r->code == 0 && c->job.op == STORE_OP_COMPLETE) {
        call_adopt(c, r);
        published(c);
    } else {
        call_end_as(c, r);
    }
}

/* A 400 about a checksum means that the body is corrupt, not that the request is invalid. */
static void refused_bytes(struct store_call *c, int status)
{
    static const char *const words[] = {"crc32c", "CRC32C", "MD5", "md5"};
    for (size_t i = 0; status == 400 && c->got.len && i < countof(words); i++)
        if (strstr(c->got.ptr, words[i])) {
            call_end(c, err_fail(&c->err, ERR_CORRUPT, CIS_UPLOAD_CORRUPTED,
                                 "400: the store received other bytes than were sent"));
            return;
        }
    gcs_refused(c, status);
}

/* Deleting a generation leaves no noncurrent version of it. */
static void keep_version(struct store_call *c)
{
    auto_sbuf text = SBUF(32);
    sbuf_add_u64(&text, c->job.reply.object.generation);
    c->job.reply.version = call_keep(c, sbuf_str(&text));
}

static void answered_put(struct store_call *c, int status)
{
    if (status == 412 && c->job.args.write.condition != STORE_IF_ANY)
        call_head(c, owner_head_done);
    else if (!c->success)
        refused_bytes(c, status);
    else {
        int r = gcs_describe(c, &c->err);
        if (r == 0)
            keep_version(c);
        call_end(c, r);
    }
}

const struct call_steps gcs_put_steps = {build_put, NULL, NULL, answered_put};

/* ---- DELETE ------------------------------------------------------------------------------------------------------ */

static void build_delete(struct store_call *c)
{
    gcs_begin(c, "DELETE", "/storage/v1", c->job.args.write.key);
    if (c->job.args.version.len)
        percent_encode_param("generation", c->job.args.version, &c->url);
    gcs_ask(c);
}

static void answered_delete(struct store_call *c, int status)
{
    if (c->success || gcs_says_gone(c, status))
        call_end(c, 0);
    else
        gcs_refused(c, status);
}

const struct call_steps gcs_delete_steps = {build_delete, NULL, NULL, answered_delete};

/* ---- uploads of many parts --------------------------------------------------------------------------------------- */

void gcs_begin_upload(struct store_call *c)
{
    char id[UPLOAD_ID_LEN + 1];
    upload_id_make(c->job.args.write.key, id);
    c->job.reply.upload_id = call_keep(c, str_of(id));
    call_end(c, 0);
}

/* Level 0 has the uploaded parts; each further level is composed from the one below. */
static struct str piece_name(const struct store_call *c, unsigned level, size_t number, char *buf)
{
    int n = snprintf(buf, GCS_NAME_MAX, GCS_HIDDEN "%.*s/%u-%05zu",
                     (int)min_u64(c->job.args.write.upload_id.len, UPLOAD_ID_LEN), c->job.args.write.upload_id.ptr,
                     level, number);
    return (struct str){buf, (size_t)n};
}

static void build_part(struct store_call *c)
{
    char name[GCS_NAME_MAX];
    send_object(c, piece_name(c, 0, c->job.args.number, name), false);
}

static void answered_part(struct store_call *c, int status)
{
    char text[24];
    if (!c->success) {
        refused_bytes(c, status);
        return;
    }
    int r = gcs_describe(c, &c->err);
    int n = snprintf(text, sizeof text, "%" PRIu64, c->job.reply.object.generation);
    if (r == 0)
        c->job.reply.object.etag = call_keep(c, (struct str){text, (size_t)n});
    call_end(c, r);
}

const struct call_steps gcs_part_steps = {build_part, NULL, NULL, answered_part};

static const struct call_steps compose_steps, publish_steps;

static size_t group_count(const struct gcs_job *j)
{
    return (j->count + GCS_COMPOSE_MAX - 1) / GCS_COMPOSE_MAX;
}

static void add_source(json *sources, struct str name, struct str generation)
{
    json *source = json_new_object();
    json_set_strings(source, {"name", name}, {"?objectPreconditions.ifGenerationMatch", generation});
    json_append(sources, source);
}

static void send_compose(struct store_call *c, struct str destination, json *own_sources, json *own_resource,
                         bool is_final)
{
    auto_json j = json_new_object();
    json_set(j, "sourceObjects", own_sources);
    json_set(j, "destination", own_resource);
    gcs_begin_compose(c, destination);
    percent_encode_param("fields", STR(GCS_OBJECT_FIELDS), &c->url);
    if (is_final)
        add_condition(c);
    gcs_ask(c);
    call_header(c, "content-type", STR("application/json"));
    auto_mem char *text = json_text(j, 0);
    sbuf_adds(&c->sent, text);
}

/* Composes one group of the level into a piece of the next level. */
static void build_group(struct store_call *c)
{
    struct gcs_job *j = gcs_of(c);
    const struct job_args *a = &c->job.args;
    char name[GCS_NAME_MAX];
    json *sources = json_new_array();
    size_t first = j->group * GCS_COMPOSE_MAX, last = min_u64(first + GCS_COMPOSE_MAX, j->count);
    for (size_t i = first; i < last; i++) {
        bool sent = j->level == 0;
        size_t number = sent ? a->parts.list[i].number : i + 1;
        add_source(sources, piece_name(c, j->level, number, name), sent ? a->parts.list[i].etag : STR_NULL);
    }
    json *resource = json_new_object();
    /* The pieces of a composition must have its storage class. */
    json_set_strings(resource, {"contentType", STR("application/octet-stream")},
                     {"?storageClass", a->write.storage_class});
    send_compose(c, piece_name(c, j->level + 1, j->group + 1, name), sources, resource, false);
}

static int check_whole(struct store_call *c, struct err *err)
{
    const struct job_args *a = &c->job.args;
    uint64_t sum = 0;
    int r = gcs_describe(c, err);
    const struct store_object *o = &c->job.reply.object;
    for (size_t i = 0; i < a->parts.count; i++)
        sum += a->parts.list[i].size_bytes;
    if (r == 0 && o->size_bytes != sum)
        r = err_set(err, ERR_CORRUPT, "%" PRIu64 " bytes were received of %" PRIu64, o->size_bytes, sum);
    if (r == 0 && a->parts.whole.kind == o->digest.kind && !digest_eq(&a->parts.whole, &o->digest))
        r = err_set(err, ERR_CORRUPT, "the store received other bytes than were sent");
    return r < 0 ? err_advise(err, CIS_UPLOAD_CORRUPTED) : 0;
}

/* Does the condition hold for the object that the metadata request found? */
static bool holds(const struct store_call *c, const struct store_reply *r)
{
    const struct job_args *a = &c->job.args;
    char tag[STORE_OBJECT_TAG_MAX];
    store_object_tag(&r->object, tag);
    return a->write.condition == STORE_IF_ANY || (a->write.condition == STORE_IF_ABSENT && r->code < 0) ||
           (a->write.condition == STORE_IF_SAME && r->code == 0 && str_eq(str_of(tag), a->write.match));
}

/* An earlier attempt may have succeeded although its reply was lost. An object of another writer makes the
 * composition useless. The precondition covers changes between this request and the last step. */
static void first_head_done(struct store_call *c, const struct store_reply *r)
{
    if (r->code < 0 && r->status != 404) {
        call_end_as(c, r);
    } else if (call_is_ours(c, r)) {
        call_adopt(c, r);
        published(c);
    } else if (holds(c, r)) {
        call_go(c, &compose_steps);
    } else {
        call_end_exists(c);
    }
}

void gcs_complete(struct store_call *c)
{
    call_head(c, first_head_done);
}

static void answered_group(struct store_call *c, int status)
{
    struct gcs_job *j = gcs_of(c);
    if (status == 404) {
        call_end(c,
                 err_fail(&c->err, ERR_NOT_FOUND, CIS_OBJECT_NOT_FOUND, "404: the upload was aborted, or never begun"));
        return;
    }
    if (!c->success) {
        gcs_refused(c, status);
        return;
    }
    if (++j->group < group_count(j)) {
        call_go(c, &compose_steps);
        return;
    }
    j->count = group_count(j);
    j->level++;
    j->group = 0;
    if (j->count > 1) {
        call_go(c, &compose_steps);
        return;
    }
    int r = check_whole(c, &c->err);
    if (r < 0)
        call_end(c, r);
    else
        call_go(c, &publish_steps);
}

static void build_compose(struct store_call *c)
{
    struct gcs_job *j = gcs_of(c);
    if (c->job.args.parts.count == 0) {
        err_set(&c->err, ERR_INVALID, "an upload without parts cannot be completed");
        return;
    }
    if (j->count == 0)
        j->count = c->job.args.parts.count;
    build_group(c);
}

static const struct call_steps compose_steps = {build_compose, NULL, NULL, answered_group};

/* The last step gives the object its key: one source, complete and verified. */
static void build_publish(struct store_call *c)
{
    char name[GCS_NAME_MAX];
    json *sources = json_new_array();
    add_source(sources, piece_name(c, gcs_of(c)->level, 1, name), STR_NULL);
    send_compose(c, c->job.args.write.key, sources, new_resource(c), true);
}

static void answered_publish(struct store_call *c, int status)
{
    if (status == 412)
        call_head(c, owner_head_done);
    else if (!c->success)
        gcs_refused(c, status);
    else if (gcs_describe(c, &c->err) < 0)
        call_end(c, -(int)c->err.code);
    else
        published(c);
}

static const struct call_steps publish_steps = {build_publish, NULL, NULL, answered_publish};

/* ---- sweeping uploads -------------------------------------------------------------------------------------------- */

/* A page has a thousand names, an upload at most ten thousand parts. */
enum { SWEEP_ROUNDS_MAX = 100 };

static void end_sweep(struct store_call *c, int status)
{
    struct gcs_job *j = gcs_of(c);
    if (j->confirmed.object.generation) {
        /* The object exists; a later sweep removes the parts that are left. */
        unsigned requests = c->job.reply.requests;
        c->job.reply = j->confirmed;
        c->job.reply.requests = requests;
        call_end(c, 0);
    } else if (status == 0 || gcs_says_gone(c, status)) {
        call_end(c, 0);
    } else {
        gcs_refused(c, status);
    }
}

/* The prefix of the parts that this sweep removes. */
static void sweep_prefix(const struct store_call *c, struct sbuf *ret)
{
    char ours[UPLOAD_KEY_LEN + 1];
    sbuf_init(ret, 256);
    upload_id_of_key(c->job.args.write.key, ours);
    sbuf_adds(ret, GCS_HIDDEN);
    if (c->job.op == STORE_OP_SWEEP)
        sbuf_adds(ret, ours);
    else
        sbuf_addf(ret, "%.*s/", (int)min_u64(c->job.args.write.upload_id.len, UPLOAD_ID_LEN),
                  c->job.args.write.upload_id.ptr);
}

static void build_sweep(struct store_call *c)
{
    auto_sbuf prefix;
    sweep_prefix(c, &prefix);
    gcs_begin(c, "GET", "/storage/v1", STR_NULL);
    percent_encode_param("fields", STR("items(name)"), &c->url);
    percent_encode_param("prefix", sbuf_str(&prefix), &c->url);
    gcs_ask(c);
}

static const struct call_steps sweep_one_steps;

/* Every listed name is deleted: refuse names outside the prefix. */
static int read_names(struct store_call *c, struct err *err)
{
    struct gcs_job *j = gcs_of(c);
    auto_json root = NULL;
    auto_sbuf prefix;
    sweep_prefix(c, &prefix);
    int r = json_parse(sbuf_str(&c->got), "the list", &root, err);
    const json *items = r == 0 ? json_at(root, "items") : NULL;
    object_page_clear(&j->page);
    for (size_t i = 0; r == 0 && i < json_count(items); i++) {
        struct store_object o;
        r = gcs_read_object(json_item(items, i), &o, err);
        if (r == 0 && !str_starts(o.key, sbuf_str(&prefix)))
            r = err_set(err, ERR_CORRUPT, "'%.*s' is listed, but '%s' was requested", STR_FMT(str_sub(o.key, 0, 200)),
                        prefix.ptr);
        if (r == 0)
            object_page_add(&j->page, &o);
    }
    if (r == 0 && j->page.count > 0 && ++j->rounds > SWEEP_ROUNDS_MAX)
        r = err_set(err, ERR_CORRUPT, "the store keeps listing objects that were deleted");
    if (r < 0)
        return call_garbled(err);
    object_page_end(&j->page);
    j->swept = 0;
    return 0;
}

/* The first page is listed again after each round of deletes; an empty page ends the sweep. */
static void answered_sweep(struct store_call *c, int status)
{
    int r = c->success ? read_names(c, &c->err) : 0;
    if (!c->success)
        end_sweep(c, status);
    else if (r < 0 && !gcs_of(c)->confirmed.object.generation)
        call_end(c, r);
    else if (r < 0 || gcs_of(c)->page.count == 0)
        end_sweep(c, 0);
    else
        call_go(c, &sweep_one_steps);
}

const struct call_steps gcs_sweep_steps = {build_sweep, NULL, NULL, answered_sweep};

static void build_sweep_one(struct store_call *c)
{
    struct gcs_job *j = gcs_of(c);
    gcs_begin(c, "DELETE", "/storage/v1", j->page.objects[j->swept].key);
    gcs_ask(c);
}

static void answered_sweep_one(struct store_call *c, int status)
{
    struct gcs_job *j = gcs_of(c);
    if (!c->success && !gcs_says_gone(c, status))
        end_sweep(c, status);
    else if (++j->swept < j->page.count)
        call_go(c, &sweep_one_steps);
    else
        call_go(c, &gcs_sweep_steps);
}

static const struct call_steps sweep_one_steps = {build_sweep_one, NULL, NULL, answered_sweep_one};
