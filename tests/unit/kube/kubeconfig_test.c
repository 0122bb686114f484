/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "kube/config.h"
#include "yaml_tree.h"
#include <stdio.h>

#define HEAD                                                                                                           \
    "apiVersion: v1\nkind: Config\ncurrent-context: b\ncontexts:\n- {name: a, context: {cluster: none, user: none}}\n" \
    "- name: b\n  context: {cluster: c, user: u, namespace: training}\n"

static int parse(const char *text, struct kube_config *ret, struct err *err)
{
    return kubeconfig_parse(str_of(text), "/etc/kube", ret, err);
}

static void current_context_has_server_user_and_namespace(void **state)
{
    (void)state;
    struct err err;
    auto_kube_config c = {0};
    assert_int_equal(parse(HEAD "clusters:\n- name: c\n  cluster:\n    server: https://10.0.0.1:6443/\n"
                                "    certificate-authority-data: Q0E=\nusers:\n- name: u\n  user:\n"
                                "    client-certificate-data: Q0VSVA==\n    client-key-data: S0VZ\n",
                           &c, &err),
                     0);
    assert_string_equal(c.server, "https://10.0.0.1:6443");
    assert_string_equal(c.ns, "training");
    assert_string_equal(c.ca, "CA");
    assert_string_equal(c.certificate, "CERT");
    assert_string_equal(c.key, "KEY");
    assert_null(c.token);
    assert_false(c.skips_tls_checks);
}

static void token_of_digits_stays_text_and_paths_start_at_the_kubeconfig(void **state)
{
    (void)state;
    struct err err;
    auto_kube_config c = {0};
    auto_kube_config d = {0};
    assert_int_equal(parse(HEAD "clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
                                "users: [{name: u, user: {token: 0123}}]",
                           &c, &err),
                     0);
    assert_string_equal(c.token, "0123");
    assert_int_equal(parse(HEAD
                           "clusters: [{name: c, cluster: {server: 'https://h', insecure-skip-tls-verify: true}}]\n"
                           "users: [{name: u, user: {tokenFile: here/token}}]",
                           &d, &err),
                     0);
    assert_string_equal(d.token_file, "/etc/kube/here/token");
    assert_true(d.skips_tls_checks);
}

static void certificates_are_read_from_the_named_files(void **state)
{
    (void)state;
    struct err err;
    char text[600];
    auto_kube_config c = {0};
    assert_int_equal(file_replace(dir, "ca.crt", STR("AUTHORITY"), 0600, &err), 0);
    snprintf(text, sizeof text,
             HEAD "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca.crt}}]\n"
                  "users: [{name: u, user: {}}]");
    assert_int_equal(kubeconfig_parse(str_of(text), dir_name, &c, &err), 0);
    assert_string_equal(c.ca, "AUTHORITY");
    assert_int_equal(unlinkat(dir, "ca.crt", 0), 0);
    auto_kube_config d = {0};
    assert_int_equal(kubeconfig_parse(str_of(text), dir_name, &d, &err), -ERR_NOT_FOUND);
}

static void unsupported_setting_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *cluster, *user;
        enum err_code code;
        const char *says;
    } cases[] = {
        {"server: 'https://h', proxy-url: 'http://p'", "token: t", ERR_UNSUPPORTED, "proxy-url"},
        {"server: 'https://h', tls-server-name: n", "token: t", ERR_UNSUPPORTED, "tls-server-name"},
        {"server: 'https://h'", "exec: {command: aws}", ERR_UNSUPPORTED, "exec"},
        {"server: 'https://h'", "username: u, password: p", ERR_UNSUPPORTED, "username"},
        {"server: 'https://h'", "as: root", ERR_UNSUPPORTED, "as"},
        {"server: 'https://h'", "client-key-data: S0VZ", ERR_INVALID, "without"},
        {"server: 'https://h'", "client-key-data: '%%%', client-certificate-data: Q0E=", ERR_INVALID, "not base64"},
        {"server: 'https://h', insecure-skip-tls-verify: maybe", "token: t", ERR_INVALID, "insecure-skip-tls-verify"},
        {"server: 'http://10.0.0.1'", "token: t", ERR_UNSUPPORTED, "not https"},
        {"server: 'http://127.0.0.1.evil.example'", "token: t", ERR_UNSUPPORTED, "not https"},
        {"server: 'http://localhost@evil.example'", "token: t", ERR_UNSUPPORTED, "not https"},
        {"server: 'https://h/?x=1'", "token: t", ERR_INVALID, "not the address"},
        {"server: 'https://u@h'", "token: t", ERR_INVALID, "not the address"},
        {"server: 'ftp://h'", "token: t", ERR_INVALID, "not the address"},
        {"server: 'https://'", "token: t", ERR_INVALID, "not the address"},
        {"server: {}", "token: t", ERR_INVALID, "server"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        char text[900];
        struct err err;
        struct kube_config c = {0};
        snprintf(text, sizeof text, HEAD "clusters: [{name: c, cluster: {%s}}]\nusers: [{name: u, user: {%s}}]\n",
                 cases[i].cluster, cases[i].user);
        assert_int_equal(parse(text, &c, &err), -(int)cases[i].code);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu: '%s' has not '%s'", i, err.text, cases[i].says);
        assert_null(c.server);
    }
}

