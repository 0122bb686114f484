/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the issuer of this process's own token: the claim "iss" of a JSON Web Token (RFC 7519). */
#include "bearer_token.h"
#include "util/base64.h"
#include "util/json.h"

enum { CLAIMS_MAX = 64 << 10 };

static char *issuer_in(struct str token)
{
    struct str head, claims;
    auto_sbuf text = SBUF(CLAIMS_MAX);
    auto_json parsed = NULL;
    struct err ignored;
    if (!str_split(&token, '.', &head) || !str_split(&token, '.', &claims) ||
        base64_parse(claims, &text, &ignored) < 0 || json_parse(sbuf_str(&text), "a token", &parsed, &ignored) < 0)
        return NULL;
    struct str issuer = json_member_str(parsed, "iss");
    return issuer.len ? str_dup(issuer) : NULL;
}

char *kube_config_issuer(const struct kube_config *c)
{
    struct bearer_token token;
    struct str text = STR_NULL;
    struct err ignored;
    bearer_token_init(&token, c);
    char *issuer = bearer_token_get(&token, 0, &text, &ignored) == 0 ? issuer_in(text) : NULL;
    bearer_token_done(&token);
    return issuer;
}
