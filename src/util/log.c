/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"
#include "util/clock.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { VALUE_MAX = 1024, LINE_MAX_BYTES = 16384 };

static struct {
    int fd;
    enum log_level least;
    enum log_form form;
} out = {.fd = STDERR_FILENO, .least = LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_setup(int fd, enum log_level least, enum log_form form)
{
    out.fd = fd;
    out.least = least;
    out.form = form;
}

int log_level_parse(struct str s, enum log_level *ret, struct err *err)
{
    for (size_t i = 0; i < countof(level_names); i++)
        if (str_eq(s, str_of(level_names[i]))) {
            *ret = (enum log_level)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "'%.*s' is not a log level: debug, info, warn or error", STR_FMT(s));
}

bool log_wants(enum log_level level)
{
    return level >= out.least;
}

const char *log_u64(uint64_t n)
{
    static _Thread_local char buffers[8][24];
    static _Thread_local unsigned turn;
    char *buf = buffers[turn++ % 8];
    snprintf(buf, sizeof buffers[0], "%" PRIu64, n);
    return buf;
}

static void add_pair(struct sbuf *b, const char *key, const char *value)
{
    if (!value)
        return;
    struct str text = str_cut(str_of(value), VALUE_MAX);
    if (out.form == LOG_JSON) {
        sbuf_addf(b, "%s\"%s\":", b->len > 1 ? "," : "", key);
        sbuf_add_json(b, text);
        return;
    }
    sbuf_addf(b, "%s%s=", b->len ? " " : "", key);
    bool is_bare = text.len > 0 && text.len == strlen(value) && str_is_visible(text, "\"=\\");
    if (is_bare)
        sbuf_add(b, text);
    else
        sbuf_add_json(b, text);
}

/* The process's name is the name of its first thread. A thread's name may be set while it runs, so none is kept. */
static const char *thread_name(char buf[16])
{
    return gettid() != getpid() && pthread_getname_np(pthread_self(), buf, 16) == 0 ? buf : "main";
}

static void begin(struct sbuf *b, enum log_level level, const char *what)
{
    char now[TIME_TEXT_MAX], thread[16];
    sbuf_init(b, LINE_MAX_BYTES);
    if (out.form == LOG_JSON)
        sbuf_addc(b, '{');
    add_pair(b, "time", time_text(clock_wall_ns(), now));
    add_pair(b, "level", level_names[level]);
    add_pair(b, "thread", thread_name(thread));
    add_pair(b, "event", what);
}

static void add_args(struct sbuf *b, va_list args)
{
    for (const char *key; (key = va_arg(args, const char *)) != NULL;)
        add_pair(b, key, va_arg(args, const char *));
}

static void close_line(struct sbuf *b)
{
    sbuf_adds(b, out.form == LOG_JSON ? "}\n" : "\n");
}

static void end(struct sbuf *b)
{
    close_line(b);
    if (b->overflow) {
        sbuf_done(b);
        begin(b, LOG_ERROR, "a log line was too long");
        close_line(b);
    }
    (void)!write(out.fd, b->ptr, b->len); /* a log that cannot be written has nowhere to be reported */
    sbuf_done(b);
}

void log_event(enum log_level level, const char *what, ...)
{
    if (!log_wants(level))
        return;
    struct sbuf b;
    begin(&b, level, what);
    va_list args;
    va_start(args, what);
    add_args(&b, args);
    va_end(args);
    end(&b);
}

void log_err(enum log_level level, const char *what, const struct err *err, ...)
{
    if (!log_wants(level))
        return;
    struct sbuf b;
    char id[ERR_ID_TEXT_MAX];
    begin(&b, level, what);
    add_pair(&b, "error", err->text);
    add_pair(&b, "code", err_code_name(err->code));
    add_pair(&b, "id", err->id ? err_id_text(err->id, id) : NULL);
    add_pair(&b, "advice", err->advice[0] ? err->advice : NULL);
    va_list args;
    va_start(args, err);
    add_args(&b, args);
    va_end(args);
    end(&b);
}
