/* SPDX-License-Identifier: Apache-2.0 */
/* connected.h - a client's end of a connection to a port of this machine. */
#pragma once

#include "unit.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

/* From a loopback address. A wait of more than 20 s on it is EAGAIN. */
static inline int connected_from(uint32_t address, uint16_t port)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = 20};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    return fd;
}

static inline int connected(uint16_t port)
{
    return connected_from(INADDR_LOOPBACK, port);
}
