/* SPDX-License-Identifier: Apache-2.0 */
#include "io/uring.h"
#include "util/str.h"
#include <assert.h>
#include <liburing.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* Jobs in the kernel at once. Further jobs wait in our own list: a disk gains nothing from a deeper queue. */
enum { DEPTH = 128 };

struct uring {
    struct loop *loop;           /* borrowed */
    struct thread_pool *threads; /* borrowed */
    bool is_kernel;
    struct io_uring ring;
    int event_fd;
    struct watch watch;
    struct deferred tail;
    struct list waiting; /* jobs that the kernel does not have yet */
    unsigned in_kernel;
};

/* ---- on the pool ------------------------------------------------------------------------------------------------- */

static ssize_t move_once(const struct disk_job *j)
{
    char *bytes = (char *)j->bytes + j->moved;
    off_t offset = (off_t)(j->offset + j->moved);
    switch (j->op) {
    case DISK_READ:
        return pread(j->fd, bytes, j->len - j->moved, offset);
    case DISK_WRITE:
        return pwrite(j->fd, bytes, j->len - j->moved, offset);
    case DISK_FSYNC:
        return fsync(j->fd);
    case DISK_FDATASYNC:
        return fdatasync(j->fd);
    }
    return -1;
}

/* Accounts the result of one call. True when the job is complete; j->result is set then. */
static bool job_account(struct disk_job *j, ssize_t r)
{
    if (r == -EINTR || r == -EAGAIN)
        return false;
    if (r > 0 && (j->op == DISK_READ || j->op == DISK_WRITE)) {
        j->moved += (size_t)r;
        if (j->moved < j->len)
            return false;
    }
    j->result = r < 0 ? r : (ssize_t)j->moved;
    return true;
}

static void run_on_pool(struct work *w)
{
    struct disk_job *j = container_of(w, struct disk_job, fallback);
    ssize_t r;
    do {
        r = move_once(j);
        r = r < 0 ? -errno : r;
    } while (!job_account(j, r));
}

static void back_from_pool(struct work *w)
{
    struct disk_job *j = container_of(w, struct disk_job, fallback);
    j->done(j);
}

/* ---- in the kernel ----------------------------------------------------------------------------------------------- */

static void prepare(struct io_uring_sqe *sqe, struct disk_job *j)
{
    char *bytes = (char *)j->bytes + j->moved;
    unsigned len = (unsigned)min_u64(j->len - j->moved, 1 << 30);
    switch (j->op) {
    case DISK_READ:
        io_uring_prep_read(sqe, j->fd, bytes, len, j->offset + j->moved);
        break;
    case DISK_WRITE:
        io_uring_prep_write(sqe, j->fd, bytes, len, j->offset + j->moved);
        break;
    case DISK_FSYNC:
        io_uring_prep_fsync(sqe, j->fd, 0);
        break;
    case DISK_FDATASYNC:
        io_uring_prep_fsync(sqe, j->fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data(sqe, j);
}

static void enqueue(struct uring *u, struct disk_job *j)
{
    list_add(&u->waiting, &j->node);
    loop_defer(u->loop, &u->tail);
}

static void submit_waiting(struct deferred *t)
{
    struct uring *u = container_of(t, struct uring, tail);
    while (!list_is_empty(&u->waiting) && u->in_kernel < DEPTH) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        if (!sqe)
            break;
        prepare(sqe, list_pop(&u->waiting, struct disk_job, node));
        u->in_kernel++;
    }
    int r = io_uring_submit(&u->ring);
    /* The kernel lacks a resource (-EAGAIN, -EBUSY, -EINTR) or took only some: the rest stays in the ring. */
    if (r < 0 || io_uring_sq_ready(&u->ring) > 0)
        loop_defer(u->loop, t);
}

/* Takes all completions before it calls their owners, who may submit again. */
static unsigned reap(struct uring *u)
{
    struct io_uring_cqe *cqes[DEPTH];
    struct disk_job *over[DEPTH];
    unsigned n = io_uring_peek_batch_cqe(&u->ring, cqes, DEPTH), ended = 0;
    for (unsigned i = 0; i < n; i++) {
        struct disk_job *j = io_uring_cqe_get_data(cqes[i]);
        if (job_account(j, cqes[i]->res))
            over[ended++] = j;
        else
            enqueue(u, j);
    }
    io_uring_cq_advance(&u->ring, n);
    u->in_kernel -= n;
    if (!list_is_empty(&u->waiting))
        loop_defer(u->loop, &u->tail);
    for (unsigned i = 0; i < ended; i++)
        over[i]->done(over[i]);
    return n;
}

static void completed(struct watch *w, uint32_t)
{
    struct uring *u = container_of(w, struct uring, watch);
    uint64_t count;
    /* Read first, so that a completion after the last reap() signals again. */
    (void)!read(u->event_fd, &count, sizeof count);
    while (reap(u) == DEPTH)
        ;
}

static bool ring_can(struct io_uring *ring)
{
    static const int wanted[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool can = probe != NULL;
    for (size_t i = 0; can && i < countof(wanted); i++)
        can = io_uring_opcode_supported(probe, wanted[i]);
    io_uring_free_probe(probe);
    return can;
}

/* False without io_uring; the pool does the same work then. The kernel may lack it, or kernel.io_uring_disabled is set.
 * A seccomp profile of a container runtime may forbid it (EPERM or ENOSYS), or locked memory is short. */
static bool ring_open(struct uring *u)
{
    if (io_uring_queue_init(DEPTH, &u->ring, IORING_SETUP_COOP_TASKRUN) < 0 &&
        io_uring_queue_init(DEPTH, &u->ring, 0) < 0)
        return false;
    if (!ring_can(&u->ring) || io_uring_register_eventfd(&u->ring, u->event_fd) < 0) {
        io_uring_queue_exit(&u->ring);
        return false;
    }
    return true;
}

int uring_new(struct loop *l, struct thread_pool *p, bool allow_kernel, struct uring **ret, struct err *err)
{
    auto_uring u = xcalloc(1, sizeof *u);
    u->loop = l;
    u->threads = p;
    u->tail.run = submit_waiting;
    u->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (u->event_fd < 0)
        return err_sys(err, errno, "cannot make an eventfd for io_uring");
    if (allow_kernel && ring_open(u)) {
        u->watch = (struct watch){.ready = completed, .fd = u->event_fd, .events = EPOLLIN};
        u->is_kernel = true;
        int r = loop_watch(l, &u->watch, err);
        if (r < 0)
            return r;
    }
    *ret = take(&u);
    return 0;
}

void uring_free(struct uring *u)
{
    if (!u)
        return;
    assert(u->in_kernel == 0 && list_is_empty(&u->waiting));
    if (u->is_kernel) {
        loop_unwatch(u->loop, &u->watch);
        loop_defer_cancel(u->loop, &u->tail);
        io_uring_queue_exit(&u->ring);
    }
    fd_close(&u->event_fd);
    free(u);
}

void uring_submit(struct uring *u, struct disk_job *j)
{
    assert(loop_is_mine(u->loop));
    j->moved = 0;
    j->result = 0;
    if (u->is_kernel) {
        enqueue(u, j);
        return;
    }
    j->fallback.run = run_on_pool;
    j->fallback.done = back_from_pool;
    thread_pool_submit(u->threads, u->loop, &j->fallback);
}

bool uring_is_kernel(const struct uring *u)
{
    return u->is_kernel;
}
