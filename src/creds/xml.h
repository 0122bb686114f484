/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h - reads an XML document from a server: calls back for each start tag, and for each end tag with its text.
 * home: its caller's thread. A document type, an entity, a depth over 16 or a text over 64 KiB is ERR_CORRUPT. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum { XML_TEXT_MAX = 64 << 10 };

/* Elements are known by their index in `names`, without their namespace; -1 is any other element. The root's depth is
 * 1. */
struct xml_reader {
    const char *const *names; /* static */
    size_t name_count;
    void *ctx;
    /* Returns whether end() gets the element's text. */
    bool (*start)(void *ctx, unsigned depth, int name, const char *tag);
    /* `text` is empty if start() did not ask for it, or the element has children. A negative result ends the
     * reading. */
    int (*end)(void *ctx, unsigned depth, int name, bool has_text, struct str text, struct err *err);
};

struct xml;
struct xml *xml_new(const struct xml_reader *reader);
void xml_free(struct xml *x);
DEFINE_AUTO(xml, struct xml, xml_free)
#define auto_xml auto_with(auto_clean_xml) struct xml *

must_check int xml_read(struct xml *x, struct str document, struct err *err);
