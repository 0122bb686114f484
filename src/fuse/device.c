/* SPDX-License-Identifier: Apache-2.0 */
/* Between /dev/fuse and us, so that SIGKILL at any moment ends nobody's request.
 *
 * The kernel takes a request off its queue, or takes an answer for a request, and then copies. If a page of our memory
 * is not at hand just then (compaction is moving it, nobody has touched it yet) and SIGKILL is pending, the copying
 * fails and the request with it: EIO for its user, and nothing to send again. So that copying never sees our memory.
 * Requests come into the pages of a pipe, which are the kernel's own. Answers come from a pipe, where they are before
 * the kernel looks for their request; those of one page need none: the kernel has got hold of that page when it reads
 * the answer's head. */
#include "kernel.h"
#include "serve.h"
#include <assert.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* The largest request is a head, 128 KiB of data, and one more page where they are not aligned; answers likewise. */
enum { PAGE = 4096, PIPE_PAGES = 64, ANSWER_MAX = (PIPE_PAGES - 8) * PAGE };

/* A thread's own, for its life. */
struct passage {
    bool made;
    int in, out; /* the pipe: what we put into, what we take from; 0: there is none */
    char *page;
};

static _Thread_local struct passage mine;

/* Without a pipe (no descriptor is left) it goes as it does everywhere: only who is killed needs one. */
static void make_pipe(struct passage *p)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    p->out = ends[0];
    p->in = ends[1];
    if (fcntl(p->in, F_SETPIPE_SZ, PIPE_PAGES * PAGE) >= 0)
        return;
    close(p->in);
    close(p->out);
    p->in = p->out = 0;
}

static const struct passage *passage(void)
{
    if (mine.made)
        return &mine;
    mine.page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mine.page == MAP_FAILED)
        out_of_memory();
    make_pipe(&mine);
    mine.made = true;
    return &mine;
}

static ssize_t read_request(int fd, void *buf, size_t room, void *user)
{
    const struct passage *p = passage();
    if (test_is_here(user, "request", "memory"))
        buf = NULL;
    if (!p->in)
        return read(fd, buf, room);
    ssize_t n = splice(fd, NULL, p->in, NULL, room, 0);
    if (n <= 0)
        return n;
    ssize_t got = read(p->out, buf, (size_t)n);
    assert(got == n); /* else we die, and the request comes again */
    return got;
}

static size_t size_of(const struct iovec *iov, int count)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += iov[i].iov_len;
    return size;
}

static ssize_t write_page(int fd, char *page, const struct iovec *iov, int count)
{
    size_t n = 0;
    for (int i = 0; i < count; n += iov[i++].iov_len)
        memcpy(page + n, iov[i].iov_base, iov[i].iov_len);
    return write(fd, page, n);
}

static ssize_t write_pages(const struct passage *p, int fd, const struct iovec *iov, int count, size_t size)
{
    ssize_t put = vmsplice(p->in, iov, (size_t)count, 0); /* the pages themselves: nothing is copied twice */
    assert(put == (ssize_t)size);
    return splice(p->out, NULL, fd, NULL, size, 0);
}

static ssize_t write_answer(int fd, struct iovec *iov, int count, void *user)
{
    const struct passage *p = passage();
    const struct fuse_out_header *head = iov[0].iov_base;
    size_t size = size_of(iov, count);
    if (head->unique != 0) /* else it is a notice, not an answer */
        job_mine()->error = head->error;
    if (size <= PAGE)
        return write_page(fd, p->page, iov, count);
    if (test_is_here(user, "answer", "memory"))
        iov[count - 1].iov_base = NULL;
    return p->in && size <= ANSWER_MAX ? write_pages(p, fd, iov, count, size) : writev(fd, iov, count);
}

int device_attach(struct serve *s)
{
    static const struct fuse_custom_io io = {.read = read_request, .writev = write_answer};
    return fuse_session_custom_io(s->session, &io, sizeof(io), s->fuse_fd);
}
