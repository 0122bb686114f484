/* SPDX-License-Identifier: Apache-2.0 */
#include "xml.h"
#include "sigv4.h"
#include "util/clock.h"
#include "xml_plain.h"
#include <expat.h>
#include <limits.h>

enum { DEPTH_MAX = 16, TEXT_MAX = 64 << 10 };

/* Elements whose text is wanted, each with the place that its text goes to. */
enum field {
    FIELD_NONE,
    FIELD_KEY,
    FIELD_SIZE,
    FIELD_MTIME,
    FIELD_ETAG,
    FIELD_PREFIX,
    FIELD_ENCODING,
    FIELD_TRUNCATED,
    FIELD_UPLOAD_ID,
    FIELD_CODE,
    FIELD_MESSAGE,
    FIELD_REGION,
    FIELD_ENDPOINT,
    FIELD_SERVER_TIME,
    FIELD_REQUEST_ID,
    FIELD_TOKEN,
    FIELD_NEXT_KEY,
    FIELD_CRC64NVME,
    FIELD_CRC32C,
    FIELD_CRC32,
    FIELD_SHA256,
    FIELD_CHECKSUM_TYPE,
    FIELD_ACCESS_KEY,
    FIELD_SECRET,
    FIELD_SESSION,
    FIELD_EXPIRATION,
    FIELDS
};

static const struct {
    const char *name;
    enum field field;
} fields[] = {
    {"Key", FIELD_KEY},
    {"Size", FIELD_SIZE},
    {"LastModified", FIELD_MTIME},
    {"ETag", FIELD_ETAG},
    {"Prefix", FIELD_PREFIX},
    {"EncodingType", FIELD_ENCODING},
    {"IsTruncated", FIELD_TRUNCATED},
    {"UploadId", FIELD_UPLOAD_ID},
    {"Code", FIELD_CODE},
    {"Message", FIELD_MESSAGE},
    {"Region", FIELD_REGION},
    {"Endpoint", FIELD_ENDPOINT},
    {"ServerTime", FIELD_SERVER_TIME},
    {"RequestId", FIELD_REQUEST_ID},
    {"NextContinuationToken", FIELD_TOKEN},
    {"NextKeyMarker", FIELD_NEXT_KEY},
    {"ChecksumCRC64NVME", FIELD_CRC64NVME},
    {"ChecksumCRC32C", FIELD_CRC32C},
    {"ChecksumCRC32", FIELD_CRC32},
    {"ChecksumSHA256", FIELD_SHA256},
    {"ChecksumType", FIELD_CHECKSUM_TYPE},
    {"AccessKeyId", FIELD_ACCESS_KEY},
    {"SecretAccessKey", FIELD_SECRET},
    {"SessionToken", FIELD_SESSION},
    {"Expiration", FIELD_EXPIRATION},
};

struct xml {
    XML_Parser parser; /* owned */
    struct page *page; /* borrowed */
    struct xml_answer answer;
    unsigned depth;
    bool in_item; /* in Contents, CommonPrefixes or Upload */
    enum field field;
    struct sbuf root;
    struct sbuf text;
    struct sbuf kept[FIELDS]; /* of the item, or of the document */
    struct sbuf key;
    struct object object;
    bool is_sized; /* the item told its size */
    bool url_encoded;
    uint64_t parsed;   /* bytes that the parser was given */
    uint64_t skipped;  /* bytes that it was not: plain items (xml_plain.h) */
    uint64_t item_end; /* of `parsed`, behind the item that it saw last */
    bool at_item_end;  /* the last bytes that it was given are the end of an item, or look like it */
    struct err err;    /* set inside a callback; the first stays */
};

static const struct str item_end_tag = {"</Contents>", sizeof "</Contents>" - 1};

static void stop(struct xml *x)
{
    XML_StopParser(x->parser, XML_FALSE);
}

static bool is_object(const char *name)
{
    return strcmp(name, "Contents") == 0;
}

static bool is_item(const char *name)
{
    return is_object(name) || strcmp(name, "CommonPrefixes") == 0 || strcmp(name, "Upload") == 0;
}

/* The namespace's prefix, if a server writes one, says nothing. */
static const char *local_name(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon ? colon + 1 : name;
}

