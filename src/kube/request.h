/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - a request as it goes over the wire. home: any; pure. */
#pragma once

#include "kube/client.h"

struct wire {
    const char *method;       /* static */
    const char *content_type; /* static; NULL: no body */
    struct sbuf url;          /* without what changes from page to page */
    char *body;               /* owned; NULL: none */
    char what[160];           /* "get pods 'default/web-0'": for sentences */
};

enum { URL_MAX = 16 << 10, BODY_MAX = 3 << 20 }; /* the server takes no more than 3 MiB */

/* ERR_INVALID for what no server could understand. Initialises *w in any case. */
must_check int wire_make(struct wire *w, const char *server, const struct kube_request *r, const char *field_manager,
                         struct err *err);
void wire_done(struct wire *w);

/* "?name=value" or "&name=value", percent-encoded. */
void wire_add_query(struct sbuf *url, const char *name, struct str value);
