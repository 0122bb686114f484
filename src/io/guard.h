/* SPDX-License-Identifier: Apache-2.0 */
/* guard.h - limits the addresses that a request to a user's URL may connect to, and lists the servers that an
 * administrator trusts with credentials. home: frozen once parsed; any thread.
 *
 * In a cluster, users write the URLs that the controller and its Jobs connect to. Without a guard, a URL could reach
 * the metadata servers, the API server and the ports of a node. The guard checks the address of the socket, not the
 * name: a name may change between two look-ups. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/socket.h>

struct guard;

enum { GUARD_TEXT_MAX = 900 << 10 };

/* Lines: "allow 10.1.0.0/16", "deny 10.0.0.7", "deny [fd00::1]:443" (one port), "trust https://minio.example:9000".
 * These are always denied: loopback, link-local, multicast, unspecified, reserved, and the metadata servers of the
 * clouds at other addresses. `allow` overrides `deny`. */
must_check int guard_parse(struct str text, struct guard **ret, struct err *err);
void guard_free(struct guard *g); /* NULL is fine */
DEFINE_AUTO(guard, struct guard, guard_free)
#define auto_guard auto_with(auto_clean_guard) struct guard *

/* One line, checked; `verb` is "allow", "deny" or "trust". For flags: the error names the value. */
must_check int guard_add_line(struct sbuf *text, const char *verb, struct str value, struct err *err);

bool guard_allows(const struct guard *g, const struct sockaddr *address);

/* Does the administrator trust this origin? It is "https://host:port" as in creds/endpoint.h. */
bool guard_trusts(const struct guard *g, struct str origin);
