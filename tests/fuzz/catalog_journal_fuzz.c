/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: any bytes are replayed, or refused by name; and what was replayed once is replayed the same again. The
 * checksums are mended first, so that what lies behind them is reached. */
#include "directory.h"
#include "fuzz.h"
#include "journal_format.h"
#include <unistd.h>

static const uint8_t uid[16] = "uid", boot[16] = "boot";

static uint64_t whole_count(const struct journal *j)
{
    uint64_t count = 0;
    for (uint64_t word = 0; word < j->whole_words; word++)
        count += (uint64_t)__builtin_popcountll(j->whole[word]);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    struct journal *j = NULL;
    struct journal_record head = {.kind = JOURNAL_HEAD, .c = (uint64_t)JOURNAL_VERSION << 32 | 8192};
    memcpy(&head.a, uid, sizeof uid);
    head.crc = journal_record_crc(&head, 0);
    int fd = openat(fuzz_folder(), JOURNAL_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n = write(fd, &head, sizeof head);
    for (size_t at = 0; at + sizeof head <= len; at += sizeof head) {
        struct journal_record r;
        memcpy(&r, bytes + at, sizeof r);
        /* ids of a small catalog, but for the odd one; a wrong checksum where the input wants it */
        r.a = r.kind == JOURNAL_RUN || r.zero & 1 ? r.a : r.a % 1000;
        r.b %= r.zero & 2 ? UINT64_MAX : 64;
        if (r.kind == JOURNAL_RUN && r.digest_kind % 2)
            memcpy(&r.a, boot, sizeof boot);
        if (!(r.zero & 4))
            r.crc = journal_record_crc(&r, at + sizeof head);
        n = write(fd, &r, sizeof r);
    }
    n = write(fd, bytes, len % sizeof head);
    assert(n == (ssize_t)(len % sizeof head));
    close(fd);
    if (journal_open(fuzz_folder(), uid, 8192, boot, &j, &err) < 0)
        return 0;
    uint64_t count = whole_count(j);
    journal_free(j);
    j = NULL;
    int r = journal_open(fuzz_folder(), uid, 8192, boot, &j, &err);
    assert(r == 0 && whole_count(j) == count);
    journal_free(j);
    return 0;
}
