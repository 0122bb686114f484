/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - opens listening sockets and makes responses, for both kinds of server. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <microhttpd.h>

/* "127.0.0.1:9810", "[::1]:9810", ":9810": the listening socket, or a negative code (as in http_server.h). */
int socket_open(const char *listen, struct err *err);
uint16_t socket_port(int fd);

enum { ADDRESS_BYTES = 16 };
/* The bytes of the client's address; returns how many of them are set. */
size_t connection_address(struct MHD_Connection *c, uint8_t ret[ADDRESS_BYTES]);

/* A response of this content type; its bytes are wiped after they were sent. Text that exceeded its limit becomes
 * `otherwise` with *status 500. NULL: out of memory. */
struct MHD_Response *response_of(struct sbuf *own_b, const char *type, const char *otherwise, unsigned *status);
enum MHD_Result response_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *own_r);
