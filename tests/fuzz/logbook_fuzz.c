/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the logbook: any bytes are a line that writes itself the same again, or none. The checksum is mended first,
 * so that what lies behind it is reached. */
#include "fuzz.h"
#include "logbook_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    auto_sbuf mended, again;
    sbuf_init(&mended, LINE_BYTES_MAX);
    sbuf_init(&again, LINE_BYTES_MAX);
    struct digest sum = digest_of(HASH_CRC32C, fuzz_str(bytes, len));
    digest_add_hex(&sum, &mended);
    sbuf_addc(&mended, ' ');
    sbuf_add(&mended, fuzz_str(bytes, len));
    if (mended.overflow)
        return 0;
    struct logbook_line l, l2;
    auto_mem char *room = xcalloc(mended.len + 1, 1);
    if (!logbook_line_parse(sbuf_str(&mended), room, &l))
        return 0;
    logbook_line_add(&l, &again);
    assert(!again.overflow && again.len > 0 && again.ptr[again.len - 1] == '\n');
    struct str text = {again.ptr, again.len - 1};
    auto_mem char *room3 = xcalloc(text.len + 1, 1);
    assert(logbook_line_parse(text, room3, &l2));
    assert(l.kind == l2.kind && str_eq(l.path, l2.path) && str_eq(l.key, l2.key));
    assert(str_eq(l.upload_id, l2.upload_id));
    return 0;
}
