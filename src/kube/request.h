/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - builds the HTTP request. home: any; pure. */
#pragma once

#include "kube/client.h"

struct kube_http_request {
    const char *method;       /* static */
    const char *content_type; /* static; NULL: no body */
    struct sbuf url;          /* without the parameters of a page */
    char *body;               /* owned; NULL: none */
    char what[160];           /* "get pods 'default/web-0'": for messages */
};

enum { URL_MAX = 16 << 10, BODY_MAX = 3 << 20 }; /* the server takes no more than 3 MiB */

/* ERR_INVALID: the request is malformed. Initialises *h in any case. */
must_check int kube_http_request_make(struct kube_http_request *h, const char *server, const struct kube_request *r,
                                      const char *field_manager, struct err *err);
void kube_http_request_done(struct kube_http_request *h);

/* "?name=value" or "&name=value", percent-encoded. */
void kube_http_request_add_query(struct sbuf *url, const char *name, struct str value);
