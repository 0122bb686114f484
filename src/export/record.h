/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - a line of the ledger: its text and back. Pure.
 * "<crc32c of the rest, 8 hex> <kind> <fields, blank-separated>"; every field is percent-encoded but for letters,
 * digits and a few signs, so that no byte of a name can break a line. */
#pragma once

#include "ledger.h"

enum record_kind { RECORD_SENT, RECORD_INTENT, RECORD_BEGUN, RECORD_PART, RECORD_ENDED };

/* A path is at most 4,095 bytes, a key 1,024 (some stores allow more), an id 2,048: three times that when encoded. */
enum { RECORD_LINE_MAX = 65536 };

struct record {
    enum record_kind kind;
    struct str path, key, uid, id, etag;
    struct stamp stamp;
    uint64_t part_bytes; /* PART: bytes of this one */
    unsigned number;
    struct digest digest;
};

void record_add(const struct record *r, struct sbuf *b); /* with its newline */

/* False for whatever record_add did not write. Strings are decoded into `room`, which has line.len bytes. */
bool record_parse(struct str line, char *room, struct record *ret);
