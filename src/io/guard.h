/* SPDX-License-Identifier: Apache-2.0 */
/* guard.h - the addresses that a request for somebody else's URL may connect to, and the servers that an administrator
 * trusts with credentials. home: frozen once parsed; any thread.
 *
 * In a cluster, users write the URLs that the controller and its Jobs connect to. Without a guard they would reach what
 * those reach: metadata servers, the API server, what listens on a node. The address that a socket connects to is
 * checked, not the name: names change between two look-ups. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/socket.h>

struct guard;

enum { GUARD_TEXT_MAX = 900 << 10 };

/* Lines: "allow 10.1.0.0/16", "deny 10.0.0.7", "deny [fd00::1]:443" (one port), "trust https://minio.example:9000".
 * Empty text gives the addresses that are always closed: loopback, link-local, multicast, unspecified, reserved, and
 * the metadata servers of the clouds that have others. What is allowed wins over what is denied. */
must_check int guard_parse(struct str text, struct guard **ret, struct err *err);
void guard_free(struct guard *g); /* NULL is fine */
DEFINE_AUTO(guard, struct guard, guard_free)
#define auto_guard auto_with(auto_clean_guard) struct guard *

/* One line, checked; `verb` is "allow", "deny" or "trust". For flags: the error names the value. */
must_check int guard_add_line(struct sbuf *text, const char *verb, struct str value, struct err *err);

bool guard_allows(const struct guard *g, const struct sockaddr *address);

/* Is this origin, "https://host:port" as endpoint.h has it, one that the administrator trusts? */
bool guard_trusts(const struct guard *g, struct str origin);
