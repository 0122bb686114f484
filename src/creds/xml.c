/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/xml.h"
#include <libxml/parser.h>
#include <limits.h>
#include <pthread.h>

enum { DEPTH_MAX = 16 };

struct xml {
    xmlParserCtxt *parser; /* owned */
    struct xml_reader reader;
    const xmlChar **names; /* owned: the parser keeps each name once, so equal names have one address */
    unsigned depth;
    int open[DEPTH_MAX + 1]; /* by depth: the index of the open element's name, found once at its start */
    bool has_text;           /* the innermost element's text is wanted */
    struct sbuf text;
    struct err err; /* set inside a callback; the first error stays */
};

static int find_name(const struct xml *x, const xmlChar *tag)
{
    for (size_t i = 0; i < x->reader.name_count; i++)
        if (tag == x->names[i])
            return (int)i;
    return -1;
}

static void on_start(void *ctx, const xmlChar *tag, const xmlChar *, const xmlChar *, int, const xmlChar **, int, int,
                     const xmlChar **)
{
    struct xml *x = ctx;
    if (++x->depth > DEPTH_MAX) {
        err_set(&x->err, ERR_CORRUPT, "XML elements are nested more than %d deep", DEPTH_MAX);
        xmlStopParser(x->parser);
        return;
    }
    sbuf_clear(&x->text);
    x->open[x->depth] = find_name(x, tag);
    x->has_text = x->reader.start(x->reader.ctx, x->depth, x->open[x->depth], (const char *)tag);
}

static void on_text(void *ctx, const xmlChar *bytes, int len)
{
    struct xml *x = ctx;
    if (!x->has_text)
        return;
    sbuf_add(&x->text, (struct str){(const char *)bytes, (size_t)len});
    if (x->text.overflow) {
        err_set(&x->err, ERR_CORRUPT, "the text of an XML element is longer than %d bytes", XML_TEXT_MAX);
        xmlStopParser(x->parser);
    }
}

static void on_doctype(void *ctx, const xmlChar *, const xmlChar *, const xmlChar *)
{
    struct xml *x = ctx;
    err_set(&x->err, ERR_CORRUPT, "the XML declares a document type");
    xmlStopParser(x->parser);
}

static void on_end(void *ctx, const xmlChar *, const xmlChar *, const xmlChar *)
{
    struct xml *x = ctx;
    if (x->err.code)
        return;
    int r = x->reader.end(x->reader.ctx, x->depth, x->open[x->depth], x->has_text, sbuf_str(&x->text), &x->err);
    x->has_text = false;
    x->depth--;
    if (r < 0)
        xmlStopParser(x->parser);
}

struct xml *xml_new(const struct xml_reader *reader)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, xmlInitParser);
    struct xml *x = xcalloc(1, sizeof *x);
    x->reader = *reader;
    x->parser = xmlNewParserCtxt();
    if (!x->parser)
        out_of_memory();
    /* The parser builds no tree, resolves no entity, and opens no file. */
    *x->parser->sax = (xmlSAXHandler){.initialized = XML_SAX2_MAGIC,
                                      .startElementNs = on_start,
                                      .endElementNs = on_end,
                                      .characters = on_text,
                                      .ignorableWhitespace = on_text,
                                      .internalSubset = on_doctype};
    x->parser->userData = x;
    x->names = xcalloc(reader->name_count, sizeof *x->names);
    for (size_t i = 0; i < reader->name_count; i++)
        x->names[i] = xmlDictLookup(x->parser->dict, (const xmlChar *)reader->names[i], -1);
    sbuf_init(&x->text, XML_TEXT_MAX);
    return x;
}

void xml_free(struct xml *x)
{
    if (!x)
        return;
    xmlFreeParserCtxt(x->parser);
    free(x->names);
    sbuf_done(&x->text);
    free(x);
}

int xml_read(struct xml *x, struct str document, struct err *err)
{
    /* Stores write UTF-8, whatever their declaration says. */
    const int options = XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_IGNORE_ENC;
    x->depth = 0;
    x->has_text = false;
    x->err.code = 0;
    document = str_trim(document); /* a store that keeps an idle connection open sends blanks first */
    if (document.len == 0 || document.len > INT_MAX)
        return err_set(err, ERR_CORRUPT, "the reply is not XML: it has %zu bytes", document.len);
    xmlCtxtReadMemory(x->parser, document.ptr, (int)document.len, NULL, NULL, options);
    if (x->err.code)
        return err_copy(err, &x->err);
    if (x->parser->wellFormed)
        return 0;
    const xmlError *e = xmlCtxtGetLastError(x->parser);
    struct str why = e && e->message ? str_trim(str_of(e->message)) : STR("it is not well-formed");
    return err_set(err, ERR_CORRUPT, "the reply is not XML: %.*s at byte %ld", STR_FMT(str_sub(why, 0, 200)),
                   xmlByteConsumed(x->parser));
}
