/* SPDX-License-Identifier: Apache-2.0 */
/* sigv4.h - AWS Signature Version 4: request in, Authorization header out. Pure but for the cached key.
 * home: any; a sigv4_cache is guarded by its own lock. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <pthread.h>

#define SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"

/* Caches the key derived from the secret, which is valid for a day, a region and a service: saves four HMACs a
 * request. */
struct sigv4_cache {
    pthread_mutex_t lock; /* guards the fields below */
    char scope[96];       /* "<date>/<region>/<service>" */
    uint8_t secret_sum[32];
    uint8_t key[32];
};

struct sigv4_header {
    struct str name; /* lower case */
    struct str value;
};

struct sigv4_request {
    struct str method;
    struct str path;                    /* encoded as in the URL: percent_encode_path() */
    struct str query;                   /* sorted by name, encoded, without '?' */
    const struct sigv4_header *headers; /* sorted by name; every header is signed */
    size_t header_count;
    struct str payload; /* hex of the body's SHA-256, or SIGV4_UNSIGNED */
    int64_t wall_ns;
    struct str region;
    struct str service;
    struct str access_key_id;
    struct str secret;
};

/* "20261121T093000Z" for x-amz-date. buf of SIGV4_TIME_MAX; returns buf. */
enum { SIGV4_TIME_MAX = 20 };
char *sigv4_time(int64_t wall_ns, char *buf);

/* Appends the value of the Authorization header. */
void sigv4_sign(struct sigv4_cache *cache, const struct sigv4_request *r, struct sbuf *ret);
