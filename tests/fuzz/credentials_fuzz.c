/* SPDX-License-Identifier: Apache-2.0 */
/* Files of credentials, and what identity servers answer: any bytes are an identity, or a refusal in a sentence. The
 * first byte says what they are of, the second whether the server said yes. */
#include "directory.h"
#include "fuzz.h"
#include "ini.h"
#include "private.h"
#include "reply.h"

static void name_it(const char *variable, const char *name)
{
    char path[128];
    fuzz_folder();
    snprintf(path, sizeof path, "%s/%s", fuzz_folder_name, name);
    setenv(variable, path, 1);
}

static void gcp_file(struct str text)
{
    struct err err = {0};
    struct creds *c;
    fuzz_file(fuzz_folder(), "key.json", text);
    name_it("GOOGLE_APPLICATION_CREDENTIALS", "key.json");
    if (creds_open_gcp(&(struct creds_options){0}, &c, &err) < 0)
        assert(err.id == 1701 && str_is_utf8(str_of(err.text)));
    else
        creds_free(c);
    if (creds_open_gcp_grant(&(struct grant){.kind = GRANT_GCP_KEY, .key = text}, &c, &err) == 0)
        creds_free(c);
}

static void aws_files(struct str text)
{
    struct err err = {0};
    struct creds *c;
    struct str value;
    fuzz_file(fuzz_folder(), "credentials", text);
    name_it("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    name_it("AWS_CONFIG_FILE", "credentials");
    free(creds_aws_profile_value("p", "region"));
    if (creds_open_aws(&(struct creds_options){.profile = "p", .region = "us-east-1"}, &c, &err) == 0)
        creds_free(c);
    else
        assert(err.id == 1701);
    if (ini_value(text, STR("profile p"), STR("region"), &value))
        assert(value.len == 0 || (value.ptr >= text.ptr && value.ptr + value.len <= text.ptr + text.len));
}

static int broker(int status, struct str body, struct creds_identity **ret, struct err *err)
{
    return reply_broker(status, body, CREDS_AWS, ret, err);
}

static int broker_of_google(int status, struct str body, struct creds_identity **ret, struct err *err)
{
    return reply_broker(status, body, CREDS_GOOGLE, ret, err);
}

/* An accepted identity is complete: a key with its secret, a bearer token, or explicitly anonymous. */
static void answer(int (*read)(int status, struct str body, struct creds_identity **ret, struct err *err), int status,
                   struct str body)
{
    struct err err = {0};
    auto_creds_identity i = NULL;
    if (read(status, body, &i, &err) < 0) {
        assert(!i && err.code != 0 && err.text[0]);
        return;
    }
    assert(status == 200 && i);
    assert(i->anonymous || i->bearer || (i->access_key_id[0] && i->secret[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int (*const reads[])(int status, struct str body, struct creds_identity **ret, struct err *err) = {
        reply_token, reply_impersonated, reply_keys, reply_role, broker, broker_of_google};
    if (len < 2)
        return 0;
    struct str text = fuzz_str(bytes + 2, len - 2);
    size_t which = bytes[0] % (countof(reads) + 2);
    if (which == countof(reads))
        gcp_file(text);
    else if (which > countof(reads))
        aws_files(text);
    else
        answer(reads[which], bytes[1] % 2 ? 403 : 200, text);
    return 0;
}
