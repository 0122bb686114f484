/* SPDX-License-Identifier: Apache-2.0 */
/* logbook_line.h - Formats and parses a line of the logbook. Pure.
 *
 * "<crc32c of the rest, 8 hex> <kind> <fields, blank-separated>". Fields are percent-encoded except for letters,
 * digits and a few signs, so no byte of a name can break a line. */
#pragma once

#include "logbook.h"

/* VERSION: the first line of the file; its form is the same in every format. */
enum line_kind { LINE_SENT, LINE_INTENT, LINE_BEGUN, LINE_PART, LINE_ENDED, LINE_LOST, LINE_VERSION };

/* A path is at most 4,095 bytes, a key 1,024 (some stores allow more), an upload ID 2,048: three times that when
 * encoded. */
enum { LINE_BYTES_MAX = 65536 };

struct logbook_line {
    enum line_kind kind;
    struct str path, key, token, upload_id, etag; /* SENT: store_object_tag */
    struct stamp stamp;
    uint64_t part_bytes; /* PART: bytes of this one */
    unsigned number;     /* PART: from 1; VERSION: the format */
    struct digest digest;
};

void logbook_line_add(const struct logbook_line *r, struct sbuf *b); /* with its newline */

/* False for a line that logbook_line_add did not write. Strings are decoded into `room`, which has line.len bytes. */
bool logbook_line_parse(struct str line, char *room, struct logbook_line *ret);
