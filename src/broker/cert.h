/* SPDX-License-Identifier: Apache-2.0 */
/* cert.h - rotates the broker's CA and certificate. Pure. home: the broker's thread.
 *
 * A CA is published before it signs, and until it expires. So clients with an old bundle, and replicas with an old
 * certificate, can still connect. */
#pragma once

#include "util/x509.h"

/* Seconds. */
struct cert_times {
    int64_t authority;          /* validity; 0: a year */
    int64_t authority_before;   /* the next CA is made this long before the end of the present one; 0: 60 days */
    int64_t published;          /* minimum time between publication and first use; 0: an hour */
    int64_t certificate;        /* validity; 0: 30 days */
    int64_t certificate_before; /* the certificate is renewed this long before its end; 0: 20 days */
};

/* Content of the Secret. */
struct cert_set {
    struct x509_pair authority; /* signs */
    struct x509_pair next;      /* published, but does not sign yet; empty except in a rotation */
    struct x509_pair server;
    char *bundle; /* owned: every CA that clients trust, the present one first */
};
void cert_set_done(struct cert_set *s); /* wipes the keys; may run twice */

enum { CERT_NAMES_MAX = 4, CERT_BUNDLE_MAX = 32 << 10 };

struct cert_now {
    int64_t wall_s;
    const char *names[CERT_NAMES_MAX]; /* names of the server, up to the first NULL */
    struct str published;              /* the bundle as clients see it now; empty: none */
    struct cert_times times;
};

/* Renews the set if needed; `s` may be empty or damaged. If *ret_changed, store the set, then publish s->bundle
 * before the next step. */
must_check int cert_step(struct cert_set *s, const struct cert_now *now, bool *ret_changed, struct err *err);
