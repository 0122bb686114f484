/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the mount process from its start to its end. One thread first finishes the requests of the process that
 * died. The kernel queues resent requests before new ones. So at the first new request, or an empty queue, every
 * remaining intent has its reply. Only then do other threads start. */
#include "session.h"
#include "kernel.h"
#include "private.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/xattr.h>

enum {
    START_MS = 10000,
    /* With passthrough writes bypass us; without it, small enough for a buffer a thread. */
    MAX_WRITE = 128 * 1024,
    BUFFER_HEADER = 4096,                    /* libfuse's space for a request's head */
    BUFFER_ROOM = (1 << 20) + BUFFER_HEADER, /* libfuse's limit until the reply to INIT */
};

static bool is_fresh(const struct fuse_in_header *h)
{
    bool unanswered = h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET || h->opcode == FUSE_INTERRUPT;
    return !unanswered && !(h->unique & KERNEL_UNIQUE_RESENT);
}

/* Serves one request. Its intent is written before libfuse sees it and cleared after the reply left. */
static void serve_one(struct session *s, size_t hint, struct fuse_buf *buf)
{
    const struct fuse_in_header *h = buf->mem;
    uint64_t unique = h->unique & ~KERNEL_UNIQUE_RESENT, began_ns = clock_now_ns();
    struct table_intent *found = h->unique & KERNEL_UNIQUE_RESENT ? intent_find(s->table, unique) : NULL;
    struct table_intent *i = found ? found : intent_begin(s->table, hint, unique, h->opcode);
    struct table_intent spare = {0}; /* used only after several deaths in recovery; unprotected */
    struct request *rq = request_current();
    rq->session = s;
    rq->intent = i ? i : &spare;
    rq->opcode = h->opcode;
    rq->error = 0;
    rq->resent = found != NULL;
    memset(rq->reuse.used, 0, found ? sizeof(rq->reuse.used) : 0);
    rq->reuse.n = found ? found->n_counted : 0;
    if (h->opcode == KERNEL_STATX)
        attr_serve_statx(s, h->unique, h->nodeid);
    else
        fuse_session_process_buf(s->fuse, buf);
    for (uint64_t id; rq->reuse.n > 0 && (id = nodes_unused_count(s->table, rq->intent, &rq->reuse)) != 0;)
        node_forget(rq, id, 1);
    intent_end(rq->intent);
    counts_add(&s->table->head->counts, rq->opcode, rq->error, clock_now_ns() - began_ns);
}

