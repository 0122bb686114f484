/* SPDX-License-Identifier: Apache-2.0 */
/* x509.h - creates an authority and certificates of servers that it signs: P-256, SHA-256, PEM text.
 * home: any. Times are seconds since 1970. Keys are secret, and wiped before they are freed. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct x509_pair {
    char *certificate; /* owned PEM; NULL: none */
    char *key;         /* owned PEM, secret */
};
void x509_pair_done(struct x509_pair *p); /* may run twice */

struct x509_validity {
    int64_t from_s, until_s;
};

/* An authority of this common name, which signs servers and no further authority. */
must_check int x509_make_authority(const char *name, struct x509_validity life, struct x509_pair *ret, struct err *err);

/* A server's certificate for these names (DNS), the first of which is its common name too. */
must_check int x509_make_server(const struct x509_pair *authority, const char *const *names, size_t count,
                                struct x509_validity life, struct x509_pair *ret, struct err *err);

/* The validity of the first certificate in `pem`; false if it is unreadable. */
must_check bool x509_validity_of(struct str pem, struct x509_validity *ret);

bool x509_is_signed_by(const char *certificate, const char *authority);
bool x509_is_pair(const struct x509_pair *p); /* the key is the certificate's */
bool x509_is_for(const char *certificate, const char *name);

/* Is `pem` a list of certificates to trust: at least one, all readable, without a private key? Text between them is
 * ignored, as TLS tools do. ERR_INVALID names the defect. */
must_check int x509_check_bundle(struct str pem, struct err *err);

/* The next certificate of a bundle, from its BEGIN to its END line, with its newline if any; false at the end. */
bool x509_split(struct str *rest, struct str *ret_one);
