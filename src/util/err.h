/* SPDX-License-Identifier: Apache-2.0 */
/* err.h - an error: code, cause, sentence. The one alphabet of the house.
 * home: the caller's stack. Allocates nothing. Untouched on success.
 *
 * A function that may fail returns 0 or -(enum err_code) and takes `struct err *err` last, never NULL. Sentences are
 * lower case, without a full stop, what failed first, subject in quotes: "cannot open 'journal': No such file or
 * directory". */
#pragma once

#include "util/macro.h"
#include <stdarg.h>
#include <stdbool.h>

enum err_code {
    ERR_NOT_FOUND = 1, /* the thing is not there */
    ERR_EXISTS,        /* it is there already, and differs */
    ERR_NO_SPACE,      /* disk, quota, or a ceiling of ours */
    ERR_DENIED,        /* not allowed */
    ERR_BUSY,          /* in use; the caller must do something first */
    ERR_INVALID,       /* the caller's words are off */
    ERR_CORRUPT,       /* bytes are not what they should be */
    ERR_CHANGED,       /* the object is no longer the one that was listed */
    ERR_IO,            /* a device or a connection failed */
    ERR_TIMEOUT,       /* nothing came in time */
    ERR_CANCELLED,     /* somebody asked to stop */
    ERR_AGAIN,         /* passing: the same call may succeed later */
    ERR_PENDING,       /* work on this thing is under way; ask again for its outcome */
    ERR_RANGE,         /* a size or number that is well-formed, but outside what can be done */
    ERR_UNSUPPORTED,   /* this kernel, store or volume cannot do it */
    ERR_INTERNAL,      /* a mistake of ours */
    ERR_ABSENT,        /* it exists, and cannot be reached now: its disk is not mounted or its pool is not configured */
};

enum { ERR_TEXT_MAX = 512, ERR_ADVICE_MAX = 160 };

struct err {
    enum err_code code;
    unsigned id;                 /* the stable CISnnnn of docs/errors.md, 0 where there is none */
    int sys;                     /* errno, 0 where no system call failed */
    char text[ERR_TEXT_MAX];     /* the sentence: printable UTF-8 (else '?'), one line, cut in its middle */
    char advice[ERR_ADVICE_MAX]; /* what happens next or what to do; may be empty */
};

/* Sets the error; returns -code, so that `return err_set(err, ERR_INVALID, ...)` reads as one thought. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) printf_like(3, 4);

/* The same for a failed system call: the code follows from errno, and ": <the system's text>" is appended. What the
 * machine itself lacks or refuses (descriptors, space, a disk that works, a right) has its id and advice from here. */
int err_sys(struct err *err, int errnum, const char *fmt, ...) printf_like(3, 4);

/* Gives the error its stable id and what to do about it; returns -err->code. `fmt` may be "". */
int err_advise(struct err *err, unsigned id, const char *fmt, ...) printf_like(3, 4);

/* Puts "<what was being done>: " before the sentence on its way up; returns -err->code. */
int err_wrap(struct err *err, const char *fmt, ...) printf_like(2, 3);

/* Puts "<subject>: " before the sentence, where it does not name it already; returns -err->code. A subject is any
 * bytes, an object's key or a path, and cut if it is long. */
struct str;
int err_name(struct err *err, struct str subject);

/* Copies an error that came in from elsewhere (a completion, another thread); returns -from->code. */
int err_copy(struct err *err, const struct err *from);

/* What these return is below zero, and the compiler is told so: else it must suspect, after every call that failed,
 * that what is set on success only is used unset. */
#define err_below_zero(r)                                                                                              \
    ({                                                                                                                 \
        int below_zero_ = (r);                                                                                         \
        if (below_zero_ >= 0)                                                                                          \
            __builtin_unreachable();                                                                                   \
        below_zero_;                                                                                                   \
    })
#define err_set(...) err_below_zero(err_set(__VA_ARGS__))
#define err_sys(...) err_below_zero(err_sys(__VA_ARGS__))
#define err_advise(...) err_below_zero(err_advise(__VA_ARGS__))
#define err_wrap(...) err_below_zero(err_wrap(__VA_ARGS__))
#define err_name(...) err_below_zero(err_name(__VA_ARGS__))
#define err_copy(...) err_below_zero(err_copy(__VA_ARGS__))

/* The whole line for people: "text (CIS1403, DENIED); advice". Returns buf. size >= 1; ERR_LINE_MAX always suffices. */
enum { ERR_LINE_MAX = ERR_TEXT_MAX + ERR_ADVICE_MAX + 48 };
char *err_line(const struct err *err, char *buf, size_t size);

/* "NOT_FOUND" and so on; a static string, for any value. */
const char *err_code_name(enum err_code code);
/* The code of that name; ERR_INTERNAL if there is none: a newer version knows more codes. */
enum err_code err_code_of_name(struct str name);

/* The code that an errno means. 0 maps to ERR_INTERNAL: somebody asked without an error. */
enum err_code err_code_of_errno(int errnum);
