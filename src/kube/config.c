/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/config.h"
#include "util/encode.h"
#include "util/env.h"
#include "util/file.h"
#include "util/json.h"
#include "yaml_tree.h"
#include <fcntl.h>

enum { FILE_MAX = 1 << 20 };

/* The service account that the kubelet mounts into a pod. CISTERN_SERVICE_ACCOUNT_DIR is for tests. */
#define ACCOUNT_DIRECTORY "/var/run/secrets/kubernetes.io/serviceaccount"

void kube_config_done(struct kube_config *c)
{
    free(take(&c->server));
    free(take(&c->ns));
    free(take(&c->ca));
    free(take(&c->certificate));
    secret_free(take(&c->key));
    secret_free(take(&c->token));
    free(take(&c->token_file));
}

static char *path_in(const char *directory, struct str name)
{
    return str_starts(name, STR("/")) ? str_dup(name) : str_dupf("%s/%.*s", directory, STR_FMT(name));
}

/* ---- a kubeconfig file ------------------------------------------------------------------------------------------- */

struct kubeconfig_source {
    const json *tree;
    const char *directory;
};

/* Returns the member `inner` of the entry with that name in "contexts", "clusters" or "users". */
static int find_named(const struct kubeconfig_source *s, const char *list, const char *inner, struct str name,
                      const json **ret, struct err *err)
{
    const json *array = json_at(s->tree, list);
    for (size_t i = 0; i < json_count(array); i++) {
        const json *entry = json_item(array, i);
        if (!str_eq(json_member_str(entry, "name"), name))
            continue;
        *ret = json_at(entry, inner);
        return 0;
    }
    return err_set(err, ERR_INVALID, "the kubeconfig has no '%.*s' in its %s", STR_FMT(name), list);
}

/* Rejects unsupported settings: without them a request could have the wrong identity, or take the wrong way. */
static int reject_unsupported(const json *cluster, const json *user, struct err *err)
{
    static const char *const of_cluster[] = {"proxy-url", "tls-server-name"};
    static const char *const of_user[] = {"exec", "auth-provider", "username", "password", "as", "as-groups", "as-uid"};
    for (size_t i = 0; i < countof(of_cluster); i++)
        if (json_at(cluster, of_cluster[i]))
            return err_set(err, ERR_UNSUPPORTED, "the kubeconfig's cluster has '%s', which is not supported",
                           of_cluster[i]);
    for (size_t i = 0; i < countof(of_user); i++)
        if (json_at(user, of_user[i]))
            return err_set(err, ERR_UNSUPPORTED,
                           "the kubeconfig's user has '%s', which is not supported: give it a token or a certificate",
                           of_user[i]);
    return 0;
}

static int opt_text(const json *j, const char *name, struct str *ret, struct err *err)
{
    int r = json_opt_str(j, name, ret, err);
    return r < 0 ? err_wrap(err, "the kubeconfig") : 0;
}

/* PEM text from NAME-data (base64), which wins as in kubectl, or from the file NAME. NULL where there is neither. */
static int read_pem(const struct kubeconfig_source *s, const json *j, const char *name, char **ret, struct err *err)
{
    char data_name[64];
    struct str data = STR_NULL, file = STR_NULL;
    snprintf(data_name, sizeof data_name, "%s-data", name);
    int r = opt_text(j, data_name, &data, err);
    if (r == 0)
        r = opt_text(j, name, &file, err);
    if (r < 0)
        return r;
    if (data.len) {
        auto_sbuf pem = SBUF(FILE_MAX);
        if (!base64_parse(data, &pem) || pem.overflow)
            return err_set(err, ERR_INVALID, "the kubeconfig's '%s' is not base64", data_name);
        *ret = str_dup(sbuf_str(&pem));
        explicit_bzero(pem.ptr, pem.len);
    } else if (file.len) {
        auto_mem char *path = path_in(s->directory, file);
        size_t len;
        return file_read(AT_FDCWD, path, FILE_MAX, ret, &len, err);
    }
    return 0;
}

/* Is the host of "HOST:PORT/PATH" this machine, by a name that cannot mean another one? */
static bool is_this_machine(struct str rest)
{
    static const struct str names[] = {{"127.0.0.1", 9}, {"localhost", 9}, {"[::1]", 5}};
    for (size_t i = 0; i < countof(names); i++)
        if (str_starts(rest, names[i]) &&
            (rest.len == names[i].len || rest.ptr[names[i].len] == ':' || rest.ptr[names[i].len] == '/'))
            return true;
    return false;
}

/* ERR_INVALID unless it is https://..., or http:// to this machine. Copied without a slash at its end. */
static int read_server(struct str url, char **ret, struct err *err)
{
    bool https = str_starts(url, STR("https://"));
    struct str host = str_from(url, https ? 8 : 7);
    bool here = str_starts(url, STR("http://")) && is_this_machine(host);
    if (str_starts(url, STR("http://")) && !here)
        return err_set(err, ERR_UNSUPPORTED, "the API server '%.*s' is not https", STR_FMT(url));
    if ((!https && !here) || host.len == 0 || host.ptr[0] == '/' || !str_is_visible(url, "?#@"))
        return err_set(err, ERR_INVALID, "'%.*s' is not the address of an API server", STR_FMT(url));
    while (str_ends(url, STR("/")))
        url.len--;
    *ret = str_dup(url);
    return 0;
}

