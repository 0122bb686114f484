/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"
#include "unit.h"
#include <linux/fuse.h>

/* An INIT as the kernel sends it, with these high flags. */
static struct table_head *head_of(uint32_t flags2)
{
    struct table_head *h = xcalloc(1, sizeof *h);
    struct fuse_in_header header = {.opcode = FUSE_INIT};
    struct fuse_init_in init = {.major = 7, .minor = 45, .flags = FUSE_INIT_EXT, .flags2 = flags2};
    memcpy(h->init, &header, sizeof header);
    memcpy(h->init + sizeof header, &init, sizeof init);
    h->init_len = sizeof header + sizeof init;
    return h;
}

static void kernel_that_cannot_resend_is_known_by_its_init(void **state)
{
    (void)state;
    struct table_head *with = head_of(1 << 7), *without = head_of(~(1U << 7));
    assert_true(table_can_resend(with));
    assert_false(table_can_resend(without));
    with->init_len = 0;
    assert_false(table_can_resend(with));
    free(with);
    free(without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_that_cannot_resend_is_known_by_its_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
