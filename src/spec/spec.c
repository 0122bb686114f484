/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/spec.h"
#include "keys.h"
#include <assert.h>

struct spec *spec_new(void)
{
    struct spec *s = xcalloc(1, sizeof *s);
    struct err err;
    for (size_t i = 0; i < spec_key_count; i++) {
        const struct spec_key *key = &spec_keys[i];
        int r = key->initial ? spec_value_parse(key, s, str_of(key->initial), &err) : 0;
        assert(r == 0); /* a default that its own type refuses is an error in the table */
    }
    return s;
}

void spec_free(struct spec *own_s)
{
    if (!own_s)
        return;
    for (size_t i = 0; i < spec_key_count; i++)
        spec_value_free(&spec_keys[i], own_s);
    free(own_s->name);
    free(own_s);
}

/* Keys that sidecars and the kubelet add. */
static int ignore_foreign(struct str key, struct str value, struct err *err)
{
    if (!str_eq(key, STR("csi.storage.k8s.io/fstype")) || value.len == 0)
        return 0;
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID,
                    "'%.*s: %.*s' is not supported: the driver chooses the file system", STR_FMT(key),
                    (int)min_u64(value.len, 60), value.ptr);
}

int spec_set(struct spec *s, struct str key, struct str value, struct err *err)
{
    if (str_starts(key, STR("csi.storage.k8s.io/")))
        return ignore_foreign(key, value, err);
    const struct spec_key *k = spec_key_find(key, err);
    return k ? spec_value_parse(k, s, value, err) : -(int)err->code;
}

int spec_set_parameter(struct spec *s, struct str key, struct str value, struct err *err)
{
    const struct spec_key *k = str_starts(key, STR("csi.storage.k8s.io/")) ? NULL : spec_key_find(key, err);
    if (k && !k->is_parameter)
        return err_fail(err, ERR_INVALID, CIS_PARAMETER_UNKNOWN, "'%s' is a field of BucketSource, not a parameter",
                        k->name);
    return spec_set(s, key, value, err);
}

static bool is_followed(const struct spec_key *key)
{
    return key->change == CHANGE_FREELY || key->change == CHANGE_WITH_SOURCE;
}

bool spec_follows(const struct spec *s, const struct spec *order)
{
    for (size_t i = 0; i < spec_key_count; i++)
        if (is_followed(&spec_keys[i]) && !spec_value_same(&spec_keys[i], s, order))
            return false;
    return true;
}

void spec_follow(struct spec *s, const struct spec *order)
{
    for (size_t i = 0; i < spec_key_count; i++) {
        size_t at = spec_keys[i].offset;
        if (is_followed(&spec_keys[i])) /* numbers, all of them */
            memcpy((char *)s + at, (const char *)order + at, sizeof(uint64_t));
    }
}

const char *spec_identity_name(enum spec_identity i)
{
    static const char *const names[] = {"auto", "gke", "wif", "irsa", "podIdentity", "metadata", "secret", "anonymous"};
    return names[i];
}

/* ---- backends ---------------------------------------------------------------------------------------------------- */

static const char *const backends[] = {[BACKEND_AUTO] = "auto", [BACKEND_QUOTA] = "quota", [BACKEND_LOOP] = "loop"};

const char *spec_backend_name(enum spec_backend b)
{
    return (size_t)b < countof(backends) ? backends[b] : "auto";
}

int spec_backend_parse(struct str s, enum spec_backend *ret, struct err *err)
{
    for (size_t i = 0; i < countof(backends); i++)
        if (str_eq(s, str_of(backends[i]))) {
            *ret = (enum spec_backend)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "backend '%.*s' is unknown: expected auto, quota or loop", (int)min_u64(s.len, 60),
                   s.len ? s.ptr : "");
}

/* ---- rules over several keys
 * --------------------------------------------------------------------------------------- */

static int contradiction(struct err *err, const char *what)
{
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID, "%s", what);
}

/* A record of any version has at least this. uri_check() has the rules for new values. */
static int check_uri(const char *name, const struct spec_uri *uri, struct err *err)
{
    const struct uri *u = &uri->view;
    if (u->bucket.len > 0 || (u->scheme && u->scheme->is_path && u->prefix.len > 1 && u->prefix.ptr[0] == '/'))
        return 0;
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID, "'%s': invalid URI '%.200s': " SPEC_URI_FORMS, name,
                    uri->text);
}

