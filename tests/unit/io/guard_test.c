/* SPDX-License-Identifier: Apache-2.0 */
#include "io/guard.h"
#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static bool allows_port(const char *text, const char *address, uint16_t port)
{
    auto_guard g = NULL;
    struct err err;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (guard_parse(str_of(text), &g, &err) < 0)
        fail_msg("%s", err.text);
    if (inet_pton(AF_INET, address, &four.sin_addr) == 1)
        return guard_allows(g, (const struct sockaddr *)&four);
    assert_int_equal(inet_pton(AF_INET6, address, &six.sin6_addr), 1);
    return guard_allows(g, (const struct sockaddr *)&six);
}

static bool allows(const char *text, const char *address)
{
    return allows_port(text, address, 443);
}

static void guard_denies_local_addresses_in_every_form(void **state)
{
    static const char *const closed[] = {"127.0.0.1",
                                         "127.255.0.9",
                                         "0.0.0.0",
                                         "169.254.169.254",
                                         "169.254.170.2",
                                         "224.0.0.1",
                                         "255.255.255.255",
                                         "192.0.0.192",
                                         "100.100.100.200",
                                         "168.63.129.16",
                                         "::",
                                         "::1",
                                         "::2",
                                         "fe80::1",
                                         "febf::1",
                                         "fec0::1",
                                         "feff::1",
                                         "ff02::1",
                                         "fd00:ec2::254",
                                         "fd00:ec2::23",
                                         "fd20:ce::254",
                                         "fd00:c1::a9fe:a9fe",
                                         "fd00:a9fe:a9fe::1",
                                         "fd00:100::100:200",
                                         "fd00:42::42",
                                         "::ffff:127.0.0.1",
                                         "::ffff:169.254.169.254",
                                         "::169.254.169.254",
                                         "64:ff9b::169.254.169.254",
                                         "64:ff9b:1::7f00:1",
                                         "64:ff9b:1:a9fe:a9:fe00::",
                                         "64:ff9b:1:7:a9:fea9:fe00:0",
                                         "64:ff9b:1:7::a00:1",
                                         "::ffff:0:169.254.169.254",
                                         "2002:7f00:1::",
                                         "2002:a9fe:a9fe::1"};
    static const char *const open[] = {"10.0.0.1",         "192.168.1.1",      "172.16.0.1",  "52.216.0.1",
                                       "128.0.0.1",        "126.0.0.1",        "169.253.1.1", "fd00::1",
                                       "2600::1",          "2002:0a00:0001::", "fd00:ec3::1", "64:ff9b::a00:1",
                                       "64:ff9b:1::a00:1", "::ffff:0:a00:1"};
    (void)state;
    for (size_t i = 0; i < countof(closed); i++)
        if (allows("", closed[i]))
            fail_msg("%s is open", closed[i]);
    for (size_t i = 0; i < countof(open); i++)
        if (!allows("", open[i]))
            fail_msg("%s is closed", open[i]);
}

static void guard_denies_and_allows_the_given_ranges(void **state)
{
    static const char lists[] =
        "deny 10.0.0.0/8\nallow 10.1.2.0/24\nallow 127.0.0.1\ndeny fd00::/9\nallow [fd00::7]:9000\n";
    (void)state;
    assert_false(allows(lists, "10.0.0.1"));
    assert_true(allows(lists, "10.1.2.3"));
    assert_true(allows(lists, "127.0.0.1"));
    assert_true(allows(lists, "::ffff:127.0.0.1"));
    assert_false(allows(lists, "127.0.0.2"));
    assert_false(allows(lists, "fd00::7"));
    assert_true(allows_port(lists, "fd00::7", 9000));
    assert_false(allows_port("deny 10.0.0.9:6443\n", "10.0.0.9", 6443));
    assert_true(allows_port("deny 10.0.0.9:6443\n", "10.0.0.9", 9000));
    assert_false(allows("deny 0.0.0.0/0\n", "52.216.0.1"));
    assert_true(allows("deny 0.0.0.0/0\n", "2600::1"));
    assert_true(allows("allow 64:ff9b:1:7::/96\n", "64:ff9b:1:7::a00:1"));
}

