/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.json: any bytes are a record, or an error; and what was read is written and read again the same. */
#include "directory.h"
#include "fuzz.h"
#include "pool/record.h"

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void check_equal(const struct record *a, const struct record *b)
{
    assert(same(a->staged, b->staged) && same(a->context, b->context) && a->fuse == b->fuse &&
           a->read_only == b->read_only);
    assert(a->has_group == b->has_group && (!a->has_group || a->group == b->group));
    assert(a->writes == b->writes && a->release == b->release && a->unpublished_ns == b->unpublished_ns &&
           a->target_count == b->target_count);
    for (size_t i = 0; i < a->target_count; i++)
        assert(same(a->targets[i].path, b->targets[i].path) && a->targets[i].read_only == b->targets[i].read_only);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err = {0};
    auto_record first = {0};
    auto_record again = {0};
    fuzz_file(fuzz_folder(), RECORD_FILE, fuzz_str(bytes, len));
    if (record_read(fuzz_folder(), &first, &err) < 0) {
        assert(err.code != 0 && err.text[0]);
        return 0;
    }
    assert(first.target_count <= RECORD_TARGETS_MAX);
    int r = record_write(fuzz_folder(), &first, &err);
    assert(r == 0);
    r = record_read(fuzz_folder(), &again, &err);
    assert(r == 0);
    check_equal(&first, &again);
    return 0;
}