static int check_prefix(const struct spec_source *src, const struct spec_uri *uri, struct err *err)
{
    int r = check_uri(src->uri.text ? "uri" : "sources.uri", uri, err);
    if (r < 0)
        return r;
    const struct scheme *scheme = uri->view.scheme;
    if (!src->layout.strip_prefix && scheme->is_path)
        return contradiction(err, "'layout.stripPrefix: false' needs a bucket: use layout.subPath with file://");
    /* Google bills a project; S3 bills the requester. */
    if (src->requester_pays && strcmp(src->requester_pays, "true") == 0 && scheme->bills_project)
        return contradiction(err, "'requesterPays: true' with gs://: it must be the project that is billed");
    return 0;
}

static int check_source(const struct spec *s, struct err *err)
{
    const struct spec_source *src = &s->source;
    if (src->uri.text && src->sources.count)
        return contradiction(err, "'uri' and 'sources' are both given: only one is allowed");
    if (src->sources.count && (src->include.count || src->exclude.count))
        return contradiction(err, "'include' and 'exclude' beside 'sources': they belong in its entries");
    for (size_t i = 0; i < spec_source_count(s); i++) {
        struct spec_part part = spec_source_at(s, i);
        int r = check_prefix(src, &part.uri, err);
        if (r < 0)
            return r;
    }
    if (src->priority.count > SPEC_PRIORITIES_MAX)
        return contradiction(err, "'priority' has more than 32 patterns");
    if (src->shard_index >= src->shard_count)
        return contradiction(err, "'shard.index' must be less than 'shard.count'");
    if (src->retry.backoff_base_ns > src->retry.backoff_cap_ns)
        return contradiction(err, "'retry.backoffBase' is longer than 'retry.backoffCap'");
    return 0;
}

static int check_export(const struct spec *s, struct err *err)
{
    const struct spec_export *e = &s->export;
    if (!e->uri.text && (e->marker || e->include.count || e->exclude.count || e->latest || e->every || e->best_key))
        return contradiction(err, "there are export rules, but no 'export.uri'");
    if (!e->uri.text)
        return 0;
    if (!e->best_file != !e->best_key)
        return contradiction(err, "'export.select.best' needs both 'file' and 'key'");
    if (e->marker && e->group == GROUP_FILE && (e->latest || e->every || e->best_key))
        return contradiction(err, "'export.marker' needs 'export.select.group: directory'");
    return check_uri("export.uri", &e->uri, err);
}

int spec_check(const struct spec *s, struct err *err)
{
    const struct spec_params *p = &s->params;
    if (!p->pool)
        return contradiction(err, "'pool' is empty");
    if (p->max_volume_bytes && p->min_volume_bytes > p->max_volume_bytes)
        return contradiction(err, "'minVolumeSize' is more than 'maxVolumeSize'");
    int r = check_source(s, err);
    return r < 0 ? r : check_export(s, err);
}

const char *spec_difference(const struct spec *a, const struct spec *b)
{
    for (size_t i = 0; i < spec_key_count; i++)
        if (!spec_value_same(&spec_keys[i], a, b))
            return spec_keys[i].name;
    return NULL;
}

bool spec_is_hydrated(const struct spec *s)
{
    return s->params.hydration != HYDRATION_NONE && spec_source_count(s) > 0;
}

size_t spec_source_count(const struct spec *s)
{
    return s->source.uri.text ? 1 : s->source.sources.count;
}

struct spec_part spec_source_at(const struct spec *s, size_t index)
{
    assert(index < spec_source_count(s));
    const struct spec_source *src = &s->source;
    if (src->uri.text)
        return (struct spec_part){.uri = src->uri, .include = src->include, .exclude = src->exclude};
    return src->sources.items[index];
}

struct spec_server spec_export_server(const struct spec *s)
{
    const struct spec_export *e = &s->export;
    struct spec_server own = {e->endpoint, e->region, e->ca_bundle};
    const struct spec_source *src = &s->source;
    if (spec_source_count(s) > 0 && spec_source_at(s, 0).uri.view.scheme != e->uri.view.scheme)
        return own;
    return (struct spec_server){.endpoint = own.endpoint ? own.endpoint : src->endpoint,
                                .region = own.region ? own.region : src->region,
                                .ca_bundle = own.ca_bundle ? own.ca_bundle : src->ca_bundle};
}
