/* SPDX-License-Identifier: Apache-2.0 */
#include "key.h"
#include "unit.h"

static struct digest joined(enum hash_kind a, enum hash_kind b)
{
    const struct logbook_part parts[] = {{.size_bytes = 1, .digest = digest_of(a, STR("a"))},
                                         {.size_bytes = 1, .digest = digest_of(b, STR("b"))}};
    return parts_join(parts, countof(parts));
}

static void crcs_combine_to_that_of_the_whole(void **state)
{
    static const enum hash_kind kinds[] = {HASH_CRC32, HASH_CRC32C, HASH_CRC64NVME};
    (void)state;
    for (size_t i = 0; i < countof(kinds); i++) {
        struct digest whole = digest_of(kinds[i], STR("ab")), made = joined(kinds[i], kinds[i]);
        assert_true(digest_eq(&made, &whole));
    }
}

static void md5s_become_the_etag_of_an_upload_in_parts(void **state)
{
    const struct logbook_part parts[] = {{.size_bytes = 1, .digest = digest_of(HASH_MD5, STR("a"))},
                                         {.size_bytes = 1, .digest = digest_of(HASH_MD5, STR("b"))}};
    struct digest told, made = parts_composite(parts, countof(parts));
    (void)state;
    assert_true(digest_parse_hex(HASH_MD5, STR("96e024ba2074fe77e8e965ba43a704be"), &told));
    assert_true(digest_eq(&made, &told));
    assert_int_equal(joined(HASH_MD5, HASH_MD5).kind, HASH_NONE);
}

static void digests_that_do_not_combine_give_none(void **state)
{
    (void)state;
    assert_int_equal(joined(HASH_CRC64NVME, HASH_MD5).kind, HASH_NONE);
    assert_int_equal(joined(HASH_SHA256, HASH_SHA256).kind, HASH_NONE);
    assert_int_equal(joined(HASH_NONE, HASH_NONE).kind, HASH_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crcs_combine_to_that_of_the_whole),
        cmocka_unit_test(md5s_become_the_etag_of_an_upload_in_parts),
        cmocka_unit_test(digests_that_do_not_combine_give_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
