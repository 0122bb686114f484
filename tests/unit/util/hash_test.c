/* SPDX-License-Identifier: Apache-2.0 */
#include "crc.h"
#include "unit.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/hash.h"
#include <openssl/evp.h>
#include <openssl/pem.h>

static const char *hex_of(const void *bytes, size_t len)
{
    static char text[2 * 1024 + 1];
    struct sbuf b;
    sbuf_init(&b, sizeof text);
    sbuf_add_hex(&b, bytes, len);
    memcpy(text, b.ptr, b.len + 1);
    sbuf_done(&b);
    return text;
}

static struct digest sum_of(enum hash_kind kind, const void *bytes, size_t len)
{
    return digest_of(kind, (struct str){bytes, len});
}

/* The catalogue of parametrised CRC algorithms gives each CRC of "123456789"; RFC 1321 and FIPS 180-4 theirs. */
static void hash_has_the_published_values(void **state)
{
    (void)state;
    static const struct {
        enum hash_kind kind;
        const char *text;
        const char *hex;
    } vectors[] = {
        {HASH_CRC32, "123456789", "cbf43926"},
        {HASH_CRC32C, "123456789", "e3069283"},
        {HASH_CRC64NVME, "123456789", "ae8b14860a799888"},
        {HASH_CRC32, "", "00000000"},
        {HASH_CRC64NVME, "", "0000000000000000"},
        {HASH_MD5, "", "d41d8cd98f00b204e9800998ecf8427e"},
        {HASH_MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {HASH_SHA256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    };
    for (size_t i = 0; i < countof(vectors); i++) {
        struct digest d = sum_of(vectors[i].kind, vectors[i].text, strlen(vectors[i].text));
        assert_int_equal(d.kind, vectors[i].kind);
        assert_string_equal(hex_of(d.bytes, hash_size(vectors[i].kind)), vectors[i].hex);
    }
}

/* RFC 3720, B.4: 32 bytes of 0, and of 0xff, and counting up. */
static void the_crc32c_of_iscsi_comes_out(void **state)
{
    (void)state;
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_string_equal(hex_of(sum_of(HASH_CRC32C, bytes, 32).bytes, 4), "8a9136aa");
    memset(bytes, 0xFF, sizeof bytes);
    assert_string_equal(hex_of(sum_of(HASH_CRC32C, bytes, 32).bytes, 4), "62a8ab43");
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_string_equal(hex_of(sum_of(HASH_CRC32C, bytes, 32).bytes, 4), "46dd794e");
}

static unsigned char *noise(size_t len)
{
    unsigned char *p = xcalloc(len, 1);
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)clock_random();
    return p;
}

/* The NVM Command Set specification gives the value of 4096 bytes of 0, of 0xff, and counting up. */
static void the_crc64_of_nvme_comes_out_of_both_implementations(void **state)
{
    (void)state;
    static unsigned char bytes[4096];
    assert_int_equal(crc64nvme(0, bytes, sizeof bytes), 0x6482d367eb22b64e);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(crc64nvme(0, bytes, sizeof bytes), 0xc0ddba7302eca3ac);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(crc64nvme(0, bytes, sizeof bytes), 0x3e729f5f6750449c);
    assert_int_equal(crc64nvme_portable(0, bytes, sizeof bytes), 0x3e729f5f6750449c);
}

static void folding_agrees_with_the_table_at_every_length_and_offset(void **state)
{
    (void)state;
    auto_mem unsigned char *p = noise(2048);
    for (size_t len = 0; len < 1024; len++) {
        uint64_t start = clock_random();
        size_t at = len % 17;
        assert_int_equal(crc64nvme(start, p + at, len), crc64nvme_portable(start, p + at, len));
    }
}

static void hash_copy_out_hashes_and_copies(void **state)
{
    (void)state;
    static const enum hash_kind kinds[] = {HASH_NONE, HASH_CRC32C, HASH_CRC64NVME, HASH_MD5};
    auto_mem unsigned char *from = noise(2048), *to = xcalloc(1, 2048);
    for (size_t len = 0; len < 1024; len++) {
        size_t at = len * 7 % 67;
        enum hash_kind kind = kinds[len % countof(kinds)];
        struct digest got, want = sum_of(kind, from + at, len);
        struct hash h;
        memset(to, 0, 2048);
        hash_init(&h);
        hash_begin(&h, kind);
        hash_copy_out(&h, to + len % 71, from + at, len);
        hash_end(&h, &got);
        hash_done(&h);
        assert_true(digest_eq(&got, &want));
        assert_memory_equal(to + len % 71, from + at, len);
        assert_int_equal(to[len % 71 + len], 0);
    }
}

static void crcs_of_parts_combine(void **state)
{
    (void)state;
    static const enum hash_kind crcs[] = {HASH_CRC32, HASH_CRC32C, HASH_CRC64NVME};
    enum { LEN = 70000 };
    auto_mem unsigned char *p = noise(LEN);
    for (size_t i = 0; i < countof(crcs); i++) {
        struct digest whole = sum_of(crcs[i], p, LEN);
        for (size_t cut = 0; cut <= LEN; cut += 9973) {
            struct digest a = sum_of(crcs[i], p, cut);
            struct digest b = sum_of(crcs[i], p + cut, LEN - cut);
            digest_combine(&a, &b, LEN - cut);
            assert_true(digest_eq(&a, &whole));
        }
    }
}

/* Appending 2^62 zero bytes twice is appending 2^63: lengths whose bits no longer fit 64. */
static void crcs_of_very_long_parts_combine(void **state)
{
    (void)state;
    uint64_t a = 0x123456789abcdef0;
    uint64_t twice = crc_combine(CRC64NVME_POLY, 64, a, 0, UINT64_C(1) << 62);
    twice = crc_combine(CRC64NVME_POLY, 64, twice, 0, UINT64_C(1) << 62);
    assert_int_equal(twice, crc_combine(CRC64NVME_POLY, 64, a, 0, UINT64_C(1) << 63));
    assert_int_not_equal(twice, a);
}

static void hash_in_pieces_equals_the_whole_and_begins_again(void **state)
{
    (void)state;
    enum { LEN = 10000 };
    auto_mem unsigned char *p = noise(LEN);
    struct hash h;
    hash_init(&h);
    for (enum hash_kind kind = HASH_CRC32; kind <= HASH_SHA256; kind++) {
        struct digest whole = sum_of(kind, p, LEN), pieces;
        hash_begin(&h, kind);
        for (size_t at = 0, n = 1; at < LEN; at += n, n = n * 3 % 1001) {
            n = n < LEN - at ? n : LEN - at;
            hash_update(&h, p + at, n);
        }
        assert_int_equal(h.len, LEN);
        hash_end(&h, &pieces);
        assert_true(digest_eq(&pieces, &whole));
    }
    hash_done(&h);
    hash_done(&h);
}

static void values_are_read_and_written_as_stores_write_them(void **state)
{
    (void)state;
    struct digest d;
    auto_sbuf b;
    sbuf_init(&b, 100);
    assert_true(digest_parse_base64(HASH_CRC32C, STR("4waSgw=="), &d));
    digest_add_hex(&d, &b);
    sbuf_addc(&b, ' ');
    digest_add_base64(&d, &b);
    assert_string_equal(b.ptr, "e3069283 4waSgw==");
    assert_true(digest_parse_hex(HASH_MD5, STR("D41D8CD98F00B204E9800998ECF8427E"), &d));
    struct digest empty = sum_of(HASH_MD5, "", 0);
    assert_true(digest_eq(&d, &empty));
}

static void values_of_another_length_or_alphabet_are_refused(void **state)
{
    (void)state;
    struct digest d;
    assert_false(digest_parse_base64(HASH_CRC32C, STR("4waS"), &d));
    assert_false(digest_parse_base64(HASH_CRC32C, STR("4wa!gw=="), &d));
    assert_false(digest_parse_base64(HASH_CRC32C, STR(""), &d));
    assert_false(digest_parse_hex(HASH_MD5, STR("d41d8cd98f00b204e9800998ecf8427"), &d));
    assert_false(digest_parse_hex(HASH_CRC32, STR("e30692zz"), &d));
}

static void hash_of_an_unknown_kind_is_empty(void **state)
{
    (void)state;
    assert_int_equal(hash_size((enum hash_kind)200), 0);
    assert_string_equal(hash_name((enum hash_kind)200), "none");
    assert_false(hash_combines((enum hash_kind)200));
}

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block). */
static void hmac_has_the_published_values(void **state)
{
    (void)state;
    uint8_t mac[32];
    char key[131];
    memset(key, 0x0b, 20);
    hmac_sha256((struct str){key, 20}, STR("Hi There"), mac);
    assert_string_equal(hex_of(mac, 32), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hmac_sha256(STR("Jefe"), STR("what do ya want for nothing?"), mac);
    assert_string_equal(hex_of(mac, 32), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    hmac_sha256((struct str){key, sizeof key}, STR("Test Using Larger Than Block-Size Key - Hash Key First"), mac);
    assert_string_equal(hex_of(mac, 32), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static char *pem_of(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text;
    assert_int_equal(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL), 1);
    long len = BIO_get_mem_data(bio, &text);
    char *pem = str_dup((struct str){text, (size_t)len});
    BIO_free(bio);
    return pem;
}

static void a_signature_verifies_with_the_public_half(void **state)
{
    (void)state;
    struct err err;
    EVP_PKEY *key = EVP_RSA_gen(2048);
    auto_mem char *pem = pem_of(key);
    auto_sbuf signature;
    sbuf_init(&signature, 1024);
    assert_int_equal(rs256_sign(str_of(pem), STR("header.claims"), &signature, &err), 0);
    EVP_MD_CTX *evp = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestVerifyInit_ex(evp, NULL, "SHA256", NULL, NULL, key, NULL), 1);
    assert_int_equal(EVP_DigestVerify(evp, (unsigned char *)signature.ptr, signature.len,
                                      (const unsigned char *)"header.claims", 13),
                     1);
    EVP_MD_CTX_free(evp);
    EVP_PKEY_free(key);
}

static void invalid_key_is_refused(void **state)
{
    (void)state;
    struct err err;
    auto_sbuf signature;
    sbuf_init(&signature, 1024);
    assert_int_equal(rs256_sign(STR("-----BEGIN PRIVATE KEY-----\nAAAA\n"), STR("x"), &signature, &err), -ERR_INVALID);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    auto_mem char *pem = pem_of(key);
    assert_int_equal(rs256_sign(str_of(pem), STR("x"), &signature, &err), -ERR_INVALID);
    EVP_PKEY_free(key);
}

/* An ASN.1 element with a length of two bytes. */
static void add_der(struct sbuf *b, int tag, struct str content)
{
    const char head[] = {(char)tag, (char)0x82, (char)(content.len >> 8), (char)content.len};
    sbuf_add(b, (struct str){head, sizeof head});
    sbuf_add(b, content);
}

/* A number of `bytes` bytes with all bits set. */
static void add_number(struct sbuf *b, size_t bytes)
{
    auto_sbuf text = SBUF(64 << 10);
    sbuf_addc(&text, '\0');
    for (size_t i = 0; i < bytes; i++)
        sbuf_addc(&text, (char)0xff);
    add_der(b, 2, bytes ? sbuf_str(&text) : (struct str){"", 1});
}

static void add_pem(struct sbuf *b, const char *what, struct str der)
{
    sbuf_addf(b, "-----BEGIN %s-----\n", what);
    for (size_t at = 0; at < der.len; at += 48) {
        struct str line = str_sub(der, at, 48);
        base64_add(b, line.ptr, line.len);
        sbuf_addc(b, '\n');
    }
    sbuf_addf(b, "-----END %s-----\n", what);
}

enum { COSTLY_BYTES = 8 << 10 };

/* 256 bytes of modulus; one of the primes and its exponent have COSTLY_BYTES. */
static void add_costly_rsa(struct sbuf *pem)
{
    static const size_t numbers[] = {0, 256, 3, 255, 3, COSTLY_BYTES, 1, COSTLY_BYTES, 1};
    auto_sbuf body = SBUF(64 << 10), der = SBUF(64 << 10);
    for (size_t i = 0; i < countof(numbers); i++)
        add_number(&body, numbers[i]);
    add_der(&der, 0x30, sbuf_str(&body));
    add_pem(pem, "RSA PRIVATE KEY", sbuf_str(&der));
}

/* PKCS#8 of a DSA key: libcrypto computes the public half when it reads it. */
static void add_costly_dsa(struct sbuf *pem)
{
    auto_sbuf group = SBUF(64 << 10), algorithm = SBUF(64 << 10), secret = SBUF(64 << 10), body = SBUF(64 << 10),
              der = SBUF(64 << 10);
    add_number(&secret, COSTLY_BYTES);
    add_number(&group, COSTLY_BYTES);
    add_number(&group, 32);
    add_number(&group, 3);
    sbuf_add(&algorithm, (struct str){"\x06\x07\x2a\x86\x48\xce\x38\x04\x01", 9});
    add_der(&algorithm, 0x30, sbuf_str(&group));
    add_number(&body, 0);
    add_der(&body, 0x30, sbuf_str(&algorithm));
    add_der(&body, 4, sbuf_str(&secret));
    add_der(&der, 0x30, sbuf_str(&body));
    add_pem(pem, "PRIVATE KEY", sbuf_str(&der));
}

static void expect_quick_refusal(struct str pem)
{
    struct err err;
    struct timespec from, to;
    auto_sbuf signature = SBUF(1024);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    assert_int_equal(rs256_sign(pem, STR("x"), &signature, &err), -ERR_INVALID);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    assert_true(to.tv_sec - from.tv_sec < 2);
}

static void key_with_very_long_numbers_costs_no_time(void **state)
{
    (void)state;
    auto_sbuf rsa = SBUF(64 << 10), dsa = SBUF(64 << 10);
    add_costly_rsa(&rsa);
    add_costly_dsa(&dsa);
    expect_quick_refusal(sbuf_str(&rsa));
    expect_quick_refusal(sbuf_str(&dsa));
}

/* A key file chooses the number of iterations of its decryption. */
static void key_with_an_empty_passphrase_is_refused(void **state)
{
    (void)state;
    char *text;
    EVP_PKEY *key = EVP_RSA_gen(2048);
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(bio, key, EVP_aes_128_cbc(), "", 0, NULL, NULL), 1);
    long len = BIO_get_mem_data(bio, &text);
    expect_quick_refusal((struct str){text, (size_t)len});
    BIO_free(bio);
    EVP_PKEY_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_has_the_published_values),
        cmocka_unit_test(the_crc32c_of_iscsi_comes_out),
        cmocka_unit_test(the_crc64_of_nvme_comes_out_of_both_implementations),
        cmocka_unit_test(folding_agrees_with_the_table_at_every_length_and_offset),
        cmocka_unit_test(hash_copy_out_hashes_and_copies),
        cmocka_unit_test(crcs_of_parts_combine),
        cmocka_unit_test(crcs_of_very_long_parts_combine),
        cmocka_unit_test(hash_in_pieces_equals_the_whole_and_begins_again),
        cmocka_unit_test(values_are_read_and_written_as_stores_write_them),
        cmocka_unit_test(values_of_another_length_or_alphabet_are_refused),
        cmocka_unit_test(hash_of_an_unknown_kind_is_empty),
        cmocka_unit_test(hmac_has_the_published_values),
        cmocka_unit_test(a_signature_verifies_with_the_public_half),
        cmocka_unit_test(invalid_key_is_refused),
        cmocka_unit_test(key_with_very_long_numbers_costs_no_time),
        cmocka_unit_test(key_with_an_empty_passphrase_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
