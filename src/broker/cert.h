/* SPDX-License-Identifier: Apache-2.0 */
/* cert.h - the broker's authority and certificate, and when each is followed by the next. Pure.
 * home: the broker's thread.
 *
 * An authority is published before anything is signed by it, and stays published until it expires, so that whoever
 * reads the bundle late, and whoever serves the last certificate of the old one, still meet. */
#pragma once

#include "util/x509.h"

/* Seconds. */
struct cert_times {
    int64_t authority;          /* its life; 0: a year */
    int64_t authority_before;   /* its end, when the next one is made; 0: 60 days */
    int64_t published;          /* so long before it signs, at least; 0: an hour */
    int64_t certificate;        /* its life; 0: 30 days */
    int64_t certificate_before; /* its end, when it is made anew; 0: 20 days */
};

/* What the Secret holds. */
struct cert_set {
    struct x509_pair authority; /* signs */
    struct x509_pair next;      /* is published, and signs nothing yet; empty but in a rotation */
    struct x509_pair server;
    char *bundle; /* owned: every authority that a client should trust, this one first */
};
void cert_set_done(struct cert_set *s); /* wipes the keys; may run twice */

enum { CERT_NAMES_MAX = 4, CERT_BUNDLE_MAX = 32 << 10 };

struct cert_now {
    int64_t wall_s;
    const char *names[CERT_NAMES_MAX]; /* of the server, up to the first NULL */
    struct str published;              /* the bundle as clients see it now; empty: none */
    struct cert_times times;
};

/* Brings the set to where it should be now; from an empty one too, or one that holds garbage. *ret_changed: it has to
 * be stored. What is stored must be published (s->bundle) before the next step may count on it. */
must_check int cert_step(struct cert_set *s, const struct cert_now *now, bool *ret_changed, struct err *err);
