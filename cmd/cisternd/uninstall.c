/* SPDX-License-Identifier: Apache-2.0 */
/* --role=uninstall: the chart's hook before `helm uninstall`; runs once and ends. */
#include "populate/uninstall.h"
#include "cisternd.h"
#include "io/loop.h"
#include "util/clock.h"
#include <pthread.h>
#include <stdio.h>

#define WAIT_NS (60 * NS_PER_SECOND) /* the controller's pods have a grace period of 30 s */

static void print(const char *line)
{
    puts(line);
}

static int leave(struct kube *kube, struct err *err)
{
    struct uninstall_options o = {
        .kube = kube, .namespace = str_of(flags.controller.ns), .wait_ns = WAIT_NS, .say = print};
    return populate_uninstall(&o, err);
}

int role_uninstall(const sigset_t *signals, struct err *err)
{
    auto_kube_config config = {0};
    struct kube_options o = {.qps = 50, .burst = 100, .field_manager = "cistern-uninstall"};
    struct loop *loop;
    struct kube *kube = NULL;
    pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a signal may end it anywhere: all steps can be repeated */
    if (!flags.controller.ns)
        return err_set(err, ERR_INVALID, "--namespace is missing");
    int r = kube_config_load(flags.kubeconfig, &config, err);
    if (r == 0)
        r = loop_new("loop/0", &loop, err);
    if (r < 0)
        return err_wrap(err, "API server");
    r = kube_new(loop, &config, &o, &kube, err);
    if (r == 0)
        r = loop_start(loop, err);
    if (r == 0) {
        r = leave(kube, err);
        kube_stop(kube);
        loop_stop_and_join(loop);
    }
    kube_free(kube);
    loop_free(loop);
    return r;
}
