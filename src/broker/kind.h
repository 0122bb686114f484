/* SPDX-License-Identifier: Apache-2.0 */
/* kind.h - the part of the broker for one kind of credentials. To add a kind: write a file beside aws.c, and add it to
 * broker_kinds in fetch.c. */
#pragma once

#include "fetch.h"
#include "util/json.h"

struct broker_kind {
    unsigned methods;   /* bits of enum spec_identity: the kind's own methods for service accounts */
    const char *advice; /* for a source with the method of another kind */
    bool is_signed;     /* requests are signed: the server never gets the secret. False: they carry a bearer token */
    bool (*is_audience)(struct str audience); /* of the cloud's token service */
    /* Reads the credential from a Secret, or from a ServiceAccount's token at the cloud. */
    must_check int (*read_secret)(const struct fetcher *f, const struct route *r, const json *secret,
                                  struct fetched *ret, struct err *err);
    must_check int (*exchange)(const struct fetcher *f, const struct route *r, const json *annotations,
                               struct fetched *ret, struct err *err);
};

extern const struct broker_kind broker_aws, broker_gcp;
extern const struct broker_kind *const broker_kinds[CREDS_KINDS];

/* A decoded value of the Secret, without the newline of `echo`; NULL: no such key. The caller wipes and frees it. */
char *fetch_secret_value(const json *secret, const char *key);

/* A value without characters that occur in no name of a cloud: the annotation's owner is a tenant, and the value
 * becomes part of a reply. */
must_check int fetch_read_annotation(const struct route *r, const json *annotations, const char *name, struct str *ret,
                                     struct err *err);

/* Creates a token of the service account for the audience, and exchanges it: g->token is set here. */
must_check int fetch_exchange_minted(const struct fetcher *f, const struct route *r, struct str audience,
                                     struct grant *g, struct fetched *ret, struct err *err);

/* ERR_DENIED (CIS_IDENTITY_UNSUPPORTED). */
int fetch_cannot(const struct route *r, const char *why, const char *advice, struct err *err);
