/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate.h"
#include "cli/term.h"
#include "export/run.h"
#include "hydrate/engine.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

/* Rates of an unloaded store in the region of the machine. */
static const uint64_t rate_default = UINT64_C(1) << 30, request_ns = 50 * NS_PER_MS;

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

/* A listing may claim any size: the sum must not wrap around. */
static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

int estimate_check(const struct estimate_terms *t, bool dry_run, struct err *err)
{
    if (dry_run || (t->read_cents == READ_CENTS && t->write_cents == WRITE_CENTS))
        return 0;
    return err_set(err, ERR_INVALID, "--price-read and --price-write are for --dry-run: add it, or remove them");
}

void estimate_add_fetch(struct estimate *e, const struct store *s, uint64_t size_bytes)
{
    e->bytes = add(e->bytes, size_bytes);
    e->reads += hydrate_requests(s, size_bytes);
}

void estimate_add_upload(struct estimate *e, const struct store *s, uint64_t size_bytes)
{
    e->bytes = add(e->bytes, size_bytes);
    e->reads++;
    e->writes += run_write_requests(s, size_bytes);
}

void estimate_merge(struct estimate *e, const struct estimate *more)
{
    e->bytes = add(e->bytes, more->bytes);
    e->reads += more->reads;
    e->writes += more->writes;
}

/* Either the bytes or the round trips are the limit. */
uint64_t estimate_ns(const struct estimate *e, const struct estimate_terms *t)
{
    double rate = (double)or_default(t->bytes_per_second, rate_default);
    double at_once = (double)or_default(t->concurrency, t->concurrency_default);
    double by_bytes = (double)e->bytes / rate * 1e9;
    double by_requests = ((double)e->reads + (double)e->writes) / at_once * (double)request_ns;
    double most = by_bytes > by_requests ? by_bytes : by_requests;
    return most < 1e18 ? (uint64_t)most : UINT64_C(1000000000000000000);
}

double estimate_dollars(const struct estimate *e, const struct estimate_terms *t)
{
    return ((double)e->reads * (double)t->read_cents + (double)e->writes * (double)t->write_cents) / 1e8;
}

/* Only a server is paid. */
static bool has_price(const struct store *s)
{
    return store_endpoint(s) != NULL;
}

void estimate_print(const struct estimate *e, const struct estimate_terms *t, const struct store *s)
{
    char rate[BYTES_TEXT_MAX], took[TIME_TEXT_MAX];
    printf("estimate: %" PRIu64 " GET and HEAD, %" PRIu64
           " PUT, POST and LIST requests; at least %s (%s/s, 50 ms a request, "
           "%" PRIu64 " at once)",
           e->reads, e->writes, duration_text(estimate_ns(e, t), took),
           bytes_text(or_default(t->bytes_per_second, rate_default), rate),
           or_default(t->concurrency, t->concurrency_default));
    double dollars = estimate_dollars(e, t);
    if (has_price(s))
        printf("; %s%.2f USD for requests (%" PRIu64 " and %" PRIu64 " cents a million)",
               dollars < 0.01 ? "less than " : "", dollars < 0.01 ? 0.01 : dollars, t->read_cents, t->write_cents);
    printf("\n");
}

void estimate_add_json(struct sbuf *b, const struct estimate *e, const struct estimate_terms *t, const struct store *s)
{
    term_json_u64(b, "read_requests", e->reads);
    term_json_u64(b, "write_requests", e->writes);
    term_json_real(b, "estimated_seconds", (double)estimate_ns(e, t) / (double)NS_PER_SECOND);
    if (has_price(s))
        term_json_u64(b, "estimated_microdollars", (uint64_t)(estimate_dollars(e, t) * 1e6 + 0.5));
}
