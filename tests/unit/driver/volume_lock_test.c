/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "volume_lock.h"
#include <stdio.h>
#include <sys/stat.h>

static struct volume_locks locks;

static void second_call_for_a_volume_is_asked_to_retry(void **state)
{
    (void)state;
    struct err err;
    struct volume_lock first = NO_VOLUME_LOCK, second = NO_VOLUME_LOCK, other = NO_VOLUME_LOCK;
    volume_locks_init(&locks);
    assert_int_equal(volume_lock_take(&locks, "v1", &first, &err), 0);
    assert_int_equal(volume_lock_take(&locks, "v1", &second, &err), -ERR_PENDING);
    assert_non_null(strstr(err.text, "'v1'"));
    assert_int_equal(volume_lock_take(&locks, "v2", &other, &err), 0);
    volume_lock_release(&first);
    volume_lock_release(&first);
    assert_int_equal(volume_lock_take(&locks, "v1", &second, &err), 0);
    volume_lock_release(&second);
    volume_lock_release(&other);
    volume_locks_done(&locks);
}

static void volume_locked_by_one_driver_is_busy_for_the_next_driver_of_a_roll(void **state)
{
    (void)state;
    struct err err;
    struct volume_locks others;
    struct volume_lock first = NO_VOLUME_LOCK, second = NO_VOLUME_LOCK;
    char path[64], thrown_away[64];
    snprintf(path, sizeof path, "%s/volume", dir_name);
    snprintf(thrown_away, sizeof thrown_away, "%s/trash", dir_name);
    assert_int_equal(mkdir(path, 0700), 0);
    auto_fd volume = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    volume_locks_init(&locks);
    volume_locks_init(&others);
    assert_int_equal(volume_lock_take(&locks, "v1", &first, &err), 0);
    assert_int_equal(volume_lock_file(&first, volume, path, &err), 0);
    assert_int_equal(volume_lock_take(&others, "v1", &second, &err), 0);
    assert_int_equal(volume_lock_file(&second, volume, path, &err), -ERR_PENDING);
    volume_lock_release(&first);
    assert_int_equal(volume_lock_file(&second, volume, path, &err), 0);
    volume_lock_release(&second);

    assert_int_equal(rename(path, thrown_away), 0); /* who held it threw it away, and another one is at its place */
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(volume_lock_file(&first, volume, path, &err), -ERR_NOT_FOUND);
    volume_locks_done(&locks);
    volume_locks_done(&others);
}

static void a_name_of_128_bytes_fits_and_a_longer_key_does_not(void **state)
{
    (void)state;
    struct err err;
    struct volume_lock lock = NO_VOLUME_LOCK;
    char key[VOLUME_LOCK_KEY_MAX + 1];
    volume_locks_init(&locks);
    memset(key, 'x', sizeof key);
    key[VOLUME_LOCK_KEY_MAX] = '\0';
    assert_int_equal(volume_lock_take(&locks, key, &lock, &err), -ERR_INVALID);
    key[129] = '\0';
    assert_int_equal(volume_lock_take(&locks, key, &lock, &err), 0);
    volume_lock_release(&lock);
    assert_int_equal(volume_lock_take(&locks, "", &lock, &err), -ERR_INVALID);
    volume_locks_done(&locks);
}

static void claims_have_a_ceiling_and_come_back(void **state)
{
    (void)state;
    struct err err;
    struct volume_lock held[VOLUME_LOCKS_MAX], more = NO_VOLUME_LOCK;
    volume_locks_init(&locks);
    for (size_t i = 0; i < VOLUME_LOCKS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "v%zu", i);
        assert_int_equal(volume_lock_take(&locks, key, &held[i], &err), 0);
    }
    assert_int_equal(volume_lock_take(&locks, "one more", &more, &err), -ERR_PENDING);
    volume_lock_release(&held[5]);
    assert_int_equal(volume_lock_take(&locks, "one more", &more, &err), 0);
    volume_locks_done(&locks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_call_for_a_volume_is_asked_to_retry),
        cmocka_unit_test_setup_teardown(volume_locked_by_one_driver_is_busy_for_the_next_driver_of_a_roll, folder_setup,
                                        folder_teardown),
        cmocka_unit_test(a_name_of_128_bytes_fits_and_a_longer_key_does_not),
        cmocka_unit_test(claims_have_a_ceiling_and_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
