/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/log.h"
#include <fcntl.h>
#include <pthread.h>

static char line[20000];

/* The line of one call, without the time at its start. */
static const char *after_time(int fd)
{
    ssize_t n = read(fd, line, sizeof line - 1);
    assert_true(n > 0);
    line[n] = '\0';
    const char *level = strstr(line, "level");
    assert_non_null(level);
    return level;
}

static void a_line_is_pairs_of_key_and_value(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    log_setup(fds[1], LOG_INFO, LOG_TEXT);
    log_event(LOG_INFO, "volume created", "volume", "v1-a", "bytes", log_u64(42), "empty", "", "none", NULL, NULL);
    assert_string_equal(after_time(fds[0]),
                        "level=info thread=main event=\"volume created\" volume=v1-a bytes=42 empty=\"\"\n");
}

static void *log_once(void *ctx)
{
    (void)ctx;
    pthread_setname_np(pthread_self(), "loop/7");
    log_event(LOG_INFO, "quota exceeded", NULL);
    return NULL;
}

static void line_of_a_second_thread_has_its_name(void **state)
{
    (void)state;
    int fds[2];
    pthread_t thread;
    assert_int_equal(pipe(fds), 0);
    log_setup(fds[1], LOG_INFO, LOG_TEXT);
    assert_int_equal(pthread_create(&thread, NULL, log_once, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(after_time(fds[0]), "level=info thread=loop/7 event=\"quota exceeded\"\n");
}

static void json_survives_any_bytes(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    log_setup(fds[1], LOG_INFO, LOG_JSON);
    struct err err;
    err_set(&err, ERR_IO, "bad \"%s\"", "key");
    err_advise_text(&err, 1500, "%s", "try again");
    log_err(LOG_ERROR, "it failed", &err, "key", "a\tb\xff", NULL);
    assert_string_equal(after_time(fds[0]),
                        "level\":\"error\",\"thread\":\"main\",\"event\":\"it failed\",\"error\":\"bad \\\"key\\\"\","
                        "\"code\":\"IO\",\"id\":\"CIS1500\",\"advice\":\"try again\",\"key\":\"a\\u0009b\\ufffd\"}\n");
}

static void event_below_the_level_is_not_written(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    log_setup(fds[1], LOG_WARN, LOG_TEXT);
    log_event(LOG_INFO, "quiet", NULL);
    assert_int_equal(read(fds[0], line, sizeof line), -1);
}

static void a_huge_value_is_cut(void **state)
{
    (void)state;
    int fds[2];
    static char huge[40000];
    memset(huge, 'x', sizeof huge - 1);
    assert_int_equal(pipe(fds), 0);
    log_setup(fds[1], LOG_INFO, LOG_TEXT);
    log_event(LOG_INFO, "big", "value", huge, NULL);
    assert_true(strlen(after_time(fds[0])) < 1200);
}

static void a_value_is_cut_between_two_characters(void **state)
{
    (void)state;
    int fds[2];
    char euros[3 * 400 + 1];
    for (size_t i = 0; i < 400; i++)
        memcpy(euros + 3 * i, "\xe2\x82\xac", 4);
    assert_int_equal(pipe(fds), 0);
    log_setup(fds[1], LOG_INFO, LOG_JSON);
    log_event(LOG_INFO, "paid", "value", euros, NULL);
    const char *written = after_time(fds[0]);
    assert_true(strlen(written) < 1200);
    assert_true(str_is_utf8(str_of(written)));
}

static void line_that_is_too_long_is_replaced(void **state)
{
    (void)state;
    int fds[2];
    static char noise[2000];
    memset(noise, '\x01', sizeof noise - 1);
    assert_int_equal(pipe(fds), 0);
    log_setup(fds[1], LOG_INFO, LOG_JSON);
    log_event(LOG_INFO, "noise", "a", noise, "b", noise, "c", noise, NULL);
    assert_string_equal(after_time(fds[0]),
                        "level\":\"error\",\"thread\":\"main\",\"event\":\"a log line was too long\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_pairs_of_key_and_value),
        cmocka_unit_test(line_of_a_second_thread_has_its_name),
        cmocka_unit_test(json_survives_any_bytes),
        cmocka_unit_test(event_below_the_level_is_not_written),
        cmocka_unit_test(a_huge_value_is_cut),
        cmocka_unit_test(a_value_is_cut_between_two_characters),
        cmocka_unit_test(line_that_is_too_long_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
