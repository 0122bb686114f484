/* SPDX-License-Identifier: Apache-2.0 */
/* term.h - progress and results as people and programs read them: two lines redrawn in place on a terminal, plain
 * lines in a pipe, one JSON object a line with --json.
 * home: main. Progress goes to stderr (stdout with --json), results to stdout. */
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
    double rate; /* bytes a second */
    bool total_is_final;
    struct str slowest; /* the slowest running object; empty: none */
    const char *retry;  /* what failed and is tried again; NULL: nothing */
};

struct term {
    enum term_form form;
    uint64_t drawn_ns; /* when the last line was drawn; 0: never */
    bool live_shown;   /* two lines stand on the screen and are ours to redraw */
};

/* TERM_LIVE where stderr is a terminal and nothing forbids it. */
void term_init(struct term *t, bool json, bool quiet, bool no_progress);

/* Draws if it is due: 5 a second live, 1 a second as JSON, every 10 s plain. */
void term_progress(struct term *t, const struct term_progress *p);

/* Takes the two lines off the screen, so that other text may follow. */
void term_clear(struct term *t);

/* Adds so much of a name as fits on one line. Keys hold any byte: what would move the cursor or beep becomes '?'. */
void term_add_visible(struct sbuf *b, struct str s, size_t room);

/* Something failed (an object, or with an empty one the whole): a line at once. `line` is err_line()'s. */
void term_fault(struct term *t, struct str object, unsigned id, enum err_code code, const char *line);
void term_object_error(struct term *t, struct str object, const struct err *err);

/* Seconds that are left at this rate; UINT64_MAX where nobody can tell. */
uint64_t term_eta_seconds(const struct term_progress *p);

/* The first line of live progress. Pure.
 * `[########----] 61% 86.0/140 GiB 7.1 GB/s ETA 0:08 objects 117/191 errors 0` */
void term_bar(const struct term_progress *p, struct sbuf *b);

/* ---- JSON lines: {"type":...,"time":..., your members } ---------------------------------------------------------- */
void term_json_begin(struct sbuf *b, const char *type);
void term_json_str(struct sbuf *b, const char *key, struct str value); /* bytes that are not UTF-8 become U+FFFD */
void term_json_u64(struct sbuf *b, const char *key, uint64_t value);
void term_json_real(struct sbuf *b, const char *key, double value);
void term_json_error(struct sbuf *b, const struct err *err); /* "error":{"id","code","message"} */
void term_json_fault(struct sbuf *b, unsigned id, enum err_code code, const char *line); /* the same, from its parts */
void term_json_end(struct sbuf *b, FILE *out); /* writes the line and empties b */

/* Writes out what is buffered, and tells of any write before that failed: `what` could not be written. */
must_check int term_flush(FILE *out, const char *what, struct err *err);
