/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/sigv4.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/thread.h"
#include <stdio.h>
#include <time.h>

enum { CANONICAL_MAX = 64 << 10 };

char *sigv4_time(int64_t wall_ns, char *buf)
{
    time_t seconds = (time_t)(wall_ns / (int64_t)NS_PER_SECOND);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(buf, SIGV4_TIME_MAX, "%Y%m%dT%H%M%SZ", &tm);
    return buf;
}

static void add_canonical(const struct sigv4_request *r, struct sbuf *b)
{
    sbuf_add(b, r->method);
    sbuf_addc(b, '\n');
    sbuf_add(b, r->path);
    sbuf_addc(b, '\n');
    sbuf_add(b, r->query);
    sbuf_addc(b, '\n');
    for (size_t i = 0; i < r->header_count; i++) {
        sbuf_add(b, r->headers[i].name);
        sbuf_addc(b, ':');
        sbuf_add(b, str_trim(r->headers[i].value));
        sbuf_addc(b, '\n');
    }
}

static void add_signed_names(const struct sigv4_request *r, struct sbuf *b)
{
    for (size_t i = 0; i < r->header_count; i++) {
        if (i)
            sbuf_addc(b, ';');
        sbuf_add(b, r->headers[i].name);
    }
}

static void derive(const struct sigv4_request *r, struct str date, uint8_t ret[32])
{
    char first[256];
    int n = snprintf(first, sizeof first, "AWS4%.*s", STR_FMT(r->secret));
    hmac_sha256((struct str){first, min_u64((size_t)n, sizeof first - 1)}, date, ret);
    explicit_bzero(first, sizeof first);
    const struct str steps[] = {r->region, r->service, STR("aws4_request")};
    for (size_t i = 0; i < countof(steps); i++) {
        uint8_t next[32];
        hmac_sha256((struct str){(const char *)ret, 32}, steps[i], next);
        memcpy(ret, next, sizeof next);
    }
}

static void signing_key(struct sigv4_cache *cache, const struct sigv4_request *r, struct str date, const char *scope,
                        uint8_t ret[32])
{
    uint8_t sum[32];
    sha256(r->secret, sum);
    auto_lock(&cache->lock);
    if (strcmp(cache->scope, scope) != 0 || memcmp(cache->secret_sum, sum, sizeof sum) != 0) {
        derive(r, date, cache->key);
        memcpy(cache->secret_sum, sum, sizeof sum);
        snprintf(cache->scope, sizeof cache->scope, "%s", scope);
    }
    memcpy(ret, cache->key, 32);
}

void sigv4_sign(struct sigv4_cache *cache, const struct sigv4_request *r, struct sbuf *ret)
{
    char when[SIGV4_TIME_MAX], scope[96];
    uint8_t sum[32], key[32], signature[32];
    sigv4_time(r->wall_ns, when);
    snprintf(scope, sizeof scope, "%.8s/%.*s/%.*s", when, STR_FMT(r->region), STR_FMT(r->service));

    auto_sbuf b = SBUF(CANONICAL_MAX);
    add_canonical(r, &b);
    sbuf_addc(&b, '\n');
    add_signed_names(r, &b);
    sbuf_addc(&b, '\n');
    sbuf_add(&b, r->payload);
    sha256(sbuf_str(&b), sum);

    sbuf_clear(&b);
    sbuf_adds(&b, "AWS4-HMAC-SHA256\n");
    sbuf_adds(&b, when);
    sbuf_addc(&b, '\n');
    sbuf_adds(&b, scope);
    sbuf_adds(&b, "/aws4_request\n");
    sbuf_add_hex(&b, sum, sizeof sum);
    signing_key(cache, r, (struct str){when, 8}, scope, key);
    hmac_sha256((struct str){(const char *)key, sizeof key}, sbuf_str(&b), signature);
    explicit_bzero(key, sizeof key);

    sbuf_adds(ret, "AWS4-HMAC-SHA256 Credential=");
    sbuf_add(ret, r->access_key_id);
    sbuf_addc(ret, '/');
    sbuf_adds(ret, scope);
    sbuf_adds(ret, "/aws4_request,SignedHeaders=");
    add_signed_names(r, ret);
    sbuf_adds(ret, ",Signature=");
    sbuf_add_hex(ret, signature, sizeof signature);
}
