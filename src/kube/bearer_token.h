/* SPDX-License-Identifier: Apache-2.0 */
/* bearer_token.h - the bearer token of requests, which the kubelet replaces on disk before it expires.
 * home: the client's loop. Reading blocks: the file is small and in memory. */
#pragma once

#include "kube/config.h"

struct bearer_token {
    char *file;    /* owned; NULL: `now` never changes */
    char *now;     /* owned, secret; NULL: none */
    unsigned turn; /* counts the values it had */
    uint64_t read_ns;
};

void bearer_token_init(struct bearer_token *t, const struct kube_config *c);
void bearer_token_done(struct bearer_token *t);

/* Reads the file again once a minute. If that fails, the old value is kept, if there is one. */
must_check int bearer_token_get(struct bearer_token *t, uint64_t now_ns, struct str *ret, struct err *err);

/* The server rejected the value of turn `turn`. True if there is a new one. */
bool bearer_token_renewed(struct bearer_token *t, unsigned turn, uint64_t now_ns);
