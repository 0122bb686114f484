/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/endpoint.h"
#include "util/uri.h"

static int wrong(struct str text, const char *why, struct err *err)
{
    char shown[URI_SHOWN_ROOM];
    return err_fail(err, ERR_INVALID, CIS_ENDPOINT_INVALID, "cannot read the endpoint '%s': %s", uri_shown(text, shown),
                    why);
}

bool endpoint_is_address(struct str host)
{
    return host.len > 0 && (host.ptr[0] == '[' || str_is_of(host, CHARS_DIGITS "."));
}

static ssize_t find_port(struct str authority)
{
    for (size_t i = authority.len; i-- > 0;) {
        if (authority.ptr[i] == ']')
            return -1;
        if (authority.ptr[i] == ':')
            return (ssize_t)i;
    }
    return -1;
}

static int parse_authority(struct str text, struct str authority, struct endpoint *ret, struct err *err)
{
    uint64_t port;
    if (!str_is_of(authority, CHARS_LOWER CHARS_UPPER CHARS_DIGITS "-._[]:"))
        return wrong(text, "its host has an invalid character", err);
    ssize_t colon = find_port(authority);
    ret->authority = authority;
    ret->host = colon < 0 ? authority : str_sub(authority, 0, (size_t)colon);
    if (ret->host.len == 0)
        return wrong(text, "it names no host", err);
    if (colon < 0)
        return 0;
    if (str_to_u64(str_from(authority, (size_t)colon + 1), &port, ERR_IGNORED) < 0 || port == 0 || port > 65535)
        return wrong(text, "its port is not a number from 1 to 65535", err);
    if (port == (ret->tls ? 443 : 80)) /* libcurl omits it from the Host header, which is signed */
        ret->authority = ret->host;
    return 0;
}

int endpoint_parse(struct str text, struct endpoint *ret, struct err *err)
{
    struct endpoint e = {0};
    struct str rest;
    if (str_starts(text, STR("https://")))
        e.tls = true, rest = str_from(text, 8);
    else if (str_starts(text, STR("http://")))
        rest = str_from(text, 7);
    else
        return wrong(text, "it does not begin with http:// or https://", err);
    ssize_t slash = str_find(rest, '/');
    e.path = slash < 0 ? STR_NULL : str_from(rest, (size_t)slash);
    while (e.path.len && e.path.ptr[e.path.len - 1] == '/')
        e.path.len--;
    if (!str_is_visible(e.path, "?#\\\"<>")) /* after a '?' or '#' the bucket would be no part of the path */
        return wrong(text, "its path has an invalid character", err);
    int r = parse_authority(text, slash < 0 ? rest : str_sub(rest, 0, (size_t)slash), &e, err);
    if (r == 0)
        *ret = e;
    return r;
}
