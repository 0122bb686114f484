/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [ERR_NOT_FOUND] = "NOT_FOUND", [ERR_EXISTS] = "EXISTS",       [ERR_NO_SPACE] = "NO_SPACE",
    [ERR_DENIED] = "DENIED",       [ERR_BUSY] = "BUSY",           [ERR_INVALID] = "INVALID",
    [ERR_CORRUPT] = "CORRUPT",     [ERR_CHANGED] = "CHANGED",     [ERR_IO] = "IO",
    [ERR_TIMEOUT] = "TIMEOUT",     [ERR_CANCELLED] = "CANCELLED", [ERR_AGAIN] = "AGAIN",
    [ERR_PENDING] = "PENDING",     [ERR_RANGE] = "RANGE",         [ERR_UNSUPPORTED] = "UNSUPPORTED",
    [ERR_INTERNAL] = "INTERNAL",
};

const char *err_code_name(enum err_code code)
{
    return (size_t)code < countof(names) && names[code] ? names[code] : "INTERNAL";
}

enum err_code err_code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
        return ERR_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
        return ERR_EXISTS;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
        return ERR_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_DENIED;
    case EBUSY:
    case ETXTBSY:
        return ERR_BUSY;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
        return ERR_INVALID;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case ECANCELED:
        return ERR_CANCELLED;
    case EAGAIN:
    case EINTR:
        return ERR_AGAIN;
    case ENOSYS:
    case EOPNOTSUPP:
        return ERR_UNSUPPORTED;
    case 0:
        return ERR_INTERNAL;
    default:
        return ERR_IO;
    }
}

/* A cut must not leave half of a UTF-8 character: the sentence goes into JSON and protobuf strings, which refuse it. */
static void cut_at_character(char *text, size_t len)
{
    size_t i = len;
    while (i > 0 && ((unsigned char)text[i - 1] & 0xC0) == 0x80)
        i--;
    if (i == 0)
        return;
    unsigned char lead = (unsigned char)text[i - 1];
    size_t want = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (len - (i - 1) < want)
        text[i - 1] = '\0';
}

static void format(char *buf, size_t size, const char *fmt, va_list args) printf_like(3, 0);
static void format(char *buf, size_t size, const char *fmt, va_list args)
{
    int n = vsnprintf(buf, size, fmt, args);
    if (n >= (int)size)
        cut_at_character(buf, size - 1);
}

static void append(char *buf, size_t size, const char *fmt, ...) printf_like(3, 4);
static void append(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list args;
    va_start(args, fmt);
    format(buf + used, size - used, fmt, args);
    va_end(args);
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    *err = (struct err){.code = code};
    va_list args;
    va_start(args, fmt);
    format(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return -(int)code;
}

int err_sys(struct err *err, int errnum, const char *fmt, ...)
{
    enum err_code code = err_code_of_errno(errnum);
    *err = (struct err){.code = code, .sys = errnum};
    va_list args;
    va_start(args, fmt);
    format(err->text, sizeof err->text, fmt, args);
    va_end(args);
    char sys[64];
    append(err->text, sizeof err->text, ": %s", strerror_r(errnum, sys, sizeof sys));
    return -(int)code;
}

int err_advise(struct err *err, unsigned id, const char *fmt, ...)
{
    err->id = id;
    va_list args;
    va_start(args, fmt);
    format(err->advice, sizeof err->advice, fmt, args);
    va_end(args);
    return -(int)err->code;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    char inner[ERR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, fmt);
    format(err->text, sizeof err->text, fmt, args);
    va_end(args);
    append(err->text, sizeof err->text, ": %s", inner);
    return -(int)err->code;
}

int err_copy(struct err *err, const struct err *from)
{
    assert(from->code != 0);
    *err = *from;
    return -(int)from->code;
}

char *err_line(const struct err *err, char *buf, size_t size)
{
    assert(size > 0);
    buf[0] = '\0';
    append(buf, size, "%s", err->text);
    if (err->id)
        append(buf, size, " (CIS%04u, %s)", err->id, err_code_name(err->code));
    if (err->advice[0])
        append(buf, size, "; %s", err->advice);
    return buf;
}
