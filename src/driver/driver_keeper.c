/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_keeper.h"
#include "child.h"
#include "io/ticker.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define START_NS (10 * NS_PER_SECOND)
#define END_NS (3 * NS_PER_SECOND)
#define ANSWER_NS (20 * NS_PER_MS)
#define LOOK_NS (250 * NS_PER_MS)
#define ASK_NS (20 * NS_PER_SECOND)
#define FROZEN_NS (60 * NS_PER_SECOND)
#define WAIT_NS (15 * NS_PER_SECOND)  /* Kubernetes kills a pod 30 s after SIGTERM */
#define MIRROR_NS (3 * NS_PER_SECOND) /* it connects within a second of the keeper's start */

enum { UNMOUNT_MS = 5000 };

struct driver_keeper {
    char *socket;          /* owned */
    char *program;         /* owned; NULL: the keeper is a pod */
    struct mirror *mirror; /* borrowed */
    struct ticker *ticker; /* owned */
    uint64_t ask_ns;       /* of the ticker: when it asks a connected keeper next, and since when it gets no answer; */
    uint64_t silent_ns;    /* 0: the keeper answers */
    pthread_mutex_t lock;  /* guards the fields below */
    bool starting;         /* by another thread */
    bool wanted;           /* a mount was requested: from then on a keeper must run */
    struct child child;    /* the keeper, if this driver started it */
};

static void count_one(const struct keeper_status *, void *user)
{
    ++*(size_t *)user;
}

