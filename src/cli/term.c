/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/term.h"
#include "util/clock.h"
#include "util/env.h"
#include <errno.h>
#include <inttypes.h>
#include <sys/ioctl.h>

static bool moves_cursor(void)
{
    const char *kind = env_get("TERM");
    return kind && strcmp(kind, "dumb") != 0;
}

void term_init(struct term *t, bool json, bool quiet, bool no_progress)
{
    *t = (struct term){.form = TERM_PLAIN};
    if (json)
        t->form = TERM_JSON;
    else if (quiet)
        t->form = TERM_QUIET;
    else if (isatty(STDERR_FILENO) && !no_progress && moves_cursor())
        t->form = TERM_LIVE;
}

uint64_t term_eta_seconds(const struct term_progress *p)
{
    if (!p->total_is_final || p->rate < 1)
        return UINT64_MAX;
    double left = (double)(p->bytes_total - min_u64(p->bytes, p->bytes_total)) / p->rate;
    return left < 1e9 ? (uint64_t)(left + 0.5) : UINT64_MAX;
}

static unsigned percent(const struct term_progress *p)
{
    if (p->bytes_total > 0)
        return (unsigned)((double)min_u64(p->bytes, p->bytes_total) * 100.0 / (double)p->bytes_total);
    if (p->objects_total > 0)
        return (unsigned)(min_u64(p->objects, p->objects_total) * 100 / p->objects_total);
    return 0;
}

static void add_eta(struct sbuf *b, uint64_t seconds)
{
    if (seconds >= 3600)
        sbuf_addf(b, " ETA %" PRIu64 ":%02u:%02u", seconds / 3600, (unsigned)(seconds / 60 % 60),
                  (unsigned)(seconds % 60));
    else
        sbuf_addf(b, " ETA %u:%02u", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
}

void term_bar(const struct term_progress *p, size_t width, struct sbuf *b)
{
    enum { BAR_MIN = 4, BAR_MAX = 40 };
    char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX];
    unsigned part = percent(p);
    uint64_t eta = term_eta_seconds(p);
    auto_sbuf numbers = SBUF(TERM_LINE_MAX);
    sbuf_addf(&numbers, "] %u%% %s/%s%s %s/s", part, bytes_text(p->bytes, done), bytes_text(p->bytes_total, total),
              p->total_is_final ? "" : "+", bytes_text((uint64_t)p->rate, rate));
    if (eta != UINT64_MAX)
        add_eta(&numbers, eta);
    size_t bar = width > numbers.len + 1 + BAR_MIN ? min_u64(width - numbers.len - 1, BAR_MAX) : BAR_MIN;
    sbuf_addc(b, '[');
    for (size_t i = 0; i < bar; i++)
        sbuf_addc(b, i < part * bar / 100 ? '#' : '-');
    sbuf_add(b, sbuf_str(&numbers));
}

void term_counts(const struct term_progress *p, struct sbuf *b)
{
    sbuf_addf(b, "objects %" PRIu64 "/%" PRIu64 "%s errors %" PRIu64 " retries %" PRIu64, p->objects, p->objects_total,
              p->total_is_final ? "" : "+", p->errors, p->retries);
}

static size_t columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

void term_add_visible(struct sbuf *b, struct str s, size_t room)
{
    for (size_t i = 0; i < s.len && i < room; i++)
        sbuf_addc(b, (unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f ? '?' : s.ptr[i]);
}

/* A line that is cut to the width does not wrap: so the live lines can be found again by moving the cursor up. */
static void add_line(struct sbuf *b, struct str line, size_t width)
{
    term_add_visible(b, line, width);
    sbuf_adds(b, "\x1b[K\n");
}

/* The cause of a retry is longer than a line. Returns the number of lines. */
static unsigned add_retry(struct sbuf *b, const char *retry, size_t width)
{
    enum { LINES_MAX = 4 };
    auto_sbuf text = SBUF(TERM_LINE_MAX);
    sbuf_addf(&text, "retrying, %s", retry);
    struct str rest = sbuf_str(&text);
    unsigned count = 0;
    for (; rest.len && count < LINES_MAX; count++) {
        struct str line = str_cut(rest, width);
        add_line(b, line, width);
        rest = str_from(rest, line.len);
    }
    return count;
}

static void draw_live(struct term *t, const struct term_progress *p)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX), first = SBUF(TERM_LINE_MAX), second = SBUF(TERM_LINE_MAX);
    size_t width = columns() - 1;
    term_bar(p, width, &first);
    term_counts(p, &second);
    sbuf_addf(&second, " %s %.*s", p->what, STR_FMT(p->slowest));
    /* Overwrites the last lines, so that text above them stays. */
    if (t->live_lines)
        sbuf_addf(&b, "\x1b[%uA\r", t->live_lines);
    add_line(&b, sbuf_str(&first), width);
    add_line(&b, sbuf_str(&second), width);
    t->live_lines = 2 + (p->retry ? add_retry(&b, p->retry, width) : 0);
    sbuf_adds(&b, "\x1b[J");
    fwrite(b.ptr, 1, b.len, stderr);
}

