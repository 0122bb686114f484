/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include "util/clock.h"
#include <fnmatch.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { RULES_MAX = 256 };

struct rule {
    enum operation op;
    bool any_op;
    char key[KEY_MAX_BYTES + 1]; /* a glob over the key; empty: any */
    uint64_t after, every, times, permille;
    uint64_t seen, fired;
    double tokens; /* limit: requests that may pass now */
    uint64_t filled_ns;
    struct fault fault;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards rules and their counts */
static struct rule *rules[RULES_MAX];
static _Atomic size_t rule_count;

static const char *const op_names[OP_COUNT] = {"get", "head", "list", "put", "post", "delete"};

enum operation operation_of(const struct request *r)
{
    bool is_object = r->key[0] != '\0';
    if (str_eq(r->method, STR("HEAD")))
        return OP_HEAD;
    if (str_eq(r->method, STR("PUT")))
        return OP_PUT;
    if (str_eq(r->method, STR("POST")))
        return OP_POST;
    if (str_eq(r->method, STR("DELETE")))
        return OP_DELETE;
    char alt[16];
    if (is_object && r->is_gcs && !(request_query(r, "alt", alt, sizeof alt) && strcmp(alt, "media") == 0))
        return OP_HEAD; /* metadata */
    return is_object ? OP_GET : OP_LIST;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static int rule_number(struct rule *rule, struct str name, struct str value, struct err *err)
{
    uint64_t n;
    int r = str_to_u64(value, &n, err);
    if (r < 0)
        return r;
    if (str_eq(name, STR("nth"))) {
        rule->after = n - 1;
        rule->times = 1;
    } else if (str_eq(name, STR("after")))
        rule->after = n;
    else if (str_eq(name, STR("every")))
        rule->every = n;
    else if (str_eq(name, STR("times")))
        rule->times = n;
    else if (str_eq(name, STR("percent")))
        rule->permille = 10 * n;
    else if (str_eq(name, STR("permille")))
        rule->permille = n;
    else
        return err_set(err, ERR_INVALID,
                       "a rule knows op, key, nth, after, every, times, percent, permille and do, not '%.*s'",
                       STR_FMT(name));
    return 0;
}

static int rule_op(struct rule *rule, struct str value, struct err *err)
{
    rule->any_op = str_eq(value, STR("any"));
    for (int i = 0; i < OP_COUNT; i++)
        if (str_eq(value, str_of(op_names[i]))) {
            rule->op = (enum operation)i;
            return 0;
        }
    return rule->any_op ? 0 : err_set(err, ERR_INVALID, "'%.*s' is not an operation", STR_FMT(value));
}

static bool action_is_known(const char *action)
{
    static const char *const known[] = {
        "reset",     "stall",     "truncate",  "long",    "wrong-length", "wrong-range", "other-range", "no-range",
        "status",    "change",    "remove",    "corrupt", "checksum",     "no-checksum", "redirect",    "page-repeat",
        "page-loop", "page-skip", "no-length", "garbage", "garbage-body", "body",        "lost",        "slow",
        "latency",   "error",     "limit",     "etag",    "hold",         "answer",      "late"};
    for (size_t i = 0; i < countof(known); i++)
        if (strcmp(action, known[i]) == 0)
            return true;
    return false;
}

/* do=ACTION[:N[:TEXT]] */
static int rule_action(struct rule *rule, struct str value, struct err *err)
{
    struct str action = STR_NULL, n = STR_NULL;
    str_split(&value, ':', &action);
    snprintf(rule->fault.action, sizeof rule->fault.action, "%.*s", STR_FMT(action));
    rule->fault.n = -1;
    if (!action_is_known(rule->fault.action))
        return err_set(err, ERR_INVALID, "'%s' is not a fault", rule->fault.action);
    if (value.ptr && str_split(&value, ':', &n)) {
        int r = str_to_i64(n, &rule->fault.n, err);
        if (r < 0)
            return r;
    }
    snprintf(rule->fault.text, sizeof rule->fault.text, "%.*s", STR_FMT(value));
    return 0;
}

int fault_add(struct str text, struct err *err)
{
    auto_mem struct rule *rule = xcalloc(1, sizeof *rule);
    struct str field, name;
    *rule = (struct rule){.any_op = true, .every = 1, .times = UINT64_MAX, .permille = 1000};
    while (str_split(&text, ',', &field)) {
        struct str value = field;
        str_split(&value, '=', &name);
        int r = 0;
        if (str_eq(name, STR("op")))
            r = rule_op(rule, value, err);
        else if (str_eq(name, STR("key")))
            snprintf(rule->key, sizeof rule->key, "%.*s", STR_FMT(value));
        else if (str_eq(name, STR("do")))
            r = rule_action(rule, value, err);
        else
            r = rule_number(rule, name, value, err);
        if (r < 0)
            return r;
    }
    if (!rule->fault.action[0] || rule->every == 0)
        return err_set(err, ERR_INVALID, "a rule needs do=ACTION, and every=N above 0");
    pthread_mutex_lock(&lock);
    bool room = rule_count < RULES_MAX;
    if (room)
        rules[rule_count++] = take(&rule);
    pthread_mutex_unlock(&lock);
    return room ? 0 : err_set(err, ERR_NO_SPACE, "more than %d rules", RULES_MAX);
}

void faults_clear(void)
{
    pthread_mutex_lock(&lock);
    rule_count = 0; /* the rules stay: a reply under way may hold one */
    pthread_mutex_unlock(&lock);
}

bool fault_has_fired(uint64_t rule)
{
    pthread_mutex_lock(&lock);
    bool has_fired = rule == 0 || rule > rule_count || rules[rule - 1]->fired > 0;
    pthread_mutex_unlock(&lock);
    return has_fired;
}

void faults_text(struct sbuf *b)
{
    sbuf_addc(b, '[');
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < rule_count; i++)
        sbuf_addf(b, "%s%" PRIu64, i > 0 ? "," : "", rules[i]->fired);
    pthread_mutex_unlock(&lock);
    sbuf_adds(b, "]\n");
}

static uint64_t dice(void)
{
    static _Atomic uint64_t state = 88172645463325252;
    uint64_t x = state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    state = x;
    return x % 1000;
}

/* More than n a second, over a tenth of one? */
static bool is_over_limit(struct rule *rule)
{
    double rate = (double)rule->fault.n;
    uint64_t now = clock_now_ns();
    rule->tokens += (double)(now - rule->filled_ns) / 1e9 * rate;
    rule->filled_ns = now;
    if (rule->tokens > rate / 10)
        rule->tokens = rate / 10;
    if (rule->tokens < 1)
        return true;
    rule->tokens -= 1;
    return false;
}

static bool rule_fires(struct rule *rule, enum operation op, const struct request *r)
{
    if (!rule->any_op && rule->op != op)
        return false;
    if (rule->key[0] && fnmatch(rule->key, r->key, 0) != 0)
        return false;
    uint64_t number = rule->seen++;
    if (number < rule->after || (number - rule->after) % rule->every != 0 || rule->fired >= rule->times ||
        dice() >= rule->permille)
        return false;
    if (strcmp(rule->fault.action, "limit") == 0 && !is_over_limit(rule))
        return false;
    rule->fired++;
    return true;
}

const struct fault *fault_for(enum operation op, const struct request *r)
{
    const struct fault *found = NULL;
    if (atomic_load_explicit(&rule_count, memory_order_relaxed) == 0 || request_header(r, "x-without-faults").len > 0)
        return NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < rule_count && !found; i++)
        if (rule_fires(rules[i], op, r))
            found = &rules[i]->fault;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- effects of the faults --------------------------------------------------------------------------------------- */

static bool is(const struct fault *f, const char *action)
{
    return strcmp(f->action, action) == 0;
}

static void answer_status(const struct fault *f, const struct request *r, struct reply *p)
{
    if (f->text[0])
        sbuf_addf(&p->headers, "Retry-After: %s\r\n", f->text);
    if (r->is_gcs)
        sbuf_addf(&p->text, "{\"error\":{\"code\":%" PRId64 ",\"message\":\"a fault was asked for\"}}", f->n);
    else
        sbuf_addf(&p->text, "<Error><Code>%s</Code><Message>a fault was asked for</Message></Error>",
                  f->n == 503   ? "SlowDown"
                  : f->n == 404 ? "NoSuchKey"
                  : f->n == 403 ? "AccessDenied"
                  : f->n == 412 ? "PreconditionFailed"
                                : "InternalError");
    reply_text(p, (int)f->n, r->is_gcs ? "application/json" : "application/xml", sbuf_str(&p->text));
}

/* error:STATUS:CODE, a refusal in the words of S3. */
static void answer_error(const struct fault *f, struct reply *p)
{
    sbuf_addf(&p->text, "<Error><Code>%s</Code><Message>a fault was asked for</Message></Error>", f->text);
    reply_text(p, (int)f->n, "application/xml", sbuf_str(&p->text));
}

static void answer_file(const struct fault *f, struct reply *p)
{
    char buf[65536];
    FILE *file = fopen(f->text, "r");
    sbuf_clear(&p->text);
    for (size_t n; file && (n = fread(buf, 1, sizeof buf, file)) > 0;)
        sbuf_add(&p->text, (struct str){buf, n});
    if (file)
        fclose(file);
    reply_text(p, f->n > 0 ? (int)f->n : 200, "application/xml", sbuf_str(&p->text));
}

bool fault_before(const struct fault *f, const struct request *r, struct reply *p)
{
    static const struct fault slow_down = {.action = "status", .n = 503};
    if (is(f, "limit"))
        answer_status(&slow_down, r, p);
    else if (is(f, "late")) {
        answer_status(&slow_down, r, p);
        p->delay_ns += (f->n < 0 ? 0 : (uint64_t)f->n) * 1000000;
    } else if (is(f, "status"))
        answer_status(f, r, p);
    else if (is(f, "error"))
        answer_error(f, p);
    else if (is(f, "body"))
        answer_file(f, p);
    else if (is(f, "redirect")) {
        sbuf_addf(&p->headers, "Location: %s\r\n", f->text);
        reply_text(p, f->n > 0 ? (int)f->n : 307, "text/plain", STR("elsewhere"));
    } else if (is(f, "change")) {
        objects_change(str_of(r->key));
        return false;
    } else if (is(f, "remove")) {
        objects_remove(str_of(r->key));
        return false;
    } else
        return false;
    return true;
}

/* Rewrites one header of the reply; `value` NULL takes it away. */
static void change_header(struct reply *p, const char *prefix, const char *value)
{
    auto_sbuf other;
    struct str rest = sbuf_str(&p->headers), line;
    sbuf_init(&other, HEAD_MAX);
    while (str_split(&rest, '\n', &line)) {
        if (line.len == 0)
            continue;
        if (!str_eq_nocase(str_sub(line, 0, strlen(prefix)), str_of(prefix))) {
            sbuf_add(&other, line);
            sbuf_addc(&other, '\n');
        } else if (value)
            sbuf_addf(&other, "%.*s: %s\r\n", (int)str_find(line, ':'), line.ptr, value);
    }
    sbuf_clear(&p->headers);
    sbuf_add(&p->headers, sbuf_str(&other));
}

static void garble(struct reply *p, uint64_t len)
{
    uint64_t n = len ? len : p->body_len;
    p->segment_count = 0;
    p->body_len = p->declared_len = 0;
    reply_add(p, (struct segment){.from = SEGMENT_PATTERN, .at = 4321, .len = n});
}

/* The body ends after `n` bytes, or nothing at all is sent if n is negative. */
static void cut_short(struct reply *p, int64_t n, enum reply_end end)
{
    p->end = end;
    p->raw = n < 0;
    if (n >= 0) {
        reply_cut(p, min_u64((uint64_t)n, p->body_len));
        return;
    }
    p->segment_count = 0;
    p->body_len = 0;
}

static bool spoil_end(const struct fault *f, struct reply *p)
{
    if (is(f, "reset"))
        cut_short(p, f->n, END_RESET);
    else if (is(f, "stall"))
        cut_short(p, f->n, END_STALL);
    else if (is(f, "truncate"))
        cut_short(p, f->n, END_CLOSE);
    else if (is(f, "lost"))
        cut_short(p, -1, END_CLOSE);
    else
        return false;
    return true;
}

/* hold:N:OP, until N requests of that operation came; hold:N:rule, until rule N has fired. */
static void hold(const struct fault *f, uint64_t n, struct reply *p)
{
    if (strcmp(f->text, "rule") == 0) {
        p->hold_rule = n;
        return;
    }
    p->hold_until = n;
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(f->text, op_names[i]) == 0)
            p->hold_for = (enum operation)i;
}