static struct fuse_buf buffer_make(void)
{
    void *p = mmap(NULL, BUFFER_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        out_of_memory();
    return (struct fuse_buf){.mem = p};
}

static void buffer_free(struct fuse_buf *buf)
{
    munmap(buf->mem, BUFFER_ROOM);
}
#define auto_buffer auto_with(buffer_free) struct fuse_buf

/* False: the volume is unmounted. */
static bool receive(struct session *s, struct fuse_buf *buf)
{
    int r;
    do
        r = fuse_session_receive_buf(s->fuse, buf);
    while (r == -EINTR || r == -EAGAIN);
    return r > 0;
}

static void *serve_thread(void *arg);

/* Wakes one parked thread, and counts it as idle. False: none is parked. */
static bool give_turn(struct session *s)
{
    unsigned n = atomic_load(&s->parked);
    while (n > 0)
        if (atomic_compare_exchange_weak(&s->parked, &n, n - 1)) {
            atomic_fetch_add(&s->idle, 1);
            sem_post(&s->turn);
            return true;
        }
    return false;
}

/* The kernel wakes the thread that has waited longest. With many of them each request moves to another thread, mostly
 * on another CPU than its caller: a round trip then takes twice as long. So only some wait for requests, and the others
 * until all of these are busy. */
static void wait_for_turn(struct session *s)
{
    unsigned n = atomic_load(&s->idle);
    while (n < WAITING_MAX)
        if (atomic_compare_exchange_weak(&s->idle, &n, n + 1))
            return;
    atomic_fetch_add(&s->parked, 1);
    if (atomic_load(&s->idle) == 0) /* they became busy before they could see this thread */
        give_turn(s);
    while (sem_wait(&s->turn) < 0)
        ;
}

/* Starts a thread whenever none waits: a slow disk may block some, but not all. */
static void spawn_if_busy(struct session *s)
{
    if (atomic_load(&s->idle) > 0 || give_turn(s) || atomic_load(&s->threads) >= THREADS_MAX)
        return;
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    atomic_fetch_add(&s->threads, 1);
    atomic_fetch_add(&s->idle, 1); /* counted at once: two busy threads must start one only */
    if (pthread_create(&thread, &attr, serve_thread, s) != 0) {
        atomic_fetch_sub(&s->threads, 1);
        atomic_fetch_sub(&s->idle, 1);
    }
    pthread_attr_destroy(&attr);
}

/* The calling thread is counted as idle. Returns when the volume is unmounted. */
static void serve_loop(struct session *s, size_t hint)
{
    auto_buffer buf = buffer_make();
    while (receive(s, &buf)) {
        atomic_fetch_sub(&s->idle, 1);
        spawn_if_busy(s);
        serve_one(s, hint, &buf);
        wait_for_turn(s);
    }
}

static void *serve_thread(void *arg)
{
    static atomic_uint numbers = 1;
    struct session *s = arg;
    char name[16];
    unsigned number = atomic_fetch_add(&numbers, 1);
    snprintf(name, sizeof(name), "fuse/%u", number % 100);
    pthread_setname_np(pthread_self(), name);
    unshare(CLONE_FS); /* a umask of its own */
    umask(0);
    serve_loop(s, number);
    _exit(0); /* unmounted: no reply of another thread matters any more */
}

/* ---- recovery ---------------------------------------------------------------------------------------------------- */

static int replay_init(struct session *s, struct err *err)
{
    struct table_head *h = s->table->head;
    char copy[INIT_MAX];
    struct fuse_buf buf = {.mem = copy, .size = h->init_len};
    memcpy(copy, h->init, h->init_len);
    fuse_session_process_buf(s->fuse, &buf); /* the kernel refuses the reply (ENOENT) if it has one */
    struct fuse_out_header resend = {.len = sizeof(resend), .error = KERNEL_NOTIFY_RESEND};
    if (write(s->fuse_fd, &resend, sizeof(resend)) < 0)
        return err_sys(err, errno, "cannot make the kernel resend requests (needs Linux 6.9)");
    return 0;
}

/* Serves until the queue is empty or the first new request was served. False: the volume is unmounted. */
static bool recover(struct session *s)
{
    auto_buffer buf = buffer_make();
    struct pollfd p = {.fd = s->fuse_fd, .events = POLLIN};
    for (bool fresh = false; !fresh && poll(&p, 1, 0) > 0;) {
        if (!receive(s, &buf))
            return false;
        fresh = is_fresh(buf.mem);
        if (fresh)
            intent_sweep(s->table);
        serve_one(s, 0, &buf);
    }
    intent_sweep(s->table);
    return true;
}

static int first_init(struct session *s, struct err *err)
{
    auto_buffer buf = buffer_make();
    struct table_head *h = s->table->head;
    if (!receive(s, &buf))
        return err_set(err, ERR_CANCELLED, "unmounted before the first request");
    if (buf.size > INIT_MAX || ((struct fuse_in_header *)buf.mem)->opcode != FUSE_INIT)
        return err_set(err, ERR_UNSUPPORTED, "the kernel's first request is not a known FUSE_INIT");
    memcpy(h->init, buf.mem, buf.size);
    STORE_BARRIER(); /* complete before the count is raised: the next process replies to it */
    h->init_len = (uint32_t)buf.size;
    serve_one(s, 0, &buf);
    return 0;
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

static void op_init(void *user, struct fuse_conn_info *c)
{
    struct session *s = user;
    uint64_t want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
                    FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_HANDLE_KILLPRIV_V2 | FUSE_CAP_DONT_MASK |
                    FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_NO_EXPORT_SUPPORT;
    if (s->acl)
        want |= FUSE_CAP_POSIX_ACL;
    if (!s->config->exclusive)
        want |= FUSE_CAP_AUTO_INVAL_DATA;
    if (s->config->passthrough != KEEPER_PASSTHROUGH_OFF)
        want |= FUSE_CAP_PASSTHROUGH;
    /* Not ATOMIC_O_TRUNC: a separate truncation runs under the inode's lock, so repeating it cannot cut off later
     * writes. Not FLOCK_LOCKS and POSIX_LOCKS: one kernel sees all users. */
    c->want_ext = want & c->capable_ext;
    c->want = (uint32_t)c->want_ext;
    c->no_interrupt = 1;
    c->max_write = MAX_WRITE;
    c->max_background = 64;
    c->max_backing_stack_depth = 0;
    s->passthrough = c->want_ext & FUSE_CAP_PASSTHROUGH;
    s->table->head->ready = s->passthrough ? 2 : 1;
}

static int make_session(struct session *s, struct err *err)
{
    static struct fuse_lowlevel_ops ops;
    char name[] = "cistern";
    char *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    ops.init = op_init;
    ops_name(&ops);
    ops_attr(&ops);
    ops_file(&ops);
    ops_dir(&ops);
    s->fuse = fuse_session_new(&args, &ops, sizeof(ops), s);
    fuse_opt_free_args(&args);
    if (!s->fuse || device_attach(s) != 0)
        return err_set(err, ERR_INTERNAL, "cannot create a FUSE session");
    return 0;
}

/* A second process on the same volume would corrupt the table. A dead process loses its lock with its last thread. */
static int lock_table(int fd, struct err *err)
{
    char path[FD_PATH_MAX];
    int own = open(fd_path(fd, path), O_RDWR | O_CLOEXEC); /* a file description of our own, open until exit */
    if (own < 0)
        return err_sys(err, errno, "cannot reopen the volume's memfd");
    for (int waited_ms = 0; flock(own, LOCK_EX | LOCK_NB) < 0; waited_ms += 5) {
        if (waited_ms > START_MS)
            return err_set(err, ERR_BUSY, "another mount process serves this volume");
        clock_sleep(5 * NS_PER_MS);
    }
    return 0;
}

static int receive_start(struct session *s, struct err *err)
{
    struct wire_msg m;
    auto_fds fds = WIRE_NO_FDS;
    int r = wire_recv_within(s->control_fd, START_MS, &m, &fds, err);
    if (r < 0)
        return r;
    if (m.type != WIRE_START || fds.fd[2] < 0)
        return err_set(err, ERR_CORRUPT, "the keeper's first message is not WIRE_START");
    r = lock_table(fds.fd[1], err);
    if (r < 0)
        return r;
    s->fuse_fd = take_fd(&fds.fd[0]);
    s->root_fd = take_fd(&fds.fd[2]);
    r = nodes_open(take_fd(&fds.fd[1]), &s->table, err);
    if (r == 0)
        s->config = &s->table->head->config;
    return r;
}

static int receive_held(struct session *s, struct err *err)
{
    for (;;) {
        struct wire_msg m;
        auto_fds fds = WIRE_NO_FDS;
        int r = wire_recv_within(s->control_fd, START_MS, &m, &fds, err);
        if (r < 0 || m.type == WIRE_SYNCED)
            return r;
        if (m.type == WIRE_HOLD && fds.fd[0] >= 0) {
            node_fds_put(&s->fds, m.number, NODE_FD_HELD, take_fd(&fds.fd[0]));
            node_fds_share(&s->fds, m.number);
        }
    }
}

static int check_lower(struct session *s, struct err *err)
{
    struct stat st;
    struct table_handle h;
    int r = lower_handle(s->root_fd, &h);
    if (r < 0) {
        err_sys(err, -r, "the file system of '%s' has no file handles", s->config->data);
        return err_advise(err, CIS_FILE_HANDLES_UNSUPPORTED);
    }
    if (fstat(s->root_fd, &st) < 0)
        return err_sys(err, errno, "cannot stat '%s'", s->config->data);
    struct table_head *head = s->table->head;
    if (head->root_ino && (head->root_ino != st.st_ino || head->root_dev != st.st_dev))
        return err_set(err, ERR_CHANGED, "'%s' is not the directory that was mounted", s->config->data);
    head->root_dev = st.st_dev;
    head->root_ino = st.st_ino;
    s->dev = st.st_dev;
    s->acl = fgetxattr(s->root_fd, "system.posix_acl_access", NULL, 0) >= 0 || errno == ENODATA;
    s->name_timeout = s->config->exclusive ? 86400 : 1;
    return 0;
}

/* From here on this process ends with its keeper: a new keeper starts its own process for the volume. */
static int bind_to_keeper(struct session *s, struct err *err)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd p = {.fd = s->control_fd};
    if (poll(&p, 1, 0) > 0) /* POLLHUP: it died before, perhaps after it had sent all that serving needs */
        return err_set(err, ERR_CANCELLED, "the keeper has ended");
    return 0;
}

static int prepare(struct session *s, struct err *err)
{
    fd_limit_raise();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGIO, SIG_IGN); /* the signal of a broken lease */
    sem_init(&s->turn, 0, 0);
    pthread_mutex_init(&s->fds.lock, NULL);
    pthread_mutex_init(&s->inode_locks.lock, NULL);
    pthread_cond_init(&s->inode_locks.left, NULL);
    int r = bind_to_keeper(s, err);
    if (r == 0)
        r = receive_start(s, err);
    if (r == 0)
        r = receive_held(s, err);
    if (r == 0)
        r = check_lower(s, err);
    if (r == 0)
        r = fsuid_drop_capabilities(err);
    return r < 0 ? r : make_session(s, err);
}

