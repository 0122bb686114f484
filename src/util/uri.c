/* SPDX-License-Identifier: Apache-2.0 */
#include "uri.h"
#include <linux/limits.h>
#include <stdio.h>

enum { BUCKET_MIN = 3, BUCKET_MAX = 63 };

#define STORE(store, ...) {__VA_ARGS__},
const struct scheme schemes[] = {
#include "stores.def"
};
#undef STORE

const struct scheme *scheme_find(struct str name)
{
    for (size_t i = 0; i < countof(schemes); i++)
        if (str_eq(name, str_of(schemes[i].name)))
            return &schemes[i];
    return NULL;
}

struct uri uri_split(struct str text)
{
    ssize_t colon = str_find(text, ':');
    struct str rest = colon < 0 ? STR_NULL : str_from(text, (size_t)colon);
    struct uri u = {.scheme = str_starts(rest, STR("://")) ? scheme_find(str_sub(text, 0, (size_t)colon)) : NULL};
    if (!u.scheme)
        return u;
    u.prefix = str_from(rest, strlen("://"));
    if (!u.scheme->is_path)
        str_split(&u.prefix, '/', &u.bucket);
    else if (str_starts(u.prefix, STR("localhost/")))
        u.prefix = str_from(u.prefix, strlen("localhost"));
    return u;
}

char *uri_shown(struct str text, char *buf)
{
    const char *scheme_end = text.len ? memmem(text.ptr, text.len, "://", 3) : NULL;
    size_t from = scheme_end ? (size_t)(scheme_end - text.ptr) + 3 : 0, to = from, at = 0;
    for (; to < text.len && text.ptr[to] != '/'; to++)
        if (text.ptr[to] == '@')
            at = to;
    struct str head = str_sub(text, 0, from), rest = str_from(text, at ? at : from);
    snprintf(buf, URI_SHOWN_ROOM, "%.*s%s%.*s", (int)min_u64(head.len, URI_SHOWN_MAX / 2), head.ptr ? head.ptr : "",
             at ? "..." : "", (int)min_u64(rest.len, URI_SHOWN_MAX - min_u64(head.len, URI_SHOWN_MAX / 2)),
             rest.ptr ? rest.ptr : "");
    return buf;
}

static int invalid(struct str text, struct err *err, const char *why)
{
    char shown[URI_SHOWN_ROOM];
    return err_fail(err, ERR_INVALID, CIS_URI_INVALID, "cannot read the URI '%s': %s", uri_shown(text, shown), why);
}

static int invalid_scheme(struct str text, struct err *err)
{
    char lower[8] = "";
    const char *end = memmem(text.ptr, text.len, "://", 3);
    if (text.ptr[0] == ' ')
        return invalid(text, err, "it begins with a blank");
    if (!end)
        return invalid(text, err,
                       memmem(text.ptr, text.len, ":\\", 2) ? "it has '\\' in place of '/'" : "it has no scheme");
    struct str scheme = str_sub(text, 0, (size_t)(end - text.ptr));
    for (size_t i = 0; i < scheme.len && scheme.len < sizeof lower; i++)
        lower[i] = (char)(scheme.ptr[i] | ('a' ^ 'A'));
    if (str_starts(str_of(lower), STR("http")))
        return invalid(text, err,
                       "an http:// URL is not a bucket; give the server with --endpoint (endpoint of a BucketSource)");
    if (strcmp(lower, "gcs") == 0)
        return invalid(text, err, "unknown scheme 'gcs' (Google's buckets are gs://)");
    if (strcmp(lower, "s3a") == 0 || strcmp(lower, "s3n") == 0)
        return invalid(text, err, "unknown scheme (Hadoop's name for s3://)");
    return invalid(text, err,
                   scheme_find(str_of(lower)) ? "the scheme is not in lower case"
                                              : "unknown scheme; a store with the API of S3 is s3:// with "
                                                "--endpoint (endpoint of a BucketSource)");
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Names another thing in place of the bucket. NULL: nothing is in its place. */
static const char *foreign_part(struct str bucket)
{
    if (bucket.len == 0)
        return "it names no bucket";
    if (str_starts(bucket, STR("arn:")))
        return "ARNs and access points are not supported; name the bucket itself";
    if (str_find(bucket, '@') >= 0)
        return "it has a user name or password before '@'; credentials do not belong in a URI";
    if (str_ends(bucket, STR(".amazonaws.com")) || str_ends(bucket, STR("storage.googleapis.com")))
        return "it has a host name in place of the bucket's: name the bucket itself";
    return str_find(bucket, ':') >= 0 ? "it has a port; give the server with --endpoint (endpoint of a BucketSource)"
                                      : NULL;
}

/* The rules of both vendors' naming pages. S3 buckets from before 2018 with capitals are not reachable by host name. */
static int check_bucket(struct str text, const struct uri *u, struct err *err)
{
    struct str bucket = u->bucket;
    const char *extra = u->scheme->bucket_extra;
    unsigned dotted_max = str_find(bucket, '.') >= 0 ? u->scheme->bucket_dotted_max : 0;
    const char *why = foreign_part(bucket);
    if (why)
        return invalid(text, err, why);
    if (bucket.len < BUCKET_MIN || bucket.len > (dotted_max ? dotted_max : BUCKET_MAX))
        return invalid(text, err, "the bucket name is too short or too long (3 to 63 characters)");
    for (size_t i = 0; i < bucket.len; i++)
        if (!is_alnum(bucket.ptr[i]) && bucket.ptr[i] != '-' && bucket.ptr[i] != '.' &&
            !(extra && strchr(extra, bucket.ptr[i])))
            return invalid(text, err,
                           bucket.ptr[i] == '\\' ? "it has '\\' in place of '/'"
                                                 : "a bucket name has a-z, 0-9, '-' and '.' only");
    if (!is_alnum(bucket.ptr[0]) || !is_alnum(bucket.ptr[bucket.len - 1]))
        return invalid(text, err, "a bucket name begins and ends with a letter or digit");
    return 0;
}

static int check_path(struct str text, struct str path, struct err *err)
{
    if (path.len == 0)
        return invalid(text, err, "it names no directory");
    if (path.ptr[0] != '/')
        return invalid(text, err, "the path is not absolute, or a host is named");
    return path.len >= PATH_MAX ? invalid(text, err, "the path is longer than 4095 bytes") : 0;
}

int uri_check(struct str text, struct err *err)
{
    if (text.len == 0)
        return invalid(text, err, "it is empty");
    if (memchr(text.ptr, '\0', text.len))
        return invalid(text, err, "it contains a NUL byte");
    struct uri u = uri_split(text);
    if (!u.scheme)
        return invalid_scheme(text, err);
    if (u.scheme->is_path)
        return check_path(text, u.prefix, err);
    int r = check_bucket(text, &u, err);
    return r == 0 && u.prefix.len > URI_KEY_MAX ? invalid(text, err, "the key is longer than 1024 bytes") : r;
}
