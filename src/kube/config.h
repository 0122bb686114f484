/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - address and credentials of the API server: from inside a pod, or from a kubeconfig file.
 * home: the caller's. Reading blocks on small files.
 * Code: config.c, and bearer_token.c for the issuer. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Strings are owned and may be NULL. Certificates and keys are PEM text. */
struct kube_config {
    char *server;          /* "https://10.96.0.1:443", no slash at the end */
    char *ns;              /* the namespace of this pod, or of the context; NULL: unknown */
    char *ca;              /* authorities for the server's certificate; NULL: the system's CAs */
    char *certificate;     /* of the client, with `key` */
    char *key;             /* secret */
    char *token;           /* secret; sent as it is */
    char *token_file;      /* overrides `token`; read again once a minute, and when the server rejects the token */
    bool skips_tls_checks; /* insecure-skip-tls-verify */
};

/* `kubeconfig` NULL: in-cluster, from KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the service account's
 * directory. Else that file's current context; relative paths start at its directory. Unsupported settings (exec and
 * auth-provider plugins, passwords, proxy-url, tls-server-name, impersonation) are ERR_UNSUPPORTED, and so is plain
 * http to another machine. Errors contain no secrets. */
must_check int kube_config_load(const char *kubeconfig, struct kube_config *ret, struct err *err);
void kube_config_done(struct kube_config *c); /* wipes what is secret; may run twice */

/* Parses the text of a kubeconfig file, whose relative paths start at `directory`. Pure except for the files that
 * it names. On failure *ret is untouched. */
must_check int kubeconfig_parse(struct str text, const char *directory, struct kube_config *ret, struct err *err);

/* The issuer that the token names, as tokens of the cluster do; the caller frees it. Not verified: use it as a
 * hint only. NULL: there is no token, or it names no issuer. */
char *kube_config_issuer(const struct kube_config *c);

DEFINE_AUTO_DONE(kube_config, struct kube_config, kube_config_done)
#define auto_kube_config auto_with(auto_clean_kube_config) struct kube_config
