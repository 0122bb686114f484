/* SPDX-License-Identifier: Apache-2.0 */
#include "util/metric.h"
#include "util/list.h"
#include "util/map.h"
#include "util/thread.h"
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

enum { LABELS_MAX = 8, SERIES_MAX = 1000, BUCKETS_MAX = 32 };

struct metric_series {
    struct map_node node;
    const struct metric *family; /* borrowed: never freed */
    char *labels;                /* owned: `a="x",b="y"`, escaped; "" without labels */
    _Atomic uint64_t value;      /* a gauge's is an int64_t; a histogram's counts what was observed */
    _Atomic double sum;          /* a histogram's */
    _Atomic uint64_t *buckets;   /* owned; a histogram's: a count for each bound, without the lower ones */
};

struct metric {
    struct list_node node;
    enum metric_type type;
    char *name; /* owned */
    char *help; /* owned */
    char *label_names[LABELS_MAX];
    size_t label_count;
    double bounds[BUCKETS_MAX];
    size_t bound_count;
    struct map series;           /* of metric_series, by labels: owned */
    struct metric_series *other; /* owned: for label values beyond the limit */
};

static struct {
    pthread_mutex_t lock; /* of the list, and of every family's map; values are atomics */
    struct list families; /* struct metric: never freed */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* clang-format off */
const double metric_buckets_request[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 0};
const double metric_buckets_job[] = {1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 0};
/* clang-format on */

/* ---- families and series ----------------------------------------------------------------------------------------- */

static struct metric *find_family(const char *name)
{
    struct metric *m;
    list_foreach (&all.families, m, node)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static struct metric *new_family(enum metric_type type, const char *name, const char *help, const char *labels,
                                 const double *buckets)
{
    struct metric *m = xcalloc(1, sizeof *m);
    m->type = type;
    m->name = str_dup(str_of(name));
    m->help = str_dup(str_of(help));
    struct str rest = *labels ? str_of(labels) : STR_NULL, label;
    while (str_split(&rest, ',', &label)) {
        assert(m->label_count < LABELS_MAX);
        m->label_names[m->label_count++] = str_dup(str_trim(label));
    }
    for (; buckets && buckets[m->bound_count] != 0; m->bound_count++) {
        assert(m->bound_count < BUCKETS_MAX);
        m->bounds[m->bound_count] = buckets[m->bound_count];
    }
    return m;
}

struct metric *metric_new(enum metric_type type, const char *name, const char *help, const char *labels,
                          const double *buckets)
{
    pthread_mutex_lock(&all.lock);
    struct metric *m = find_family(name);
    if (!m) {
        m = new_family(type, name, help, labels, buckets);
        list_add(&all.families, &m->node);
    }
    pthread_mutex_unlock(&all.lock);
    assert(m->type == type);
    return m;
}

/* Label values may be any bytes; invalid UTF-8 would make a scraper refuse the whole page. */
static void add_label(struct sbuf *b, const char *name, const char *value)
{
    bool utf8 = str_is_utf8(str_of(value));
    sbuf_addf(b, "%s%s=\"", b->len ? "," : "", name);
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"')
            sbuf_addc(b, '\\');
        if (*p == '\n')
            sbuf_adds(b, "\\n");
        else
            sbuf_addc(b, !utf8 && (unsigned char)*p >= 0x80 ? '?' : *p);
    }
    sbuf_addc(b, '"');
}

static struct metric_series *new_series(const struct metric *m, const char *labels)
{
    struct metric_series *s = xcalloc(1, sizeof *s);
    s->family = m;
    s->labels = str_dup(str_of(labels));
    if (m->bound_count)
        s->buckets = xcalloc(m->bound_count, sizeof *s->buckets);
    return s;
}

static struct metric_series *other_series(struct metric *m)
{
    if (m->other)
        return m->other;
    auto_sbuf b = SBUF(4096);
    for (size_t i = 0; i < m->label_count; i++)
        add_label(&b, m->label_names[i], "other");
    m->other = new_series(m, b.ptr);
    return m->other;
}

static struct metric_series *find_or_add(struct metric *m, const char *labels)
{
    uint64_t hash = str_hash(str_of(labels), 0);
    struct metric_series *s;
    map_foreach_hash (&m->series, hash, s, node)
        if (strcmp(s->labels, labels) == 0)
            return s;
    if (m->series.count == SERIES_MAX)
        return other_series(m);
    s = new_series(m, labels);
    map_add(&m->series, &s->node, hash);
    return s;
}

struct metric_series *metric_series(struct metric *m, ...)
{
    auto_sbuf b = SBUF(4096);
    va_list args;
    va_start(args, m);
    for (size_t i = 0; i < m->label_count; i++)
        add_label(&b, m->label_names[i], va_arg(args, const char *));
    va_end(args);
    auto_lock(&all.lock);
    return b.overflow ? other_series(m) : find_or_add(m, b.ptr ? b.ptr : "");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

void metric_add(struct metric_series *s, uint64_t n)
{
    atomic_fetch_add_explicit(&s->value, n, memory_order_relaxed);
}

void metric_set(struct metric_series *s, int64_t value)
{
    atomic_store_explicit(&s->value, (uint64_t)value, memory_order_relaxed);
}

static void add_to_sum(struct metric_series *s, double by)
{
    double before = atomic_load_explicit(&s->sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->sum, &before, before + by, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void metric_observe(struct metric_series *s, double value)
{
    const struct metric *m = s->family;
    size_t i = 0;
    while (i < m->bound_count && value > m->bounds[i])
        i++;
    if (i < m->bound_count)
        atomic_fetch_add_explicit(&s->buckets[i], 1, memory_order_relaxed);
    metric_add(s, 1);
    add_to_sum(s, value);
}

void metric_observe_many(struct metric_series *s, const uint64_t *in_buckets, uint64_t above, double sum)
{
    uint64_t count = above;
    for (size_t i = 0; i < s->family->bound_count; i++) {
        atomic_fetch_add_explicit(&s->buckets[i], in_buckets[i], memory_order_relaxed);
        count += in_buckets[i];
    }
    metric_add(s, count);
    add_to_sum(s, sum);
}

uint64_t metric_value(const struct metric_series *s)
{
    return atomic_load_explicit(&s->value, memory_order_relaxed);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void add_name(struct sbuf *b, const struct metric_series *s, const char *suffix, const char *more)
{
    sbuf_adds(b, s->family->name);
    sbuf_adds(b, suffix);
    if (!*s->labels && !*more)
        return;
    sbuf_addf(b, "{%s%s%s}", s->labels, *s->labels && *more ? "," : "", more);
}

static void write_histogram(struct sbuf *b, const struct metric_series *s)
{
    char bound[48];
    uint64_t below = 0;
    /* Buckets first: a count read after them is never less than their sum, as scrapers expect. */
    for (size_t i = 0; i < s->family->bound_count; i++) {
        below += atomic_load_explicit(&s->buckets[i], memory_order_relaxed);
        snprintf(bound, sizeof bound, "le=\"%g\"", s->family->bounds[i]);
        add_name(b, s, "_bucket", bound);
        sbuf_addf(b, " %" PRIu64 "\n", below);
    }
    uint64_t count = max_u64(metric_value(s), below);
    add_name(b, s, "_bucket", "le=\"+Inf\"");
    sbuf_addf(b, " %" PRIu64 "\n", count);
    add_name(b, s, "_sum", "");
    sbuf_addf(b, " %.9g\n", atomic_load_explicit(&s->sum, memory_order_relaxed));
    add_name(b, s, "_count", "");
    sbuf_addf(b, " %" PRIu64 "\n", count);
}

static void write_series(struct sbuf *b, const struct metric_series *s)
{
    if (s->family->type == METRIC_HISTOGRAM) {
        write_histogram(b, s);
        return;
    }
    add_name(b, s, "", "");
    if (s->family->type == METRIC_GAUGE)
        sbuf_addf(b, " %" PRId64 "\n", (int64_t)metric_value(s));
    else
        sbuf_addf(b, " %" PRIu64 "\n", metric_value(s));
}

static void write_family(struct sbuf *b, const struct metric *m)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    sbuf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, types[m->type]);
    const struct metric_series *s;
    map_foreach (&m->series, s, node)
        write_series(b, s);
    if (m->other)
        write_series(b, m->other);
}

void metric_write(struct sbuf *b)
{
    auto_lock(&all.lock);
    const struct metric *m;
    list_foreach (&all.families, m, node)
        write_family(b, m);
}
