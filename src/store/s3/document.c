/* SPDX-License-Identifier: Apache-2.0 */
#include "document.h"
#include "creds/xml.h"
#include "util/clock.h"
#include "util/encode.h"

/* Elements that are read, each with the place of its text. */
enum s3_element {
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
    FIELD_TOKEN,
    FIELD_CRC64NVME,
    FIELD_CRC32C,
    FIELD_CRC32,
    FIELD_SHA256,
    FIELD_CHECKSUM_TYPE,
    FIELDS,
    ITEM_OBJECT = FIELDS,
    ITEM_DIRECTORY,
    ITEM_UPLOAD,
    ELEMENTS
};

static const char *const names[ELEMENTS] = {
    [FIELD_KEY] = "Key",
    [FIELD_SIZE] = "Size",
    [FIELD_MTIME] = "LastModified",
    [FIELD_ETAG] = "ETag",
    [FIELD_PREFIX] = "Prefix",
    [FIELD_ENCODING] = "EncodingType",
    [FIELD_TRUNCATED] = "IsTruncated",
    [FIELD_UPLOAD_ID] = "UploadId",
    [FIELD_CODE] = "Code",
    [FIELD_MESSAGE] = "Message",
    [FIELD_REGION] = "Region",
    [FIELD_TOKEN] = "NextContinuationToken",
    [FIELD_CRC64NVME] = "ChecksumCRC64NVME",
    [FIELD_CRC32C] = "ChecksumCRC32C",
    [FIELD_CRC32] = "ChecksumCRC32",
    [FIELD_SHA256] = "ChecksumSHA256",
    [FIELD_CHECKSUM_TYPE] = "ChecksumType",
    [ITEM_OBJECT] = "Contents",
    [ITEM_DIRECTORY] = "CommonPrefixes",
    [ITEM_UPLOAD] = "Upload",
};

struct s3_document {
    struct xml *xml;          /* owned */
    struct object_page *page; /* borrowed */
    struct s3_reply reply;
    bool in_item; /* in Contents, CommonPrefixes or Upload */
    struct sbuf root;
    struct sbuf kept[FIELDS]; /* of the item, or of the document */
    struct sbuf key;
    struct store_object object;
    bool has_size; /* the item has one */
    bool url_encoded;
};

static bool is_of_item(int name)
{
    return name == FIELD_KEY || name == FIELD_SIZE || name == FIELD_MTIME || name == FIELD_ETAG ||
           name == FIELD_PREFIX || name == FIELD_UPLOAD_ID;
}

static bool on_start(void *ctx, unsigned depth, int name, const char *tag)
{
    struct s3_document *x = ctx;
    if (depth == 1)
        sbuf_adds(&x->root, tag);
    if (depth == 2 && name >= FIELDS) {
        x->in_item = true;
        x->object = (struct store_object){0};
        x->has_size = false;
        sbuf_clear(&x->kept[FIELD_ETAG]);
        sbuf_clear(&x->kept[FIELD_UPLOAD_ID]);
        sbuf_clear(&x->key);
        return false;
    }
    return depth > 1 && name >= 0 && name < FIELDS && (!x->in_item || (depth == 3 && is_of_item(name)));
}

static int keep_item_field(struct s3_document *x, int name, struct str text, struct err *err)
{
    switch (name) {
    case FIELD_KEY:
    case FIELD_PREFIX:
        sbuf_set(&x->key, text);
        return 0;
    case FIELD_SIZE:
        x->has_size = true;
        return str_to_u64(str_trim(text), &x->object.size_bytes, err);
    case FIELD_MTIME: {
        /* Some servers send the year 1 for an object without a time. */
        struct err why;
        int r = time_parse(str_trim(text), &x->object.mtime_ns, &why);
        return r == -ERR_RANGE ? 0 : r < 0 ? err_copy(err, &why) : 0;
    }
    default:
        sbuf_set(&x->kept[name], text);
        return 0;
    }
}

static int keep_field(struct s3_document *x, int name, struct str text, struct err *err)
{
    if (x->in_item)
        return keep_item_field(x, name, text, err);
    if (name == FIELD_ENCODING)
        x->url_encoded = str_eq_nocase(text, STR("url"));
    sbuf_set(&x->kept[name], text);
    return 0;
}

static int end_item(struct s3_document *x, int name, struct err *err)
{
    bool is_object = name == ITEM_OBJECT;
    x->object.key = sbuf_str(&x->key);
    x->object.etag = sbuf_str(&x->kept[FIELD_ETAG]);
    x->object.upload_id = sbuf_str(&x->kept[FIELD_UPLOAD_ID]);
    if (x->object.key.len == 0)
        return err_set(err, ERR_CORRUPT, "an object in the answer has no key");
    if (is_object && !x->has_size) /* without this check it would count as an empty page */
        return err_set(err, ERR_CORRUPT, "'%.*s' in the answer has no size", STR_FMT(str_sub(x->object.key, 0, 200)));
    if (!object_page_add(x->page, &x->object))
        return err_set(err, ERR_CORRUPT, "the answer lists more than %d objects on one page", PAGE_OBJECTS_MAX);
    return 0;
}

