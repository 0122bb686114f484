/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"
#include "util/encode.h"
#include <stdio.h>

static const struct form {
    const char *word, *method, *content_type;
} forms[] = {
    [KUBE_GET] = {"get", "GET", NULL},
    [KUBE_LIST] = {"list", "GET", NULL},
    [KUBE_CREATE] = {"create", "POST", "application/json"},
    [KUBE_REPLACE] = {"replace", "PUT", "application/json"},
    [KUBE_DELETE] = {"delete", "DELETE", "application/json"},
    [KUBE_JSON_PATCH] = {"patch", "PATCH", "application/json-patch+json"},
    [KUBE_MERGE_PATCH] = {"patch", "PATCH", "application/merge-patch+json"},
    [KUBE_APPLY] = {"apply", "PATCH", "application/apply-patch+yaml"}, /* which JSON is */
};

void kube_http_request_add_query(struct sbuf *url, const char *name, struct str value)
{
    sbuf_addc(url, memchr(url->ptr, '?', url->len) ? '&' : '?');
    sbuf_adds(url, name);
    sbuf_addc(url, '=');
    percent_encode(value, url);
}

/* The server's own rule for names in paths. */
static bool is_segment(struct str s)
{
    return s.len > 0 && s.len <= 253 && !str_eq(s, STR(".")) && !str_eq(s, STR("..")) && str_find(s, '/') < 0 &&
           str_find(s, '%') < 0 && str_is_utf8(s);
}

static int check_namespace(const struct kube_request *r, const char *what, struct err *err)
{
    if (!r->resource->namespaced && r->ns.len)
        return err_set(err, ERR_INVALID, "cannot %s: %s have no namespace", what, r->resource->plural);
    if (r->resource->namespaced && !r->ns.len && r->verb != KUBE_LIST)
        return err_set(err, ERR_INVALID, "cannot %s: namespace is missing", what);
    if (r->ns.len && !is_segment(r->ns))
        return err_set(err, ERR_INVALID, "cannot %s: invalid namespace", what);
    return 0;
}

static int check(const struct kube_request *r, const char *what, struct err *err)
{
    bool is_nameless = r->verb == KUBE_LIST || (r->verb == KUBE_CREATE && !r->subresource);
    bool needs_body = forms[r->verb].content_type && r->verb != KUBE_DELETE;
    int code = check_namespace(r, what, err);
    if (code < 0)
        return code;
    if (is_nameless ? r->name.len > 0 : !is_segment(r->name))
        return err_set(err, ERR_INVALID, "cannot %s: %s", what, r->name.len ? "invalid name" : "name is missing");
    if (needs_body != (r->body != NULL))
        return err_set(err, ERR_INVALID, "cannot %s: it %s", what, needs_body ? "needs a body" : "has no body");
    return 0;
}

static void add_path(struct sbuf *url, const char *server, const struct kube_request *r)
{
    const struct kube_resource *kind = r->resource;
    sbuf_adds(url, server);
    if (kind->group[0])
        sbuf_addf(url, "/apis/%s/%s", kind->group, kind->version);
    else
        sbuf_addf(url, "/api/%s", kind->version);
    if (r->ns.len) {
        sbuf_adds(url, "/namespaces/");
        percent_encode(r->ns, url);
    }
    sbuf_addf(url, "/%s", kind->plural);
    if (r->name.len) {
        sbuf_addc(url, '/');
        percent_encode(r->name, url);
    }
    if (r->subresource)
        sbuf_addf(url, "/%s", r->subresource);
}

static void add_queries(struct sbuf *url, const struct kube_request *r, const char *field_manager)
{
    bool writes = forms[r->verb].content_type && r->verb != KUBE_DELETE;
    if (writes)
        kube_http_request_add_query(url, "fieldManager", str_of(r->field_manager ? r->field_manager : field_manager));
    if (r->verb == KUBE_APPLY && r->force)
        kube_http_request_add_query(url, "force", STR("true"));
    if (r->label_selector)
        kube_http_request_add_query(url, "labelSelector", str_of(r->label_selector));
    if (r->field_selector)
        kube_http_request_add_query(url, "fieldSelector", str_of(r->field_selector));
}

static char *delete_options(const struct kube_request *r)
{
    static const char *const policies[] = {[KUBE_BACKGROUND] = "Background", [KUBE_FOREGROUND] = "Foreground"};
    auto_json j = json_new_object();
    json_set_strings(j, {"apiVersion", STR("v1")}, {"kind", STR("DeleteOptions")},
                     {"propagationPolicy", str_of(policies[r->propagation])}, {"?preconditions.uid", r->uid},
                     {"?preconditions.resourceVersion", r->resource_version});
    return json_text(j, 0);
}

int kube_http_request_make(struct kube_http_request *h, const char *server, const struct kube_request *r,
                           const char *field_manager, struct err *err)
{
    const struct form *form = &forms[r->verb];
    *h = (struct kube_http_request){.method = form->method, .content_type = form->content_type};
    sbuf_init(&h->url, URL_MAX);
    snprintf(h->what, sizeof h->what, "%s %s%s%s%s%.*s%s%.*s%s", form->word, r->resource->plural,
             r->subresource ? "/" : "", r->subresource ? r->subresource : "", r->name.len || r->ns.len ? " '" : "",
             STR_FMT(r->ns), r->name.len && r->ns.len ? "/" : "", STR_FMT(r->name),
             r->name.len || r->ns.len ? "'" : "");
    int code = check(r, h->what, err);
    if (code < 0)
        return code;
    add_path(&h->url, server, r);
    add_queries(&h->url, r, field_manager);
    if (h->url.overflow)
        return err_set(err, ERR_INVALID, "cannot %s: its selectors are too long", h->what);
    if (r->verb == KUBE_DELETE)
        h->body = delete_options(r);
    else if (r->body)
        h->body = json_text(r->body, 0);
    if (h->body && strlen(h->body) > BODY_MAX)
        return err_set(err, ERR_INVALID, "cannot %s: more than %d MiB", h->what, BODY_MAX >> 20);
    return 0;
}

void kube_http_request_done(struct kube_http_request *h)
{
    secret_free(take(&h->body)); /* it may hold a Secret, or a token to be reviewed */
    sbuf_done(&h->url);
}
