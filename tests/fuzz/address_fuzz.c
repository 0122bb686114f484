/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/endpoint.h"
#include "creds/sigv4.h"
#include "fuzz.h"
#include "util/encode.h"
#include "util/uri.h"

static void encode_and_decode(struct str text)
{
    auto_sbuf encoded, decoded;
    struct err err;
    sbuf_init(&encoded, 1 << 20);
    sbuf_init(&decoded, 1 << 20);
    percent_encode(text, &encoded);
    int r = percent_decode(sbuf_str(&encoded), &decoded, &err);
    assert(encoded.overflow || (r == 0 && str_eq(sbuf_str(&decoded), text)));
    sbuf_clear(&decoded);
    r = percent_decode(text, &decoded, &err);
    assert(r <= 0 && decoded.len <= text.len);
}

static void sign(struct str text)
{
    static struct sigv4_cache cache = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const struct sigv4_header h[] = {{STR("host"), text}, {STR("x-amz-meta"), text}};
    const struct sigv4_request r = {.method = STR("GET"),
                                    .path = text,
                                    .query = text,
                                    .headers = h,
                                    .header_count = countof(h),
                                    .payload = STR(SIGV4_UNSIGNED),
                                    .region = str_sub(text, 0, 64),
                                    .service = STR("s3"),
                                    .access_key_id = text,
                                    .secret = text};
    auto_sbuf b;
    sbuf_init(&b, 1 << 20);
    sigv4_sign(&cache, &r, &b);
}

/* Addresses, keys and profiles of any bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str text = fuzz_str(bytes, len);
    struct endpoint e;
    struct err err;
    struct uri uri = uri_split(text);
    if (uri_check(text, &err) == 0)
        assert(uri.bucket.len == 0 ? uri.prefix.len > 0 : uri.bucket.len >= 3);
    else
        assert(err.id == 1001 && str_is_utf8(str_of(err.text)));
    if (endpoint_parse(text, &e, &err) == 0)
        assert(e.host.len > 0 && e.authority.len >= e.host.len);
    else
        assert(str_is_utf8(str_of(err.text)));
    encode_and_decode(text);
    sign(text);
    return 0;
}