static enum field field_of(const char *name)
{
    for (size_t i = 0; i < countof(fields); i++)
        if (name[0] == fields[i].name[0] && strcmp(name, fields[i].name) == 0)
            return fields[i].field;
    return FIELD_NONE;
}

static bool is_of_item(enum field f)
{
    return f == FIELD_KEY || f == FIELD_SIZE || f == FIELD_MTIME || f == FIELD_ETAG || f == FIELD_PREFIX ||
           f == FIELD_UPLOAD_ID;
}

static void item_begin(struct xml *x)
{
    x->object = (struct object){0};
    x->is_sized = false;
    sbuf_clear(&x->kept[FIELD_ETAG]);
    sbuf_clear(&x->kept[FIELD_UPLOAD_ID]);
    sbuf_clear(&x->key);
}

static void on_start(void *ctx, const char *full_name, const char **attributes)
{
    struct xml *x = ctx;
    const char *name = local_name(full_name);
    (void)attributes;
    if (++x->depth > DEPTH_MAX) {
        err_set(&x->err, ERR_CORRUPT, "the answer's elements are more than %d deep", DEPTH_MAX);
        stop(x);
        return;
    }
    sbuf_clear(&x->text);
    x->field = FIELD_NONE;
    if (x->depth == 1) {
        sbuf_adds(&x->root, name);
    } else if (x->depth == 2 && is_item(name)) {
        x->in_item = true;
        item_begin(x);
    } else if (!x->in_item) { /* STS wraps its words twice */
        x->field = field_of(name);
    } else if (x->depth == 3 && is_of_item(field_of(name))) {
        x->field = field_of(name);
    }
}

static void on_text(void *ctx, const char *bytes, int len)
{
    struct xml *x = ctx;
    if (x->field == FIELD_NONE)
        return;
    sbuf_add(&x->text, (struct str){bytes, (size_t)len});
    if (x->text.overflow) {
        err_set(&x->err, ERR_CORRUPT, "a text in the answer is longer than %d bytes", TEXT_MAX);
        stop(x);
    }
}

static void on_doctype(void *ctx, const char *name, const char *system, const char *public, int internal)
{
    struct xml *x = ctx;
    (void)name, (void)system, (void)public, (void)internal;
    err_set(&x->err, ERR_CORRUPT, "the answer declares a document type, which no store does");
    stop(x);
}

static int keep_item_field(struct xml *x, enum field field, struct str text, struct err *err)
{
    switch (field) {
    case FIELD_KEY:
    case FIELD_PREFIX:
        sbuf_clear(&x->key);
        sbuf_add(&x->key, text);
        return 0;
    case FIELD_SIZE:
        x->is_sized = true;
        return str_to_u64(text, &x->object.size_bytes, err);
    case FIELD_MTIME:
        return time_parse(text, &x->object.mtime_ns, err);
    default:
        sbuf_clear(&x->kept[field]);
        sbuf_add(&x->kept[field], text);
        return 0;
    }
}

static int keep_field(struct xml *x, struct str text, struct err *err)
{
    if (x->in_item)
        return keep_item_field(x, x->field, text, err);
    if (x->field == FIELD_ENCODING)
        x->url_encoded = str_eq_nocase(text, STR("url"));
    sbuf_clear(&x->kept[x->field]);
    sbuf_add(&x->kept[x->field], text);
    return 0;
}

static int end_item(struct xml *x, bool is_object, struct err *err)
{
    bool upload = str_eq(sbuf_str(&x->root), STR("ListMultipartUploadsResult"));
    x->object.key = sbuf_str(&x->key);
    x->object.etag = sbuf_str(&x->kept[upload ? FIELD_UPLOAD_ID : FIELD_ETAG]);
    if (x->object.key.len == 0)
        return err_set(err, ERR_CORRUPT, "an object in the answer has no key");
    if (is_object && !x->is_sized) /* it would pass for an empty one */
        return err_set(err, ERR_CORRUPT, "'%.*s' in the answer has no size", STR_FMT(str_sub(x->object.key, 0, 200)));
    if (!page_add(x->page, &x->object))
        return err_set(err, ERR_CORRUPT, "the answer lists more than %d objects on one page", PAGE_OBJECTS_MAX);
    return 0;
}

