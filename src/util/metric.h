/* SPDX-License-Identifier: Apache-2.0 */
/* metric.h - counts in counters, gauges and histograms, and writes them as Prometheus text.
 * home: any; a value is an atomic. Metrics live as long as the process: they are registered, never freed. */
#pragma once

#include "util/str.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric;        /* a family: name, help, label names */
struct metric_series; /* one combination of label values */

/* Registers a family once; a second call with the same name returns the first. `labels` is comma separated ("scheme,
 * method,code"), "" for none. `buckets` (histograms) is NULL-terminated by a 0 bound; NULL otherwise. */
struct metric *metric_new(enum metric_type type, const char *name, const char *help, const char *labels,
                          const double *buckets);

/* The series of these label values, made at first use; as many values as labels. Beyond 1,000 series a
 * family returns one series with all labels "other", which limits cardinality. Keep the pointer on hot paths. */
struct metric_series *metric_series(struct metric *m, ...);

void metric_add(struct metric_series *s, uint64_t n);    /* counter, gauge */
void metric_set(struct metric_series *s, int64_t value); /* gauge */
void metric_observe(struct metric_series *s, double value);

/* Adds what another process observed to a histogram: counts for each bucket (without the buckets below it), the
 * count above the last bound, and the sum of all values. */
void metric_observe_many(struct metric_series *s, const uint64_t *in_buckets, uint64_t above, double sum);
uint64_t metric_value(const struct metric_series *s); /* for tests and for status */

/* All families in the text format of Prometheus 0.0.4. */
void metric_write(struct sbuf *b);

extern const double metric_buckets_request[]; /* 1 ms .. 60 s */
extern const double metric_buckets_job[];     /* 1 s .. 14400 s */
