/* SPDX-License-Identifier: Apache-2.0 */
/* term.h - writes progress and results: two live lines on a terminal, plain lines to a pipe, one JSON object a line
 * with --json.
 * home: its owner's thread or lock (cmd/cistern/export.c). Progress goes to stderr (stdout with --json), results to
 * stdout. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <stdio.h>

enum { TERM_LINE_MAX = 16384 };

enum term_form { TERM_QUIET, TERM_PLAIN, TERM_LIVE, TERM_JSON };

struct term_progress {
    const char *what; /* phase: "listing", "hydrating" ... */
    uint64_t bytes;
    uint64_t bytes_total; /* as far as known */
    uint64_t objects;
    uint64_t objects_total;
    uint64_t errors;
    uint64_t retries;
    double rate; /* bytes a second */
    bool total_is_final;
    struct str slowest; /* the slowest running object; empty: none */
    const char *retry;  /* the failure for which requests are retried; NULL: none */
};

struct term {
    enum term_form form;
    uint64_t drawn_ns;   /* when the last line was drawn; 0: never */
    bool retry_shown;    /* the last line named a retry */
    unsigned live_lines; /* the last lines on the screen that are the progress */
};

/* TERM_LIVE if stderr is a terminal that can move its cursor and no flag forbids it. No output has colours. */
void term_init(struct term *t, bool json, bool quiet, bool no_progress);

/* Draws if it is due: 5 a second live, 1 a second as JSON, every 5 s plain, a new retry within 2 s. */
void term_progress(struct term *t, const struct term_progress *p);

/* Erases the live lines, so that other text may follow. */
void term_clear(struct term *t);

/* Adds the part of a name that fits on one line. Keys hold any byte: control characters become '?'. */
void term_add_visible(struct sbuf *b, struct str s, size_t room);

/* Writes the failure of an object, or with an empty `object` of the run. `line` is err_line()'s. */
void term_fault(struct term *t, struct str object, enum err_id id, enum err_code code, const char *line);
void term_object_error(struct term *t, struct str object, const struct err *err);

/* The remaining seconds at this rate; UINT64_MAX if unknown. */
uint64_t term_eta_seconds(const struct term_progress *p);

/* The first line of live progress, at most `width` columns from 56 on; the bar takes what the numbers leave. Pure.
 * `[########----] 61% 86.0 GiB/140 GiB 6.61 GiB/s ETA 0:08` */
void term_bar(const struct term_progress *p, size_t width, struct sbuf *b);

/* `objects 117/191 errors 0 retries 2`. Pure. */
void term_counts(const struct term_progress *p, struct sbuf *b);

/* ---- JSON lines: {"type":...,"time":..., your members } ---------------------------------------------------------- */
void term_json_begin(struct sbuf *b, const char *type);
void term_json_str(struct sbuf *b, const char *key, struct str value); /* bytes that are not UTF-8 become U+FFFD */
void term_json_u64(struct sbuf *b, const char *key, uint64_t value);
void term_json_real(struct sbuf *b, const char *key, double value);
void term_json_error(struct sbuf *b, const struct err *err); /* "error":{"id","code","message"} */
void term_json_fault(struct sbuf *b, enum err_id id, enum err_code code,
                     const char *line);        /* the same, from its parts */
void term_json_end(struct sbuf *b, FILE *out); /* writes the line and empties b */

/* Flushes `out`; reports also an earlier write that failed. `what` names the output. */
must_check int term_flush(FILE *out, const char *what, struct err *err);
