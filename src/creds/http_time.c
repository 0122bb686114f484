/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/http_time.h"
#include "util/clock.h"

#define SKEW_MAX_NS (300 * (int64_t)NS_PER_SECOND)
enum { RETRY_AFTER_MAX_SECONDS = 300 };

uint64_t http_time_retry_after_ns(struct str header)
{
    uint64_t seconds = 0;
    int64_t when;
    if (header.len == 0)
        return 0;
    if (str_to_u64(header, &seconds, ERR_IGNORED) < 0 && time_parse_http(header, &when)) {
        int64_t wait_ns = when - clock_wall_ns();
        seconds = wait_ns > 0 ? (uint64_t)wait_ns / NS_PER_SECOND + 1 : 0;
    }
    return min_u64(seconds, RETRY_AFTER_MAX_SECONDS) * NS_PER_SECOND;
}

int64_t http_time_skew_ns(struct str date)
{
    int64_t theirs;
    return time_parse_http(date, &theirs) ? clock_wall_ns() - theirs : 0;
}

bool http_time_is_skew(int64_t skew_ns)
{
    return skew_ns > SKEW_MAX_NS || skew_ns < -SKEW_MAX_NS;
}

int http_time_skew_error(int64_t skew_ns, const char *whose, struct err *err)
{
    char text[TIME_TEXT_MAX];
    return err_fail(err, ERR_DENIED, CIS_CLOCK_SKEW, "this machine's clock is %s %s %s",
                    duration_text((uint64_t)(skew_ns < 0 ? -skew_ns : skew_ns), text),
                    skew_ns < 0 ? "behind" : "ahead of", whose);
}