static void guard_denies_other_families_than_ip(void **state)
{
    (void)state;
    auto_guard g = NULL;
    struct err err;
    const struct sockaddr a = {.sa_family = AF_UNIX};
    assert_int_equal(guard_parse(STR_NULL, &g, &err), 0);
    assert_false(guard_allows(g, &a));
}

static void guard_refuses_an_invalid_rule(void **state)
{
    static const char *const bad[] = {"deny",
                                      "deny ",
                                      "deny x",
                                      "deny 10.0.0.0/33",
                                      "deny 10.0.0/8",
                                      "permit 10.0.0.1",
                                      "deny fd00::/129",
                                      "deny [fd00::1",
                                      "deny [fd00::1]",
                                      "deny [fd00::1]x443",
                                      "deny 10.0.0.1:0",
                                      "deny 10.0.0.1:70000",
                                      "trust minio",
                                      "trust ftp://x",
                                      "trust https://",
                                      "trust https://a/b",
                                      "trust https://a@b",
                                      "trust https://a b",
                                      "trust https://a\tb",
                                      "trust https://a\x7f",
                                      "trust https://\xc3\xa9",
                                      "deny 010.0.0.1",
                                      "deny 0x7f.0.0.1"};
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        auto_guard g = NULL;
        struct err err;
        if (guard_parse(str_of(bad[i]), &g, &err) != -ERR_INVALID)
            fail_msg("'%s' passed", bad[i]);
    }
}

static void guard_trusts_a_server_by_its_whole_origin(void **state)
{
    (void)state;
    auto_guard g = NULL;
    struct err err;
    static const char lines[] = "trust https://minio.example:443\ntrust http://10.0.0.1:9000\n"
                                "trust http://plain.example:80\ntrust http://odd.example:443\n";
    assert_int_equal(guard_parse(str_of(lines), &g, &err), 0);
    assert_true(guard_trusts(g, STR("https://minio.example")));
    assert_true(guard_trusts(g, STR("https://MinIO.example")));
    assert_true(guard_trusts(g, STR("http://10.0.0.1:9000")));
    assert_true(guard_trusts(g, STR("http://plain.example")));
    assert_true(guard_trusts(g, STR("http://odd.example:443")));
    assert_false(guard_trusts(g, STR("http://odd.example")));
    assert_false(guard_trusts(g, STR("http://minio.example")));
    assert_false(guard_trusts(g, STR("https://minio.example:9000")));
    assert_false(guard_trusts(g, STR("https://minio.example.evil.example")));
    assert_false(guard_trusts(g, STR("https://10.0.0.1:9000")));
}

static void guard_adds_only_valid_lines(void **state)
{
    (void)state;
    struct err err;
    auto_sbuf text;
    sbuf_init(&text, 4096);
    assert_int_equal(guard_add_line(&text, "trust", STR("https://minio.example"), &err), 0);
    assert_int_equal(guard_add_line(&text, "deny", STR("10.0.0.0/8"), &err), 0);
    assert_int_equal(guard_add_line(&text, "trust", STR("10.0.0.1"), &err), -ERR_INVALID);
    assert_int_equal(guard_add_line(&text, "allow", STR("https://minio.example"), &err), -ERR_INVALID);
    assert_string_equal(text.ptr, "trust https://minio.example\ndeny 10.0.0.0/8\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guard_denies_local_addresses_in_every_form),
        cmocka_unit_test(guard_denies_and_allows_the_given_ranges),
        cmocka_unit_test(guard_denies_other_families_than_ip),
        cmocka_unit_test(guard_refuses_an_invalid_rule),
        cmocka_unit_test(guard_adds_only_valid_lines),
        cmocka_unit_test(guard_trusts_a_server_by_its_whole_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
