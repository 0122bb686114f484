/* SPDX-License-Identifier: Apache-2.0 */
#include "uri.h"
#include <linux/limits.h>
#include <stdio.h>

enum { BUCKET_MIN = 3, BUCKET_MAX = 63, BUCKET_DOTTED_MAX = 222 };

/* Where the "://" stands, or -1. */
static ssize_t find_scheme_end(struct str text)
{
    const char *at = text.len ? memmem(text.ptr, text.len, "://", 3) : NULL;
    return at ? at - text.ptr : -1;
}

char *uri_shown(struct str text, char *buf)
{
    ssize_t scheme_end = find_scheme_end(text);
    size_t from = scheme_end < 0 ? 0 : (size_t)scheme_end + 3, to = from, at = 0;
    for (; to < text.len && text.ptr[to] != '/'; to++)
        if (text.ptr[to] == '@')
            at = to;
    struct str head = str_sub(text, 0, from), rest = str_from(text, at ? at : from);
    snprintf(buf, URI_SHOWN_ROOM, "%.*s%s%.*s", (int)min_u64(head.len, URI_SHOWN_MAX / 2), head.ptr ? head.ptr : "",
             at ? "..." : "", (int)min_u64(rest.len, URI_SHOWN_MAX - min_u64(head.len, URI_SHOWN_MAX / 2)),
             rest.ptr ? rest.ptr : "");
    return buf;
}

static int wrong(struct str text, struct err *err, const char *why, const char *advice)
{
    char shown[URI_SHOWN_ROOM];
    err_set(err, ERR_INVALID, "cannot read the URI '%s': %s", uri_shown(text, shown), why);
    return err_advise(err, 1001, "%s", advice);
}

static int wrong_scheme(struct str text, struct str scheme, struct err *err)
{
    if (str_eq_nocase(scheme, STR("http")) || str_eq_nocase(scheme, STR("https")))
        return wrong(text, err, "a web address is not a bucket",
                     "write s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, and give the server as the endpoint");
    if (str_eq_nocase(scheme, STR("gcs")))
        return wrong(text, err, "unknown scheme 'gcs'", "Google's buckets are written gs://BUCKET/PREFIX");
    if (str_eq_nocase(scheme, STR("s3a")) || str_eq_nocase(scheme, STR("s3n")))
        return wrong(text, err, "unknown scheme (Hadoop's name for S3)", "write s3://BUCKET/PREFIX");
    if (str_eq_nocase(scheme, STR("s3")) || str_eq_nocase(scheme, STR("gs")) || str_eq_nocase(scheme, STR("file")))
        return wrong(text, err, "the scheme is not in lower case", "write s3://, gs:// or file:///");
    return wrong(text, err, "unknown scheme", "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///FOLDER");
}

static bool is_bucket_char(char c, bool gs)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || (gs && c == '_');
}

static bool is_alnum(char c)
{
    return is_bucket_char(c, false) && c != '-' && c != '.';
}

/* The rules of both vendors' naming pages; buckets of before 2018 with capitals are not reachable by host name. */
static int check_bucket(struct str text, struct str bucket, bool gs, struct err *err)
{
    static const char advice[] = "bucket names have 3 to 63 of a-z, 0-9, '-' and '.'";
    size_t most = gs && str_find(bucket, '.') >= 0 ? BUCKET_DOTTED_MAX : BUCKET_MAX;
    if (bucket.len == 0)
        return wrong(text, err, "it names no bucket", "write s3://BUCKET/PREFIX or gs://BUCKET/PREFIX");
    if (str_starts(bucket, STR("arn:")))
        return wrong(text, err, "ARNs and access points are not supported", "name the bucket itself");
    if (str_find(bucket, '@') >= 0)
        return wrong(text, err, "it holds a user name or password before '@'",
                     "take it out: credentials come from the environment, a profile or a key file");
    if (str_find(bucket, ':') >= 0)
        return wrong(text, err, "it holds a port", "give the server and its port as the endpoint");
    if (bucket.len < BUCKET_MIN || bucket.len > most)
        return wrong(text, err, "the bucket's name is too short or too long", advice);
    for (size_t i = 0; i < bucket.len; i++)
        if (!is_bucket_char(bucket.ptr[i], gs))
            return wrong(text, err, "the bucket's name holds a character that bucket names cannot have", advice);
    if (!is_alnum(bucket.ptr[0]) || !is_alnum(bucket.ptr[bucket.len - 1]))
        return wrong(text, err, "the bucket's name begins or ends with '-', '.' or '_'", advice);
    return 0;
}

static int parse_bucket(struct str text, struct str rest, bool gs, struct uri *ret, struct err *err)
{
    ssize_t slash = str_find(rest, '/');
    struct str bucket = slash < 0 ? rest : str_sub(rest, 0, (size_t)slash);
    struct str prefix = slash < 0 ? STR_NULL : str_from(rest, (size_t)slash + 1);
    int r = check_bucket(text, bucket, gs, err);
    if (r < 0)
        return r;
    if (prefix.len > URI_KEY_MAX)
        return wrong(text, err, "the key is longer than 1024 bytes", "no object store takes longer keys");
    *ret = (struct uri){.scheme = gs ? URI_GS : URI_S3, .bucket = bucket, .prefix = prefix};
    return 0;
}

static int parse_file(struct str text, struct str rest, struct uri *ret, struct err *err)
{
    if (str_starts(rest, STR("localhost/")))
        rest = str_from(rest, sizeof "localhost" - 1);
    if (rest.len == 0)
        return wrong(text, err, "it names no folder", "write file:///FOLDER with the full path");
    if (rest.ptr[0] != '/')
        return wrong(text, err, "the path is not absolute, or a host is named",
                     "write three slashes and the full path: file:///FOLDER");
    if (rest.len >= PATH_MAX)
        return wrong(text, err, "the path is longer than 4095 bytes", "Linux takes no longer paths");
    *ret = (struct uri){.scheme = URI_FILE, .prefix = rest};
    return 0;
}

int uri_parse(struct str text, struct uri *ret, struct err *err)
{
    if (text.len == 0)
        return wrong(text, err, "it is empty", "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///FOLDER");
    if (memchr(text.ptr, '\0', text.len))
        return wrong(text, err, "it holds a NUL byte", "take the byte out");
    ssize_t at = find_scheme_end(text);
    if (at < 0)
        return wrong(text, err, "it has no scheme", "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///FOLDER");
    struct str scheme = str_sub(text, 0, (size_t)at), rest = str_from(text, (size_t)at + 3);
    if (str_eq(scheme, STR("file")))
        return parse_file(text, rest, ret, err);
    if (str_eq(scheme, STR("s3")) || str_eq(scheme, STR("gs")))
        return parse_bucket(text, rest, str_eq(scheme, STR("gs")), ret, err);
    return wrong_scheme(text, scheme, err);
}
