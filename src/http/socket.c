/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { BACKLOG = 256 };

/* Splits "host:port", and removes the brackets of an IPv6 address. */
static int split_address(const char *listen, char **ret_host, char **ret_port, struct err *err)
{
    const char *colon = strrchr(listen, ':');
    uint64_t port;
    if (!colon || str_to_u64(str_of(colon + 1), &port, ERR_IGNORED) < 0 || port > UINT16_MAX)
        return err_set(err, ERR_INVALID, "'%s' is not an address to listen at, such as 127.0.0.1:9810 or :9810",
                       listen);
    struct str host = {listen, (size_t)(colon - listen)};
    if (str_starts(host, STR("[")) && str_ends(host, STR("]")))
        host = str_sub(host, 1, host.len - 2);
    *ret_host = host.len ? str_dup(host) : NULL;
    *ret_port = str_dup(str_of(colon + 1));
    return 0;
}

static int listen_at(const struct addrinfo *a, const char *where, struct err *err)
{
    int one = 1, zero = 0;
    auto_fd fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a socket for '%s'", where);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        if (errno == EADDRINUSE)
            return err_set(err, ERR_BUSY, "cannot listen at '%s': the address is in use", where);
        return err_sys(err, errno, "cannot listen at '%s'", where);
    }
    return take_fd(&fd);
}

DEFINE_AUTO(addresses, struct addrinfo, freeaddrinfo)

/* Every address: an IPv6 socket that accepts IPv4, or an IPv4 socket without IPv6. */
int socket_open(const char *listen, struct err *err)
{
    auto_mem char *host = NULL, *port = NULL;
    int r = split_address(listen, &host, &port, err);
    if (r < 0)
        return r;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    auto_with(auto_clean_addresses) struct addrinfo *found = NULL;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return err_set(err, ERR_INVALID, "'%s' is not an address to listen at: its host is not an IP address", listen);
    for (const struct addrinfo *a = found; a && !host; a = a->ai_next)
        if (a->ai_family == AF_INET6 && (r = listen_at(a, listen, err)) >= 0)
            return r;
    return listen_at(found, listen, err);
}

uint16_t socket_port(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

size_t connection_address(struct MHD_Connection *c, uint8_t ret[ADDRESS_BYTES])
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (i && i->client_addr && i->client_addr->sa_family == AF_INET6) {
        memcpy(ret, &((const struct sockaddr_in6 *)(const void *)i->client_addr)->sin6_addr, 16);
        return 16;
    }
    if (i && i->client_addr && i->client_addr->sa_family == AF_INET) {
        memcpy(ret, &((const struct sockaddr_in *)(const void *)i->client_addr)->sin_addr, 4);
        return 4;
    }
    return 0;
}