static bool spoil_transport(const struct fault *f, struct reply *p)
{
    uint64_t n = f->n < 0 ? 0 : (uint64_t)f->n;
    if (is(f, "long")) {
        uint64_t declared = p->declared_len;
        reply_add(p, (struct segment){.from = SEGMENT_PATTERN, .at = 99, .len = max_u64(n, 1)});
        if (f->text[0]) /* long:N:silent keeps the length as it was */
            p->declared_len = declared;
        p->end = END_CLOSE;
    } else if (is(f, "wrong-length")) {
        p->declared_len = n;
        p->end = END_CLOSE;
    } else if (is(f, "no-length")) {
        p->declared_len = LENGTH_UNTOLD;
        p->end = END_CLOSE;
    } else if (is(f, "slow"))
        p->bytes_per_second = max_u64(n, 1);
    else if (is(f, "latency"))
        p->delay_ns += n * 1000000;
    else if (is(f, "hold"))
        hold(f, n, p);
    else
        return false;
    return true;
}

static bool spoil_range(const struct fault *f, struct reply *p)
{
    char other[100];
    if (is(f, "wrong-range")) {
        snprintf(other, sizeof other, "bytes 1-%" PRIu64 "/%" PRIu64, p->body_len, 2 * p->body_len + 7);
        change_header(p, "Content-Range:", other);
    } else if (is(f, "other-range")) { /* a correct header for unrequested bytes */
        snprintf(other, sizeof other, "bytes 0-%" PRIu64 "/%" PRIu64, p->body_len - 1, 2 * p->body_len + 7);
        change_header(p, "Content-Range:", other);
        p->segments[0].at += 64;
    } else if (is(f, "no-range")) {
        p->status = 200;
        change_header(p, "Content-Range:", NULL);
    } else
        return false;
    return true;
}

