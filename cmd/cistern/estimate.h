/* SPDX-License-Identifier: Apache-2.0 */
/* estimate.h - Estimates requests, time and price of a run, for --dry-run. home: main. */
#pragma once

#include "store/store.h"
#include "util/str.h"

/* Assumptions of an estimate. */
struct estimate_terms {
    uint64_t read_cents, write_cents; /* US cents for a million requests of this kind */
    uint64_t bytes_per_second;        /* 0: the default */
    uint64_t concurrency;             /* 0: the default */
    uint64_t concurrency_default;
};

struct estimate {
    uint64_t bytes;
    uint64_t reads;  /* GET and HEAD */
    uint64_t writes; /* PUT, POST and LIST, which vendors price alike */
};

/* Amazon's and Google's list prices for their standard class in the United States. */
enum { READ_CENTS = 40, WRITE_CENTS = 500 };
#define ESTIMATE_TERMS(concurrency)                                                                                    \
    {                                                                                                                  \
        .read_cents = READ_CENTS, .write_cents = WRITE_CENTS, .concurrency_default = (concurrency)                     \
    }
#define ESTIMATE_OPTS(terms)                                                                                           \
    {"price-read",        0,       OPT_U64,                                                                            \
     &(terms).read_cents, "CENTS", "with --dry-run: US cents for a million GET and HEAD requests (40)"},               \
    {                                                                                                                  \
        "price-write", 0, OPT_U64, &(terms).write_cents, "CENTS",                                                      \
            "with --dry-run: US cents for a million PUT, POST and LIST requests (500)"                                 \
    }

/* Refuses prices without --dry-run, which would be ignored. */
must_check int estimate_check(const struct estimate_terms *t, bool dry_run, struct err *err);

/* The requests that hydrating, or exporting, one object of this size makes, added to *e. */
void estimate_add_fetch(struct estimate *e, const struct store *s, uint64_t size_bytes);
void estimate_add_upload(struct estimate *e, const struct store *s, uint64_t size_bytes);
void estimate_merge(struct estimate *e, const struct estimate *more);

uint64_t estimate_ns(const struct estimate *e, const struct estimate_terms *t);
double estimate_dollars(const struct estimate *e, const struct estimate_terms *t);

/* Writes "8 requests, at least 1.2 s (1.00 GiB/s, 50 ms a request, 512 at once), less than 0.01 USD (...)" and a
 * line end. file:// has no price. */
void estimate_print(const struct estimate *e, const struct estimate_terms *t, const struct store *s);

/* Writes the same as members of a JSON line. */
void estimate_add_json(struct sbuf *b, const struct estimate *e, const struct estimate_terms *t, const struct store *s);