static void missing_entry_is_named(void **state)
{
    (void)state;
    struct err err;
    struct kube_config c = {0};
    assert_int_equal(parse("current-context: x\n", &c, &err), -ERR_INVALID);
    assert_string_equal(err.text, "the kubeconfig has no 'x' in its contexts");
    assert_int_equal(parse(HEAD, &c, &err), -ERR_INVALID);
    assert_string_equal(err.text, "the kubeconfig has no 'c' in its clusters");
}

static void an_error_holds_no_secret(void **state)
{
    (void)state;
    struct err err;
    struct kube_config c = {0};
    assert_int_equal(parse(HEAD
                           "clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
                           "users: [{name: u, user: {client-key-data: 'hunter2!', client-certificate-data: Q0E=}}]",
                           &c, &err),
                     -ERR_INVALID);
    assert_null(strstr(err.text, "hunter2"));
}

static void assert_yaml(const char *yaml, const char *wanted)
{
    struct err err;
    json *j;
    if (yaml_parse(str_of(yaml), "it", &j, &err) < 0)
        fail_msg("'%s': %s", yaml, err.text);
    auto_mem char *text = json_text(j, 0);
    json_free(j);
    assert_string_equal(text, wanted);
}

static void yaml_becomes_json(void **state)
{
    (void)state;
    assert_yaml("a: 1\nb: [x, 'true', true, ~, false, null]\nc: {d: \"e\\n\"}\n",
                "{\"a\":\"1\",\"b\":[\"x\",\"true\",true,false],\"c\":{\"d\":\"e\\n\"}}");
    assert_yaml("{\"json\": [\"is\", \"yaml\"]}", "{\"json\":[\"is\",\"yaml\"]}");
    assert_yaml("--- # a comment\na.b: |\n  two\n  lines\n...\n", "{\"a.b\":\"two\\nlines\\n\"}");
    assert_yaml("[]", "[]");
}

static void yaml_with_aliases_duplicates_or_documents_is_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "",           "a: b: c",       "a: 1\na: 2", "a: &x 1\nb: *x", "--- 1\n--- 2\n",
        "? [a]\n: 1", "\xff\xfe\x00z", "a: \"\\",    "{a: [}",         "# nothing"};
    auto_sbuf deep;
    struct err err;
    json *j = NULL;
    for (size_t i = 0; i < countof(refused); i++)
        if (yaml_parse(str_of(refused[i]), "it", &j, &err) != -ERR_INVALID)
            fail_msg("'%s' was taken", refused[i]);
    sbuf_init(&deep, 4096);
    for (int i = 0; i < 100; i++)
        sbuf_addc(&deep, '[');
    assert_int_equal(yaml_parse(sbuf_str(&deep), "it", &j, &err), -ERR_INVALID);
    assert_null(j);
}

static void the_issuer_is_that_of_its_token(void **state)
{
    (void)state;
    char token[] = "head.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYSJ9.signature";
    static const char *const others[] = {"opaque", "a.b.c", "head.eyJzdWIiOiJhIn0.signature", "head..x", ""};
    struct kube_config c = {.token = token};
    auto_mem char *issuer = kube_config_issuer(&c);
    assert_string_equal(issuer, "https://issuer.example");
    assert_null(kube_config_issuer(&(struct kube_config){0}));
    for (size_t i = 0; i < countof(others); i++) {
        auto_mem char *text = str_dup(str_of(others[i]));
        assert_null(kube_config_issuer(&(struct kube_config){.token = text}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(current_context_has_server_user_and_namespace),
        cmocka_unit_test(token_of_digits_stays_text_and_paths_start_at_the_kubeconfig),
        cmocka_unit_test_setup_teardown(certificates_are_read_from_the_named_files, folder_setup, folder_teardown),
        cmocka_unit_test(unsupported_setting_is_refused),
        cmocka_unit_test(missing_entry_is_named),
        cmocka_unit_test(an_error_holds_no_secret),
        cmocka_unit_test(the_issuer_is_that_of_its_token),
        cmocka_unit_test(yaml_becomes_json),
        cmocka_unit_test(yaml_with_aliases_duplicates_or_documents_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
