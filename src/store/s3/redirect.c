/* SPDX-License-Identifier: Apache-2.0 */
#include "redirect.h"
#include <stdio.h>

static bool is_label(struct str s)
{
    return s.len > 0 && str_is_of(s, CHARS_LOWER CHARS_DIGITS "-");
}

/* "s3", "s3-fips", "s3-eu-west-1" */
static bool is_s3(struct str label)
{
    return str_eq(label, STR("s3")) || (str_starts(label, STR("s3-")) && is_label(label));
}

static struct str skip_label(struct str host, struct str label)
{
    bool is_first = str_starts(host, label) && host.len > label.len && host.ptr[label.len] == '.';
    return is_first ? str_from(host, label.len + 1) : host;
}

/* The provider's domain of "s3.eu-west-1.example.com": "example.com". Empty: another form. */
static struct str domain_of(struct str host, struct str region)
{
    struct str first, rest = host;
    if (!str_split(&rest, '.', &first) || !is_s3(first))
        return STR_NULL;
    rest = skip_label(skip_label(rest, STR("dualstack")), region);
    return str_find(rest, '.') > 0 ? rest : STR_NULL;
}

/* The labels of `host` between "s3" and the domain hold no more than a region. */
static bool read_host(struct str host, struct str domain, struct redirect *ret)
{
    struct str first, rest = host;
    if (!str_ends(host, domain) || host.len < domain.len + 2 || host.ptr[host.len - domain.len - 1] != '.')
        return false;
    rest.len -= domain.len + 1;
    if (!str_split(&rest, '.', &first) || !is_s3(first))
        return false;
    struct str region = rest.ptr ? skip_label(rest, STR("dualstack")) : STR_NULL;
    if (region.len == 0 && first.len > 3 && !str_eq(first, STR("s3-fips")))
        region = str_from(first, 3);
    if (region.len >= sizeof ret->region || (region.len > 0 && !is_label(region)))
        return false;
    snprintf(ret->region, sizeof ret->region, "%.*s", STR_FMT(region));
    return true;
}

static struct str port_of(const struct endpoint *e)
{
    return str_from(e->authority, e->host.len);
}

bool redirect_read(struct str location, const struct endpoint *from, struct str region, struct str bucket,
                   struct redirect *ret)
{
    struct endpoint to;
    struct redirect r;
    size_t query = (size_t)str_find(location, '?');
    if (endpoint_parse(str_sub(location, 0, query), &to, ERR_IGNORED) < 0)
        return false;
    struct str domain = domain_of(from->host, region), host = skip_label(to.host, bucket);
    if (domain.len == 0 || from->path.len || to.tls != from->tls || !str_eq(port_of(&to), port_of(from)) ||
        !read_host(host, domain, &r))
        return false;
    int n = snprintf(r.endpoint, sizeof r.endpoint, "http%s://%.*s%.*s", to.tls ? "s" : "", STR_FMT(host),
                     STR_FMT(port_of(&to)));
    if ((size_t)n >= sizeof r.endpoint)
        return false;
    *ret = r;
    return true;
}
