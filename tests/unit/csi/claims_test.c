/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "claims.h"
#include <stdio.h>
#include <sys/stat.h>

static struct claims claims;

static void the_second_call_for_a_volume_is_told_to_come_again(void **state)
{
    (void)state;
    struct err err;
    struct claim first = {0}, second = {0}, other = {0};
    claims_init(&claims);
    assert_int_equal(claim_take(&claims, "v1", &first, &err), 0);
    assert_int_equal(claim_take(&claims, "v1", &second, &err), -ERR_PENDING);
    assert_non_null(strstr(err.text, "'v1'"));
    assert_int_equal(claim_take(&claims, "v2", &other, &err), 0);
    claim_give(&first);
    claim_give(&first);
    assert_int_equal(claim_take(&claims, "v1", &second, &err), 0);
    claim_give(&second);
    claim_give(&other);
    claims_done(&claims);
}

static void what_one_driver_holds_fast_the_other_driver_of_a_roll_cannot_have(void **state)
{
    (void)state;
    struct err err;
    struct claims others;
    struct claim first = {0}, second = {0};
    char path[64], thrown_away[64];
    snprintf(path, sizeof path, "%s/volume", dir_name);
    snprintf(thrown_away, sizeof thrown_away, "%s/trash", dir_name);
    assert_int_equal(mkdir(path, 0700), 0);
    auto_fd volume = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    claims_init(&claims);
    claims_init(&others);
    assert_int_equal(claim_take(&claims, "v1", &first, &err), 0);
    assert_int_equal(claim_hold(&first, volume, path, &err), 0);
    assert_int_equal(claim_take(&others, "v1", &second, &err), 0);
    assert_int_equal(claim_hold(&second, volume, path, &err), -ERR_PENDING);
    claim_give(&first);
    assert_int_equal(claim_hold(&second, volume, path, &err), 0);
    claim_give(&second);

    assert_int_equal(rename(path, thrown_away), 0); /* who held it threw it away, and another one is at its place */
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(claim_hold(&first, volume, path, &err), -ERR_NOT_FOUND);
    claims_done(&claims);
    claims_done(&others);
}

static void a_name_of_128_bytes_fits_and_a_longer_key_does_not(void **state)
{
    (void)state;
    struct err err;
    struct claim claim = {0};
    char key[CLAIM_KEY_MAX + 1];
    claims_init(&claims);
    memset(key, 'x', sizeof key);
    key[CLAIM_KEY_MAX] = '\0';
    assert_int_equal(claim_take(&claims, key, &claim, &err), -ERR_INVALID);
    key[129] = '\0';
    assert_int_equal(claim_take(&claims, key, &claim, &err), 0);
    claim_give(&claim);
    assert_int_equal(claim_take(&claims, "", &claim, &err), -ERR_INVALID);
    claims_done(&claims);
}

static void claims_have_a_ceiling_and_come_back(void **state)
{
    (void)state;
    struct err err;
    struct claim held[CLAIMS_MAX] = {0}, more = {0};
    claims_init(&claims);
    for (size_t i = 0; i < CLAIMS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "v%zu", i);
        assert_int_equal(claim_take(&claims, key, &held[i], &err), 0);
    }
    assert_int_equal(claim_take(&claims, "one more", &more, &err), -ERR_PENDING);
    claim_give(&held[5]);
    assert_int_equal(claim_take(&claims, "one more", &more, &err), 0);
    claims_done(&claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_call_for_a_volume_is_told_to_come_again),
        cmocka_unit_test_setup_teardown(what_one_driver_holds_fast_the_other_driver_of_a_roll_cannot_have, folder_setup,
                                        folder_teardown),
        cmocka_unit_test(a_name_of_128_bytes_fits_and_a_longer_key_does_not),
        cmocka_unit_test(claims_have_a_ceiling_and_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