static void on_end(void *ctx, const char *full_name)
{
    struct xml *x = ctx;
    int r = 0;
    if (x->err.code)
        return;
    if (x->field != FIELD_NONE)
        r = keep_field(x, sbuf_str(&x->text), &x->err);
    else if (x->depth == 2 && x->in_item && is_item(local_name(full_name)))
        r = end_item(x, is_object(local_name(full_name)), &x->err);
    if (x->depth == 2) {
        x->in_item = false;
        x->item_end = (uint64_t)(XML_GetCurrentByteIndex(x->parser) + XML_GetCurrentByteCount(x->parser));
    }
    x->field = FIELD_NONE;
    x->depth--;
    if (r < 0)
        stop(x);
}

static void set_handlers(struct xml *x)
{
    XML_SetUserData(x->parser, x);
    XML_SetElementHandler(x->parser, on_start, on_end);
    XML_SetCharacterDataHandler(x->parser, on_text);
    XML_SetStartDoctypeDeclHandler(x->parser, on_doctype);
}

struct xml *xml_new(struct page *page)
{
    struct xml *x = xcalloc(1, sizeof *x);
    x->page = page;
    x->parser = XML_ParserCreate(NULL);
    sbuf_init(&x->root, TEXT_MAX);
    sbuf_init(&x->text, TEXT_MAX);
    sbuf_init(&x->key, TEXT_MAX);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_init(&x->kept[i], TEXT_MAX);
    set_handlers(x);
    return x;
}

void xml_free(struct xml *x)
{
    if (!x)
        return;
    XML_ParserFree(x->parser);
    sbuf_done(&x->root);
    sbuf_done(&x->text);
    sbuf_done(&x->key);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_done(&x->kept[i]);
    free(x);
}

void xml_reset(struct xml *x)
{
    XML_ParserReset(x->parser, NULL);
    set_handlers(x);
    x->depth = 0;
    x->in_item = x->url_encoded = x->at_item_end = false;
    x->field = FIELD_NONE;
    x->parsed = x->skipped = x->item_end = 0;
    x->err.code = 0;
    sbuf_clear(&x->root);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_clear(&x->kept[i]);
    page_clear(x->page);
}

static int parse(struct xml *x, struct str s, bool last, struct err *err)
{
    enum XML_Status ok = XML_Parse(x->parser, s.ptr, (int)s.len, last);
    x->parsed += s.len;
    if (x->err.code)
        return err_copy(err, &x->err);
    if (ok == XML_STATUS_OK)
        return 0;
    return err_set(err, ERR_CORRUPT, "the answer is not XML: %s at byte %lld",
                   XML_ErrorString(XML_GetErrorCode(x->parser)),
                   (long long)XML_GetCurrentByteIndex(x->parser) + (long long)x->skipped);
}

static int keep_plain_field(struct xml *x, enum field field, struct str text, struct err *err)
{
    if (!text.ptr)
        return 0;
    if (str_find(text, '&') < 0)
        return keep_item_field(x, field, text, err);
    sbuf_clear(&x->text);
    plain_text(text, &x->text);
    return keep_item_field(x, field, sbuf_str(&x->text), err);
}

static int keep_plain(struct xml *x, const struct plain_item *item, struct err *err)
{
    item_begin(x);
    int r = keep_plain_field(x, FIELD_KEY, item->key, err);
    if (r == 0)
        r = keep_plain_field(x, FIELD_SIZE, item->size, err);
    if (r == 0)
        r = keep_plain_field(x, FIELD_MTIME, item->mtime, err);
    if (r == 0)
        r = keep_plain_field(x, FIELD_ETAG, item->etag, err);
    return r == 0 ? end_item(x, true, err) : r;
}

/* The parser stands behind an item of the list: it never hears of those that follow as long as they are plain. */
static int skip_plain(struct xml *x, struct str *rest, struct err *err)
{
    struct plain_item item;
    for (size_t n; (n = plain_item_read(*rest, &item)) > 0; *rest = str_from(*rest, n)) {
        int r = keep_plain(x, &item, err);
        if (r < 0)
            return r;
        x->skipped += n;
    }
    return 0;
}