/* List pages: the reply's text holds the token between its tags. */
static void spoil_page(const struct fault *f, const struct request *r, struct reply *p)
{
    static const char *const token_params[] = {"continuation-token", "pageToken"};
    bool skips = is(f, "page-skip"); /* on from "z", and not from "a" again */
    const char *other = r->is_gcs ? (skips ? "7a" : "61") : (skips ? "eg" : "YQ");
    char asked[3000] = "";
    for (size_t i = 0; i < countof(token_params) && !asked[0]; i++)
        request_query(r, token_params[i], asked, sizeof asked);
    auto_sbuf b;
    sbuf_init(&b, 1 << 20);
    const char *begin = r->is_gcs ? "\"nextPageToken\":\"" : "<NextContinuationToken>";
    char *at = p->text.len ? strstr(p->text.ptr, begin) : NULL;
    if (!at)
        return;
    size_t head = (size_t)(at - p->text.ptr) + strlen(begin);
    size_t tail = head + strcspn(p->text.ptr + head, r->is_gcs ? "\"" : "<");
    sbuf_add(&b, (struct str){p->text.ptr, head});
    sbuf_adds(&b, is(f, "page-loop") && asked[0] ? asked : other);
    sbuf_add(&b, str_from(sbuf_str(&p->text), tail));
    struct segment rest[SEGMENTS_MAX];
    unsigned count = p->segment_count;
    memcpy(rest, p->segments, sizeof rest);
    sbuf_clear(&p->text);
    sbuf_add(&p->text, sbuf_str(&b));
    p->segment_count = 0;
    p->body_len = p->declared_len = 0;
    reply_add(p, (struct segment){.from = SEGMENT_TEXT, .text = p->text.ptr, .len = p->text.len});
    for (unsigned i = 1; i < count; i++)
        reply_add(p, rest[i]);
}

