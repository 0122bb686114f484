/* SPDX-License-Identifier: Apache-2.0 */
#include "caller.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/hash.h"
#include "util/names.h"
#include "util/thread.h"
#include <stdio.h>

enum { CLAIMS_MAX = 16 << 10, CLOCKS_APART_SECONDS = 300 };

#define EXTRA "authentication.kubernetes.io/"

static int unknown(struct err *err, const char *why)
{
    return err_fail(err, ERR_DENIED, CIS_BROKER_CALLER_UNKNOWN, "the token was rejected: %s", why);
}

/* ---- claims of the token ----------------------------------------------------------------------------------------- */

int caller_looks_right(struct str token, int64_t wall_ns, struct err *err)
{
    struct str rest = token, part, claims;
    int64_t until = 0;
    auto_json j = NULL;
    auto_sbuf text = SBUF(CLAIMS_MAX);
    if (!str_split(&rest, '.', &part) || !str_split(&rest, '.', &claims) || rest.len == 0 ||
        !base64_parse(claims, &text) || text.overflow || json_parse(sbuf_str(&text), "the claims", &j, ERR_IGNORED) < 0)
        return unknown(err, "not a service account token");
    if (!json_holds(json_at(j, "aud"), STR(NAME_AUDIENCE_BROKER)))
        return unknown(err, "wrong audience");
    if (json_get_i64(j, "exp", &until, ERR_IGNORED) < 0 ||
        until < wall_ns / (int64_t)NS_PER_SECOND - CLOCKS_APART_SECONDS)
        return unknown(err, "expired");
    return 0;
}

/* ---- TokenReview ------------------------------------------------------------------------------------------------- */

static void copy_extra(const json *user, const char *name, char *buf, size_t size)
{
    struct str s = STR_NULL;
    (void)json_as_str(json_item(json_member(json_at(user, "extra"), name), 0), &s);
    snprintf(buf, size, "%.*s", STR_FMT(s.len < size ? s : STR_NULL));
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
    struct str why = STR_NULL, user = STR_NULL;
    bool authenticated = false;
    if (json_opt_bool(review, "status.authenticated", &authenticated, ERR_IGNORED) < 0 ||
        json_opt_str(review, "status.error", &why, ERR_IGNORED) < 0)
        authenticated = false;
    if (!authenticated) {
        char text[160];
        snprintf(text, sizeof text, "the API server does not accept it%s%.*s", why.len ? ": " : "", STR_FMT(why));
        return unknown(err, text);
    }
    /* An authenticator without support for audiences returns none, and has not checked the audience. */
    if (!json_holds(json_at(review, "status.audiences"), STR(NAME_AUDIENCE_BROKER)))
        return unknown(err, "wrong audience");
    if (json_get_str(review, "status.user.username", &user, err) < 0)
        return unknown(err, "no user name");
    bool is_job = is_account(user, rules, rules->job_account), is_node = is_account(user, rules, rules->node_account);
    if ((!is_job && !is_node) || user.len >= CALLER_USER_MAX)
        return err_fail(err, ERR_DENIED, CIS_BROKER_OTHER_VOLUME,
                        "'%.*s' is neither the node driver nor a Job of Cistern", STR_FMT(str_sub(user, 0, 200)));
    struct caller c = {.kind = is_job ? CALLER_JOB : CALLER_NODE};
    const json *j = json_at(review, "status.user");
    snprintf(c.user, sizeof c.user, "%.*s", STR_FMT(user));
    copy_extra(j, EXTRA "node-name", c.node, sizeof c.node);
    copy_extra(j, EXTRA "pod-name", c.pod, sizeof c.pod);
    copy_extra(j, EXTRA "pod-uid", c.pod_uid, sizeof c.pod_uid);
    *ret = c;
    return 0;
}

/* ---- authorization ----------------------------------------------------------------------------------------------- */

static int deny(const struct caller *c, const struct api_volume *v, const char *why, struct err *err)
{
    return err_fail(err, ERR_DENIED, CIS_BROKER_OTHER_VOLUME, "pod '%s': credentials of volume '%s' denied: %s", c->pod,
                    v->meta.name, why);
}

/* Is the pod of this Job? Only the Job controller writes the owner reference. */
static bool is_pod_of(const json *pod, const char *job)
{
    const json *owners = json_at(pod, "metadata.ownerReferences");
    for (size_t i = 0; owners && i < json_count(owners); i++) {
        const json *o = json_item(owners, i);
        if (json_bool_at(o, "controller") && str_eq(json_member_str(o, "kind"), STR("Job")) &&
            str_eq(json_member_str(o, "apiVersion"), STR("batch/v1")) &&
            str_eq(json_member_str(o, "name"), str_of(job)))
            return true;
    }
    return false;
}

