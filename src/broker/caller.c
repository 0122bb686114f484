/* SPDX-License-Identifier: Apache-2.0 */
#include "caller.h"
#include "util/base64.h"
#include "util/clock.h"
#include "util/names.h"
#include <stdio.h>

enum { CLAIMS_MAX = 16 << 10, CLOCKS_APART_SECONDS = 300 };

#define EXTRA "authentication.kubernetes.io/"

static int unknown(struct err *err, const char *why)
{
    err_set(err, ERR_DENIED, "the token is not accepted: %s", why);
    return err_advise(err, 1902,
                      "the caller needs a token of audience " NAME_AUDIENCE_BROKER " of its own running pod");
}

/* ---- what the token says itself ---------------------------------------------------------------------------------- */

static bool holds(const json *list_or_text, const char *word)
{
    struct str s;
    if (!list_or_text)
        return false;
    if (json_as_str(list_or_text, &s))
        return str_eq(s, str_of(word));
    for (size_t i = 0; i < json_count(list_or_text); i++) {
        const json *item = json_item(list_or_text, i);
        if (item && json_as_str(item, &s) && str_eq(s, str_of(word)))
            return true;
    }
    return false;
}

int caller_looks_right(struct str token, int64_t wall_ns, struct err *err)
{
    struct str rest = token, part, claims;
    struct err ignored;
    int64_t until = 0;
    auto_json j = NULL;
    auto_sbuf text;
    sbuf_init(&text, CLAIMS_MAX);
    if (!str_split(&rest, '.', &part) || !str_split(&rest, '.', &claims) || rest.len == 0 ||
        base64_parse(claims, &text, &ignored) < 0 || text.overflow ||
        json_parse(sbuf_str(&text), "the claims", &j, &ignored) < 0)
        return unknown(err, "it is no token of a service account");
    if (!holds(json_at(j, "aud"), NAME_AUDIENCE_BROKER))
        return unknown(err, "it is for another audience");
    if (json_get_i64(j, "exp", &until, &ignored) < 0 || until < wall_ns / (int64_t)NS_PER_SECOND - CLOCKS_APART_SECONDS)
        return unknown(err, "it has expired");
    return 0;
}

/* ---- what the API server says ------------------------------------------------------------------------------------ */

static void copy_extra(const json *user, const char *name, char *buf, size_t size)
{
    struct str s;
    const json *extra = json_at(user, "extra");
    const json *values = extra ? json_member(extra, name) : NULL;
    const json *first = values ? json_item(values, 0) : NULL;
    buf[0] = '\0';
    if (first && json_as_str(first, &s) && s.len < size)
        snprintf(buf, size, "%.*s", STR_FMT(s));
}

static bool is_account(struct str user, const struct caller_rules *rules, struct str name)
{
    struct str prefix = STR("system:serviceaccount:");
    if (!str_starts(user, prefix) || name.len == 0)
        return false;
    struct str rest = str_sub(user, prefix.len, user.len - prefix.len), ns;
    return str_split(&rest, ':', &ns) && str_eq(ns, rules->ns) && str_eq(rest, name);
}

int caller_read(const json *review, const struct caller_rules *rules, struct caller *ret, struct err *err)
{
    struct err ignored;
    struct str why = STR_NULL, user = STR_NULL;
    bool authenticated = false;
    if (json_opt_bool(review, "status.authenticated", &authenticated, &ignored) < 0 ||
        json_opt_str(review, "status.error", &why, &ignored) < 0)
        authenticated = false;
    if (!authenticated) {
        char text[160];
        snprintf(text, sizeof text, "the API server does not know it%s%.*s", why.len ? ": " : "", STR_FMT(why));
        return unknown(err, text);
    }
    /* An authenticator that knows nothing of audiences answers without them: its word is not about ours. */
    if (!holds(json_at(review, "status.audiences"), NAME_AUDIENCE_BROKER))
        return unknown(err, "it is for another audience");
    if (json_get_str(review, "status.user.username", &user, err) < 0)
        return unknown(err, "it names nobody");
    bool is_job = is_account(user, rules, rules->job_account), is_node = is_account(user, rules, rules->node_account);
    if ((!is_job && !is_node) || user.len >= CALLER_USER_MAX) {
        err_set(err, ERR_DENIED, "'%.*s' is neither a node's agent nor a Job of ours", STR_FMT(str_sub(user, 0, 200)));
        return err_advise(err, 1903, "nobody else gets credentials here");
    }
    struct caller c = {.kind = is_job ? CALLER_JOB : CALLER_NODE};
    const json *j = json_at(review, "status.user");
    snprintf(c.user, sizeof c.user, "%.*s", STR_FMT(user));
    copy_extra(j, EXTRA "node-name", c.node, sizeof c.node);
    copy_extra(j, EXTRA "pod-name", c.pod, sizeof c.pod);
    copy_extra(j, EXTRA "pod-uid", c.pod_uid, sizeof c.pod_uid);
    *ret = c;
    return 0;
}

/* ---- what it may have -------------------------------------------------------------------------------------------- */

static int not_yours(const struct caller *c, const struct api_volume *v, const char *why, struct err *err)
{
    err_set(err, ERR_DENIED, "pod '%s' may not have the credentials of volume '%s': %s", c->pod, v->meta.name, why);
    return err_advise(err, 1903, "a Job gets those of its own volume, a node those of the volumes on it");
}

/* Is the pod of this Job? By the reference of the Job controller, which alone writes it. */
static bool is_pod_of(const json *pod, const char *job)
{
    const json *owners = json_at(pod, "metadata.ownerReferences");
    for (size_t i = 0; owners && i < json_count(owners); i++) {
        const json *o = json_item(owners, i);
        bool controls = false;
        struct err ignored;
        if (json_opt_bool(o, "controller", &controls, &ignored) == 0 && controls &&
            str_eq(json_member_str(o, "kind"), STR("Job")) &&
            str_eq(json_member_str(o, "apiVersion"), STR("batch/v1")) &&
            str_eq(json_member_str(o, "name"), str_of(job)))
            return true;
    }
    return false;
}

int caller_may(const struct caller *c, const struct api_volume *v, bool is_export, const json *pod, struct err *err)
{
    char job[128];
    struct str node = STR_NULL;
    struct err ignored;
    if (!v->node || !v->volume_id)
        return not_yours(c, v, "it has no node yet", err);
    if (c->pod[0] == '\0' || c->pod_uid[0] == '\0')
        return not_yours(c, v, "the token is bound to no pod", err);
    if (strcmp(c->node, v->node) != 0)
        return not_yours(c, v, "it is on another node than the pod", err);
    if (c->kind == CALLER_NODE)
        return 0;
    snprintf(job, sizeof job, "%s-%s", is_export ? "export" : "hydrate", v->volume_id);
    if (!pod || !is_pod_of(pod, job))
        return not_yours(c, v, is_export ? "the pod is not of its export Job" : "the pod is not of its hydrate Job",
                         err);
    if (json_opt_str(pod, "spec.nodeName", &node, &ignored) < 0 || !str_eq(node, str_of(v->node)))
        return not_yours(c, v, "the pod runs on another node", err);
    return 0;
}
