/* SPDX-License-Identifier: Apache-2.0 */
#include "uri.h"
#include "backend.h"
#include "creds/endpoint.h"
#include <linux/limits.h>

enum { BUCKET_MIN = 3, BUCKET_MAX = 63 };

static int invalid(struct str text, struct err *err, const char *why)
{
    char shown[ENDPOINT_SHOWN_ROOM];
    return err_fail(err, ERR_INVALID, CIS_URI_INVALID, "cannot read the URI '%s': %s", endpoint_shown(text, shown),
                    why);
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
        return invalid(text, err, "an http:// URL is not a bucket; give the server with --endpoint");
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
    return str_find(bucket, ':') >= 0 ? "it has a port; give the server with --endpoint" : NULL;
}

/* The rules of both vendors' naming pages. S3 buckets from before 2018 with capitals are not reachable by host name. */
static int check_bucket(struct str text, struct str bucket, const struct store_caps *caps, struct err *err)
{
    size_t most = str_find(bucket, '.') >= 0 ? caps->bucket_dotted_max : BUCKET_MAX;
    const char *why = foreign_part(bucket);
    if (why)
        return invalid(text, err, why);
    if (bucket.len < BUCKET_MIN || bucket.len > most)
        return invalid(text, err, "the bucket name is too short or too long (3 to 63 characters)");
    for (size_t i = 0; i < bucket.len; i++)
        if (!is_alnum(bucket.ptr[i]) && bucket.ptr[i] != '-' && bucket.ptr[i] != '.' &&
            !memchr(caps->bucket_extra, bucket.ptr[i], strlen(caps->bucket_extra)))
            return invalid(text, err,
                           bucket.ptr[i] == '\\' ? "it has '\\' in place of '/'"
                                                 : "a bucket name has a-z, 0-9, '-' and '.' only");
    if (!is_alnum(bucket.ptr[0]) || !is_alnum(bucket.ptr[bucket.len - 1]))
        return invalid(text, err, "a bucket name begins and ends with a letter or digit");
    return 0;
}

static int check_path(struct str text, struct str *path, struct err *err)
{
    if (str_starts(*path, STR("localhost/")))
        *path = str_from(*path, sizeof "localhost" - 1);
    if (path->len == 0)
        return invalid(text, err, "it names no directory");
    if (path->ptr[0] != '/')
        return invalid(text, err, "the path is not absolute, or a host is named");
    return path->len >= PATH_MAX ? invalid(text, err, "the path is longer than 4095 bytes") : 0;
}

int store_uri_parse(struct str text, struct uri *ret, struct err *err)
{
    if (text.len == 0)
        return invalid(text, err, "it is empty");
    if (memchr(text.ptr, '\0', text.len))
        return invalid(text, err, "it contains a NUL byte");
    struct uri u = uri_split(text);
    if (!u.scheme)
        return invalid_scheme(text, err);
    int r = u.scheme->is_path ? check_path(text, &u.prefix, err)
                              : check_bucket(text, u.bucket, &backend_of(u.scheme)->caps, err);
    if (r == 0 && !u.scheme->is_path && u.prefix.len > URI_KEY_MAX)
        r = invalid(text, err, "the key is longer than 1024 bytes");
    if (r == 0)
        *ret = u;
    return r;
}
