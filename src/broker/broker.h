/* SPDX-License-Identifier: Apache-2.0 */
/* broker.h - gives cloud credentials to Jobs and nodes, which have no secrets: POST /v1/credentials over HTTPS.
 * home: broker_new and broker_free on the loop, or while it does not run; the rest on threads of the broker.
 *
 * The caller sends a Kubernetes token with the audience cistern-broker, and the API server verifies it. A Job gets the
 * credentials of its own volume, a node those of the volumes on it. They are short-lived credentials of a cloud, kept
 * in memory only: one for each account, at most an hour old, and renewed at 80 % of its life.
 *
 * Every replica serves requests. The leader creates the CA and the certificate (Secret cistern-broker-tls) and
 * publishes the CA (ConfigMap cistern-broker-ca); the other replicas read them.
 * Code: broker.c, and route.c for broker_binding_parse(). */
#pragma once

#include "api/source.h"
#include "broker/cert.h"
#include "kube/client.h"
#include "kube/lease.h"

struct broker;

enum { BROKER_AUDIENCES_MAX = 32, BROKER_BINDINGS_MAX = 256 };

/* A Secret of Cistern's namespace for exports below one prefix whose own identity was deleted. Views. */
struct broker_binding {
    struct str secret;
    struct str endpoint; /* empty: the provider's own */
    struct str prefix;   /* "s3://results/team/" */
};

/* "NAME=[ENDPOINT=]PREFIX", of a flag. */
must_check int broker_binding_parse(struct str text, struct broker_binding *ret, struct err *err);

/* A request and its result, for the log. It has no secrets. Unknown strings are empty. */
struct broker_event {
    struct str caller; /* "system:serviceaccount:cistern-system:cistern-job" */
    struct str pod;
    struct str volume;
    struct str purpose;    /* "hydrate" */
    struct str method;     /* "irsa" */
    struct str principal;  /* "arn:aws:iam::1:role/reader" */
    const struct err *err; /* NULL: a credential was issued */
};

struct broker_options {
    const char *listen; /* as in http/post_server.h */
    struct str ns; /* Cistern's namespace: of the service accounts below, the Secret, the ConfigMap and exportSecret */
    struct str node_account, job_account;
    bool allow_driver_identity; /* use the controller's own identity for sources without identity and endpoint */
    bool require_opt_in;        /* service accounts carry cistern.io/allow-bucket-access: "true" */
    const char *issuer;       /* of this cluster's tokens; NULL: unknown. GKE: it gives the defaults of the next two */
    const char *gke_project;  /* with gke_provider; NULL: there is no method gke (CIS_IDENTITY_UNSUPPORTED) */
    const char *gke_provider; /* "https://container.googleapis.com/v1/projects/P/locations/L/clusters/C" */
    /* Audiences for which tokens may be created, besides those of the clouds; never the API server's. */
    const char *audiences[BROKER_AUDIENCES_MAX];
    size_t audience_count;
    struct broker_binding bindings[BROKER_BINDINGS_MAX];
    size_t binding_count;
    /* Writes the lines of io/guard.h: addresses that are allowed and blocked now. False: they are not known yet, and no
     * request is served. Any thread; NULL: the defaults. */
    bool (*guard_lines)(void *ctx, struct sbuf *ret);
    const struct kube_lease *lease; /* borrowed: its holder creates certificates; NULL: this process creates them */
    struct cert_times times;        /* zeros: the defaults */
    uint64_t check_ns;              /* interval of checks of the Secret; 0: 60 s */

    void *ctx;
    void (*on_call)(void *ctx, const struct broker_event *e);             /* any thread; may be NULL */
    void (*on_error)(void *ctx, const char *what, const struct err *err); /* the certificates; any thread */
};

/* Listens at once, and serves requests when there is a certificate. Texts of the options are copied, except
 * `audiences`. `loop` is the client's. */
must_check int broker_new(struct loop *loop, struct kube *kube, const struct broker_options *o, struct broker **ret,
                          struct err *err);

/* Finishes running requests; accepts no more. After kube_stop, while the loop runs, on another thread. */
void broker_stop(struct broker *b);
void broker_free(struct broker *b); /* after broker_stop, when the loop has stopped; NULL is fine */

/* Reads from the store of this source, and tests its exports, with the identities of its Jobs. Returns the first error
 * of reading; *ret is set on failure, too. Any thread but the loop's; waits at most about 30 s. */
must_check int broker_probe(struct broker *b, const struct api_source *s, struct api_probe *ret, struct err *err);

uint16_t broker_port(const struct broker *b);
