/* SPDX-License-Identifier: Apache-2.0 */
#include "util/thread.h"
#include "util/str.h"
#include <stdio.h>

struct thread_run {
    void *(*run)(void *ctx);
    void *ctx;
    char name[16];
};

static void *run_named(void *own_run)
{
    struct thread_run r = *(struct thread_run *)own_run;
    free(own_run);
    pthread_setname_np(pthread_self(), r.name);
    return r.run(r.ctx);
}

int thread_start_named(pthread_t *ret, const char *name, void *(*run)(void *), void *ctx, struct err *err)
{
    struct thread_run *r = xcalloc(1, sizeof *r);
    r->run = run;
    r->ctx = ctx;
    snprintf(r->name, sizeof r->name, "%s", name);
    int e = thread_start(ret, run_named, r);
    if (e == 0)
        return 0;
    free(r);
    return err_sys(err, e, "cannot start thread '%s' (ulimit -u limits them)", name);
}
