/* SPDX-License-Identifier: Apache-2.0 */
#include "bearer_token.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/file.h"
#include "util/json.h"
#include <fcntl.h>

enum { TOKEN_MAX = 64 << 10, CLAIMS_MAX = 64 << 10 };

/* The kubelet writes a new token when a fifth of the old one's life is left, at least two minutes. */
#define REREAD_NS (60 * NS_PER_SECOND)

void bearer_token_init(struct bearer_token *t, const struct kube_config *c)
{
    *t = (struct bearer_token){0};
    t->file = c->token_file ? str_dup(str_of(c->token_file)) : NULL;
    t->now = !t->file && c->token ? str_dup(str_of(c->token)) : NULL;
}

void bearer_token_done(struct bearer_token *t)
{
    free(take(&t->file));
    secret_free(take(&t->now));
}

static int reread(struct bearer_token *t, struct err *err)
{
    auto_secret text = NULL;
    size_t len;
    int r = file_read(AT_FDCWD, t->file, TOKEN_MAX, &text, &len, err);
    if (r < 0)
        return err_wrap(err, "the token");
    struct str trimmed = str_trim((struct str){text, len});
    /* RFC 6750: no space, no control character. Rejects half-written and wrong files. */
    if (trimmed.len == 0 || !str_is_visible(trimmed, ""))
        return err_set(err, ERR_INVALID, "token file '%s': no token", t->file);
    if (t->now && str_eq(trimmed, str_of(t->now)))
        return 0;
    secret_free(take(&t->now));
    t->now = str_dup(trimmed);
    t->turn++;
    return 0;
}

int bearer_token_get(struct bearer_token *t, uint64_t now_ns, struct str *ret, struct err *err)
{
    if (t->file && (!t->now || now_ns - t->read_ns >= REREAD_NS)) {
        struct err why;
        t->read_ns = now_ns;
        if (reread(t, &why) < 0 && !t->now)
            return err_copy(err, &why);
    }
    *ret = str_of(t->now);
    return 0;
}

bool bearer_token_renewed(struct bearer_token *t, unsigned turn, uint64_t now_ns)
{
    if (t->file && t->turn == turn) {
        t->read_ns = now_ns;
        if (reread(t, ERR_IGNORED) < 0)
            return false;
    }
    return t->turn != turn;
}

/* The claim "iss" of a JSON Web Token (RFC 7519). */
static char *issuer_in(struct str token)
{
    struct str head, claims;
    auto_sbuf text = SBUF(CLAIMS_MAX);
    auto_json parsed = NULL;
    if (!str_split(&token, '.', &head) || !str_split(&token, '.', &claims) || !base64_parse(claims, &text) ||
        json_parse(sbuf_str(&text), "a token", &parsed, ERR_IGNORED) < 0)
        return NULL;
    struct str issuer = json_member_str(parsed, "iss");
    return issuer.len ? str_dup(issuer) : NULL;
}

char *kube_config_issuer(const struct kube_config *c)
{
    struct bearer_token token;
    struct str text = STR_NULL;
    bearer_token_init(&token, c);
    char *issuer = bearer_token_get(&token, 0, &text, ERR_IGNORED) == 0 ? issuer_in(text) : NULL;
    bearer_token_done(&token);
    return issuer;
}