static int on_end(void *ctx, unsigned depth, int name, bool has_text, struct str text, struct err *err)
{
    struct s3_document *x = ctx;
    int r = 0;
    if (has_text)
        r = keep_field(x, name, text, err);
    else if (depth == 2 && x->in_item && name >= FIELDS)
        r = end_item(x, name, err);
    if (depth == 2)
        x->in_item = false;
    return r;
}

struct s3_document *s3_document_new(struct object_page *page)
{
    struct s3_document *x = xcalloc(1, sizeof *x);
    x->page = page;
    x->xml = xml_new(
        &(struct xml_reader){.names = names, .name_count = ELEMENTS, .ctx = x, .start = on_start, .end = on_end});
    sbuf_init(&x->root, XML_TEXT_MAX);
    sbuf_init(&x->key, XML_TEXT_MAX);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_init(&x->kept[i], XML_TEXT_MAX);
    return x;
}

void s3_document_free(struct s3_document *x)
{
    if (!x)
        return;
    xml_free(x->xml);
    sbuf_done(&x->root);
    sbuf_done(&x->key);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_done(&x->kept[i]);
    free(x);
}

static void clear(struct s3_document *x)
{
    x->in_item = x->url_encoded = false;
    sbuf_clear(&x->root);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_clear(&x->kept[i]);
    object_page_clear(x->page);
}

static void fill_checksum(struct s3_document *x)
{
    static const struct {
        int field;
        enum hash_kind kind;
    } sums[] = {{FIELD_CRC64NVME, HASH_CRC64NVME},
                {FIELD_CRC32C, HASH_CRC32C},
                {FIELD_CRC32, HASH_CRC32},
                {FIELD_SHA256, HASH_SHA256}};
    for (size_t i = 0; i < countof(sums); i++)
        if (x->kept[sums[i].field].len) {
            x->reply.checksum = sbuf_str(&x->kept[sums[i].field]);
            x->reply.checksum_kind = sums[i].kind;
            return;
        }
}

/* Some servers state only after the keys that they are encoded: so all are decoded at the end, in place. */
static int decode_keys(struct s3_document *x, struct err *err)
{
    struct object_page *page = x->page;
    for (size_t i = 0; i < page->count; i++) {
        struct str *key = &page->objects[i].key;
        if (str_find(*key, '%') < 0 && str_find(*key, '+') < 0)
            continue;
        sbuf_clear(&x->key);
        int r = percent_decode(*key, &x->key, err);
        if (r < 0)
            return r;
        memcpy(page->text.ptr + (key->ptr - page->text.ptr), x->key.ptr, x->key.len);
        key->len = x->key.len;
    }
    return 0;
}

/* Servers write "True" and "1" too, and some write only a token. A page taken for the last one by mistake would lose
 * objects, so only "false" and "0" end a listing. */
static bool says_more(const struct s3_document *x)
{
    struct str says = str_trim(sbuf_str(&x->kept[FIELD_TRUNCATED]));
    if (says.len == 0)
        return x->kept[FIELD_TOKEN].len > 0;
    return !str_eq_nocase(says, STR("false")) && !str_eq(says, STR("0"));
}

int s3_document_read(struct s3_document *x, struct str document, struct err *err)
{
    clear(x);
    int r = xml_read(x->xml, document, err);
    if (r < 0)
        return r;
    object_page_end(x->page);
    r = x->url_encoded ? decode_keys(x, err) : 0;
    if (r < 0)
        return r;
    x->reply = (struct s3_reply){
        .root = sbuf_str(&x->root),
        .code = sbuf_str(&x->kept[FIELD_CODE]),
        .message = sbuf_str(&x->kept[FIELD_MESSAGE]),
        .region = sbuf_str(&x->kept[FIELD_REGION]),
        .upload_id = sbuf_str(&x->kept[FIELD_UPLOAD_ID]),
        .etag = sbuf_str(&x->kept[FIELD_ETAG]),
        .next_token = sbuf_str(&x->kept[FIELD_TOKEN]),
        .is_list = x->page->count > 0 || x->kept[FIELD_TRUNCATED].len > 0,
        .is_truncated = says_more(x),
        .checksum_is_composite = str_eq(sbuf_str(&x->kept[FIELD_CHECKSUM_TYPE]), STR("COMPOSITE")),
    };
    fill_checksum(x);
    return 0;
}

const struct s3_reply *s3_document_reply(const struct s3_document *x)
{
    return &x->reply;
}
