/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - the ways in which a volume's source or export may come to a credential, in their order. Pure.
 * home: whoever owns it; everything in it borrows from volume, spec and rules. */
#pragma once

#include "api/volume.h"
#include "broker/broker.h"
#include "volume/spec.h"

enum route_kind { ROUTE_ANONYMOUS, ROUTE_SECRET, ROUTE_ACCOUNT, ROUTE_DRIVER };

struct route {
    enum route_kind kind;
    enum spec_identity method; /* ROUTE_ACCOUNT: as the source names it, AUTO included */
    const char *scheme;        /* static: "s3", "gs" */
    const char *ns;            /* of the account or secret */
    const char *name;          /* likewise */
    const char *audience;      /* NULL: the method's own */
    const char *provider;      /* NULL: none */
    const char *region;        /* NULL: none */
};

enum { ROUTES_MAX = 2 };

struct route_rules {
    const char *own_ns; /* of exportSecret */
    bool allow_driver;
    const struct broker_binding *bindings;
    size_t binding_count;
    const struct guard *guard; /* whose servers are trusted; NULL: the providers' only */
};

/* An export that lost its account goes on with exportSecret: if a file of this volume has reached the bucket under its
 * own identity before, and its destination is below a prefix that the administrator bound to that Secret. `scheme` as
 * in struct ask. *ret_count is at least 1. ERR_INVALID or ERR_DENIED (CIS1908) where no way leads anywhere, ERR_DENIED
 * (CIS1912) where the credential would go to a server that it is not for. */
must_check int route_find(const struct api_volume *v, const struct spec *s, bool is_export, const char *scheme,
                          const struct route_rules *rules, struct route ret[ROUTES_MAX], size_t *ret_count,
                          struct err *err);

/* Names the credential that this way leads to, for keeping it. ERR_NO_SPACE never comes of what the API server took. */
enum { ROUTE_KEY_MAX = 2048 };
must_check int route_key(const struct route *r, struct sbuf *ret, struct err *err);
