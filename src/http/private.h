/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - the listening socket that both kinds of server have. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* "127.0.0.1:9810", "[::1]:9810", ":9810": the listening socket, or a negative code (as in serve.h). */
int socket_open(const char *listen, struct err *err);
uint16_t socket_port(int fd);
