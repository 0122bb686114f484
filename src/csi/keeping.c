/* SPDX-License-Identifier: Apache-2.0 */
#include "keeping.h"
#include "child.h"
#include "io/ticker.h"
#include "util/clock.h"
#include "util/log.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define START_NS (10 * NS_PER_SECOND)
#define END_NS (3 * NS_PER_SECOND)
#define ANSWER_NS (20 * NS_PER_MS)
#define LOOK_NS (250 * NS_PER_MS)
#define MIRROR_NS (3 * NS_PER_SECOND) /* it connects within a second of the keeper's start */

enum { UNMOUNT_MS = 5000 };

struct keeping {
    char *socket;          /* owned */
    char *program;         /* owned; NULL: somebody else starts the keeper */
    struct mirror *mirror; /* borrowed */
    struct ticker *ticker; /* owned */
    pthread_mutex_t lock;  /* guards what follows */
    bool starting;         /* somebody is at it */
    bool wanted;           /* somebody asked for a mount: from then on there is to be a keeper */
    pid_t pid;             /* of the keeper, if it is our child */
};

static void count_one(const struct keeper_status *s, void *user)
{
    (void)s;
    ++*(size_t *)user;
}

/* False: no keeper is there. */
static bool ask(struct keeping *k, size_t *ret_mounts)
{
    struct err err;
    *ret_mounts = 0;
    return keeper_list(k->socket, count_one, ret_mounts, &err) == 0;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* True: our child still runs. */
static bool reap(struct keeping *k)
{
    pthread_mutex_lock(&k->lock);
    if (k->pid > 0 && waitpid(k->pid, NULL, WNOHANG) != 0)
        k->pid = 0;
    bool runs = k->pid > 0;
    pthread_mutex_unlock(&k->lock);
    return runs;
}

/* Until it answers, has ended, or is given up. */
static int wait_for_answer(struct keeping *k, struct err *err)
{
    size_t mounts;
    for (uint64_t end_ns = clock_now_ns() + START_NS; !ask(k, &mounts); clock_sleep(ANSWER_NS)) {
        if (!reap(k))
            return err_set(err, ERR_AGAIN, "the keeper '%s' ended as soon as it was started", k->program);
        if (clock_now_ns() >= end_ns)
            return err_set(err, ERR_AGAIN, "the keeper was started and does not answer at '%s'", k->socket);
    }
    return 0;
}

static int start_keeper(struct keeping *k, struct err *err)
{
    pid_t pid;
    char *const argv[] = {k->program, (char *)"--socket", k->socket, NULL};
    reap(k);
    int r = child_spawn(argv, NULL, &pid, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&k->lock);
    k->pid = pid;
    pthread_mutex_unlock(&k->lock);
    log_event(LOG_INFO, "keeper started", "pid", log_u64((uint64_t)pid), "socket", k->socket, NULL);
    return wait_for_answer(k, err);
}

/* One at a time: of two keepers on one socket the second takes the first one's place. */
static bool begin_start(struct keeping *k)
{
    pthread_mutex_lock(&k->lock);
    bool mine = !k->starting;
    k->starting = true;
    pthread_mutex_unlock(&k->lock);
    return mine;
}

static void end_start(struct keeping *k)
{
    pthread_mutex_lock(&k->lock);
    k->starting = false;
    pthread_mutex_unlock(&k->lock);
}

/* Who finds somebody else at it waits, and where that one fails is the next to start it: so each learns why there is no
 * keeper. */
static int ensure_keeper(struct keeping *k, struct err *err)
{
    size_t mounts;
    for (uint64_t end_ns = clock_now_ns() + START_NS; !ask(k, &mounts); clock_sleep(ANSWER_NS)) {
        if (!k->program) {
            err_set(err, ERR_AGAIN, "the keeper does not answer at '%s'", k->socket);
            return err_advise(err, 3101, "its pod on this node must run; ask again");
        }
        if (clock_now_ns() >= end_ns)
            return err_set(err, ERR_AGAIN, "the keeper is being started");
        if (begin_start(k)) {
            int r = ask(k, &mounts) ? 0 : start_keeper(k, err);
            end_start(k);
            return r;
        }
    }
    return 0;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

/* Also where the mirror holds nothing yet: the keeper may die before it has handed over its first mount. */
static bool is_wanted(struct keeping *k)
{
    pthread_mutex_lock(&k->lock);
    bool wanted = k->wanted;
    pthread_mutex_unlock(&k->lock);
    return wanted || mirror_volumes(k->mirror) > 0;
}

static uint64_t tick(void *ctx)
{
    struct keeping *k = ctx;
    struct err err;
    reap(k);
    if (k->program && is_wanted(k) && !mirror_is_connected(k->mirror) && ensure_keeper(k, &err) < 0)
        log_err(LOG_ERROR, "the keeper died and cannot be started again", &err, NULL);
    return LOOK_NS;
}

static void keeping_free(struct keeping *own_k)
{
    pthread_mutex_destroy(&own_k->lock);
    free(own_k->socket);
    free(own_k->program);
    free(own_k);
}

int keeping_start(const char *socket, const char *programs, struct mirror *mirror, struct keeping **ret,
                  struct err *err)
{
    struct keeping *k = xcalloc(1, sizeof *k);
    auto_sbuf program;
    sbuf_init(&program, 4096);
    sbuf_addf(&program, "%s/cistern-keeper", programs ? programs : "");
    pthread_mutex_init(&k->lock, NULL);
    k->socket = str_dup(str_of(socket));
    k->program = programs ? str_dup(sbuf_str(&program)) : NULL;
    k->mirror = mirror;
    int r = ticker_start("keeping", tick, k, &k->ticker, err);
    if (r < 0) {
        keeping_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

/* A keeper with mounts outlives us, that is what it is for. One without has nothing to keep. */
static void end_idle_keeper(struct keeping *k)
{
    size_t mounts;
    if (!k->program || !ask(k, &mounts) || mounts > 0)
        return;
    child_signal_like("--socket", k->socket, SIGTERM);
    for (uint64_t end_ns = clock_now_ns() + END_NS; ask(k, &mounts) && clock_now_ns() < end_ns;)
        clock_sleep(ANSWER_NS);
    reap(k);
}

void keeping_stop(struct keeping *own_k)
{
    if (!own_k)
        return;
    ticker_stop(own_k->ticker);
    end_idle_keeper(own_k);
    keeping_free(own_k);
}

/* ---- mounts ------------------------------------------------------------------------------------------------------ */

/* A mount is safe when its descriptors are held twice: a keeper that died before would take it along. Only a wait, no
 * condition: what is mounted serves all the same. */
static void wait_for_mirror(struct keeping *k)
{
    size_t mounts;
    for (uint64_t end_ns = clock_now_ns() + MIRROR_NS; clock_now_ns() < end_ns; clock_sleep(ANSWER_NS))
        if (mirror_is_connected(k->mirror) && ask(k, &mounts) && mirror_volumes(k->mirror) >= mounts)
            return;
}

int keeping_mount(struct keeping *k, const struct spec *s, const char *data, const struct record *wish, struct err *err)
{
    struct keeper_mount m = {.volume_id = s->id,
                             .data = data,
                             .mount_point = wish->staged,
                             .read_only = wish->read_only,
                             .allow_other = true,
                             /* While data/ is still being filled nobody looks into the mount: it is published after. */
                             .exclusive = s->params.hydration != HYDRATION_LAZY,
                             .has_group = wish->has_group,
                             .group = wish->group};
    pthread_mutex_lock(&k->lock);
    k->wanted = true;
    pthread_mutex_unlock(&k->lock);
    int r = ensure_keeper(k, err);
    if (r == 0)
        r = keeper_mount(k->socket, &m, err);
    if (r == 0)
        wait_for_mirror(k);
    return r;
}

int keeping_unmount(struct keeping *k, const char *id, const char *path, struct err *err)
{
    int r = keeper_unmount(k->socket, id, UNMOUNT_MS, err);
    /* It died, but the mirror has what it held: the next one will have the mount, and must be told. */
    if (r == -ERR_AGAIN && mirror_volumes(k->mirror) > 0 && ensure_keeper(k, err) == 0)
        r = keeper_unmount(k->socket, id, UNMOUNT_MS, err);
    /* One that somebody else starts again will have the mount too: later, then. */
    if (r != -ERR_AGAIN || (!k->program && mirror_volumes(k->mirror) > 0))
        return r;
    log_err(LOG_WARN, "no keeper to unmount a volume", err, "volume", id, "path", path, NULL);
    return 0;
}
