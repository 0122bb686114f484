/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/signature.h"
#include "unit.h"
#include <string.h>

static char head[SIGNATURE_BYTES], tail[SIGNATURE_BYTES];

static struct signature read_them(void)
{
    struct signature s;
    signature_read((struct str){head, sizeof head}, (struct str){tail, sizeof tail}, &s);
    return s;
}

static int clear(void **state)
{
    (void)state;
    memset(head, 0, sizeof head);
    memset(tail, 0, sizeof tail);
    return 0;
}

static void zeros_are_blank_and_a_single_byte_at_either_end_is_not(void **state)
{
    (void)state;
    assert_int_equal(read_them().kind, SIGNATURE_BLANK);
    head[sizeof head - 1] = 1;
    assert_int_equal(read_them().kind, SIGNATURE_OTHER);
    assert_string_equal(read_them().what, "unknown data");
    head[sizeof head - 1] = 0;
    tail[0] = 1;
    assert_int_equal(read_them().kind, SIGNATURE_OTHER);
}

static void known_signatures_are_named(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *bytes, *what;
    } rows[] = {{1080, "\x53\xef", "an ext file system"},
                {0x10040, "_BHRfS_M", "btrfs"},
                {536, "LVM2 001", "LVM"},
                {4086, "SWAPSPACE2", "swap"},
                {512, "EFI PART", "a partition table"},
                {510, "\x55\xaa", "a partition table"}};
    for (size_t i = 0; i < countof(rows); i++) {
        clear(NULL);
        memcpy(head + rows[i].at, rows[i].bytes, strlen(rows[i].bytes));
        assert_string_equal(read_them().what, rows[i].what);
        assert_int_equal(read_them().kind, SIGNATURE_OTHER);
    }
    clear(NULL);
    memcpy(head, "XFSB", 4);
    assert_int_equal(read_them().kind, SIGNATURE_XFS);
}

static void put32(size_t at, uint32_t n)
{
    for (size_t i = 0; i < 4; i++)
        head[at + i] = (char)(n >> (8 * i));
}

static void array_member_has_its_name_without_the_host(void **state)
{
    (void)state;
    put32(4096, 0xa92b4efc);
    put32(4096 + 4, 1);
    memset(head + 4096 + 16, 0xab, 16);
    memcpy(head + 4096 + 32, "any:cistern-fast", 16);
    put32(4096 + 72, 0);
    put32(4096 + 92, 4);
    struct signature s = read_them();
    assert_int_equal(s.kind, SIGNATURE_MEMBER);
    assert_string_equal(s.set_name, "cistern-fast");
    assert_string_equal(s.set_uuid, "abababababababababababababababab");
    assert_int_equal(s.raid_disks, 4);
    assert_int_equal(s.level, 0);
    memset(head + 4096 + 32, 'x', 32); /* a name that fills its field has no end */
    head[4096 + 40] = '\n';
    s = read_them();
    assert_int_equal(strlen(s.set_name), 32);
    assert_int_equal(s.set_name[8], '?');
}

static void sector_size_of_an_xfs_is_read_if_plausible(void **state)
{
    (void)state;
    const struct str disk = {head, sizeof head};
    head[102] = 0x10;
    assert_int_equal(signature_xfs_sector(disk), 0);
    memcpy(head, "XFSB", 4);
    assert_int_equal(signature_xfs_sector(disk), 4096);
    assert_int_equal(signature_xfs_sector((struct str){head, SIGNATURE_XFS_BYTES - 1}), 0);
    head[103] = 1;
    assert_int_equal(signature_xfs_sector(disk), 0);
    head[102] = head[103] = 0;
    assert_int_equal(signature_xfs_sector(disk), 0);
    head[102] = 1; /* 256 */
    assert_int_equal(signature_xfs_sector(disk), 0);
    head[102] = (char)0x80;
    assert_int_equal(signature_xfs_sector(disk), 32768);
}

static void disk_smaller_than_any_signature_is_read(void **state)
{
    (void)state;
    struct signature s;
    signature_read(STR("abc"), STR("abc"), &s);
    assert_int_equal(s.kind, SIGNATURE_OTHER);
    signature_read(STR_NULL, STR_NULL, &s);
    assert_int_equal(s.kind, SIGNATURE_BLANK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(zeros_are_blank_and_a_single_byte_at_either_end_is_not, clear),
        cmocka_unit_test_setup(known_signatures_are_named, clear),
        cmocka_unit_test_setup(array_member_has_its_name_without_the_host, clear),
        cmocka_unit_test_setup(sector_size_of_an_xfs_is_read_if_plausible, clear),
        cmocka_unit_test_setup(disk_smaller_than_any_signature_is_read, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
