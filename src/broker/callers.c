/* SPDX-License-Identifier: Apache-2.0 */
/* Reviews of tokens, asked of the API server and remembered for a moment. */
#include "caller.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/names.h"
#include <pthread.h>

enum { SLOTS = 1024 };
#define REMEMBERED_NS (10 * NS_PER_SECOND)

struct slot {
    uint8_t hash[32]; /* of the token */
    uint64_t until_ns;
    struct caller caller;
};

struct callers {
    struct kube *kube;                     /* borrowed */
    char *ns, *node_account, *job_account; /* owned */
    struct caller_rules rules;             /* views of these */
    pthread_mutex_t lock;                  /* guards slots */
    struct slot slots[SLOTS];              /* a token's place is its hash's: who comes later takes it */
};

struct callers *callers_new(struct kube *k, const struct caller_rules *rules)
{
    struct callers *c = xcalloc(1, sizeof *c);
    c->kube = k;
    c->ns = str_dup(rules->ns);
    c->node_account = str_dup(rules->node_account);
    c->job_account = str_dup(rules->job_account);
    c->rules = (struct caller_rules){str_of(c->ns), str_of(c->node_account), str_of(c->job_account)};
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void callers_free(struct callers *own_c)
{
    if (!own_c)
        return;
    pthread_mutex_destroy(&own_c->lock);
    free(own_c->ns);
    free(own_c->node_account);
    free(own_c->job_account);
    free(own_c);
}

static struct slot *slot_of(struct callers *c, const uint8_t hash[32])
{
    return &c->slots[(hash[0] << 8 | hash[1]) % SLOTS];
}

static bool recall(struct callers *c, const uint8_t hash[32], struct caller *ret)
{
    pthread_mutex_lock(&c->lock);
    const struct slot *s = slot_of(c, hash);
    bool found = memcmp(s->hash, hash, sizeof s->hash) == 0 && clock_now_ns() < s->until_ns;
    if (found)
        *ret = s->caller;
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void remember(struct callers *c, const uint8_t hash[32], const struct caller *caller)
{
    pthread_mutex_lock(&c->lock);
    struct slot *s = slot_of(c, hash);
    memcpy(s->hash, hash, sizeof s->hash);
    s->until_ns = clock_now_ns() + REMEMBERED_NS;
    s->caller = *caller;
    pthread_mutex_unlock(&c->lock);
}

static json *review_of(struct str token)
{
    json *j = json_new_object();
    json *audiences = json_new_array();
    json_append_str(audiences, STR(NAME_AUDIENCE_BROKER));
    json_set_str(j, "apiVersion", STR("authentication.k8s.io/v1"));
    json_set_str(j, "kind", STR("TokenReview"));
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
    if (recall(c, hash, ret))
        return 0;
    auto_json asked = review_of(token);
    auto_json answer = NULL;
    r = kube_call(
        c->kube,
        &(struct kube_request){.verb = KUBE_CREATE, .resource = &kube_token_reviews, .body = asked, .exempt = true},
        &answer, err);
    if (r < 0) {
        /* What is refused is we, not the caller. */
        err->code = r == -ERR_DENIED ? ERR_INTERNAL : err->code;
        return err_wrap(err, "asking the API server about the caller");
    }
    r = caller_read(answer, &c->rules, &found, err);
    if (r < 0)
        return r;
    remember(c, hash, &found);
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
        return err_wrap(err, "looking at pod '%s'", caller->pod);
    }
    if (r == 0 && json_opt_str(pod, "metadata.uid", &uid, &why) < 0)
        uid = STR_NULL;
    if (r < 0 || !str_eq(uid, str_of(caller->pod_uid))) {
        err_set(err, ERR_DENIED, "the token is not accepted: its pod '%s' is gone", caller->pod);
        return err_advise(err, 1902, "a token ends with its pod");
    }
    *ret = take(&pod);
    return 0;
}
