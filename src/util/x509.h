/* SPDX-License-Identifier: Apache-2.0 */
/* x509.h - an authority, and the certificates that it signs for our own servers: P-256, SHA-256, PEM text.
 * home: any. Times are seconds since 1970. Keys are secret, and wiped when they go. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct x509_pair {
    char *certificate; /* owned PEM; NULL: none */
    char *key;         /* owned PEM, secret */
};
void x509_pair_done(struct x509_pair *p); /* may run twice */

struct x509_life {
    int64_t from_s, until_s;
};

/* An authority of this common name, which signs servers and no further authority. */
must_check int x509_make_authority(const char *name, struct x509_life life, struct x509_pair *ret, struct err *err);

/* A server's certificate for these names (DNS), the first of which is its common name too. */
must_check int x509_make_server(const struct x509_pair *authority, const char *const *names, size_t count,
                                struct x509_life life, struct x509_pair *ret, struct err *err);

/* The life of the first certificate in `pem`; what cannot be read is ERR_INVALID. */
must_check int x509_life_of(struct str pem, struct x509_life *ret, struct err *err);

bool x509_is_signed_by(const char *certificate, const char *authority);
bool x509_is_pair(const struct x509_pair *p); /* the key is the certificate's */
bool x509_is_for(const char *certificate, const char *name);

/* Is `pem` a list of certificates to trust: one at least, each readable, and no private key among them? What stands
 * between them is let be, as the tools of TLS do. ERR_INVALID says what is wrong. */
must_check int x509_check_bundle(struct str pem, struct err *err);

/* The next certificate of a bundle, from its BEGIN to its END line with the newline, if one is there; false when there
 * is none. */
bool x509_split(struct str *rest, struct str *ret_one);
