/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket_connection.h"
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

static void extend(X509 *cert, int what, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, what, value);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

static X509 *certificate(EVP_PKEY *key)
{
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400L * 30);
    X509_set_pubkey(cert, key);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"bucket server", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    extend(cert, NID_basic_constraints, "critical,CA:TRUE");
    extend(cert, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost,DNS:many.test");
    X509_sign(cert, key, EVP_sha256());
    return cert;
}

int tls_begin(const char *file, SSL_CTX **ret, struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = key ? certificate(key) : NULL;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    FILE *f = fopen(file, "w");
    if (!f)
        return err_sys(err, errno, "cannot write '%s'", file);
    bool ok = cert && PEM_write_X509(f, cert) == 1 && SSL_CTX_use_certificate(ctx, cert) == 1 &&
              SSL_CTX_use_PrivateKey(ctx, key) == 1;
    fclose(f);
    if (!ok)
        return err_set(err, ERR_INTERNAL, "libssl cannot make a certificate");
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"bucket", 6);
    X509_free(cert);
    EVP_PKEY_free(key);
    *ret = ctx;
    return 0;
}
