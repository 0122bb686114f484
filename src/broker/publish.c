/* SPDX-License-Identifier: Apache-2.0 */
#include "publish.h"
#include "util/clock.h"
#include "util/encode.h"
#include <stdio.h>

enum { VALUE_MAX = 256 << 10, NAME_MAX_BYTES = 300 };

#define BUNDLE_KEY "ca.crt"
#define GUARD_KEY "guard"

/* The members of a set and their keys in the Secret; tls.crt and tls.key as in Secrets of type TLS. */
static const struct secret_field {
    const char *key;
    size_t offset;
} fields[] = {
    {"authority.crt", offsetof(struct cert_set, authority.certificate)},
    {"authority.key", offsetof(struct cert_set, authority.key)},
    {"next.crt", offsetof(struct cert_set, next.certificate)},
    {"next.key", offsetof(struct cert_set, next.key)},
    {"tls.crt", offsetof(struct cert_set, server.certificate)},
    {"tls.key", offsetof(struct cert_set, server.key)},
    {BUNDLE_KEY, offsetof(struct cert_set, bundle)},
};

static char **text_at(struct cert_set *s, const struct secret_field *f)
{
    return (char **)(void *)((char *)s + f->offset);
}

/* ---- the Secret -------------------------------------------------------------------------------------------------- */

static void read_secret(const json *secret, struct cert_set *ret)
{
    const json *data = json_at(secret, "data");
    for (size_t i = 0; i < countof(fields); i++) {
        struct str encoded = json_member_str(data, fields[i].key);
        struct sbuf b;
        sbuf_init(&b, VALUE_MAX);
        /* Unreadable data counts as missing: cert_step creates it again. */
        if (encoded.len && base64_parse(encoded, &b) && sbuf_take(&b, text_at(ret, &fields[i]), ERR_IGNORED) < 0)
            *text_at(ret, &fields[i]) = NULL;
        sbuf_done(&b);
    }
}

static json *secret_of(const struct publisher *p, struct cert_set *s, struct str version)
{
    json *j = kube_object(&kube_secrets, str_of(p->ns), STR(PUBLISH_SECRET));
    json *data = json_new_object();
    json_set_strings(j, {"?metadata.resourceVersion", version});
    for (size_t i = 0; i < countof(fields); i++) {
        const char *text = *text_at(s, &fields[i]);
        auto_sbuf b = SBUF(VALUE_MAX);
        if (!text || !text[0])
            continue;
        base64_add(&b, text, strlen(text));
        json_set_member(data, fields[i].key, json_new_str(sbuf_str(&b)));
        explicit_bzero(b.ptr, b.len);
    }
    json_set(j, "data", data);
    return j;
}

static struct kube_request about(const struct publisher *p, const struct kube_resource *kind, const char *name)
{
    return (struct kube_request){.resource = kind, .ns = str_of(p->ns), .name = str_of(name), .exempt = true};
}

static int load(const struct publisher *p, struct cert_set *ret, char **ret_version, struct err *err)
{
    auto_json secret = NULL;
    struct str version = STR_NULL;
    struct kube_request r = about(p, &kube_secrets, PUBLISH_SECRET);
    r.verb = KUBE_GET;
    int code = kube_call(p->kube, &r, &secret, err);
    if (code == -ERR_NOT_FOUND)
        return 0;
    if (code == 0)
        code = json_get_str(secret, "metadata.resourceVersion", &version, err);
    if (code < 0)
        return code;
    read_secret(secret, ret);
    *ret_version = str_dup(version);
    return 0;
}

static int store(const struct publisher *p, struct cert_set *s, const char *version, struct err *err)
{
    auto_json j = secret_of(p, s, str_of(version));
    struct kube_request r = about(p, &kube_secrets, PUBLISH_SECRET);
    r.verb = version ? KUBE_REPLACE : KUBE_CREATE; /* either fails if another leader wrote in between */
    r.name = version ? r.name : STR_NULL;
    r.body = j;
    r.fence = p->lease;
    return kube_call(p->kube, &r, NULL, err);
}

/* ---- the ConfigMap ----------------------------------------------------------------------------------------------- */

static int load_map(const struct publisher *p, char **ret_bundle, char **ret_guard, struct err *err)
{
    auto_json map = NULL;
    struct kube_request r = about(p, &kube_config_maps, PUBLISH_CONFIG_MAP);
    r.verb = KUBE_GET;
    int code = kube_call(p->kube, &r, &map, err);
    if (code == -ERR_NOT_FOUND)
        return 0;
    if (code < 0)
        return code;
    const json *data = json_at(map, "data");
    *ret_bundle = text_copy(json_member_str(data, BUNDLE_KEY));
    *ret_guard = json_member(data, GUARD_KEY) ? str_dup(json_member_str(data, GUARD_KEY)) : NULL;
    return 0;
}

static int store_map(const struct publisher *p, const char *bundle, struct err *err)
{
    auto_json j = kube_object(&kube_config_maps, str_of(p->ns), STR(PUBLISH_CONFIG_MAP));
    json *data = json_new_object();
    json_set_member(data, BUNDLE_KEY, json_new_str(str_of(bundle)));
    json_set_member(data, GUARD_KEY, json_new_str(p->guard));
    json_set(j, "data", data);
    struct kube_request r = about(p, &kube_config_maps, PUBLISH_CONFIG_MAP);
    r.verb = KUBE_APPLY;
    r.force = true;
    r.body = j;
    r.fence = p->lease;
    return kube_call(p->kube, &r, NULL, err);
}

/* ---- one check --------------------------------------------------------------------------------------------------- */

/* The Secret is written first: otherwise a published CA could lose its key. A CA signs only after it was published,
 * which cert_step checks. */
static int lead(const struct publisher *p, struct cert_set *s, const char *version, struct err *err)
{
    char name[NAME_MAX_BYTES], long_name[NAME_MAX_BYTES];
    auto_mem char *published = NULL, *guard = NULL;
    bool changed = false;
    snprintf(name, sizeof name, PUBLISH_SERVICE ".%s.svc", p->ns);
    snprintf(long_name, sizeof long_name, PUBLISH_SERVICE ".%s.svc.cluster.local", p->ns);
    int code = load_map(p, &published, &guard, err);
    if (code < 0)
        return code;
    const struct cert_now now = {.wall_s = clock_wall_ns() / (int64_t)NS_PER_SECOND,
                                 .names = {name, long_name},
                                 .published = str_of(published),
                                 .times = p->times};
    code = cert_step(s, &now, &changed, err);
    if (code == 0 && changed)
        code = store(p, s, version, err);
    bool is_new =
        code == 0 && (!published || strcmp(published, s->bundle) != 0 || !guard || !str_eq(str_of(guard), p->guard));
    if (is_new)
        code = store_map(p, s->bundle, err);
    return code;
}

int publish_step(const struct publisher *p, struct cert_set *ret, struct err *err)
{
    struct cert_set s = {0};
    auto_mem char *version = NULL;
    int code = load(p, &s, &version, err);
    if (code == 0 && kube_lease_is_held(p->lease))
        code = lead(p, &s, version, err);
    if (code < 0) {
        cert_set_done(&s);
        return code;
    }
    *ret = s;
    return 0;
}
