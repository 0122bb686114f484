/* SPDX-License-Identifier: Apache-2.0 */
#include "gcs.h"
#include "endpoint.h"
#include "percent.h"
#include "store/trust.h"
#include "util/clock.h"
#include "util/env.h"
#include <stdio.h>

/* https://cloud.google.com/storage/docs/request-rate */
enum { READS_AT_FIRST = 5000 };

/* STORAGE_EMULATOR_HOST comes with and without a scheme, as the vendor's libraries take it. */
static char *choose_endpoint(const struct store_options *o)
{
    const char *emulator = env_get("STORAGE_EMULATOR_HOST");
    auto_sbuf b;
    struct err ignored;
    char *text;
    sbuf_init(&b, 1024);
    if (o->endpoint && o->endpoint[0])
        sbuf_adds(&b, o->endpoint);
    else if (emulator)
        sbuf_addf(&b, "%s%s", strstr(emulator, "://") ? "" : "http://", emulator);
    else
        sbuf_adds(&b, "https://storage.googleapis.com");
    while (b.len && b.ptr[b.len - 1] == '/')
        sbuf_cut(&b, b.len - 1);
    return sbuf_take(&b, &text, &ignored) < 0 ? str_dup(STR("")) : text;
}

static int gcs_open(struct store *s, const struct store_options *o, const struct uri *u, struct err *err)
{
    struct gcs *g = s->self = xcalloc(1, sizeof *g);
    struct endpoint e;
    (void)u;
    g->base = choose_endpoint(o);
    int r = endpoint_parse(str_of(g->base), &e, err);
    s->is_stranger = s->guard && trust_of("gs", str_of(g->base), s->guard) == TRUST_NOBODY;
    if (r == 0 && str_ends(e.host, STR("googleapis.com")))
        s->reads_at_first = READS_AT_FIRST;
    if (r < 0)
        return r;
    if (o->billing && o->billing[0]) {
        auto_sbuf b;
        sbuf_init(&b, 1024);
        percent_encode(str_of(o->billing), &b);
        r = sbuf_take(&b, &g->billing, err);
    }
    return r < 0 ? r : creds_open_gcp(o, &g->creds, err);
}

