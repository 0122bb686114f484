/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

struct MHD_Response *response_of(struct sbuf *own_b, const char *type, const char *otherwise, unsigned *status)
{
    size_t len = own_b->len;
    char *text;
    if (sbuf_take(own_b, &text, ERR_IGNORED) < 0) {
        *status = MHD_HTTP_INTERNAL_SERVER_ERROR;
        text = str_dup(str_of(otherwise));
        len = strlen(text);
    }
    sbuf_done(own_b);
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(len, text, secret_free);
    if (!r) {
        secret_free(text);
        return NULL;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return r;
}

enum MHD_Result response_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *own_r)
{
    enum MHD_Result queued = MHD_queue_response(c, status, own_r);
    MHD_destroy_response(own_r);
    return queued;
}