static int read_cluster(const struct kubeconfig_source *s, const json *cluster, struct kube_config *c, struct err *err)
{
    struct str server = STR_NULL;
    int r = opt_text(cluster, "server", &server, err);
    if (r == 0)
        r = read_server(server, &c->server, err);
    if (r == 0 && (r = json_opt_bool(cluster, "insecure-skip-tls-verify", &c->skips_tls_checks, err)) < 0)
        r = err_wrap(err, "the kubeconfig");
    return r < 0 ? r : read_pem(s, cluster, "certificate-authority", &c->ca, err);
}

static int read_user(const struct kubeconfig_source *s, const json *user, struct kube_config *c, struct err *err)
{
    struct str token = STR_NULL, file = STR_NULL;
    int r = read_pem(s, user, "client-certificate", &c->certificate, err);
    if (r == 0)
        r = read_pem(s, user, "client-key", &c->key, err);
    if (r == 0)
        r = opt_text(user, "token", &token, err);
    if (r == 0)
        r = opt_text(user, "tokenFile", &file, err);
    if (r < 0)
        return r;
    if (!c->certificate != !c->key)
        return err_set(err, ERR_INVALID,
                       "the kubeconfig's user has a certificate without its key, or a key without one");
    c->token = token.len ? str_dup(token) : NULL;
    c->token_file = file.len ? path_in(s->directory, file) : NULL;
    return 0;
}

int kubeconfig_parse(struct str text, const char *directory, struct kube_config *ret, struct err *err)
{
    auto_json tree = NULL;
    auto_kube_config c = {0};
    const json *context, *cluster, *user = NULL;
    struct str current = STR_NULL, cluster_name = STR_NULL, user_name = STR_NULL, ns = STR_NULL;
    int r = yaml_parse(text, "the kubeconfig", &tree, err);
    if (r < 0)
        return r;
    struct kubeconfig_source s = {.tree = tree, .directory = directory};
    if ((r = opt_text(tree, "current-context", &current, err)) < 0 ||
        (r = find_named(&s, "contexts", "context", current, &context, err)) < 0 ||
        (r = opt_text(context, "cluster", &cluster_name, err)) < 0 ||
        (r = opt_text(context, "user", &user_name, err)) < 0 || (r = opt_text(context, "namespace", &ns, err)) < 0 ||
        (r = find_named(&s, "clusters", "cluster", cluster_name, &cluster, err)) < 0)
        return r;
    if (user_name.len && (r = find_named(&s, "users", "user", user_name, &user, err)) < 0)
        return r;
    if ((r = reject_unsupported(cluster, user, err)) < 0 || (r = read_cluster(&s, cluster, &c, err)) < 0 ||
        (r = read_user(&s, user, &c, err)) < 0)
        return r;
    c.ns = ns.len ? str_dup(ns) : NULL;
    *ret = take(&c);
    return 0;
}

static int load_file(const char *path, struct kube_config *ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    const char *slash = strrchr(path, '/');
    auto_mem char *directory = slash ? str_dup((struct str){path, (size_t)(slash - path)}) : str_dup(STR("."));
    int r = file_read(AT_FDCWD, path, FILE_MAX, &text, &len, err);
    if (r < 0)
        return err_wrap(err, "the kubeconfig");
    r = kubeconfig_parse((struct str){text, len}, directory, ret, err);
    explicit_bzero(text, len);
    return r;
}

/* ---- in a pod ---------------------------------------------------------------------------------------------------- */

static int read_text(const char *directory, const char *name, char **ret, struct err *err)
{
    size_t len;
    auto_mem char *path = path_in(directory, str_of(name));
    int r = file_read(AT_FDCWD, path, FILE_MAX, ret, &len, err);
    return r < 0 ? err_wrap(err, "the service account") : 0;
}

static int load_in_cluster(struct kube_config *ret, struct err *err)
{
    auto_kube_config c = {0};
    auto_mem char *ns = NULL;
    char url[300];
    const char *host = env_get("KUBERNETES_SERVICE_HOST"), *port = env_get("KUBERNETES_SERVICE_PORT");
    const char *directory = env_get("CISTERN_SERVICE_ACCOUNT_DIR");
    if (!host || !port)
        return err_set(err, ERR_NOT_FOUND,
                       "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: not in a pod");
    directory = directory ? directory : ACCOUNT_DIRECTORY;
    snprintf(url, sizeof url, strchr(host, ':') ? "https://[%.200s]:%.8s" : "https://%.200s:%.8s", host, port);
    int r = read_server(str_of(url), &c.server, err);
    if (r == 0)
        r = read_text(directory, "ca.crt", &c.ca, err);
    if (r < 0)
        return r;
    c.token_file = path_in(directory, STR("token"));
    if (read_text(directory, "namespace", &ns, ERR_IGNORED) == 0) /* a token can be mounted without it */
        c.ns = str_dup(str_trim(str_of(ns)));
    *ret = take(&c);
    return 0;
}

int kube_config_load(const char *kubeconfig, struct kube_config *ret, struct err *err)
{
    int r = kubeconfig ? load_file(kubeconfig, ret, err) : load_in_cluster(ret, err);
    if (r < 0)
        return err_advise(err, CIS_KUBERNETES_CONFIG);
    return 0;
}