static void draw_json(const struct term_progress *p)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    term_json_begin(&b, "progress");
    term_json_str(&b, "phase", str_of(p->what));
    if (p->slowest.len)
        term_json_str(&b, "object", p->slowest);
    if (p->retry)
        term_json_str(&b, "retrying", str_of(p->retry));
    term_json_u64(&b, "bytes", p->bytes);
    term_json_u64(&b, "bytes_total", p->bytes_total);
    term_json_u64(&b, "objects", p->objects);
    term_json_u64(&b, "objects_total", p->objects_total);
    term_json_u64(&b, "errors", p->errors);
    term_json_u64(&b, "retries", p->retries);
    term_json_real(&b, "rate", p->rate);
    if (term_eta_seconds(p) != UINT64_MAX)
        term_json_u64(&b, "eta_seconds", term_eta_seconds(p));
    term_json_end(&b, stdout);
}

static void draw_plain(const struct term_progress *p)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    sbuf_addf(&b, "%s ", p->what);
    term_bar(p, 80, &b);
    sbuf_addc(&b, ' ');
    term_counts(p, &b);
    if (p->retry) {
        sbuf_adds(&b, " retrying, ");
        term_add_visible(&b, str_of(p->retry), TERM_LINE_MAX / 2);
    }
    fprintf(stderr, "%s\n", b.ptr);
}

void term_progress(struct term *t, const struct term_progress *p)
{
    static const uint64_t every_ns[] = {[TERM_QUIET] = UINT64_MAX,
                                        [TERM_PLAIN] = 5 * NS_PER_SECOND,
                                        [TERM_LIVE] = NS_PER_SECOND / 5,
                                        [TERM_JSON] = NS_PER_SECOND};
    uint64_t now = clock_now_ns(), every = every_ns[t->form];
    if (t->drawn_ns == 0)
        t->drawn_ns = t->form == TERM_LIVE ? 1 : now; /* a run that ends at once needs no progress in a log */
    if (t->form == TERM_PLAIN && p->retry && !t->retry_shown)
        every = 2 * NS_PER_SECOND; /* the first sign that something is wrong */
    if (t->form == TERM_QUIET || now - t->drawn_ns < every)
        return;
    t->drawn_ns = now;
    t->retry_shown = p->retry;
    if (t->form == TERM_LIVE)
        draw_live(t, p);
    else if (t->form == TERM_JSON)
        draw_json(p);
    else
        draw_plain(p);
}

void term_clear(struct term *t)
{
    if (t->live_lines)
        fprintf(stderr, "\x1b[%uA\r\x1b[J", t->live_lines);
    t->live_lines = 0;
}

void term_fault(struct term *t, struct str object, enum err_id id, enum err_code code, const char *line)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    if (t->form == TERM_JSON) {
        term_json_begin(&b, "error");
        if (object.len)
            term_json_str(&b, "object", object);
        term_json_fault(&b, id, code, line);
        term_json_end(&b, stdout);
        return;
    }
    term_add_visible(&b, str_of(line), TERM_LINE_MAX / 2);
    term_clear(t);
    fprintf(stderr, "cistern: %s\n", b.ptr);
}

void term_object_error(struct term *t, struct str object, const struct err *err)
{
    char line[ERR_LINE_MAX];
    struct err named = *err;
    err_name(&named, object);
    term_fault(t, object, err->id, err->code, err_line(&named, line, sizeof line));
}

/* ---- JSON lines -------------------------------------------------------------------------------------------------- */

static void add_key(struct sbuf *b, const char *key)
{
    if (b->len > 0 && b->ptr[b->len - 1] != '{')
        sbuf_addc(b, ',');
    sbuf_addf(b, "\"%s\":", key);
}

void term_json_begin(struct sbuf *b, const char *type)
{
    char time[TIME_TEXT_MAX];
    sbuf_clear(b);
    sbuf_addf(b, "{\"type\":\"%s\",\"time\":\"%s\"", type, time_text(clock_wall_ns(), time));
}

void term_json_str(struct sbuf *b, const char *key, struct str value)
{
    add_key(b, key);
    sbuf_add_json(b, value);
}

void term_json_u64(struct sbuf *b, const char *key, uint64_t value)
{
    add_key(b, key);
    sbuf_add_u64(b, value);
}

void term_json_real(struct sbuf *b, const char *key, double value)
{
    add_key(b, key);
    sbuf_addf(b, "%.1f", value);
}

void term_json_fault(struct sbuf *b, enum err_id id, enum err_code code, const char *line)
{
    add_key(b, "error");
    sbuf_addc(b, '{');
    if (id) {
        add_key(b, "id");
        sbuf_addf(b, "\"CIS%04u\"", id);
    }
    term_json_str(b, "code", str_of(err_code_name(code)));
    term_json_str(b, "message", str_of(line));
    sbuf_addc(b, '}');
}

void term_json_error(struct sbuf *b, const struct err *err)
{
    char line[ERR_LINE_MAX];
    term_json_fault(b, err->id, err->code, err_line(err, line, sizeof line));
}

void term_json_end(struct sbuf *b, FILE *out)
{
    sbuf_addc(b, '}');
    if (!b->overflow)
        fprintf(out, "%s\n", b->ptr);
    fflush(out);
    sbuf_clear(b);
}

int term_flush(FILE *out, const char *what, struct err *err)
{
    errno = 0;
    if (fflush(out) == 0 && !ferror(out))
        return 0;
    if (errno)
        return err_sys(err, errno, "cannot write '%s'", what);
    return err_set(err, ERR_IO, "cannot write '%s': an earlier write failed", what); /* its errno is lost */
}
