/* SPDX-License-Identifier: Apache-2.0 */
#include "util/x509.h"
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

enum { PEM_MAX = 64 << 10, NAMES_MAX = 1024, SERIAL_BYTES = 16 };

DEFINE_AUTO(bio, BIO, BIO_free_all)
DEFINE_AUTO(pkey, EVP_PKEY, EVP_PKEY_free)
DEFINE_AUTO(x509, X509, X509_free)
#define auto_bio auto_with(auto_clean_bio) BIO *
#define auto_pkey auto_with(auto_clean_pkey) EVP_PKEY *
#define auto_x509 auto_with(auto_clean_x509) X509 *

void x509_pair_done(struct x509_pair *p)
{
    free(take(&p->certificate));
    secret_free(take(&p->key));
}

/* ---- to and from text -------------------------------------------------------------------------------------------- */

static X509 *read_certificate(struct str pem)
{
    if (pem.len == 0 || pem.len > PEM_MAX)
        return NULL;
    auto_bio bio = BIO_new_mem_buf(pem.ptr, (int)pem.len);
    return bio ? PEM_read_bio_X509(bio, NULL, NULL, (void *)"") : NULL;
}

static EVP_PKEY *read_key(const char *pem)
{
    if (!pem || strlen(pem) > PEM_MAX)
        return NULL;
    auto_bio bio = BIO_new_mem_buf(pem, -1);
    /* Without a passphrase, libcrypto would ask for one on the terminal. */
    return bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"") : NULL;
}

static char *text_of(BIO *bio)
{
    char *bytes;
    long len = BIO_get_mem_data(bio, &bytes);
    return str_dup((struct str){bytes, (size_t)len});
}

static int write_pair(X509 *x, EVP_PKEY *key, struct x509_pair *ret, struct err *err)
{
    auto_bio certificate = BIO_new(BIO_s_mem());
    auto_bio secret = BIO_new(BIO_s_secmem()); /* wiped when it is freed */
    if (!certificate || !secret || PEM_write_bio_X509(certificate, x) != 1 ||
        PEM_write_bio_PrivateKey(secret, key, NULL, NULL, 0, NULL, NULL) != 1)
        return err_set(err, ERR_INTERNAL, "cannot write a certificate");
    ret->certificate = text_of(certificate);
    ret->key = text_of(secret);
    return 0;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static bool set_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool done = e && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return done;
}

/* Random: RFC 5280 requires a unique serial number. */
static bool set_serial(X509 *x)
{
    uint8_t bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] &= 0x7f;
    bytes[SERIAL_BYTES - 1] |= 1;
    BIGNUM *n = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool done = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return done;
}

static bool set_head(X509 *x, const char *name, struct x509_validity life, EVP_PKEY *key)
{
    X509_NAME *subject = X509_get_subject_name(x);
    return X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0) == 1 &&
           ASN1_TIME_set(X509_getm_notBefore(x), life.from_s) && ASN1_TIME_set(X509_getm_notAfter(x), life.until_s) &&
           X509_set_pubkey(x, key) == 1;
}

int x509_make_authority(const char *name, struct x509_validity life, struct x509_pair *ret, struct err *err)
{
    auto_pkey key = EVP_EC_gen("P-256");
    auto_x509 x = X509_new();
    if (!key || !x || !set_head(x, name, life, key) || X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
        !set_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !set_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !set_extension(x, x, NID_subject_key_identifier, "hash") || X509_sign(x, key, EVP_sha256()) == 0)
        return err_set(err, ERR_INTERNAL, "cannot make the authority '%s'", name);
    return write_pair(x, key, ret, err);
}

static bool add_names(const char *const *names, size_t count, struct sbuf *b)
{
    for (size_t i = 0; i < count; i++)
        sbuf_addf(b, "%sDNS:%s", i ? "," : "", names[i]);
    return !b->overflow;
}

