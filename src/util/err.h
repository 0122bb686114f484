/* SPDX-License-Identifier: Apache-2.0 */
/* err.h - the error type of all rooms: code, cause, sentence.
 * home: the caller's stack. Allocates nothing. Untouched on success.
 *
 * A function that may fail returns 0 or -(enum err_code) and takes `struct err *err` last, never NULL. Sentences are
 * lower case, without a full stop, with the subject in quotes: "cannot open 'journal': No such file or directory". */
#pragma once

#include "util/err_ids.h"
#include "util/macro.h"
#include <stdarg.h>
#include <stdbool.h>

enum err_code {
    ERR_NOT_FOUND = 1, /* it does not exist */
    ERR_EXISTS,        /* it exists already, and differs */
    ERR_NO_SPACE,      /* a disk, a quota or a limit is full */
    ERR_DENIED,        /* not allowed */
    ERR_BUSY,          /* in use; the caller must release it first */
    ERR_INVALID,       /* an argument or an input is malformed */
    ERR_CORRUPT,       /* bytes differ from their checksum or format */
    ERR_CHANGED,       /* the object is not the one that was read before */
    ERR_IO,            /* a device or a connection failed */
    ERR_TIMEOUT,       /* no reply in time */
    ERR_CANCELLED,     /* the caller cancelled it */
    ERR_AGAIN,         /* temporary: the same call may succeed later */
    ERR_PENDING,       /* still running; call again for the result */
    ERR_RANGE,         /* a well-formed size or number outside its limits */
    ERR_UNSUPPORTED,   /* this kernel, store or volume cannot do it */
    ERR_INTERNAL,      /* a bug in Cistern */
    ERR_ABSENT,        /* it exists but is unreachable: its disk is not mounted, or its pool not configured */
};

enum { ERR_TEXT_MAX = 512, ERR_ADVICE_MAX = 160 };

struct err {
    enum err_code code;
    enum err_id id;              /* the stable CISnnnn of docs/errors.md; 0: no id */
    int sys;                     /* errno; 0: no system call failed */
    char text[ERR_TEXT_MAX];     /* the sentence: printable UTF-8 (else '?'), one line, cut in its middle */
    char advice[ERR_ADVICE_MAX]; /* what to do; may be empty */
};

/* For a call of which only success or failure counts. Each use zeroes 0.7 KB: not for a path of millions of calls. */
#define ERR_IGNORED (&(struct err){0})

/* Sets the error; returns -code, for `return err_set(err, ERR_INVALID, ...)`. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) printf_like(3, 4);

/* The same for a failed system call: the code follows from errno, and ": <the system's text>" is appended. It
 * sets id and advice for causes in the machine: missing descriptors, space or permissions, and broken disks. */
int err_sys(struct err *err, int errnum, const char *fmt, ...) printf_like(3, 4);

/* err_advise(err, CIS_NAME, arguments of its advice...): gives the error its id and the advice of err_ids.h; returns
 * -err->code. */
#define err_advise(err, id, ...) err_advise_text((err), (id), id##_ADVICE, ##__VA_ARGS__)
/* err_set() and err_advise() in one, for an id whose advice takes no arguments. */
#define err_fail(err, code, id, ...) (err_set((err), (code), __VA_ARGS__), err_advise((err), id))
/* The same for an id in a variable; only for ids whose advice takes no arguments. */
int err_advise_by_id(struct err *err, enum err_id id);
/* The same with another advice, for an error of another process: that process may have a newer err_ids.h, and this one
 * may know what to do in its place. `fmt` may be "". */
int err_advise_text(struct err *err, enum err_id id, const char *fmt, ...) printf_like(3, 4);

/* Puts "<the caller's action>: " before the sentence; returns -err->code. */
int err_wrap(struct err *err, const char *fmt, ...) printf_like(2, 3);

/* Puts "<subject>: " before the sentence unless it names the subject already; returns -err->code. The subject is a
 * key or a path, any bytes, and is cut if it is long. */
