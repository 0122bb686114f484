/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - finds the routes to a credential for a volume's source or export, in order of preference. Pure.
 * home: the owner; all pointers borrow from volume, spec and rules. */
#pragma once

#include "api/volume.h"
#include "broker/broker.h"
#include "creds/creds.h"
#include "spec/spec.h"

enum route_kind { ROUTE_ANONYMOUS, ROUTE_SECRET, ROUTE_ACCOUNT, ROUTE_DRIVER };

struct route {
    enum route_kind kind;
    enum spec_identity method; /* ROUTE_ACCOUNT: of the source, may be AUTO */
    enum creds_kind creds;
    const char *ns;       /* of the account or secret */
    const char *name;     /* likewise */
    const char *audience; /* NULL: the method's own */
    const char *provider; /* NULL: none */
    const char *region;   /* NULL: none */
};

enum { ROUTES_MAX = 2 };

struct route_rules {
    const char *own_ns; /* of exportSecret */
    bool allow_driver;
    const struct broker_binding *bindings;
    size_t binding_count;
    const struct guard *guard; /* trusted endpoints; NULL: the providers' only */
};

/* The second route of an export is exportSecret. It needs an earlier upload of this volume under its own identity, and
 * a destination below a prefix that the administrator bound to the Secret. `asked`: CREDS_NONE is the first kind.
 * *ret_count is at least 1. ERR_INVALID or ERR_DENIED (CIS_IDENTITY_UNSUPPORTED): no method applies. ERR_DENIED
 * (CIS_CREDENTIAL_NOT_FOR_ENDPOINT): the credential must not go to that server. */
must_check int route_find(const struct api_volume *v, const struct spec *s, bool is_export, enum creds_kind asked,
                          const struct route_rules *rules, struct route ret[ROUTES_MAX], size_t *ret_count,
                          struct err *err);

/* The key of the route's credential in the cache. ERR_NO_SPACE cannot happen for objects of the API server. */
enum { ROUTE_KEY_MAX = 2048 };
must_check int route_key(const struct route *r, struct sbuf *ret, struct err *err);