/* False: no keeper is there. */
static bool list_mounts(struct driver_keeper *k, size_t *ret_mounts)
{
    *ret_mounts = 0;
    return keeper_list(k->socket, count_one, ret_mounts, ERR_IGNORED) == 0;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* True: our child still runs. */
static bool reap(struct driver_keeper *k)
{
    siginfo_t ignored;
    auto_lock(&k->lock);
    return k->child.fd >= 0 && !child_reap(&k->child, &ignored);
}

/* Waits until the keeper answers, has ended, or the time is over. */
static int wait_for_answer(struct driver_keeper *k, struct err *err)
{
    size_t mounts;
    for (uint64_t end_ns = clock_now_ns() + START_NS; !list_mounts(k, &mounts); clock_sleep(ANSWER_NS)) {
        if (!reap(k))
            return err_set(err, ERR_AGAIN, "keeper '%s': exited right after its start", k->program);
        if (clock_now_ns() >= end_ns)
            return err_set(err, ERR_AGAIN, "keeper: started, but no answer at '%s'", k->socket);
    }
    return 0;
}

static int start_keeper(struct driver_keeper *k, struct err *err)
{
    struct child child;
    char *const argv[] = {k->program, (char *)"--socket", k->socket, NULL};
    reap(k);
    int r = child_spawn(argv, NULL, &child, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&k->lock);
    child_close(&k->child); /* a keeper that another thread started has ended */
    k->child = child;
    pthread_mutex_unlock(&k->lock);
    log_event(LOG_INFO, "keeper started", "pid", log_u64((uint64_t)child.pid), "socket", k->socket, NULL);
    return wait_for_answer(k, err);
}

/* One at a time: a second keeper takes over the socket of the first. */
static bool begin_start(struct driver_keeper *k)
{
    pthread_mutex_lock(&k->lock);
    bool mine = !k->starting;
    k->starting = true;
    pthread_mutex_unlock(&k->lock);
    return mine;
}

static void end_start(struct driver_keeper *k)
{
    auto_lock(&k->lock);
    k->starting = false;
}

/* A thread that finds another one starting the keeper waits. If that start fails, it tries itself, so each caller
 * gets the cause. */
static int ensure_keeper(struct driver_keeper *k, struct err *err)
{
    size_t mounts;
    for (uint64_t end_ns = clock_now_ns() + START_NS; !list_mounts(k, &mounts); clock_sleep(ANSWER_NS)) {
        if (!k->program || clock_now_ns() >= end_ns)
            return err_fail(err, ERR_AGAIN, CIS_KEEPER_UNREACHABLE, "keeper: no answer at '%s'", k->socket);
        if (begin_start(k)) {
            int r = list_mounts(k, &mounts) ? 0 : start_keeper(k, err);
            end_start(k);
            return r;
        }
    }
    return 0;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

/* Also for a mirror without descriptors: the keeper may die before it has handed over its first mount. */
static bool is_wanted(struct driver_keeper *k)
{
    pthread_mutex_lock(&k->lock);
    bool wanted = k->wanted;
    pthread_mutex_unlock(&k->lock);
    return wanted || mirror_volumes(k->mirror) > 0;
}

/* A frozen keeper still holds its connections. The mirror has all that it holds, so that the next one goes on. */
static void end_frozen_keeper(struct driver_keeper *k)
{
    size_t mounts;
    uint64_t now = clock_now_ns();
    if (now < k->ask_ns)
        return;
    k->ask_ns = now + ASK_NS;
    if (list_mounts(k, &mounts)) {
        k->silent_ns = 0;
    } else if (k->silent_ns == 0) {
        k->silent_ns = now;
    } else if (now - k->silent_ns >= FROZEN_NS && mirror_is_connected(k->mirror)) {
        k->silent_ns = 0;
        log_event(LOG_ERROR, "the keeper has not answered for a minute and is killed", "socket", k->socket, NULL);
        child_signal_like("--socket", k->socket, SIGKILL);
    }
}

static uint64_t check_keeper(void *ctx)
{
    struct driver_keeper *k = ctx;
    struct err err;
    reap(k);
    if (!k->program || !is_wanted(k))
        return LOOK_NS;
    if (mirror_is_connected(k->mirror)) {
        end_frozen_keeper(k);
        return LOOK_NS;
    }
    k->silent_ns = 0;
    if (ensure_keeper(k, &err) < 0)
        log_err(LOG_ERROR, "the keeper died and cannot be started again", &err, NULL);
    return LOOK_NS;
}

static void driver_keeper_free(struct driver_keeper *own_k)
{
    child_close(&own_k->child);
    pthread_mutex_destroy(&own_k->lock);
    free(own_k->socket);
    free(own_k->program);
    free(own_k);
}

int driver_keeper_start(const char *socket, const char *programs, struct mirror *mirror, struct driver_keeper **ret,
                        struct err *err)
{
    struct driver_keeper *k = xcalloc(1, sizeof *k);
    auto_sbuf program = SBUF(4096);
    sbuf_addf(&program, "%s/cistern-keeper", programs ? programs : "");
    pthread_mutex_init(&k->lock, NULL);
    k->socket = str_dup(str_of(socket));
    k->program = programs ? str_dup(sbuf_str(&program)) : NULL;
    k->mirror = mirror;
    k->child = NO_CHILD;
    int r = ticker_start("keeper", check_keeper, k, &k->ticker, err);
    if (r < 0) {
        driver_keeper_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

/* A keeper with mounts stays when the driver ends; an idle one is ended. */
static void end_idle_keeper(struct driver_keeper *k)
{
    size_t mounts;
    if (!k->program || !list_mounts(k, &mounts) || mounts > 0)
        return;
    child_signal_like("--socket", k->socket, SIGTERM);
    for (uint64_t end_ns = clock_now_ns() + END_NS; list_mounts(k, &mounts) && clock_now_ns() < end_ns;)
        clock_sleep(ANSWER_NS);
    reap(k);
}

/* The descriptors that only the mirror has end with this process. */
static void wait_for_keeper(struct driver_keeper *k)
{
    uint64_t end_ns = clock_now_ns() + WAIT_NS;
    if (mirror_volumes(k->mirror) > 0 && !mirror_is_connected(k->mirror))
        log_event(LOG_WARN, "waiting for a keeper to take the mounts", "socket", k->socket, NULL);
    while (mirror_volumes(k->mirror) > 0 && !mirror_is_connected(k->mirror) && clock_now_ns() < end_ns)
        clock_sleep(ANSWER_NS);
}

void driver_keeper_stop(struct driver_keeper *own_k)
{
    if (!own_k)
        return;
    wait_for_keeper(own_k);
    ticker_stop(own_k->ticker);
    end_idle_keeper(own_k);
    driver_keeper_free(own_k);
}

/* ---- mounts ------------------------------------------------------------------------------------------------------ */

void driver_keeper_wait_for_mirror(struct driver_keeper *k, const struct volume_id *id)
{
    for (uint64_t end_ns = clock_now_ns() + MIRROR_NS; !mirror_holds(k->mirror, id->text) && clock_now_ns() < end_ns;)
        clock_sleep(ANSWER_NS);
}

int driver_keeper_mount(struct driver_keeper *k, const struct spec *s, const char *data, const struct record *wish,
                        const char *label, struct err *err)
{
    struct keeper_mount_request m = {.volume_id = s->id.text,
                                     .data = data,
                                     .mount_point = wish->staged,
                                     .read_only = wish->read_only,
                                     .allow_other = true,
                                     /* until hydration ends the mount is not published, so no process reads it */
                                     .exclusive = true,
                                     .has_group = wish->has_group,
                                     .group = wish->group,
                                     .context = label};
    pthread_mutex_lock(&k->lock);
    k->wanted = true;
    pthread_mutex_unlock(&k->lock);
    int r = ensure_keeper(k, err);
    return r < 0 ? r : keeper_mount(k->socket, &m, err);
}

int driver_keeper_unmount(struct driver_keeper *k, const struct volume_id *id, const char *path, struct err *err)
{
    int r = keeper_unmount(k->socket, id->text, UNMOUNT_MS, err);
    /* The keeper died, but the mirror has its descriptors: the next keeper gets the mount and must unmount it. */
    if (r == -ERR_AGAIN && mirror_volumes(k->mirror) > 0 && ensure_keeper(k, err) == 0)
        r = keeper_unmount(k->socket, id->text, UNMOUNT_MS, err);
    /* A keeper that Kubernetes restarts gets the mount too, and one whose queue is full (EAGAIN) is frozen: retry
     * later. */
    if (r != -ERR_AGAIN || err->sys == EAGAIN || (!k->program && mirror_volumes(k->mirror) > 0))
        return r;
    log_err(LOG_WARN, "no keeper to unmount a volume", err, "volume", id->text, "path", path, NULL);
    return 0;
}
