/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err.h"
#include "util/str.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

/* WHOLE_MAX: two of the kernel's longest paths, and the words between them. */
enum { SUBJECT_MAX = 200, WHOLE_MAX = 9 << 10 };

static const char *const names[] = {
    [ERR_NOT_FOUND] = "NOT_FOUND", [ERR_EXISTS] = "EXISTS",       [ERR_NO_SPACE] = "NO_SPACE",
    [ERR_DENIED] = "DENIED",       [ERR_BUSY] = "BUSY",           [ERR_INVALID] = "INVALID",
    [ERR_CORRUPT] = "CORRUPT",     [ERR_CHANGED] = "CHANGED",     [ERR_IO] = "IO",
    [ERR_TIMEOUT] = "TIMEOUT",     [ERR_CANCELLED] = "CANCELLED", [ERR_AGAIN] = "AGAIN",
    [ERR_PENDING] = "PENDING",     [ERR_RANGE] = "RANGE",         [ERR_UNSUPPORTED] = "UNSUPPORTED",
    [ERR_INTERNAL] = "INTERNAL",   [ERR_ABSENT] = "ABSENT",
};

const char *err_code_name(enum err_code code)
{
    return (size_t)code < countof(names) && names[code] ? names[code] : "INTERNAL";
}

enum err_code err_code_of_name(struct str name)
{
    for (size_t i = 0; i < countof(names); i++)
        if (names[i] && name.len == strlen(names[i]) && memcmp(name.ptr, names[i], name.len) == 0)
            return (enum err_code)i;
    return ERR_INTERNAL;
}

enum err_code err_code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
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

/* A long sentence is cut in its middle: it begins with its subject and ends with the cause. It goes into JSON, protobuf
 * strings and terminals: bytes of a key, or half of a character at the cut, become '?'. */
static void fit(char *buf, size_t size, const char *whole)
{
    static const char gap[] = "...";
    size_t len = strlen(whole), most = size - 1, tail = most / 3;
    if (len <= most || tail < sizeof gap) {
        snprintf(buf, size, "%s", whole);
    } else {
        size_t head = most - tail - (sizeof gap - 1);
        memcpy(buf, whole, head);
        memcpy(buf + head, gap, sizeof gap - 1);
        memcpy(buf + most - tail, whole + len - tail, tail + 1);
    }
    text_make_printable(buf, strlen(buf));
}

static void format(char *buf, size_t size, const char *fmt, va_list args) printf_like(3, 0);
static void format(char *buf, size_t size, const char *fmt, va_list args)
{
    char whole[WHOLE_MAX];
    vsnprintf(whole, sizeof whole, fmt, args);
    fit(buf, size, whole);
}

static void append(char *buf, size_t size, const char *fmt, ...) printf_like(3, 4);
static void append(char *buf, size_t size, const char *fmt, ...)
{
    char whole[WHOLE_MAX];
    size_t used = strlen(buf);
    assert(used < sizeof whole);
    memcpy(whole, buf, used + 1);
    va_list args;
    va_start(args, fmt);
    vsnprintf(whole + used, sizeof whole - used, fmt, args);
    va_end(args);
    fit(buf, size, whole);
}