void fault_after(const struct fault *f, const struct request *r, struct reply *p)
{
    if (spoil_end(f, p) || spoil_transport(f, p) || spoil_range(f, p))
        return;
    if (is(f, "corrupt"))
        reply_flip(p, f->n < 0 ? p->body_len / 2 : (uint64_t)f->n);
    else if (is(f, "garbage-body"))
        garble(p, f->n < 0 ? 0 : (uint64_t)f->n);
    else if (is(f, "garbage")) {
        garble(p, f->n < 0 ? 100 : (uint64_t)f->n);
        p->raw = true;
        p->end = END_CLOSE;
    } else if (is(f, "no-checksum")) {
        change_header(p, "x-amz-checksum-", NULL);
        change_header(p, "x-goog-hash", NULL);
    } else if (is(f, "checksum")) {
        change_header(p, "x-amz-checksum-crc64nvme", "AAAAAAAAAAA=");
        change_header(p, "x-amz-checksum-crc32c", "AAAAAA==");
        change_header(p, "x-amz-checksum-crc32", "AAAAAA==");
        change_header(p, "x-goog-hash", "crc32c=AAAAAA==");
    } else if (is(f, "answer")) {
        answer_file(f, p);
    } else if (is(f, "etag")) {
        change_header(p, "ETag:", "\"00000000000000000000000000000000\"");
    } else if (strncmp(f->action, "page-", 5) == 0)
        spoil_page(f, r, p);
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

static struct {
    _Atomic uint64_t requests[OP_COUNT], connections, turned_away, bytes_out, bytes_in, keys, errors;
} stats;

uint64_t requests_counted(enum operation op)
{
    return atomic_load_explicit(&stats.requests[op], memory_order_relaxed);
}

void count_request(enum operation op, const struct reply *p, uint64_t bytes_in)
{
    atomic_fetch_add_explicit(&stats.requests[op], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&stats.bytes_out, p->no_body ? 0 : p->body_len, memory_order_relaxed);
    if (bytes_in)
        atomic_fetch_add_explicit(&stats.bytes_in, bytes_in, memory_order_relaxed);
    if (p->status >= 400)
        atomic_fetch_add_explicit(&stats.errors, 1, memory_order_relaxed);
}

void count_connection(void)
{
    atomic_fetch_add_explicit(&stats.connections, 1, memory_order_relaxed);
}

void count_turned_away(void)
{
    atomic_fetch_add_explicit(&stats.turned_away, 1, memory_order_relaxed);
}

void stats_text(struct sbuf *b)
{
    uint64_t all = 0;
    sbuf_adds(b, "{");
    for (int i = 0; i < OP_COUNT; i++) {
        sbuf_addf(b, "\"%s\":%" PRIu64 ",", op_names[i], stats.requests[i]);
        all += stats.requests[i];
    }
    sbuf_addf(b,
              "\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"connections\":%" PRIu64 ",\"turned_away\":%" PRIu64
              ",\"bytes_out\":%" PRIu64 ",\"bytes_in\":%" PRIu64 "}\n",
              all, stats.errors, stats.connections, stats.turned_away, stats.bytes_out, stats.bytes_in);
}

static struct {
    pthread_mutex_t lock;
    char text[4 << 20];
    size_t len;
} order = {.lock = PTHREAD_MUTEX_INITIALIZER};

void order_note(const struct request *r)
{
    size_t len = strlen(r->key);
    pthread_mutex_lock(&order.lock);
    if (len < sizeof order.text - order.len) {
        memcpy(order.text + order.len, r->key, len);
        order.text[order.len + len] = '\n';
        order.len += len + 1;
    }
    pthread_mutex_unlock(&order.lock);
}

void order_text(struct sbuf *b)
{
    pthread_mutex_lock(&order.lock);
    sbuf_add(b, (struct str){order.text, order.len});
    pthread_mutex_unlock(&order.lock);
}

void stats_clear(void)
{
    for (int i = 0; i < OP_COUNT; i++)
        stats.requests[i] = 0;
    stats.connections = stats.turned_away = stats.bytes_out = stats.bytes_in = stats.errors = 0;
}