/* What the parser gets: to the end of the next item, if one ends in `s`. */
static struct str next_bite(struct str s, bool *ret_ends_item)
{
    struct str bite = str_sub(s, 0, INT_MAX);
    const char *end = memmem(bite.ptr, bite.len, item_end_tag.ptr, item_end_tag.len);
    *ret_ends_item = end != NULL;
    return end ? str_sub(bite, 0, (size_t)(end - bite.ptr) + item_end_tag.len) : bite;
}

int xml_feed(struct xml *x, const char *bytes, size_t len, struct err *err)
{
    struct str rest = {bytes, len};
    while (rest.len > 0) {
        /* Where the tag was no comment's text nor the like, an item has ended with it. */
        if (x->at_item_end && x->item_end == x->parsed) {
            int r = skip_plain(x, &rest, err);
            if (r < 0 || rest.len == 0)
                return r;
        }
        struct str bite = next_bite(rest, &x->at_item_end);
        int r = parse(x, bite, false, err);
        if (r < 0)
            return r;
        rest = str_from(rest, bite.len);
    }
    return 0;
}

static void fill_checksum(struct xml *x)
{
    static const struct {
        enum field field;
        enum hash_kind kind;
    } sums[] = {{FIELD_CRC64NVME, HASH_CRC64NVME},
                {FIELD_CRC32C, HASH_CRC32C},
                {FIELD_CRC32, HASH_CRC32},
                {FIELD_SHA256, HASH_SHA256}};
    for (size_t i = 0; i < countof(sums); i++)
        if (x->kept[sums[i].field].len) {
            x->answer.checksum = sbuf_str(&x->kept[sums[i].field]);
            x->answer.checksum_kind = sums[i].kind;
            return;
        }
}

/* Some servers say only behind the keys that they are encoded: so all of them are decoded at the end, in place. */
static int decode_keys(struct xml *x, struct err *err)
{
    struct page *page = x->page;
    for (size_t i = 0; i < page->count; i++) {
        struct str *key = &page->objects[i].key;
        if (str_find(*key, '%') < 0 && str_find(*key, '+') < 0)
            continue;
        sbuf_clear(&x->key);
        int r = uri_decode(*key, true, &x->key, err);
        if (r < 0)
            return r;
        memcpy(page->text.ptr + (key->ptr - page->text.ptr), x->key.ptr, x->key.len);
        key->len = x->key.len;
    }
    return 0;
}

int xml_end(struct xml *x, struct err *err)
{
    int r = parse(x, STR(""), true, err);
    if (r < 0)
        return r;
    page_end(x->page);
    r = x->url_encoded ? decode_keys(x, err) : 0;
    if (r < 0)
        return r;
    x->answer = (struct xml_answer){
        .root = sbuf_str(&x->root),
        .code = sbuf_str(&x->kept[FIELD_CODE]),
        .message = sbuf_str(&x->kept[FIELD_MESSAGE]),
        .region = sbuf_str(&x->kept[FIELD_REGION]),
        .endpoint = sbuf_str(&x->kept[FIELD_ENDPOINT]),
        .server_time = sbuf_str(&x->kept[FIELD_SERVER_TIME]),
        .request_id = sbuf_str(&x->kept[FIELD_REQUEST_ID]),
        .upload_id = sbuf_str(&x->kept[FIELD_UPLOAD_ID]),
        .etag = sbuf_str(&x->kept[FIELD_ETAG]),
        .next_token = sbuf_str(&x->kept[FIELD_TOKEN]),
        .next_key = sbuf_str(&x->kept[FIELD_NEXT_KEY]),
        .access_key_id = sbuf_str(&x->kept[FIELD_ACCESS_KEY]),
        .secret = sbuf_str(&x->kept[FIELD_SECRET]),
        .session_token = sbuf_str(&x->kept[FIELD_SESSION]),
        .expiration = sbuf_str(&x->kept[FIELD_EXPIRATION]),
        .is_truncated = str_eq(sbuf_str(&x->kept[FIELD_TRUNCATED]), STR("true")),
        .checksum_is_composite = str_eq(sbuf_str(&x->kept[FIELD_CHECKSUM_TYPE]), STR("COMPOSITE")),
    };
    fill_checksum(x);
    return 0;
}

const struct xml_answer *xml_answer(const struct xml *x)
{
    return &x->answer;
}
