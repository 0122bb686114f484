/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - the listening socket and the answers that both kinds of server have. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <microhttpd.h>

/* "127.0.0.1:9810", "[::1]:9810", ":9810": the listening socket, or a negative code (as in serve.h). */
int socket_open(const char *listen, struct err *err);
uint16_t socket_port(int fd);

/* An answer of this content type that nobody keeps a copy of: its bytes are wiped when they have been sent. One that
 * outgrew its ceiling becomes `otherwise`, with *status 500. NULL: out of memory. */
struct MHD_Response *response_of(struct sbuf *own_b, const char *type, const char *otherwise, unsigned *status);
enum MHD_Result response_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *own_r);
