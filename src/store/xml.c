/* SPDX-License-Identifier: Apache-2.0 */
#include "xml.h"
#include "percent.h"
#include "util/clock.h"
#include <libxml/parser.h>
#include <limits.h>
#include <pthread.h>

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
    FIELD_TOKEN,
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
    {"NextContinuationToken", FIELD_TOKEN},
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

enum item { ITEM_OBJECT, ITEM_FOLDER, ITEM_UPLOAD, ITEMS };

struct xml {
    xmlParserCtxt *parser; /* owned */
    /* The parser keeps each name once, so that equal names have one address: those of `fields`, and of items. */
    const xmlChar *names[FIELDS], *items[ITEMS];
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
    struct err err; /* set inside a callback; the first stays */
};

static void stop(struct xml *x)
{
    xmlStopParser(x->parser);
}

static bool is_item(const struct xml *x, const xmlChar *name)
{
    return name == x->items[ITEM_OBJECT] || name == x->items[ITEM_FOLDER] || name == x->items[ITEM_UPLOAD];
}

static enum field field_of(const struct xml *x, const xmlChar *name)
{
    for (size_t i = 0; i < countof(fields); i++)
        if (name == x->names[i])
            return fields[i].field;
    return FIELD_NONE;
}

static bool is_of_item(enum field f)
{
    return f == FIELD_KEY || f == FIELD_SIZE || f == FIELD_MTIME || f == FIELD_ETAG || f == FIELD_PREFIX ||
           f == FIELD_UPLOAD_ID;
}

/* The namespace and its prefix, if a server writes one, say nothing. */
static void on_start(void *ctx, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri, int namespace_count,
                     const xmlChar **namespaces, int attribute_count, int defaulted_count, const xmlChar **attributes)
{
    struct xml *x = ctx;
    (void)prefix, (void)uri, (void)namespace_count, (void)namespaces;
    (void)attribute_count, (void)defaulted_count, (void)attributes;
    if (++x->depth > DEPTH_MAX) {
        err_set(&x->err, ERR_CORRUPT, "the answer's elements are more than %d deep", DEPTH_MAX);
        stop(x);
        return;
    }
    sbuf_clear(&x->text);
    x->field = FIELD_NONE;
    if (x->depth == 1) {
        sbuf_adds(&x->root, (const char *)name);
    } else if (x->depth == 2 && is_item(x, name)) {
        x->in_item = true;
        x->object = (struct object){0};
        x->is_sized = false;
        sbuf_clear(&x->kept[FIELD_ETAG]);
        sbuf_clear(&x->kept[FIELD_UPLOAD_ID]);
        sbuf_clear(&x->key);
    } else if (!x->in_item) { /* STS wraps its words twice */
        x->field = field_of(x, name);
    } else if (x->depth == 3 && is_of_item(field_of(x, name))) {
        x->field = field_of(x, name);
    }
}

static void on_text(void *ctx, const xmlChar *bytes, int len)
{
    struct xml *x = ctx;
    if (x->field == FIELD_NONE)
        return;
    sbuf_add(&x->text, (struct str){(const char *)bytes, (size_t)len});
    if (x->text.overflow) {
        err_set(&x->err, ERR_CORRUPT, "a text in the answer is longer than %d bytes", TEXT_MAX);
        stop(x);
    }
}

static void on_doctype(void *ctx, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    struct xml *x = ctx;
    (void)name, (void)external, (void)system;
    err_set(&x->err, ERR_CORRUPT, "the answer declares a document type, which no store does");
    stop(x);
}

static int keep_item_field(struct xml *x, struct str text, struct err *err)
{
    switch (x->field) {
    case FIELD_KEY:
    case FIELD_PREFIX:
        sbuf_clear(&x->key);
        sbuf_add(&x->key, text);
        return 0;
    case FIELD_SIZE:
        x->is_sized = true;
        return str_to_u64(str_trim(text), &x->object.size_bytes, err);
    case FIELD_MTIME: {
        /* Some servers say the year 1 of what has no time. */
        struct err why;
        int r = time_parse(str_trim(text), &x->object.mtime_ns, &why);
        return r == -ERR_RANGE ? 0 : r < 0 ? err_copy(err, &why) : 0;
    }
    default:
        sbuf_clear(&x->kept[x->field]);
        sbuf_add(&x->kept[x->field], text);
        return 0;
    }
}

static int keep_field(struct xml *x, struct str text, struct err *err)
{
    if (x->in_item)
        return keep_item_field(x, text, err);
    if (x->field == FIELD_ENCODING)
        x->url_encoded = str_eq_nocase(text, STR("url"));
    sbuf_clear(&x->kept[x->field]);
    sbuf_add(&x->kept[x->field], text);
    return 0;
}

