/* SPDX-License-Identifier: Apache-2.0 */
/* token.h - the bearer token of our requests, which the kubelet replaces on disk before it expires.
 * home: the client's loop. Reading blocks: the file is small and in memory. */
#pragma once

#include "kube/config.h"

struct token {
    char *file;    /* owned; NULL: what is in `now` never changes */
    char *now;     /* owned, secret; NULL: none */
    unsigned turn; /* counts the values it had */
    uint64_t read_ns;
};

void token_init(struct token *t, const struct kube_config *c);
void token_done(struct token *t);

/* Reads the file again if a minute went by since. One that cannot be read, or holds no token, leaves the old value, if
 * there is one. */
must_check int token_get(struct token *t, uint64_t now_ns, struct str *ret, struct err *err);

/* The server refused the value of turn `turn`. True if another is there by now. */
bool token_renewed(struct token *t, unsigned turn, uint64_t now_ns);
