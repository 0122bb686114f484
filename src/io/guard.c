/* SPDX-License-Identifier: Apache-2.0 */
#include "io/guard.h"
#include <arpa/inet.h>
#include <netinet/in.h>

/* IPv4 addresses are kept as IPv6 maps them: one comparison serves both. */
enum { BYTES = 16, MAPPED_BITS = 96 };

struct guard_rule {
    uint8_t address[BYTES];
    unsigned bits;
    uint16_t port; /* 0: every port */
    bool allow;
};

struct guard {
    struct guard_rule *rules; /* owned */
    size_t count;
    char **trusted; /* owned, each */
    size_t trusted_count;
};

static const char *const always_denied[] = {
    "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128",
    "fe80::/10", "fec0::/10", "ff00::/8", "100.100.100.200/32", /* Alibaba's metadata server */
    "168.63.129.16/32",                                         /* Azure's wire server */
    "fd00:ec2::/32",                                            /* Amazon's metadata server and Pod Identity agent */
    /* Other metadata servers: Google's, Oracle's, Alibaba's, Akamai's and Scaleway's. */
    "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:100::100:200/128", "fd00:a9fe:a9fe::1/128", "fd00:42::42/128",
    "64:ff9b:1::/48", /* an IPv4 address in an unknown place: only 64:ff9b:1::/96 is read */
};

static const uint8_t mapped[BYTES] = {[10] = 0xff, [11] = 0xff};

static bool has_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned bytes = bits / 8, rest = bits % 8;
    if (memcmp(a, b, bytes) != 0)
        return false;
    return rest == 0 || ((a[bytes] ^ b[bytes]) & (0xff00 >> rest & 0xff)) == 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int invalid(struct str text, const char *wanted, struct err *err)
{
    err_set(err, ERR_INVALID, "'%.*s' is not %s", STR_FMT(str_sub(text, 0, 100)), wanted);
    return -ERR_INVALID;
}

static bool parse_address(struct str text, struct guard_rule *ret, unsigned *ret_most)
{
    char buf[INET6_ADDRSTRLEN];
    if (text.len == 0 || text.len >= sizeof buf)
        return false;
    memcpy(buf, text.ptr, text.len);
    buf[text.len] = '\0';
    memcpy(ret->address, mapped, sizeof mapped);
    *ret_most = 32;
    if (inet_pton(AF_INET, buf, ret->address + 12) == 1)
        return true;
    *ret_most = 128;
    return inet_pton(AF_INET6, buf, ret->address) == 1;
}

/* Cuts ":443" off "10.0.0.7:443" and "[fd00::1]:443", and the brackets. Port 0: no port is given. */
static bool cut_port(struct str *text, uint64_t *ret)
{
    bool bracketed = str_starts(*text, STR("["));
    ssize_t at = str_find(*text, bracketed ? ']' : ':');
    struct str rest = at < 0 ? STR_NULL : str_from(*text, (size_t)at + 1);
    *ret = 0;
    if (!bracketed && (at < 0 || str_find(rest, ':') >= 0))
        return true; /* no port: an address of either kind, or a range */
    if (bracketed && !str_starts(rest, STR(":")))
        return false;
    if (str_to_u64(bracketed ? str_from(rest, 1) : rest, ret, ERR_IGNORED) < 0 || *ret == 0 || *ret > 65535)
        return false;
    *text = bracketed ? str_sub(*text, 1, (size_t)at - 1) : str_sub(*text, 0, (size_t)at);
    return true;
}

/* "10.0.0.0/8", "10.0.0.7", "10.0.0.7:443", "fd00::/8", "[fd00::1]:443" */
static int parse_rule(struct str text, struct guard_rule *ret, struct err *err)
{
    struct str rest = text;
    uint64_t port, bits;
    unsigned most;
    bool ok = cut_port(&rest, &port);
    ssize_t slash = str_find(rest, '/');
    ok = ok && parse_address(slash < 0 ? rest : str_sub(rest, 0, (size_t)slash), ret, &most);
    bits = ok ? most : 0;
    if (ok && slash >= 0)
        ok = str_to_u64(str_from(rest, (size_t)slash + 1), &bits, ERR_IGNORED) == 0 && bits <= most;
    if (!ok)
        return invalid(text, "an address, or a range such as 10.0.0.0/8", err);
    ret->bits = (unsigned)bits + (most == 32 ? MAPPED_BITS : 0);
    ret->port = (uint16_t)port;
    return 0;
}

static void add_rule(struct guard *g, const struct guard_rule *r)
{
    g->rules = xrealloc(g->rules, g->count + 1, sizeof *g->rules);
    g->rules[g->count++] = *r;
}