static int end_item(struct xml *x, const xmlChar *name, struct err *err)
{
    bool is_object = name == x->items[ITEM_OBJECT], upload = name == x->items[ITEM_UPLOAD];
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

static void on_end(void *ctx, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri)
{
    struct xml *x = ctx;
    int r = 0;
    (void)prefix, (void)uri;
    if (x->err.code)
        return;
    if (x->field != FIELD_NONE)
        r = keep_field(x, sbuf_str(&x->text), &x->err);
    else if (x->depth == 2 && x->in_item && is_item(x, name))
        r = end_item(x, name, &x->err);
    if (x->depth == 2)
        x->in_item = false;
    x->field = FIELD_NONE;
    x->depth--;
    if (r < 0)
        stop(x);
}

static void intern_names(struct xml *x)
{
    static const char *const items[ITEMS] = {
        [ITEM_OBJECT] = "Contents", [ITEM_FOLDER] = "CommonPrefixes", [ITEM_UPLOAD] = "Upload"};
    for (size_t i = 0; i < countof(fields); i++)
        x->names[i] = xmlDictLookup(x->parser->dict, (const xmlChar *)fields[i].name, -1);
    for (size_t i = 0; i < ITEMS; i++)
        x->items[i] = xmlDictLookup(x->parser->dict, (const xmlChar *)items[i], -1);
}

struct xml *xml_new(struct page *page)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, xmlInitParser);
    struct xml *x = xcalloc(1, sizeof *x);
    x->page = page;
    x->parser = xmlNewParserCtxt();
    if (!x->parser)
        out_of_memory();
    /* No handler makes a tree, looks for an entity, or opens anything. */
    *x->parser->sax = (xmlSAXHandler){.initialized = XML_SAX2_MAGIC,
                                      .startElementNs = on_start,
                                      .endElementNs = on_end,
                                      .characters = on_text,
                                      .ignorableWhitespace = on_text,
                                      .internalSubset = on_doctype};
    x->parser->userData = x;
    intern_names(x);
    sbuf_init(&x->root, TEXT_MAX);
    sbuf_init(&x->text, TEXT_MAX);
    sbuf_init(&x->key, TEXT_MAX);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_init(&x->kept[i], TEXT_MAX);
    return x;
}

void xml_free(struct xml *x)
{
    if (!x)
        return;
    xmlFreeParserCtxt(x->parser);
    sbuf_done(&x->root);
    sbuf_done(&x->text);
    sbuf_done(&x->key);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_done(&x->kept[i]);
    free(x);
}

static void forget(struct xml *x)
{
    x->depth = 0;
    x->in_item = x->url_encoded = false;
    x->field = FIELD_NONE;
    x->err.code = 0;
    sbuf_clear(&x->root);
    for (size_t i = 0; i < FIELDS; i++)
        sbuf_clear(&x->kept[i]);
    page_clear(x->page);
}

static int parse(struct xml *x, struct str document, struct err *err)
{
    /* Stores write UTF-8, whatever else they say. */
    const int options = XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_IGNORE_ENC;
    document = str_trim(document); /* a store that keeps a connection from idling sends blanks ahead */
    if (document.len == 0 || document.len > INT_MAX)
        return err_set(err, ERR_CORRUPT, "the answer is not XML: it has %zu bytes", document.len);
    xmlCtxtReadMemory(x->parser, document.ptr, (int)document.len, NULL, NULL, options);
    if (x->err.code)
        return err_copy(err, &x->err);
    if (x->parser->wellFormed)
        return 0;
    const xmlError *e = xmlCtxtGetLastError(x->parser);
    struct str why = e && e->message ? str_trim(str_of(e->message)) : STR("it is not well-formed");
    return err_set(err, ERR_CORRUPT, "the answer is not XML: %.*s at byte %ld", STR_FMT(str_sub(why, 0, 200)),
                   xmlByteConsumed(x->parser));
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
        int r = percent_decode(*key, true, &x->key, err);
        if (r < 0)
            return r;
        memcpy(page->text.ptr + (key->ptr - page->text.ptr), x->key.ptr, x->key.len);
        key->len = x->key.len;
    }
    return 0;
}

/* Servers write "True" and "1", too, and some nothing beside a token. A listing that is taken for whole and is not
 * would be a tree with holes: only a plain no is one. */
static bool says_more(const struct xml *x)
{
    struct str says = str_trim(sbuf_str(&x->kept[FIELD_TRUNCATED]));
    if (says.len == 0)
        return x->kept[FIELD_TOKEN].len > 0;
    return !str_eq_nocase(says, STR("false")) && !str_eq(says, STR("0"));
}

int xml_read(struct xml *x, struct str document, struct err *err)
{
    forget(x);
    int r = parse(x, document, err);
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
        .upload_id = sbuf_str(&x->kept[FIELD_UPLOAD_ID]),
        .etag = sbuf_str(&x->kept[FIELD_ETAG]),
        .next_token = sbuf_str(&x->kept[FIELD_TOKEN]),
        .access_key_id = sbuf_str(&x->kept[FIELD_ACCESS_KEY]),
        .secret = sbuf_str(&x->kept[FIELD_SECRET]),
        .session_token = sbuf_str(&x->kept[FIELD_SESSION]),
        .expiration = sbuf_str(&x->kept[FIELD_EXPIRATION]),
        .is_list = x->page->count > 0 || x->kept[FIELD_TRUNCATED].len > 0,
        .is_truncated = says_more(x),
        .checksum_is_composite = str_eq(sbuf_str(&x->kept[FIELD_CHECKSUM_TYPE]), STR("COMPOSITE")),
    };
    fill_checksum(x);
    return 0;
}

const struct xml_answer *xml_answer(const struct xml *x)
{
    return &x->answer;
}
