/* SPDX-License-Identifier: Apache-2.0 */
/* broker.h - cloud credentials for Jobs and nodes, which have none and see no secret: POST /v1/credentials over HTTPS.
 * home: broker_new and broker_free where the loop does not run, or on it; the rest is its own threads'.
 *
 * Who asks shows a token of Kubernetes with the audience cistern-broker. The API server says whose it is; a Job gets
 * what its own volume's source names, a node what the volumes on it name, and nobody anything else. What is given is a
 * cloud's short-lived credential, in memory only: kept per account, renewed at 80 % of its life, at most an hour old,
 * and fetched once however many ask.
 *
 * Every replica answers. The leader makes the authority and the certificate (Secret cistern-broker-tls) and publishes
 * the former (ConfigMap cistern-broker-ca); the others read them. */
#pragma once

#include "api/source.h"
#include "broker/cert.h"
#include "kube/client.h"
#include "kube/lease.h"

struct broker;

enum { BROKER_AUDIENCES_MAX = 32, BROKER_BINDINGS_MAX = 256 };

/* A Secret of ours that exports below one prefix may go on with, when their own identity is gone. Views. */
struct broker_binding {
    struct str secret;
    struct str endpoint; /* empty: the provider's own */
    struct str prefix;   /* "s3://results/team/" */
};

/* "NAME=[ENDPOINT=]PREFIX", of a flag. */
must_check int broker_binding_parse(struct str text, struct broker_binding *ret, struct err *err);

/* What a call asked for and how it ended: for the log. Nothing of it is secret. Strings are empty where not known. */
struct broker_event {
    struct str caller; /* "system:serviceaccount:cistern-system:cistern-job" */
    struct str pod;
    struct str volume;
    struct str purpose;    /* "hydrate" */
    struct str method;     /* "irsa" */
    struct str principal;  /* "arn:aws:iam::1:role/reader" */
    const struct err *err; /* NULL: a credential was given */
};

struct broker_options {
    const char *listen; /* as in http/calls.h */
    struct str ns;      /* ours: of the accounts below, of Secret and ConfigMap, of exportSecret */
    struct str node_account, job_account;
    bool allow_driver_identity; /* ours may be used where a source names nobody, and no endpoint */
    bool require_opt_in;        /* service accounts carry cistern.io/allow-bucket-access: "true" */
    const char *gke_project;    /* with gke_provider; NULL: there is no method gke (CIS1908) */
    const char *gke_provider;   /* "https://container.googleapis.com/v1/projects/P/locations/L/clusters/C" */
    /* Audiences that tokens may be made for, besides those of the clouds; never the API server's. */
    const char *audiences[BROKER_AUDIENCES_MAX];
    size_t audience_count;
    struct broker_binding bindings[BROKER_BINDINGS_MAX];
    size_t binding_count;
    /* Lines of io/guard.h: where sources may lead, as the administrator has it, and as the cluster is now. False: that
     * is not known yet, and nobody is served. Any thread; NULL: what is always closed. */
    bool (*guard_lines)(void *ctx, struct sbuf *ret);
    const struct kube_lease *lease; /* borrowed: who holds it makes certificates; NULL: we do */
    struct cert_times times;        /* zeros: the usual ones */
    uint64_t look_ns;               /* how often the Secret is looked at; 0: 60 s */

    void *ctx;
    void (*on_call)(void *ctx, const struct broker_event *e);               /* any thread; may be NULL */
    void (*on_trouble)(void *ctx, const char *what, const struct err *err); /* the certificates; any thread */
};

/* Listens at once, answers when there is a certificate. Texts of the options are copied, but `audiences`. `loop` is the
 * client's. */
must_check int broker_new(struct loop *loop, struct kube *kube, const struct broker_options *o, struct broker **ret,
                          struct err *err);

/* Any thread but the loop's, which still runs, after kube_stop: calls under way get their answers, none comes after. */
void broker_stop(struct broker *b);
void broker_free(struct broker *b); /* after broker_stop, when the loop has stopped; NULL is fine */

/* Does the store of this source answer, asked as the Job of a volume of it would be? The error of what failed first;
 * *ret says how far it came, then too. Any thread but the loop's; waits, about 30 s at most. */
must_check int broker_probe(struct broker *b, const struct api_source *s, struct api_probe *ret, struct err *err);

uint16_t broker_port(const struct broker *b);