static void gcs_close(struct store *s)
{
    struct gcs *g = s->self;
    if (!g)
        return;
    creds_free(g->creds);
    free(g->base);
    free(g->billing);
    free(g);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static void add_path(struct call *c, const char *path, struct str name)
{
    const struct gcs *g = c->job.store->self;
    sbuf_adds(&c->url, g->base);
    sbuf_adds(&c->url, path);
    sbuf_adds(&c->url, "/b/");
    sbuf_adds(&c->url, c->job.store->bucket);
    sbuf_adds(&c->url, "/o");
    if (name.len) {
        sbuf_addc(&c->url, '/');
        percent_encode(name, &c->url); /* a name is one segment of the path: its slashes are encoded too */
    }
}

static void add_common(struct call *c)
{
    const struct gcs *g = c->job.store->self;
    sbuf_adds(&c->url, "?prettyPrint=false"); /* by default each answer is indented, for people */
    if (g->billing) {
        sbuf_adds(&c->url, "&userProject=");
        sbuf_adds(&c->url, g->billing);
    }
}

void gcs_begin(struct call *c, const char *method, const char *path, struct str name)
{
    c->method = method;
    add_path(c, path, name);
    add_common(c);
}

void gcs_begin_compose(struct call *c, struct str name)
{
    c->method = "POST";
    add_path(c, "/storage/v1", name);
    sbuf_adds(&c->url, "/compose");
    add_common(c);
}

void gcs_param(struct call *c, const char *name, struct str value)
{
    sbuf_addc(&c->url, '&');
    sbuf_adds(&c->url, name);
    sbuf_addc(&c->url, '=');
    percent_encode(value, &c->url);
}

void gcs_param_u64(struct call *c, const char *name, uint64_t value)
{
    sbuf_addc(&c->url, '&');
    sbuf_adds(&c->url, name);
    sbuf_addc(&c->url, '=');
    sbuf_add_u64(&c->url, value);
}

void gcs_ask(struct call *c)
{
    /* Without it, an object stored with Content-Encoding gzip is decompressed on the way: another size, another
     * checksum, and Range ignored. */
    call_header(c, "accept-encoding", STR("gzip"));
    if (!c->identity->anonymous)
        call_header(c, "authorization", str_of(c->identity->bearer));
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

/* {"error": {"code": 403, "message": "...", "errors": [{"reason": "forbidden"}]}},
 * or plain text from a media request. */
static void read_error(const json *j, struct str *code, struct str *message)
{
    struct err ignored;
    if (!j)
        return;
    if (json_opt_str(j, "error.message", message, &ignored) < 0 ||
        json_opt_str(j, "error.errors.0.reason", code, &ignored) < 0)
        *code = STR_NULL;
}

static bool says_no_bucket(const struct call *c, int status, struct str message)
{
    if (status == 404 && c->job.op == JOB_LIST)
        return true;
    return status == 404 && str_starts(message, STR("The specified bucket does not exist"));
}

void gcs_refused(struct call *c, int status)
{
    struct str code_word = STR_NULL, message = str_trim(str_sub(sbuf_str(&c->got), 0, 200));
    struct err ignored;
    auto_json j = NULL;
    if (c->got.len && c->got.ptr[0] == '{' && json_parse(sbuf_str(&c->got), "the error", &j, &ignored) < 0)
        j = NULL;
    read_error(j, &code_word, &message);
    bool is_no_bucket = says_no_bucket(c, status, message);
    struct status_words w = call_words(c, status, code_word, message);
    w.right = gcs_of(c)->right;
    int code = call_status(c, &w);
    if (is_no_bucket) {
        err_set(&c->err, ERR_NOT_FOUND, "404: there is no bucket '%s'", c->job.store->bucket);
        code = err_advise(&c->err, 1405, "check the bucket's name and the project");
    }
    call_end(c, code);
}

static int read_number(const json *j, const char *name, uint64_t *ret, struct err *err)
{
    struct str text; /* 64-bit numbers are strings in this API; not in every imitation */
    if (json_as_str(json_member(j, name), &text))
        return str_to_u64(text, ret, err);
    return json_opt_u64(j, name, ret, err);
}

static int read_digest(const json *j, struct digest *ret, struct err *err)
{
    struct str crc = STR_NULL, md5 = STR_NULL;
    int r = json_opt_str(j, "crc32c", &crc, err);
    if (r == 0)
        r = json_opt_str(j, "md5Hash", &md5, err);
    if (r < 0)
        return r;
    /* The CRC is preferred though MD5 is the longer: it combines over parts and costs next to nothing. */
    if (crc.len)
        return digest_parse_base64(HASH_CRC32C, crc, ret, err);
    return md5.len ? digest_parse_base64(HASH_MD5, md5, ret, err) : 0;
}

int gcs_read_object(const json *j, struct object *ret, struct err *err)
{
    struct str updated = STR_NULL;
    *ret = (struct object){0};
    int r = json_get_str(j, "name", &ret->key, err);
    if (r == 0)
        r = read_number(j, "size", &ret->size_bytes, err);
    if (r == 0)
        r = read_number(j, "generation", &ret->generation, err);
    if (r == 0)
        r = json_opt_str(j, "updated", &updated, err);
    if (r == 0 && updated.len)
        r = time_parse(updated, &ret->mtime_ns, err);
    /* Some servers say the year 1 of what has no time. */
    return r < 0 && r != -ERR_RANGE ? r : read_digest(j, &ret->digest, err);
}

int gcs_garbled(struct err *err)
{
    err->code = ERR_CORRUPT; /* what JSON calls invalid are the store's words, not our caller's */
    return err_advise(err, 1601, "check that the endpoint is Google Cloud Storage");
}

static int describe(struct call *c, json **ret, struct err *err)
{
    int r = json_parse(sbuf_str(&c->got), "the object's metadata", ret, err);
    if (r == 0)
        r = gcs_read_object(*ret, &c->job.reply.object, err);
    if (r < 0)
        return gcs_garbled(err);
    c->job.reply.object.key = c->job.args.key;
    return 0;
}

int gcs_describe(struct call *c, struct err *err)
{
    auto_json j = NULL;
    struct err ignored;
    struct str owner = STR_NULL;
    int r = describe(c, &j, err);
    if (r == 0 && json_opt_str(j, "metadata.cistern-owner", &owner, &ignored) == 0)
        c->job.reply.owner = call_keep(c, owner);
    return r;
}

int gcs_describe_whose(struct call *c, bool *ret_is_ours, struct err *err)
{
    auto_json j = NULL;
    struct err ignored;
    struct str id = STR_NULL, mine = c->job.args.upload_id;
    int r = describe(c, &j, err);
    if (r == 0)
        *ret_is_ours =
            json_opt_str(j, "metadata.cistern-upload-id", &id, &ignored) == 0 && mine.len && str_eq(id, mine);
    return r;
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

/* https://cloud.google.com/storage/docs/objects#naming; NULL: it may be one. */
static const char *refuses_name(const struct store_job *job)
{
    struct str key = job->args.key;
    bool is_new = job->op == JOB_PUT || job->op == JOB_BEGIN;
    if (!str_is_utf8(key))
        return "that are not UTF-8";
    return is_new && (str_find(key, '\n') >= 0 || str_find(key, '\r') >= 0) ? "with a line break" : NULL;
}

static void gcs_start(struct store_job *job)
{
    static const struct {
        const struct call_steps *steps;
        const char *right;
    } ops[JOB_OPS] = {
        [JOB_GET] = {&gcs_get_steps, "storage.objects.get"},
        [JOB_HEAD] = {&gcs_head_steps, "storage.objects.get"},
        [JOB_LIST] = {&gcs_list_steps, "storage.objects.list"},
        [JOB_PUT] = {&gcs_put_steps, "storage.objects.create"},
        [JOB_BEGIN] = {NULL, NULL},
        [JOB_PART] = {&gcs_part_steps, "storage.objects.create"},
        [JOB_COMPLETE] = {&gcs_complete_steps, "storage.objects.create and storage.objects.get"},
        [JOB_ABORT] = {&gcs_sweep_steps, "storage.objects.list and storage.objects.delete"},
        [JOB_SWEEP] = {&gcs_sweep_steps, "storage.objects.list and storage.objects.delete"},
        [JOB_DELETE] = {&gcs_delete_steps, "storage.objects.delete"},
    };
    struct gcs_job *j = container_of(job, struct gcs_job, call.job);
    const struct gcs *g = job->store->self;
    j->right = ops[job->op].right;
    j->swept = j->count = j->group = 0;
    j->level = 0;
    j->confirmed.object.generation = 0;
    page_init(&j->page);
    sbuf_init(&j->token, 16 << 10);
    call_init(&j->call, g->creds);
    const char *why = refuses_name(job);
    if (why) {
        err_set(&j->call.err, ERR_INVALID, "Google Cloud Storage takes no names %s", why);
        call_end(&j->call, err_advise(&j->call.err, 1003, "rename the file, or leave it out with an exclude pattern"));
    } else if (job->op == JOB_BEGIN) {
        gcs_begin_upload(&j->call);
    } else {
        call_go(&j->call, ops[job->op].steps);
    }
}

static void gcs_release(struct store_job *job)
{
    struct gcs_job *j = container_of(job, struct gcs_job, call.job);
    page_done(&j->page);
    sbuf_done(&j->token);
    call_release(job);
}

const struct backend backend_gcs = {
    .scheme = "gs",
    .job_size = sizeof(struct gcs_job),
    .upload_digest = HASH_CRC32C,
    .open = gcs_open,
    .close = gcs_close,
    .start = gcs_start,
    .stop = call_stop,
    .resume = call_resume,
    .release = gcs_release,
};