static int check_trusted(struct str text, struct err *err)
{
    struct str host = str_starts(text, STR("https://"))  ? str_from(text, 8)
                      : str_starts(text, STR("http://")) ? str_from(text, 7)
                                                         : STR_NULL;
    return host.len > 0 && str_is_visible(host, "/?#@\\")
               ? 0
               : invalid(text, "a server such as https://minio.example:9000, without a path", err);
}

static int parse_line(struct str line, struct guard *g, struct err *err)
{
    struct str verb, rest = line;
    struct guard_rule r = {.allow = false};
    if (!str_split(&rest, ' ', &verb) || rest.len == 0)
        return invalid(line, "a line of a guard", err);
    if (str_eq(verb, STR("trust"))) {
        int code = check_trusted(rest, err);
        if (code < 0)
            return code;
        bool tls = str_starts(rest, STR("https://"));
        if (str_ends(rest, tls ? STR(":443") : STR(":80"))) /* as in creds/endpoint.h */
            rest.len -= tls ? 4 : 3;
        g->trusted = xrealloc(g->trusted, g->trusted_count + 1, sizeof *g->trusted);
        g->trusted[g->trusted_count++] = str_dup(rest);
        return 0;
    }
    r.allow = str_eq(verb, STR("allow"));
    if (!r.allow && !str_eq(verb, STR("deny")))
        return invalid(line, "a line of a guard", err);
    int code = parse_rule(rest, &r, err);
    if (code == 0)
        add_rule(g, &r);
    return code;
}

int guard_parse(struct str text, struct guard **ret, struct err *err)
{
    auto_guard g = xcalloc(1, sizeof *g);
    struct str rest = text, line;
    struct guard_rule r = {.allow = false};
    for (size_t i = 0; i < countof(always_denied); i++) {
        int code = parse_rule(str_of(always_denied[i]), &r, err);
        if (code < 0)
            return code;
        add_rule(g, &r);
    }
    while (rest.len && str_split(&rest, '\n', &line)) {
        int code = line.len ? parse_line(line, g, err) : 0;
        if (code < 0)
            return code;
    }
    *ret = take(&g);
    return 0;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->trusted_count; i++)
        free(g->trusted[i]);
    free(g->trusted);
    free(g->rules);
    free(g);
}

int guard_add_line(struct sbuf *text, const char *verb, struct str value, struct err *err)
{
    struct guard_rule ignored;
    int r = strcmp(verb, "trust") == 0 ? check_trusted(value, err) : parse_rule(value, &ignored, err);
    if (r == 0)
        sbuf_addf(text, "%s %.*s\n", verb, STR_FMT(value));
    return r;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* IPv6 has several forms of an IPv4 address, and a gateway translates each of them: mapped, compatible, translated,
 * NAT64, 6to4. */
static void unwrap_ipv4(uint8_t *a)
{
    static const uint8_t zero[BYTES], six_to_four[BYTES] = {0x20, 0x02};
    static const uint8_t others[][BYTES] = {
        {0x00, 0x64, 0xff, 0x9b}, {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, {[8] = 0xff, [9] = 0xff}};
    uint8_t four[4];
    bool is_last = has_prefix(a, zero, MAPPED_BITS) && (a[12] || a[13] || a[14] || a[15] > 1);
    for (size_t i = 0; i < countof(others); i++)
        is_last |= has_prefix(a, others[i], MAPPED_BITS);
    if (has_prefix(a, six_to_four, 16))
        memcpy(four, a + 2, sizeof four);
    else if (is_last)
        memcpy(four, a + 12, sizeof four);
    else
        return;
    memcpy(a, mapped, 12);
    memcpy(a + 12, four, sizeof four);
}

bool guard_allows(const struct guard *g, const struct sockaddr *address)
{
    uint8_t a[BYTES];
    uint16_t port;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        memcpy(a, mapped, sizeof a);
        memcpy(a + 12, &in->sin_addr, 4);
        port = ntohs(in->sin_port);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
        memcpy(a, &in->sin6_addr, sizeof a);
        port = ntohs(in->sin6_port);
        unwrap_ipv4(a);
    } else {
        return false;
    }
    bool closed = false;
    for (size_t i = 0; i < g->count; i++) {
        const struct guard_rule *r = &g->rules[i];
        if (!has_prefix(a, r->address, r->bits) || (r->port && r->port != port))
            continue;
        if (r->allow)
            return true;
        closed = true;
    }
    return !closed;
}

bool guard_trusts(const struct guard *g, struct str origin)
{
    for (size_t i = 0; i < g->trusted_count; i++)
        if (str_eq_nocase(str_of(g->trusted[i]), origin))
            return true;
    return false;
}
