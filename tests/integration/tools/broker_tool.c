/* SPDX-License-Identifier: Apache-2.0 */
/* The credential broker by itself, for tests.
 *   broker_tool KUBECONFIG NAMESPACE [NAME=VALUE...]
 *
 * NAME: driver (1), no-opt-in (1), issuer, gke-project, gke-provider, audience, check-ms, trust (URL), export-secret.
 * Times in seconds: authority, authority-before, published, certificate, certificate-before.
 *
 * Prints "port N", then a line of JSON a call; ends when its standard input does. */
#include "broker/broker.h"
#include "util/clock.h"
#include "util/names.h"
#include "util/seal.h"
#include <assert.h>
#include <stdio.h>
#include <unistd.h>

static void say(json *own_j)
{
    auto_mem char *text = json_text(own_j, 0);
    dprintf(STDOUT_FILENO, "%s\n", text);
    json_free(own_j);
}

static void put_err(json *j, const struct err *err)
{
    json_set_u64(j, "id", err->id);
    json_set_str(j, "code", str_of(err_code_name(err->code)));
    json_set_str(j, "text", str_of(err->text));
    json_set_str(j, "advice", str_of(err->advice));
}

static void on_call(void *ctx, const struct broker_event *e)
{
    (void)ctx;
    json *j = json_new_object();
    json_set_str(j, "caller", e->caller);
    json_set_str(j, "volume", e->volume);
    json_set_str(j, "method", e->method);
    json_set_str(j, "principal", e->principal);
    if (e->err)
        put_err(j, e->err);
    say(j);
}

static void on_error(void *ctx, const char *what, const struct err *err)
{
    (void)ctx;
    json *j = json_new_object();
    json_set_str(j, "trouble", str_of(what));
    put_err(j, err);
    say(j);
}

static uint64_t number(const char *text)
{
    uint64_t n = 0;
    struct err err;
    if (str_to_u64(str_of(text), &n, &err) < 0)
        abort();
    return n;
}

static const char *trusted;

static bool guard_lines(void *ctx, struct sbuf *ret)
{
    (void)ctx;
    if (trusted)
        sbuf_addf(ret, "trust %s\n", trusted);
    return true;
}

static void set(struct broker_options *o, const char *name, const char *value)
{
    struct err ignored;
    const struct {
        const char *name;
        int64_t *value;
    } times[] = {{"authority", &o->times.authority},
                 {"authority-before", &o->times.authority_before},
                 {"published", &o->times.published},
                 {"certificate", &o->times.certificate},
                 {"certificate-before", &o->times.certificate_before}};
    for (size_t i = 0; i < countof(times); i++)
        if (strcmp(name, times[i].name) == 0)
            *times[i].value = (int64_t)number(value);
    if (strcmp(name, "driver") == 0)
        o->allow_driver_identity = true;
    if (strcmp(name, "no-opt-in") == 0)
        o->require_opt_in = false;
    if (strcmp(name, "issuer") == 0)
        o->issuer = value;
    if (strcmp(name, "gke-project") == 0)
        o->gke_project = value;
    if (strcmp(name, "gke-provider") == 0)
        o->gke_provider = value;
    if (strcmp(name, "audience") == 0)
        o->audiences[o->audience_count++] = value;
    if (strcmp(name, "trust") == 0)
        trusted = value;
    if (strcmp(name, "export-secret") == 0 &&
        broker_binding_parse(str_of(value), &o->bindings[o->binding_count++], &ignored) < 0)
        abort();
    if (strcmp(name, "check-ms") == 0)
        o->check_ns = number(value) * NS_PER_MS;
}

static int run(const char *kubeconfig, const struct broker_options *o, struct err *err)
{
    auto_kube_config config = {0};
    auto_loop loop = NULL;
    auto_kube kube = NULL;
    struct broker *broker;
    char byte;
    int r = kube_config_load(kubeconfig, &config, err);
    if (r == 0)
        r = loop_new("loop/0", &loop, err);
    if (r == 0)
        r = kube_new(loop, &config, &(struct kube_options){.field_manager = "broker-tool"}, &kube, err);
    if (r == 0)
        r = broker_new(loop, kube, o, &broker, err);
    if (r == 0)
        r = loop_start(loop, err);
    if (r < 0)
        return r;
    dprintf(STDOUT_FILENO, "port %u\n", broker_port(broker));
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    kube_stop(kube);
    broker_stop(broker);
    loop_stop_and_join(loop);
    broker_free(broker);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err;
    char line[ERR_LINE_MAX];
    assert(argc >= 3);
    struct broker_options o = {.listen = "127.0.0.1:0",
                               .ns = str_of(argv[2]),
                               .node_account = STR("cistern-node"),
                               .job_account = STR("cistern-job"),
                               .require_opt_in = true,
                               .guard_lines = guard_lines,
                               .on_call = on_call,
                               .on_error = on_error};
    seal_process();
    for (int i = 3; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        assert(equals);
        *equals = '\0';
        set(&o, argv[i], equals + 1);
    }
    if (run(argv[1], &o, &err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err_line(&err, line, sizeof line));
    return 1;
}