struct str;
int err_name(struct err *err, struct str subject);

/* Copies an error of a completion or of another thread; returns -from->code. */
int err_copy(struct err *err, const struct err *from);

/* Lets the compiler know that these return a negative value. Otherwise it warns after each failed call that outputs may
 * be used unset. */
#define err_below_zero(r)                                                                                              \
    ({                                                                                                                 \
        int below_zero_ = (r);                                                                                         \
        if (below_zero_ >= 0)                                                                                          \
            __builtin_unreachable();                                                                                   \
        below_zero_;                                                                                                   \
    })
#define err_set(...) err_below_zero(err_set(__VA_ARGS__))
#define err_sys(...) err_below_zero(err_sys(__VA_ARGS__))
#define err_advise_text(...) err_below_zero(err_advise_text(__VA_ARGS__))
#define err_advise_by_id(...) err_below_zero(err_advise_by_id(__VA_ARGS__))
#define err_wrap(...) err_below_zero(err_wrap(__VA_ARGS__))
#define err_name(...) err_below_zero(err_name(__VA_ARGS__))
#define err_copy(...) err_below_zero(err_copy(__VA_ARGS__))

/* The whole line for people: "text (CISnnnn, DENIED); advice". Returns buf. size >= 1; ERR_LINE_MAX always suffices. */
enum { ERR_LINE_MAX = ERR_TEXT_MAX + ERR_ADVICE_MAX + 48 };
char *err_line(const struct err *err, char *buf, size_t size);

/* "NOT_FOUND" and so on; a static string, for any value. */
const char *err_code_name(enum err_code code);
/* The code of that name; ERR_INTERNAL for an unknown name, perhaps of a newer version. */
enum err_code err_code_of_name(struct str name);

/* The code of an errno. 0 is ERR_INTERNAL: the caller had no error. */
enum err_code err_code_of_errno(int errnum);

/* ---- kinds: the cause of an error, for conditions and events ----------------------------------------------------- */

enum err_kind {
    ERR_KIND_OTHER,
    ERR_KIND_DENIED,          /* credentials are missing, invalid, or have no permission */
    ERR_KIND_UNAUTHENTICATED, /* no valid credentials can be made: wrong clock, export identity is gone */
    ERR_KIND_OBJECT_NOT_FOUND,
    ERR_KIND_BUCKET_NOT_FOUND,
    ERR_KIND_EMPTY,           /* the source selects no object */
    ERR_KIND_UNREACHABLE,     /* the store does not answer */
    ERR_KIND_ENDPOINT_DENIED, /* the administrator's policy refuses the address or the endpoint */
    ERR_KIND_CHANGED,         /* the objects differ from the listing */
    ERR_KIND_TOO_LARGE,       /* the objects do not fit */
    ERR_KIND_LISTED_TWICE,    /* two objects have the same path */
    ERR_KIND_STORAGE_CLASS_UNKNOWN,
    ERR_KIND_MISMATCH,   /* the received bytes have another checksum than the store reports */
    ERR_KIND_STORE_BUSY, /* the store answered with 429, 5xx or an unexpected status */

    /* Of the credential broker: */
    ERR_KIND_IDENTITY_GONE,  /* the ServiceAccount, the Secret or the RoleBinding does not exist */
    ERR_KIND_CALLER_UNKNOWN, /* the token was not accepted */
    ERR_KIND_CALLER_DENIED,  /* the caller may not have these credentials */
    ERR_KIND_THROTTLED,
};

enum err_kind err_kind_of(enum err_id id);

/* Reads an id as text ("CIS" and four digits), as another process wrote it. ERR_KIND_OTHER for other texts and NULL. */
enum err_kind err_kind_of_text(const char *id);

/* Writes the id as text into `buf`; "" without an id. */
enum { ERR_ID_TEXT_MAX = 16 };
const char *err_id_text(enum err_id id, char buf[ERR_ID_TEXT_MAX]);
