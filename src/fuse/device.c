/* SPDX-License-Identifier: Apache-2.0 */
/* Reads requests from /dev/fuse and writes replies to it so that SIGKILL at any moment fails no request.
 *
 * The kernel takes a request off its queue (or takes a reply for a request) and then copies. If a page of our memory is
 * missing at that moment and SIGKILL is pending, the copy fails. The user then gets EIO, and the kernel has no request
 * to resend. So the kernel never copies from or to our memory. Requests arrive in the pages of a pipe, which belong to
 * the kernel. Replies are in a pipe before the kernel looks for their request. Replies of one page need no pipe: the
 * kernel holds that page when it reads the reply's head. */
#include "kernel.h"
#include "private.h"
#include <assert.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* The largest request is a head, 128 KiB of data, and a page for alignment; replies likewise. */
enum { PAGE = 4096, PIPE_PAGES = 64, REPLY_MAX = (PIPE_PAGES - 8) * PAGE };

/* Belongs to one thread. */
struct device_buffer {
    bool made;
    int in, out; /* the pipe's ends to write and to read; 0: no pipe */
    char *page;
};

static _Thread_local struct device_buffer mine;

/* Without a pipe (no descriptor is left) requests still work; only a SIGKILL may fail one. */
static void make_pipe(struct device_buffer *p)
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

static const struct device_buffer *own_buffer(void)
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
    const struct device_buffer *p = own_buffer();
    if (test_is_here(user, "request", "memory"))
        buf = NULL;
    if (!p->in)
        return read(fd, buf, room);
    ssize_t n = splice(fd, NULL, p->in, NULL, room, 0);
    if (n <= 0)
        return n;
    ssize_t got = read(p->out, buf, (size_t)n);
    assert(got == n); /* else we die, and the kernel resends the request */
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

static ssize_t write_pages(const struct device_buffer *p, int fd, const struct iovec *iov, int count, size_t size)
{
    ssize_t put = vmsplice(p->in, iov, (size_t)count, 0); /* maps the pages instead of copying them */
    assert(put == (ssize_t)size);
    return splice(p->out, NULL, fd, NULL, size, 0);
}

/* libfuse 3.17 has no name for a mount that may be mapped to other ids. */
static void allow_idmap(const struct session *s, const struct iovec *body)
{
    const struct fuse_init_in *in = (const void *)(s->table->head->init + sizeof(struct fuse_in_header));
    struct fuse_init_out *out = body->iov_base;
    if (in->flags & FUSE_INIT_EXT && in->flags2 & KERNEL_INIT2_ALLOW_IDMAP && body->iov_len >= sizeof(*out)) {
        out->flags |= FUSE_INIT_EXT;
        out->flags2 |= KERNEL_INIT2_ALLOW_IDMAP;
    }
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *user)
{
    const struct device_buffer *p = own_buffer();
    const struct fuse_out_header *head = iov[0].iov_base;
    size_t size = size_of(iov, count);
    if (head->unique != 0) /* else it is a notification */
        request_current()->error = head->error;
    if (request_current()->opcode == FUSE_INIT && count > 1)
        allow_idmap(user, &iov[1]);
    if (size <= PAGE)
        return write_page(fd, p->page, iov, count);
    if (test_is_here(user, "answer", "memory"))
        iov[count - 1].iov_base = NULL;
    return p->in && size <= REPLY_MAX ? write_pages(p, fd, iov, count, size) : writev(fd, iov, count);
}

void device_reply(struct session *s, uint64_t unique, int error, void *body, size_t size)
{
    struct fuse_out_header head = {
        .unique = unique, .error = error, .len = (uint32_t)(sizeof(head) + (error ? 0 : size))};
    struct iovec iov[] = {{&head, sizeof(head)}, {body, size}};
    (void)!write_reply(s->fuse_fd, iov, error ? 1 : 2, s);
}

int device_attach(struct session *s)
{
    static const struct fuse_custom_io io = {.read = read_request, .writev = write_reply};
    return fuse_session_custom_io(s->fuse, &io, sizeof(io), s->fuse_fd);
}
