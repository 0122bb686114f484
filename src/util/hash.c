/* SPDX-License-Identifier: Apache-2.0 */
#include "util/hash.h"
#include "crc.h"
#include "util/encode.h"
#include "util/mem.h"
#include <assert.h>
#include <isa-l.h>
#include <limits.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/decoder.h>
#include <openssl/evp.h>
#include <pthread.h>

static const struct {
    const char *name;
    size_t size;
    uint64_t poly; /* 0: no CRC */
} kinds[] = {
    [HASH_NONE] = {"none", 0, 0},
    [HASH_CRC32] = {"crc32", 4, CRC32_POLY},
    [HASH_CRC32C] = {"crc32c", 4, CRC32C_POLY},
    [HASH_CRC64NVME] = {"crc64nvme", 8, CRC64NVME_POLY},
    [HASH_MD5] = {"md5", 16, 0},
    [HASH_SHA256] = {"sha256", 32, 0},
};

/* A kind may come from a damaged file: an unknown one is HASH_NONE. */
static enum hash_kind known(enum hash_kind kind)
{
    return (size_t)kind < countof(kinds) ? kind : HASH_NONE;
}

size_t hash_size(enum hash_kind kind)
{
    return kinds[known(kind)].size;
}

const char *hash_name(enum hash_kind kind)
{
    return kinds[known(kind)].name;
}

