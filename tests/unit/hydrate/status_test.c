/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "hydrate/status.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>

static void written_status_is_read_back(void **state)
{
    (void)state;
    struct err err;
    static struct hydrate_status s, got;
    s = (struct hydrate_status){.phase = HYDRATE_FAILED,
                                .source = "s3://b/p/",
                                .objects_total = 5,
                                .objects_done = 3,
                                .objects_failed = 1,
                                .objects_missing = 2,
                                .objects_kept = 3,
                                .listing = {.known = true, .objects_excluded = 9, .largest_bytes = 70, .seconds = 3},
                                .bytes_total = UINT64_C(1) << 50,
                                .bytes_done = 7,
                                .eta_seconds = UINT64_MAX,
                                .attempt = 2,
                                .manifest = "sha256:00",
                                .pid = 77,
                                .started_ns = 1700000000123000000,
                                .has_error = true,
                                .error_count = 1};
    s.error = (struct hydrate_fault){.code = ERR_NO_SPACE, .id = 1410, .message = "no space"};
    s.errors[0] = (struct hydrate_fault){
        .object = "a/b", .id = CIS_CHECKSUM_MISMATCH, .code = ERR_CORRUPT, .message = "wrong", .attempts = 4};
    assert_int_equal(hydrate_status_write(dir, &s, &err), 0);
    assert_int_equal(hydrate_status_read(dir, &got, &err), 0);
    assert_int_equal(got.phase, HYDRATE_FAILED);
    assert_string_equal(got.source, "s3://b/p/");
    assert_true(got.bytes_total == UINT64_C(1) << 50);
    assert_true(got.eta_seconds == UINT64_MAX);
    assert_int_equal(got.attempt, 2);
    assert_string_equal(got.manifest, "sha256:00");
    assert_int_equal(got.pid, 77);
    assert_true(got.started_ns == s.started_ns);
    assert_true(got.has_error);
    assert_int_equal(got.error.code, ERR_NO_SPACE);
    assert_int_equal(got.error.id, 1410);
    assert_int_equal(got.error_count, 1);
    assert_string_equal(got.errors[0].object, "a/b");
    assert_int_equal(got.errors[0].code, ERR_CORRUPT);
    assert_int_equal(got.errors[0].id, CIS_CHECKSUM_MISMATCH);
    assert_int_equal(got.errors[0].attempts, 4);
    assert_int_equal(got.objects_missing, 2);
    assert_int_equal(got.objects_kept, 3);
    assert_memory_equal(&got.listing, &s.listing, sizeof s.listing);
    s.listing.known = false;
    assert_int_equal(hydrate_status_write(dir, &s, &err), 0);
    assert_int_equal(hydrate_status_read(dir, &got, &err), 0);
    assert_false(got.listing.known);
}

static void none_is_not_found_and_garbage_is_corrupt_by_name(void **state)
{
    (void)state;
    struct err err;
    static struct hydrate_status got;
    assert_int_equal(hydrate_status_read(dir, &got, &err), -ERR_NOT_FOUND);
    static const char *const garbage[] = {"", "{", "[]", "{\"phase\":\"dancing\"}",
                                          "{\"phase\":\"done\",\"pid\":\"x\"}"};
    for (size_t i = 0; i < countof(garbage); i++) {
        assert_int_equal(file_replace(dir, HYDRATE_STATUS_FILE, str_of(garbage[i]), 0644, &err), 0);
        assert_int_equal(hydrate_status_read(dir, &got, &err), -ERR_CORRUPT);
        assert_non_null(strstr(err.text, "status.json"));
    }
}

static void held_lock_means_alive(void **state)
{
    (void)state;
    assert_false(hydrate_is_alive(dir));
    int fd = openat(dir, HYDRATE_LOCK_FILE, O_RDWR | O_CREAT, 0600);
    assert_false(hydrate_is_alive(dir));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    assert_true(hydrate_is_alive(dir));
    close(fd);
    assert_false(hydrate_is_alive(dir));
}

static void phase_without_a_process_is_interrupted(void **state)
{
    (void)state;
    assert_string_equal(hydrate_phase_label(HYDRATE_STARTING, true), "Listing");
    assert_string_equal(hydrate_phase_label(HYDRATE_FETCHING, true), "Hydrating");
    assert_string_equal(hydrate_phase_label(HYDRATE_VERIFYING, true), "Verifying");
    for (enum hydrate_phase p = HYDRATE_STARTING; p < HYDRATE_DONE; p++)
        assert_string_equal(hydrate_phase_label(p, false), "Interrupted");
    assert_string_equal(hydrate_phase_label(HYDRATE_DONE, false), "Ready");
    assert_string_equal(hydrate_phase_label(HYDRATE_FAILED, false), "Failed");
    assert_string_equal(hydrate_phase_label(HYDRATE_STOPPED, true), "Interrupted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phase_without_a_process_is_interrupted),
        cmocka_unit_test_setup_teardown(written_status_is_read_back, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(none_is_not_found_and_garbage_is_corrupt_by_name, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(held_lock_means_alive, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
