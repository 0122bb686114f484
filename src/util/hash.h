/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - computes checksums of a stream: CRC32C, CRC32, CRC64NVME (which combine over parts), MD5, SHA-256, HMAC.
 * home: a struct hash belongs to the thread that updates it. ISA-L and libcrypto do the arithmetic. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Ordered by strength: if a store gives several checksums of an object, the greatest is used. */
enum hash_kind { HASH_NONE, HASH_CRC32, HASH_CRC32C, HASH_CRC64NVME, HASH_MD5, HASH_SHA256 };

enum { HASH_BYTES_MAX = 32 };

/* A value, big-endian as every store writes it. */
struct digest {
    uint8_t kind; /* enum hash_kind */
    uint8_t bytes[HASH_BYTES_MAX];
};

size_t hash_size(enum hash_kind kind);      /* bytes of a value; 0 for HASH_NONE and unknown kinds */
const char *hash_name(enum hash_kind kind); /* "crc32c"; "none" */
bool hash_combines(enum hash_kind kind);    /* can the values of parts be combined? True for CRCs */
bool digest_eq(const struct digest *a, const struct digest *b);

/* From and to the base64 of x-goog-hash and x-amz-checksum-*; hex for ETags and people. */
must_check bool digest_parse_base64(enum hash_kind kind, struct str text, struct digest *ret); /* false: invalid */
must_check bool digest_parse_hex(enum hash_kind kind, struct str text, struct digest *ret);
void digest_add_base64(const struct digest *d, struct sbuf *b);
void digest_add_hex(const struct digest *d, struct sbuf *b);

/* A running hash. CRCs live inside; MD5 and SHA-256 own a context of libcrypto's,
 * kept over hash_begin() to be reused. */
struct hash {
    enum hash_kind kind;
    uint64_t crc;
    uint64_t len;
    void *evp; /* owned */
};

void hash_init(struct hash *h);
void hash_done(struct hash *h); /* may run twice */
void hash_begin(struct hash *h, enum hash_kind kind);
void hash_update(struct hash *h, const void *bytes, size_t len);
void hash_copy_out(struct hash *h, void *to, const void *bytes, size_t len); /* hash_update() and mem_copy_out() */
void hash_end(struct hash *h, struct digest *ret);                           /* h needs hash_begin() again */

struct digest digest_of(enum hash_kind kind, struct str bytes); /* of bytes in memory */

/* The number of a CRC. The second leaves the kind. */
uint64_t digest_crc(const struct digest *d);
void digest_set_crc(struct digest *d, uint64_t crc);

/* The checksum of A followed by B from those of both; `b_len` is B's length in bytes. Only for kinds that combine. */
void digest_combine(struct digest *a, const struct digest *b, uint64_t b_len);

/* One shot. HMAC-SHA-256 (RFC 2104) and SHA-256 as SigV4 needs them: no allocation after the first call of a thread. */
void sha256(struct str bytes, uint8_t ret[32]);
void hmac_sha256(struct str key, struct str bytes, uint8_t ret[32]);

/* RS256 over `bytes` with a private key in PEM (a service account's): for JWT assertions. */
must_check int rs256_sign(struct str pem, struct str bytes, struct sbuf *ret_signature, struct err *err);
