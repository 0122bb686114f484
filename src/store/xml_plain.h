/* SPDX-License-Identifier: Apache-2.0 */
/* xml_plain.h - an object of a list as nearly every store writes it, read without a parser: of a listing's CPU time the
 * parser would take three quarters. Whatever is not as plain as this is left to it. Pure. */
#pragma once

#include "util/str.h"

/* Texts as they are written, references in them. ptr NULL: there is no such element. */
struct plain_item {
    struct str key, size, mtime, etag;
};

/* Is the beginning of `s` one whole "<Contents>", of elements without attributes and elements in them, whose texts are
 * printable ASCII and well-known references? Returns its length, with blanks before it; 0: it is not, or not whole.
 * What it accepts, a parser that stands between two items of the list would read in the same way. */
size_t plain_item_read(struct str s, struct plain_item *ret);

/* A text of such an item with its references resolved. */
void plain_text(struct str text, struct sbuf *ret);
