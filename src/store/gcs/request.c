/* SPDX-License-Identifier: Apache-2.0 */
#include "gcs.h"
#include "util/clock.h"
#include "util/encode.h"

/* ---- a request --------------------------------------------------------------------------------------------------- */

static void add_path(struct store_call *c, const char *path, struct str name)
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

static void add_common(struct store_call *c)
{
    const struct gcs *g = c->job.store->self;
    sbuf_adds(&c->url, "?prettyPrint=false"); /* by default each reply is indented for people */
    if (g->billing) {
        sbuf_adds(&c->url, "&userProject=");
        sbuf_adds(&c->url, g->billing);
    }
}

void gcs_begin(struct store_call *c, const char *method, const char *path, struct str name)
{
    c->method = method;
    add_path(c, path, name);
    add_common(c);
}

void gcs_begin_compose(struct store_call *c, struct str name)
{
    c->method = "POST";
    add_path(c, "/storage/v1", name);
    sbuf_adds(&c->url, "/compose");
    add_common(c);
}

void gcs_param_u64(struct store_call *c, const char *name, uint64_t value)
{
    sbuf_addf(&c->url, "&%s=", name);
    sbuf_add_u64(&c->url, value);
}

void gcs_ask(struct store_call *c)
{
    /* Without it, GCS decompresses an object that has Content-Encoding gzip: another size, another
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
    struct str words = j ? json_str_at(j, "error.message") : STR_NULL;
    if (words.len)
        *message = words;
    *code = j ? json_str_at(j, "error.errors.0.reason") : STR_NULL;
}

/* A listing, and an upload in one request, name no object that must exist already. */
static bool says_no_bucket(const struct store_call *c, int status, struct str message)
{
    if (status == 404 && (c->job.op == STORE_OP_LIST || c->job.op == STORE_OP_PUT))
        return true;
    return status == 404 && str_starts(message, STR("The specified bucket does not exist"));
}

/* "Bucket is a requester pays bucket but no user project provided." */
static bool wants_payer(int status, struct str message)
{
    return status == 400 && str_has(message, STR("requester pays"));
}

/* Google's own words are JSON or plain text. */
static struct str words_of(int status, struct str body)
{
    if (!str_starts(body, STR("<")))
        return str_sub(body, 0, 200);
    return status < 500 && str_has(body, STR("<Error>")) ? STR("the endpoint is an S3 store: write s3:// for gs://")
                                                         : STR_NULL;
}

bool gcs_says_gone(const struct store_call *c, int status)
{
    auto_json j = NULL;
    return status == 404 && json_parse(sbuf_str(&c->got), "the error", &j, ERR_IGNORED) == 0 && json_at(j, "error");
}

/* A proxy's 404, while the store restarts. The store's own is plain text only where the bytes of an object were
 * requested, and then the metadata decides. */
static bool is_of_proxy(const struct store_call *c, int status)
{
    bool counts_as_gone = str_is_any(str_of(c->method), "GET", "DELETE") && c->steps != &gcs_get_steps;
    return status == 404 && counts_as_gone && c->job.op != STORE_OP_HEAD && !gcs_says_gone(c, status);
}

void gcs_refused(struct store_call *c, int status)
{
    struct str code_word = STR_NULL, message = words_of(status, str_trim(sbuf_str(&c->got)));
    auto_json j = NULL;
    if (c->got.len && c->got.ptr[0] == '{' && json_parse(sbuf_str(&c->got), "the error", &j, ERR_IGNORED) < 0)
        j = NULL;
    read_error(j, &code_word, &message);
    bool is_no_bucket = says_no_bucket(c, status, message);
    struct status_words w = call_words(c, status, code_word, message);
    int code = call_status(c, &w);
    if (is_no_bucket)
        code = err_fail(&c->err, ERR_NOT_FOUND, CIS_BUCKET_NOT_FOUND, "404: there is no bucket '%s'",
                        c->job.store->bucket);
    else if (wants_payer(status, message))
        code = err_fail(&c->err, ERR_DENIED, CIS_PAYER_MISSING, "400: bucket '%s' bills the requester",
                        c->job.store->bucket);
    else if (is_of_proxy(c, status))
        code = call_refused_by_proxy(c);
    call_end(c, code);
}

static int read_number(const json *j, const char *name, uint64_t *ret, struct err *err)
{
    struct str text; /* 64-bit numbers are strings in this API, but not in every emulator */
    if (json_as_str(json_member(j, name), &text))
        return str_to_u64(text, ret, err);
    return json_opt_u64(j, name, ret, err);
}

static int read_digest(const json *j, struct digest *ret, struct err *err)
{
    struct str crc = STR_NULL, md5 = STR_NULL;
    int r = json_strings(j, err, {"?crc32c", &crc}, {"?md5Hash", &md5});
    if (r < 0)
        return r;
    /* The CRC is preferred to the longer MD5: it combines over parts and costs almost nothing. */
    struct str text = crc.len ? crc : md5;
    if (text.len && !digest_parse_base64(crc.len ? HASH_CRC32C : HASH_MD5, text, ret))
        return err_set(err, ERR_INVALID, "'%.*s' is not a checksum", STR_FMT(str_sub(text, 0, 100)));
    return 0;
}

int gcs_read_object(const json *j, struct store_object *ret, struct err *err)
{
    struct str updated = STR_NULL;
    *ret = (struct store_object){0};
    int r = json_get_str(j, "name", &ret->key, err);
    if (r == 0)
        r = read_number(j, "size", &ret->size_bytes, err);
    if (r == 0)
        r = read_number(j, "generation", &ret->generation, err);
    if (r == 0)
        r = json_opt_str(j, "updated", &updated, err);
    if (r == 0 && updated.len) {
        /* Some servers send the year 1 for an object without a time. */
        struct err why;
        r = time_parse(updated, &ret->mtime_ns, &why);
        r = r == -ERR_RANGE ? 0 : r < 0 ? err_copy(err, &why) : 0;
    }
    return r < 0 ? r : read_digest(j, &ret->digest, err);
}

int gcs_describe(struct store_call *c, struct err *err)
{
    auto_json j = NULL;
    int r = json_parse(sbuf_str(&c->got), "the object's metadata", &j, err);
    if (r == 0)
        r = gcs_read_object(j, &c->job.reply.object, err);
    if (r < 0)
        return call_garbled(err);
    c->job.reply.object.key = c->job.args.write.key;
    c->job.reply.owner = call_keep(c, json_str_at(j, "metadata.cistern-owner"));
    c->job.reply.writer = call_keep(c, json_str_at(j, "metadata.cistern-upload-id"));
    return 0;
}