static int begin(struct session *s, bool *ret_lost, struct err *err)
{
    bool is_restart = s->table->head->init_len > 0;
    s->table->head->starts++;
    if (!is_restart)
        return first_init(s, err);
    backing_recover(s);
    s->passthrough = s->table->head->ready == 2;
    *ret_lost = true;
    int r = replay_init(s, err);
    if (r < 0)
        return r;
    *ret_lost = false;
    return 0;
}

static int say_ready(struct session *s, int code, const struct err *why)
{
    struct wire_msg m = wire_answer(code, why);
    m.type = WIRE_READY;
    return wire_send(s->control_fd, &m, NULL, ERR_IGNORED);
}

int session_serve(int own_control_fd, bool *ret_lost, struct err *err)
{
    struct session *s = xcalloc(1, sizeof(*s)); /* never freed: threads use it until exit */
    s->control_fd = own_control_fd;
    s->fuse_fd = s->root_fd = -1;
    *ret_lost = false;
    unshare(CLONE_FS);
    umask(0);
    int r = prepare(s, err);
    if (r == 0)
        r = begin(s, ret_lost, err);
    if (r == 0 && s->config->passthrough == KEEPER_PASSTHROUGH_ON && !s->passthrough)
        r = err_fail(err, ERR_UNSUPPORTED, CIS_PASSTHROUGH_UNSUPPORTED,
                     "passthrough is required: unsupported by this kernel or the file system of '%s'", s->config->data);
    if (r < 0) {
        (void)!say_ready(s, r, err);
        return r;
    }
    s->threads = 1;
    s->idle = 1;
    (void)!say_ready(s, 0, err);
    if (recover(s))
        serve_loop(s, 0);
    return 0;
}