int caller_may(const struct caller *c, const struct api_volume *v, bool is_export, const json *pod, struct err *err)
{
    char job[128];
    if (!v->node)
        return deny(c, v, "the volume has no node yet", err);
    if (c->pod[0] == '\0' || c->pod_uid[0] == '\0')
        return deny(c, v, "the token is not bound to a pod", err);
    if (strcmp(c->node, v->node) != 0)
        return deny(c, v, "the volume is on another node than the pod", err);
    if (c->kind == CALLER_NODE)
        return 0;
    snprintf(job, sizeof job, "%s-%s", is_export ? "export" : "hydrate", v->id.text);
    if (!pod || !is_pod_of(pod, job))
        return deny(c, v, is_export ? "the pod is not of its export Job" : "the pod is not of its hydrate Job", err);
    if (!str_eq(json_str_at(pod, "spec.nodeName"), str_of(v->node)))
        return deny(c, v, "the pod runs on another node", err);
    return 0;
}

/* ---- TokenReviews, with a cache ---------------------------------------------------------------------------------- */

enum { SLOTS = 1024 };
#define CACHED_NS (10 * NS_PER_SECOND)

struct caller_slot {
    uint8_t hash[32]; /* of the token */
    uint64_t until_ns;
    struct caller caller;
};

struct callers {
    struct kube *kube;               /* borrowed */
    struct caller_rules rules;       /* borrowed */
    pthread_mutex_t lock;            /* guards slots */
    struct caller_slot slots[SLOTS]; /* by the token's hash; a later token replaces it */
};

struct callers *callers_new(struct kube *k, const struct caller_rules *rules)
{
    struct callers *c = xcalloc(1, sizeof *c);
    c->kube = k;
    c->rules = *rules;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void callers_free(struct callers *own_c)
{
    if (!own_c)
        return;
    pthread_mutex_destroy(&own_c->lock);
    free(own_c);
}

static struct caller_slot *slot_of(struct callers *c, const uint8_t hash[32])
{
    return &c->slots[(hash[0] << 8 | hash[1]) % SLOTS];
}

static bool find_cached(struct callers *c, const uint8_t hash[32], struct caller *ret)
{
    auto_lock(&c->lock);
    const struct caller_slot *s = slot_of(c, hash);
    if (memcmp(s->hash, hash, sizeof s->hash) != 0 || clock_now_ns() >= s->until_ns)
        return false;
    *ret = s->caller;
    return true;
}

static void add_to_cache(struct callers *c, const uint8_t hash[32], const struct caller *caller)
{
    auto_lock(&c->lock);
    struct caller_slot *s = slot_of(c, hash);
    memcpy(s->hash, hash, sizeof s->hash);
    s->until_ns = clock_now_ns() + CACHED_NS;
    s->caller = *caller;
}

static json *review_of(struct str token)
{
    json *j = kube_object(&kube_token_reviews, STR_NULL, STR_NULL);
    json *audiences = json_new_array();
    json_append_str(audiences, STR(NAME_AUDIENCE_BROKER));
    json_set_str(j, "spec.token", token);
    json_set(j, "spec.audiences", audiences);
    return j;
}

int callers_find(struct callers *c, struct str token, struct caller *ret, struct err *err)
{
    uint8_t hash[32];
    struct caller found;
    int r = caller_looks_right(token, clock_wall_ns(), err);
    if (r < 0)
        return r;
    sha256(token, hash);
    if (find_cached(c, hash, ret))
        return 0;
    auto_json asked = review_of(token);
    auto_json answer = NULL;
    r = kube_call(
        c->kube,
        &(struct kube_request){.verb = KUBE_CREATE, .resource = &kube_token_reviews, .body = asked, .exempt = true},
        &answer, err);
    if (r < 0) {
        /* The API server denied the broker, not the caller. */
        err->code = r == -ERR_DENIED ? ERR_INTERNAL : err->code;
        return err_wrap(err, "TokenReview of the caller");
    }
    r = caller_read(answer, &c->rules, &found, err);
    if (r < 0)
        return r;
    add_to_cache(c, hash, &found);
    *ret = found;
    return 0;
}

int callers_pod(struct callers *c, const struct caller *caller, json **ret, struct err *err)
{
    auto_json pod = NULL;
    struct str uid = STR_NULL;
    struct err why;
    const struct kube_request get = {
        .verb = KUBE_GET, .resource = &kube_pods, .ns = c->rules.ns, .name = str_of(caller->pod), .exempt = true};
    int r = kube_call(c->kube, &get, &pod, &why);
    if (r < 0 && r != -ERR_NOT_FOUND) {
        err_copy(err, &why);
        return err_wrap(err, "pod '%s'", caller->pod);
    }
    if (r == 0 && json_opt_str(pod, "metadata.uid", &uid, &why) < 0)
        uid = STR_NULL;
    if (r < 0 || !str_eq(uid, str_of(caller->pod_uid)))
        return err_fail(err, ERR_DENIED, CIS_BROKER_CALLER_UNKNOWN, "the token was rejected: its pod '%s' was deleted",
                        caller->pod);
    *ret = take(&pod);
    return 0;
}
