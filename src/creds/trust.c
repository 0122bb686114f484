/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/trust.h"
#include "creds/endpoint.h"
#include "private.h"
#include "util/env.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

enum { AWS_REGION_PARTS_MAX = 5 };

/* Words and a number at the end: "eu-west-1", "us-gov-east-1", "eusc-de-east-1". Host names of Amazon's customers
 * have other forms here: "s3-eu-west-1", "elb". */
static bool is_aws_region(struct str region)
{
    struct str rest = region, part, last = STR_NULL;
    size_t parts = 0;
    while (str_split(&rest, '-', &part)) {
        if (!str_is_of(last, CHARS_LOWER))
            return false;
        last = part;
        if (part.len == 0 || part.len > 9 || ++parts > AWS_REGION_PARTS_MAX)
            return false;
    }
    return parts >= 3 && last.len <= 2 && str_is_of(last, CHARS_DIGITS);
}

int trust_aws_url(const char *service, const char *region, char buf[TRUST_URL_MAX], struct err *err)
{
    if (!is_aws_region(str_of(region)))
        return err_fail(err, ERR_INVALID, CIS_ENDPOINT_INVALID, "'%.64s' is not a region of AWS", region);
    snprintf(buf, TRUST_URL_MAX, "https://%s.%s.amazonaws.com%s", service, region,
             strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    return 0;
}

/* ---- the provider's servers -------------------------------------------------------------------------------------- */

/* "storage.googleapis.com", "storage.europe-west4.rep.googleapis.com" */
bool trust_is_google(struct str host)
{
    struct str rest = host, first, region;
    if (str_eq(host, STR("storage.googleapis.com")))
        return true;
    return str_split(&rest, '.', &first) && str_eq(first, STR("storage")) && str_split(&rest, '.', &region) &&
           region.len > 0 && str_is_of(region, CHARS_LOWER CHARS_DIGITS "-") && str_eq(rest, STR("rep.googleapis.com"));
}

/* "s3.amazonaws.com", "s3-fips.dualstack.us-east-1.amazonaws.com", "s3-eu-west-1.amazonaws.com" */
bool trust_is_amazon(struct str host)
{
    static const char *const firsts[] = {"s3", "s3-fips", "s3-accelerate"};
    struct str rest = host, first, next;
    if (!str_split(&rest, '.', &first))
        return false;
    bool known = str_starts(first, STR("s3-")) && is_aws_region(str_from(first, 3));
    for (size_t i = 0; i < countof(firsts); i++)
        known |= str_eq(first, str_of(firsts[i]));
    if (str_starts(rest, STR("dualstack.")))
        rest = str_from(rest, sizeof "dualstack." - 1);
    struct str behind = rest;
    if (str_split(&behind, '.', &next) && is_aws_region(next))
        rest = behind;
    return known && (str_eq(rest, STR("amazonaws.com")) || str_eq(rest, STR("amazonaws.com.cn")));
}

enum trust trust_of(enum creds_kind kind, struct str endpoint, const struct guard *g)
{
    struct endpoint e;
    char origin[512];
    if (endpoint.len == 0)
        return TRUST_PROVIDER;
    if (endpoint_parse(endpoint, &e, ERR_IGNORED) < 0)
        return TRUST_NOBODY;
    bool is_own = creds_kinds[kind].is_provider && creds_kinds[kind].is_provider(e.host);
    /* With a path, the bucket and prefix of a URI would not be the first parts of the request's path. */
    if (is_own && e.tls && e.authority.len == e.host.len && e.path.len == 0)
        return TRUST_PROVIDER;
    int n = snprintf(origin, sizeof origin, "http%s://%.*s", e.tls ? "s" : "", STR_FMT(e.authority));
    return g && (size_t)n < sizeof origin && guard_trusts(g, str_of(origin)) ? TRUST_LISTED : TRUST_NOBODY;
}

/* ---- this process ------------------------------------------------------------------------------------------------ */

static int read_guard(const char *file, struct guard **ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len = 0;
    int r = file_read(AT_FDCWD, file, GUARD_TEXT_MAX, &text, &len, err);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return r;
    r = guard_parse((struct str){text, r < 0 ? 0 : len}, ret, err);
    return r < 0 ? err_wrap(err, "reading the guard '%s'", file) : 0;
}

int trust_environment(const struct guard **ret, struct err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct guard *guard; /* under the lock; never freed: stores borrow it */
    const char *file = env_get("CISTERN_GUARD_FILE");
    int r = 0;
    auto_lock(&lock);
    if (file && !guard)
        r = read_guard(file, &guard, err);
    *ret = guard;
    return r;
}