int x509_make_server(const struct x509_pair *authority, const char *const *names, size_t count,
                     struct x509_validity life, struct x509_pair *ret, struct err *err)
{
    auto_x509 issuer = authority->certificate ? read_certificate(str_of(authority->certificate)) : NULL;
    auto_pkey issuer_key = read_key(authority->key);
    if (!issuer || !issuer_key)
        return err_set(err, ERR_INVALID, "the authority's certificate or key cannot be read");
    auto_pkey key = EVP_EC_gen("P-256");
    auto_x509 x = X509_new();
    auto_sbuf alternatives = SBUF(NAMES_MAX);
    if (!add_names(names, count, &alternatives) || !key || !x || !set_head(x, names[0], life, key) ||
        X509_set_issuer_name(x, X509_get_subject_name(issuer)) != 1 ||
        !set_extension(x, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
        !set_extension(x, issuer, NID_key_usage, "critical,digitalSignature") ||
        !set_extension(x, issuer, NID_ext_key_usage, "serverAuth") ||
        !set_extension(x, issuer, NID_authority_key_identifier, "keyid") ||
        !set_extension(x, issuer, NID_subject_alt_name, alternatives.ptr) ||
        X509_sign(x, issuer_key, EVP_sha256()) == 0)
        return err_set(err, ERR_INTERNAL, "cannot make a certificate for '%s'", names[0]);
    return write_pair(x, key, ret, err);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static bool seconds_of(const ASN1_TIME *t, int64_t *ret)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(t, &tm) != 1)
        return false;
    *ret = timegm(&tm);
    return true;
}

bool x509_validity_of(struct str pem, struct x509_validity *ret)
{
    struct x509_validity life;
    auto_x509 x = read_certificate(pem);
    if (!x || !seconds_of(X509_get0_notBefore(x), &life.from_s) || !seconds_of(X509_get0_notAfter(x), &life.until_s))
        return false;
    *ret = life;
    return true;
}

bool x509_is_signed_by(const char *certificate, const char *authority)
{
    auto_x509 x = certificate ? read_certificate(str_of(certificate)) : NULL;
    auto_x509 issuer = authority ? read_certificate(str_of(authority)) : NULL;
    return x && issuer && X509_verify(x, X509_get0_pubkey(issuer)) == 1;
}

bool x509_is_pair(const struct x509_pair *p)
{
    auto_x509 x = p->certificate ? read_certificate(str_of(p->certificate)) : NULL;
    auto_pkey key = read_key(p->key);
    return x && key && X509_check_private_key(x, key) == 1;
}

bool x509_is_for(const char *certificate, const char *name)
{
    auto_x509 x = certificate ? read_certificate(str_of(certificate)) : NULL;
    return x && X509_check_host(x, name, 0, 0, NULL) == 1;
}

static const char begin_line[] = "-----BEGIN CERTIFICATE-----", end_line[] = "-----END CERTIFICATE-----";

static const char *find(struct str text, const char *line)
{
    return text.len ? memmem(text.ptr, text.len, line, strlen(line)) : NULL;
}

int x509_check_bundle(struct str pem, struct err *err)
{
    struct str rest = pem, one;
    size_t count = 0;
    if (find(pem, "PRIVATE KEY-----"))
        return err_set(err, ERR_INVALID, "it has a private key, which does not belong there");
    while (x509_split(&rest, &one)) {
        auto_x509 x = read_certificate(one);
        count++;
        if (!x)
            return err_set(err, ERR_INVALID, "its certificate %zu cannot be read", count);
    }
    if (find(rest, begin_line))
        return err_set(err, ERR_INVALID, "its certificate %zu is cut off", count + 1);
    return count ? 0 : err_set(err, ERR_INVALID, "it has no certificate in PEM");
}

bool x509_split(struct str *rest, struct str *ret_one)
{
    const char *from = find(*rest, begin_line);
    struct str text = from ? str_from(*rest, (size_t)(from - rest->ptr)) : STR_NULL;
    const char *to = find(text, end_line);
    if (!to)
        return false;
    size_t len = (size_t)(to - from) + sizeof end_line - 1;
    len += len < text.len && text.ptr[len] == '\n';
    *ret_one = str_sub(text, 0, len);
    *rest = str_from(text, len);
    return true;
}