bool hash_combines(enum hash_kind kind)
{
    return kinds[known(kind)].poly != 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

bool digest_eq(const struct digest *a, const struct digest *b)
{
    return a->kind == b->kind && memcmp(a->bytes, b->bytes, hash_size(a->kind)) == 0;
}

bool digest_parse_base64(enum hash_kind kind, struct str text, struct digest *ret)
{
    auto_sbuf bytes = SBUF(HASH_BYTES_MAX);
    if (!base64_parse(text, &bytes) || bytes.overflow || bytes.len != hash_size(kind))
        return false;
    *ret = (struct digest){.kind = (uint8_t)kind};
    if (bytes.len)
        memcpy(ret->bytes, bytes.ptr, bytes.len);
    return true;
}

bool digest_parse_hex(enum hash_kind kind, struct str text, struct digest *ret)
{
    struct digest d = {.kind = (uint8_t)kind};
    if (text.len != 2 * hash_size(kind))
        return false;
    for (size_t i = 0; i < hash_size(kind); i++) {
        int high = hex_digit(text.ptr[2 * i]), low = hex_digit(text.ptr[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        d.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret = d;
    return true;
}

void digest_add_base64(const struct digest *d, struct sbuf *b)
{
    base64_add(b, d->bytes, hash_size(d->kind));
}

void digest_add_hex(const struct digest *d, struct sbuf *b)
{
    sbuf_add_hex(b, d->bytes, hash_size(d->kind));
}

uint64_t digest_crc(const struct digest *d)
{
    uint64_t crc = 0;
    for (size_t i = 0; i < hash_size(d->kind); i++)
        crc = crc << 8 | d->bytes[i];
    return crc;
}

void digest_set_crc(struct digest *d, uint64_t crc)
{
    for (size_t i = hash_size(d->kind); i > 0; i--, crc >>= 8)
        d->bytes[i - 1] = (uint8_t)crc;
}

void digest_combine(struct digest *a, const struct digest *b, uint64_t b_len)
{
    assert(a->kind == b->kind && hash_combines(a->kind));
    unsigned width = 8 * (unsigned)hash_size(a->kind);
    digest_set_crc(a, crc_combine(kinds[a->kind].poly, width, digest_crc(a), digest_crc(b), b_len));
}

/* ---- libcrypto ------------------------------------------------------------------------------------------------------
 * EVP_md5() and its like search the providers at every init, under a lock. They are fetched once here. */

static struct {
    pthread_once_t once;
    EVP_MD *md5;
    EVP_MD *sha256;
    pthread_key_t scratch; /* a thread's context for the one-shot functions */
} crypto = {.once = PTHREAD_ONCE_INIT};

static void free_context(void *evp)
{
    EVP_MD_CTX_free(evp);
}

static void fetch(void)
{
    crypto.md5 = EVP_MD_fetch(NULL, "MD5", "-fips"); /* a checksum here: FIPS forbids MD5 only for signatures */
    crypto.sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    int r = pthread_key_create(&crypto.scratch, free_context);
    assert(crypto.md5 && crypto.sha256 && r == 0);
}

static EVP_MD_CTX *new_context(void)
{
    EVP_MD_CTX *evp = EVP_MD_CTX_new();
    assert(evp);
    return evp;
}

static void evp_begin(EVP_MD_CTX *evp, const EVP_MD *md)
{
    int ok = EVP_DigestInit_ex2(evp, md, NULL);
    assert(ok);
}

static void evp_update(EVP_MD_CTX *evp, const void *bytes, size_t len)
{
    int ok = EVP_DigestUpdate(evp, bytes, len);
    assert(ok);
}

static void evp_end(EVP_MD_CTX *evp, uint8_t *ret)
{
    int ok = EVP_DigestFinal_ex(evp, ret, NULL);
    assert(ok);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

void hash_init(struct hash *h)
{
    *h = (struct hash){.kind = HASH_NONE};
}

void hash_done(struct hash *h)
{
    EVP_MD_CTX_free(h->evp);
    hash_init(h);
}

void hash_begin(struct hash *h, enum hash_kind kind)
{
    h->kind = kind;
    h->crc = 0;
    h->len = 0;
    if (kind != HASH_MD5 && kind != HASH_SHA256)
        return;
    pthread_once(&crypto.once, fetch);
    if (!h->evp)
        h->evp = new_context();
    evp_begin(h->evp, kind == HASH_MD5 ? crypto.md5 : crypto.sha256);
}

/* ISA-L's CRC32C counts in int, takes no const, and neither inverts before nor after. */
static uint32_t crc32c(uint32_t crc, const unsigned char *p, size_t len)
{
    crc = ~crc;
    while (len > 0) {
        int n = len < INT_MAX ? (int)len : INT_MAX;
        crc = crc32_iscsi((unsigned char *)p, n, crc);
        p += n;
        len -= (size_t)n;
    }
    return ~crc;
}

void hash_update(struct hash *h, const void *bytes, size_t len)
{
    h->len += len;
    switch (h->kind) {
    case HASH_NONE:
        return;
    case HASH_CRC32:
        h->crc = crc32_gzip_refl((uint32_t)h->crc, bytes, len);
        return;
    case HASH_CRC32C:
        h->crc = crc32c((uint32_t)h->crc, bytes, len);
        return;
    case HASH_CRC64NVME:
        h->crc = crc64nvme(h->crc, bytes, len);
        return;
    case HASH_MD5:
    case HASH_SHA256:
        evp_update(h->evp, bytes, len);
    }
}

void hash_copy_out(struct hash *h, void *to, const void *bytes, size_t len)
{
    if (h->kind == HASH_CRC64NVME) {
        h->len += len;
        h->crc = crc64nvme_copy_out(h->crc, to, bytes, len);
        return;
    }
    hash_update(h, bytes, len);
    mem_copy_out(to, bytes, len);
}

void hash_end(struct hash *h, struct digest *ret)
{
    struct digest d = {.kind = (uint8_t)h->kind};
    if (hash_combines(h->kind))
        digest_set_crc(&d, h->crc);
    else if (h->kind != HASH_NONE)
        evp_end(h->evp, d.bytes);
    h->kind = HASH_NONE;
    *ret = d;
}

struct digest digest_of(enum hash_kind kind, struct str bytes)
{
    struct hash h;
    struct digest d;
    hash_init(&h);
    hash_begin(&h, kind);
    hash_update(&h, bytes.ptr, bytes.len);
    hash_end(&h, &d);
    hash_done(&h);
    return d;
}

/* ---- one shot ---------------------------------------------------------------------------------------------------- */

static EVP_MD_CTX *scratch(void)
{
    pthread_once(&crypto.once, fetch);
    EVP_MD_CTX *evp = pthread_getspecific(crypto.scratch);
    if (!evp) {
        evp = new_context();
        int r = pthread_setspecific(crypto.scratch, evp);
        assert(r == 0);
    }
    return evp;
}

/* The hash of two texts in a row. */
static void sha256_of_two(struct str a, struct str b, uint8_t ret[32])
{
    EVP_MD_CTX *evp = scratch();
    evp_begin(evp, crypto.sha256);
    evp_update(evp, a.ptr, a.len);
    evp_update(evp, b.ptr, b.len);
    evp_end(evp, ret);
}

void sha256(struct str bytes, uint8_t ret[32])
{
    sha256_of_two(bytes, STR_NULL, ret);
}

/* Written out because libcrypto's HMAC copies the key to the heap at each call. */
void hmac_sha256(struct str key, struct str bytes, uint8_t ret[32])
{
    enum { BLOCK = 64 };
    uint8_t short_key[32], inner[BLOCK], outer[BLOCK];
    if (key.len > BLOCK) {
        sha256(key, short_key);
        key = (struct str){(char *)short_key, sizeof short_key};
    }
    for (size_t i = 0; i < BLOCK; i++) {
        uint8_t k = i < key.len ? (uint8_t)key.ptr[i] : 0;
        inner[i] = k ^ 0x36;
        outer[i] = k ^ 0x5c;
    }
    sha256_of_two((struct str){(char *)inner, BLOCK}, bytes, ret);
    sha256_of_two((struct str){(char *)outer, BLOCK}, (struct str){(char *)ret, 32}, ret);
}

/* ---- signatures -------------------------------------------------------------------------------------------------- */

DEFINE_AUTO(pkey, EVP_PKEY, EVP_PKEY_free)
DEFINE_AUTO(md_ctx, EVP_MD_CTX, EVP_MD_CTX_free)
DEFINE_AUTO(decoder, OSSL_DECODER_CTX, OSSL_DECODER_CTX_free)

enum { RSA_BITS_MAX = 8192 };

static int no_passphrase(char *, int, int, void *)
{
    return -1;
}

/* Reads RSA only: for some algorithms libcrypto computes the public half while it reads a key, for minutes if the
 * numbers are large. It also decrypts a key with as many iterations as the key asks for. */
static EVP_PKEY *read_rsa(struct str pem)
{
    EVP_PKEY *key = NULL;
    const unsigned char *bytes = (const unsigned char *)pem.ptr;
    size_t len = pem.len;
    auto_with(auto_clean_decoder) OSSL_DECODER_CTX *d =
        OSSL_DECODER_CTX_new_for_pkey(&key, "PEM", NULL, "RSA", EVP_PKEY_KEYPAIR, NULL, NULL);
    if (d && OSSL_DECODER_CTX_set_pem_password_cb(d, no_passphrase, NULL) == 1)
        (void)!OSSL_DECODER_from_data(d, &bytes, &len);
    return key;
}

/* -1: the key does not have this number. */
static int bits_of(const EVP_PKEY *key, const char *number)
{
    BIGNUM *n = NULL;
    int bits = EVP_PKEY_get_bn_param(key, number, &n) == 1 ? BN_num_bits(n) : -1;
    BN_clear_free(n);
    return bits;
}

/* Does the key have two primes, and no number longer than the modulus? libcrypto does not check it, and the time of a
 * signature grows with the cube of the longest one. */
static bool is_plausible(const EVP_PKEY *key)
{
    static const char *const numbers[] = {OSSL_PKEY_PARAM_RSA_E,           OSSL_PKEY_PARAM_RSA_D,
                                          OSSL_PKEY_PARAM_RSA_FACTOR1,     OSSL_PKEY_PARAM_RSA_FACTOR2,
                                          OSSL_PKEY_PARAM_RSA_EXPONENT1,   OSSL_PKEY_PARAM_RSA_EXPONENT2,
                                          OSSL_PKEY_PARAM_RSA_COEFFICIENT1};
    int bits = EVP_PKEY_get_bits(key);
    for (size_t i = 0; i < countof(numbers); i++)
        if (bits_of(key, numbers[i]) > bits)
            return false;
    return bits <= RSA_BITS_MAX && bits_of(key, OSSL_PKEY_PARAM_RSA_FACTOR3) < 0;
}

int rs256_sign(struct str pem, struct str bytes, struct sbuf *ret_signature, struct err *err)
{
    if (pem.len > 65536)
        return err_set(err, ERR_INVALID, "a private key of %zu bytes is too long", pem.len);
    auto_with(auto_clean_pkey) EVP_PKEY *key = read_rsa(pem);
    if (!key)
        return err_set(err, ERR_INVALID, "the private key is not an RSA key in PEM without a passphrase");
    if (!is_plausible(key))
        return err_set(err, ERR_INVALID,
                       "the private key of %d bits has numbers that no RSA key of at most %d bits has",
                       EVP_PKEY_get_bits(key), RSA_BITS_MAX);
    auto_with(auto_clean_md_ctx) EVP_MD_CTX *evp = new_context();
    uint8_t signature[RSA_BITS_MAX / 8];
    size_t len = sizeof signature;
    if (EVP_DigestSignInit_ex(evp, NULL, "SHA256", NULL, NULL, key, NULL) != 1 ||
        EVP_DigestSign(evp, signature, &len, (const unsigned char *)bytes.ptr, bytes.len) != 1)
        return err_set(err, ERR_INVALID, "cannot sign with the private key of %d bits", EVP_PKEY_get_bits(key));
    sbuf_add(ret_signature, (struct str){(char *)signature, len});
    return 0;
}
