/* SPDX-License-Identifier: Apache-2.0 */
/* The kubelet's data for a pod, between NULs: the API server's host and port, its authorities, the namespace, the
 * token. An accepted server is valid. An accepted token is the file's, fits a header, and stays when the file turns
 * bad. */
#include "bearer_token.h"
#include "directory.h"
#include "fuzz.h"
#include "util/clock.h"

static void set(const char *variable, struct str value)
{
    auto_mem char *text = str_dup(value);
    setenv(variable, text, 1);
}

static void check_token(struct bearer_token *t, struct str file)
{
    struct str token, again;
    struct err err = {0};
    if (bearer_token_get(t, 0, &token, &err) < 0) {
        assert(!t->now && err.text[0]);
        return;
    }
    assert(token.len > 0 && str_eq(token, str_trim(file)));
    for (size_t i = 0; i < token.len; i++)
        assert(token.ptr[i] > ' ' && token.ptr[i] <= '~');
    assert(!bearer_token_renewed(t, t->turn, NS_PER_SECOND));
    fuzz_file(fuzz_folder(), "token", STR(" two words\n"));
    int r = bearer_token_get(t, 120 * NS_PER_SECOND, &again, &err);
    assert(r == 0 && str_eq(again, str_trim(file)));
    fuzz_file(fuzz_folder(), "token", STR("another\n"));
    assert(str_eq(again, STR("another")) ||
           (bearer_token_renewed(t, t->turn, 0) && str_eq(str_of(t->now), STR("another"))));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str rest = fuzz_str(bytes, len), fields[4] = {STR_NULL};
    struct err err = {0};
    auto_kube_config c = {0};
    for (size_t i = 0; i < countof(fields); i++)
        str_split(&rest, '\0', &fields[i]);
    set("KUBERNETES_SERVICE_HOST", fields[0]);
    set("KUBERNETES_SERVICE_PORT", fields[1]);
    fuzz_folder();
    set("CISTERN_SERVICE_ACCOUNT_DIR", str_of(fuzz_folder_name));
    fuzz_file(fuzz_folder(), "ca.crt", fields[2]);
    fuzz_file(fuzz_folder(), "namespace", fields[3]);
    fuzz_file(fuzz_folder(), "token", rest);
    if (kube_config_load(NULL, &c, &err) < 0) {
        assert(err.id == 5001 && !c.server);
        return 0;
    }
    assert(strncmp(c.server, "https://", 8) == 0 && !strpbrk(c.server, " \t\r\n?#@"));
    assert(!c.ns || str_eq(str_trim(str_of(c.ns)), str_of(c.ns)));
    struct bearer_token t;
    bearer_token_init(&t, &c);
    check_token(&t, rest);
    bearer_token_done(&t);
    return 0;
}