int(err_set)(struct err *err, enum err_code code, const char *fmt, ...)
{
    assert(code != 0);
    *err = (struct err){.code = code};
    va_list args;
    va_start(args, fmt);
    format(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return -(int)code;
}

/* A missing resource or a broken device has the same advice for every caller. The caller may replace it by
 * err_advise(). */
static void advise_by_errno(struct err *err)
{
    static const struct {
        int sys;
        enum err_id id;
    } advised[] = {
        {EMFILE, CIS_TOO_MANY_OPEN_FILES},
        {ENFILE, CIS_TOO_MANY_OPEN_FILES},
        {ENOSPC, CIS_DISK_FULL},
        {EDQUOT, CIS_DISK_FULL},
        {EIO, CIS_DISK_ERROR},
        {EROFS, CIS_READ_ONLY_DISK},
        {EACCES, CIS_PERMISSION_DENIED},
        {EPERM, CIS_PERMISSION_DENIED},
        {EINTR, CIS_INTERRUPTED},
        {ELOOP, CIS_SYMLINK_IN_THE_WAY},
        {ENAMETOOLONG, CIS_PATH_TOO_LONG},
        {EFBIG, CIS_FILE_SIZE_LIMIT},
    };
    for (size_t i = 0; i < countof(advised); i++)
        if (advised[i].sys == err->sys)
            err_advise_by_id(err, advised[i].id);
}

int(err_sys)(struct err *err, int errnum, const char *fmt, ...)
{
    enum err_code code = err_code_of_errno(errnum);
    *err = (struct err){.code = code, .sys = errnum};
    va_list args;
    va_start(args, fmt);
    format(err->text, sizeof err->text, fmt, args);
    va_end(args);
    char sys[64];
    append(err->text, sizeof err->text, ": %s", strerror_r(errnum, sys, sizeof sys));
    advise_by_errno(err);
    return -(int)code;
}

int(err_advise_text)(struct err *err, enum err_id id, const char *fmt, ...)
{
    assert(err->code != 0);
    err->id = id;
    va_list args;
    va_start(args, fmt);
    format(err->advice, sizeof err->advice, fmt, args);
    va_end(args);
    return -(int)err->code;
}

int(err_advise_by_id)(struct err *err, enum err_id id)
{
    switch (id) {
#define ADVISE(number, name, advice)                                                                                   \
    case CIS_##name:                                                                                                   \
        return err_advise_text(err, id, "%s", CIS_##name##_ADVICE);
        ERR_IDS(ADVISE)
#undef ADVISE
    }
    return err_advise_text(err, id, "%s", ""); /* an id of a newer version */
}

int(err_wrap)(struct err *err, const char *fmt, ...)
{
    assert(err->code != 0);
    char inner[ERR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, fmt);
    format(err->text, sizeof err->text, fmt, args);
    va_end(args);
    append(err->text, sizeof err->text, ": %s", inner);
    return -(int)err->code;
}

/* Matches whole words only: the key "a" occurs in nearly every sentence. A name that was cut may continue. */
static bool is_named(const char *text, const char *name, bool is_cut)
{
    size_t len = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
        bool begins = at == text || at[-1] == '/' || at[-1] == '\'';
        if (begins && (is_cut || at[len] == '\0' || at[len] == ':' || at[len] == '\''))
            return true;
    }
    return false;
}

int(err_name)(struct err *err, struct str subject)
{
    char name[SUBJECT_MAX + 1];
    snprintf(name, sizeof name, "%.*s", STR_FMT(str_sub(subject, 0, SUBJECT_MAX)));
    text_make_printable(name, strlen(name));
    if (name[0] && !is_named(err->text, name, subject.len > SUBJECT_MAX))
        return err_wrap(err, "%s", name);
    return -(int)err->code;
}

int(err_copy)(struct err *err, const struct err *from)
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

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static const struct {
    enum err_id id;
    enum err_kind kind;
} kinds[] = {
    {CIS_CREDENTIALS_REJECTED, ERR_KIND_DENIED},
    {CIS_ACCESS_DENIED, ERR_KIND_DENIED},
    {CIS_PAYER_MISSING, ERR_KIND_DENIED},
    {CIS_NO_CREDENTIALS, ERR_KIND_DENIED},
    {CIS_TOKEN_EXCHANGE_FAILED, ERR_KIND_DENIED},
    {CIS_CLOCK_SKEW, ERR_KIND_UNAUTHENTICATED},
    {CIS_SERVICE_ACCOUNT_NOT_ANNOTATED, ERR_KIND_DENIED},
    {CIS_BROKER_NAMESPACE_DENIED, ERR_KIND_IDENTITY_GONE},
    {CIS_IDENTITY_NOT_FOUND, ERR_KIND_IDENTITY_GONE},
    {CIS_SECRET_INVALID, ERR_KIND_DENIED},
    {CIS_IDENTITY_UNSUPPORTED, ERR_KIND_DENIED},
    {CIS_EXPORT_IDENTITY_GONE, ERR_KIND_UNAUTHENTICATED},
    {CIS_OBJECT_NOT_FOUND, ERR_KIND_OBJECT_NOT_FOUND},
    {CIS_KEY_NOT_FOUND, ERR_KIND_EMPTY},
    {CIS_SOURCE_EMPTY, ERR_KIND_EMPTY},
    {CIS_BUCKET_NOT_FOUND, ERR_KIND_BUCKET_NOT_FOUND},
    {CIS_STORE_UNREACHABLE, ERR_KIND_UNREACHABLE},
    {CIS_REPLY_TIMEOUT, ERR_KIND_UNREACHABLE},
    {CIS_CERTIFICATE_UNTRUSTED, ERR_KIND_UNREACHABLE},
    {CIS_CONNECTION_LOST, ERR_KIND_UNREACHABLE},
    {CIS_NOT_HTTP, ERR_KIND_UNREACHABLE},
    {CIS_ENDPOINT_WITHOUT_TLS, ERR_KIND_UNREACHABLE},
    {CIS_ENDPOINT_WITH_TLS, ERR_KIND_UNREACHABLE},
    {CIS_PROXY_INVALID, ERR_KIND_UNREACHABLE},
    {CIS_ADDRESS_BLOCKED, ERR_KIND_ENDPOINT_DENIED},
    {CIS_TOKEN_WITHHELD, ERR_KIND_ENDPOINT_DENIED},
    {CIS_CREDENTIAL_NOT_FOR_ENDPOINT, ERR_KIND_ENDPOINT_DENIED},
    {CIS_STORE_THROTTLED, ERR_KIND_STORE_BUSY},
    {CIS_STORE_FAILED, ERR_KIND_STORE_BUSY},
    {CIS_OBJECT_CHANGED, ERR_KIND_CHANGED},
    {CIS_OTHER_RUN_UNFINISHED, ERR_KIND_CHANGED},
    {CIS_SOURCE_TOO_LARGE, ERR_KIND_TOO_LARGE},
    {CIS_KEY_LISTED_TWICE, ERR_KIND_LISTED_TWICE},
    {CIS_STORAGE_CLASS_UNKNOWN, ERR_KIND_STORAGE_CLASS_UNKNOWN},
    {CIS_CHECKSUM_MISMATCH, ERR_KIND_MISMATCH},
    {CIS_BROKER_CALLER_UNKNOWN, ERR_KIND_CALLER_UNKNOWN},
    {CIS_BROKER_OTHER_VOLUME, ERR_KIND_CALLER_DENIED},
    {CIS_BROKER_THROTTLED, ERR_KIND_THROTTLED},
};

const char *err_id_text(enum err_id id, char buf[ERR_ID_TEXT_MAX])
{
    buf[0] = '\0';
    if (id)
        snprintf(buf, ERR_ID_TEXT_MAX, "CIS%04u", (unsigned)id);
    return buf;
}

enum err_kind err_kind_of(enum err_id id)
{
    for (size_t i = 0; i < countof(kinds); i++)
        if (kinds[i].id == id)
            return kinds[i].kind;
    return ERR_KIND_OTHER;
}

enum err_kind err_kind_of_text(const char *id)
{
    char text[ERR_ID_TEXT_MAX];
    for (size_t i = 0; id && i < countof(kinds); i++)
        if (strcmp(id, err_id_text(kinds[i].id, text)) == 0)
            return kinds[i].kind;
    return ERR_KIND_OTHER;
}
