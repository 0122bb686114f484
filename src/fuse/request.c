/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <signal.h>
#include <stdio.h>

struct request *request_current(void)
{
    static _Thread_local struct request current;
    return &current;
}

uint64_t request_before(struct request *rq, uint64_t now)
{
    struct table_intent *i = rq->intent;
    if (i->n_before > 0)
        return i->before[0];
    i->before[0] = now;
    STORE_BARRIER(); /* the value before the count: after a death in between, the request has not acted yet */
    i->n_before = 1;
    return now;
}

#ifdef CISTERN_TEST_POINTS
/* Hits are counted in the memfd: after the process died at the Nth, the next ones live. */
bool test_is_here(struct session *s, const char *op, const char *point)
{
    const char *armed = getenv("CISTERN_TEST_KILL");
    char here[64];
    if (!armed)
        return false;
    int n = snprintf(here, sizeof(here), "%s:%s:", op, point);
    if (strncmp(armed, here, (size_t)n) != 0)
        return false;
    uint32_t hit = __atomic_add_fetch(&s->table->head->test_hits, 1, __ATOMIC_SEQ_CST);
    return hit == (uint32_t)strtoul(armed + n, NULL, 10);
}

void test_point(struct session *s, const char *op, const char *point)
{
    const char *stop = getenv("CISTERN_TEST_STOP");
    char here[64];
    snprintf(here, sizeof(here), "%s:%s", op, point);
    if (test_is_here(s, op, point))
        kill(getpid(), SIGKILL);
    if (stop && strcmp(stop, here) == 0)
        raise(SIGSTOP); /* not kill(2): this thread must not run on */
}
#endif
