/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/config.h"
#include "kubeconfig.h"
#include "util/env.h"
#include "util/file.h"
#include <fcntl.h>

/* The service account that the kubelet mounts into a pod. CISTERN_SERVICE_ACCOUNT_DIR is for tests. */
#define ACCOUNT_DIRECTORY "/var/run/secrets/kubernetes.io/serviceaccount"

static int load_file(const char *path, struct kube_config *ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    const char *slash = strrchr(path, '/');
    auto_mem char *folder = slash ? str_dup((struct str){path, (size_t)(slash - path)}) : str_dup(STR("."));
    int r = file_read(AT_FDCWD, path, KUBE_FILE_MAX, &text, &len, err);
    if (r < 0)
        return err_wrap(err, "the kubeconfig");
    r = kubeconfig_parse((struct str){text, len}, folder, ret, err);
    explicit_bzero(text, len);
    return r;
}

static char *path_in(const char *folder, const char *name)
{
    auto_sbuf b;
    sbuf_init(&b, 8192);
    sbuf_addf(&b, "%s/%s", folder, name);
    return str_dup(sbuf_str(&b));
}

static int read_text(const char *folder, const char *name, char **ret, struct err *err)
{
    size_t len;
    auto_mem char *path = path_in(folder, name);
    int r = file_read(AT_FDCWD, path, KUBE_FILE_MAX, ret, &len, err);
    return r < 0 ? err_wrap(err, "the service account") : 0;
}

static int load_in_cluster(struct kube_config *ret, struct err *err)
{
    struct kube_config c = {0};
    auto_mem char *ns = NULL;
    struct err ignored;
    char url[300];
    const char *host = env_get("KUBERNETES_SERVICE_HOST"), *port = env_get("KUBERNETES_SERVICE_PORT");
    const char *folder = env_get("CISTERN_SERVICE_ACCOUNT_DIR");
    if (!host || !port)
        return err_set(err, ERR_NOT_FOUND,
                       "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: not in a pod");
    folder = folder ? folder : ACCOUNT_DIRECTORY;
    snprintf(url, sizeof url, strchr(host, ':') ? "https://[%.200s]:%.8s" : "https://%.200s:%.8s", host, port);
    int r = kubeconfig_server(str_of(url), &c.server, err);
    if (r == 0)
        r = read_text(folder, "ca.crt", &c.ca, err);
    if (r < 0) {
        kube_config_done(&c);
        return r;
    }
    c.token_file = path_in(folder, "token");
    if (read_text(folder, "namespace", &ns, &ignored) == 0) /* a token can be mounted without it */
        c.ns = str_dup(str_trim(str_of(ns)));
    *ret = c;
    return 0;
}

int kube_config_load(const char *kubeconfig, struct kube_config *ret, struct err *err)
{
    int r = kubeconfig ? load_file(kubeconfig, ret, err) : load_in_cluster(ret, err);
    if (r < 0)
        return err_advise(err, CIS_KUBERNETES_CONFIG);
    return 0;
}

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
