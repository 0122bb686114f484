/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"
#include <fcntl.h>

double node_attr_timeout(struct serve *s, uint64_t id, const struct node *n)
{
    (void)id;
    return n->writers > 0 || n->flags & NODE_DIRTY ? 0 : s->name_timeout;
}

/* A read lease is refused while the file is open for writing or mapped so, by whomever: the only sign that says when a
 * mapping whose file was closed long ago can no longer store. */
static bool is_writable_somewhere(struct serve *s, uint64_t id)
{
    auto_fd fd = below_open(s, id, O_RDONLY | O_NONBLOCK | O_NOATIME);
    return fd < 0 || fcntl(fd, F_SETLEASE, F_RDLCK) < 0; /* closing gives the lease back */
}

void node_settle(struct serve *s, uint64_t id)
{
    struct node n;
    /* Nobody opens it in between: else the mark of a new writer could be wiped. */
    gate_enter(&s->gate, id);
    if (table_get(s->table, id, &n) == 0 && n.flags & NODE_DIRTY && n.writers == 0 && !is_writable_somewhere(s, id))
        table_set_flag(s->table, id, NODE_DIRTY, false);
    gate_leave(&s->gate, id);
}

int node_entry_of_fd(struct job *j, int fd, const struct stat *st, const struct handle *h, struct fuse_entry_param *ret)
{
    struct serve *s = j->serve;
    struct node n;
    uint64_t id;
    struct stat now = *st;
    int r = table_count(s->table, j->intent, &j->claims, h, &id, &n);
    if (r < 0)
        return r;
    /* Read after the node was marked as written to, if it was: what is remembered for long must not be older. */
    if (n.writers == 0 && n.flags & NODE_DIRTY) {
        node_settle(s, id);
        if (table_get(s->table, id, &n) < 0 || fstat(fd, &now) < 0)
            return -ESTALE;
    }
    group_show(s, fd, &now);
    *ret = (struct fuse_entry_param){
        .ino = id, .attr = now, .attr_timeout = node_attr_timeout(s, id, &n), .entry_timeout = s->name_timeout};
    return 0;
}

int node_entry(struct job *j, int parent, const char *name, struct fuse_entry_param *ret)
{
    struct stat st;
    struct handle h;
    auto_fd fd = below_lookup(j->serve, parent, name, &st, &h);
    return fd < 0 ? fd : node_entry_of_fd(j, fd, &st, &h, ret);
}

static void let_go(struct serve *s, uint64_t id)
{
    if (fds_is_shared(&s->fds, id) && s->control_fd >= 0) {
        struct wire_msg m = wire_msg(WIRE_LET_GO, s->table->head->volume_id);
        struct err ignored; /* a descriptor too many at the keeper, until the volume is unmounted */
        m.number = id;
        (void)!wire_send(s->control_fd, &m, NULL, &ignored);
    }
    fds_close(&s->fds, id, FDS_HELD);
}

void node_forget(struct job *j, uint64_t id, uint64_t n)
{
    struct serve *s = j->serve;
    struct node was;
    table_forget(s->table, j->intent, id, n, &was);
    if (was.lookups > 0)
        return;
    opens_close_backing(s, j->intent, was.backing);
    if (was.flags & NODE_GONE)
        let_go(s, id);
    fds_close(&s->fds, id, FDS_READ);
    fds_close(&s->fds, id, FDS_WRITE);
}

/* With the keeper before anything that relies on it: the message waits in its socket even if we die at once. */
void node_hold_fd(struct serve *s, uint64_t id, int fd, bool with_keeper)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return;
    int held = fds_put(&s->fds, id, FDS_HELD, own);
    if (with_keeper && !fds_share(&s->fds, id) && s->control_fd >= 0) {
        struct wire_msg m = wire_msg(WIRE_HOLD, s->table->head->volume_id);
        struct wire_fds fds = {{held, -1, -1}};
        struct err ignored; /* the file is lost only if we die, too */
        m.number = id;
        (void)!wire_send(s->control_fd, &m, &fds, &ignored);
    }
    table_set_flag(s->table, id, NODE_GONE, true);
}

uint64_t node_hold(struct job *j, int fd, const struct stat *st, const struct handle *h)
{
    struct node n;
    bool last = S_ISDIR(st->st_mode) || st->st_nlink <= 1;
    uint64_t id = last ? table_find(j->serve->table, h) : 0;
    if (id == 0 || table_get(j->serve->table, id, &n) < 0)
        return 0;
    node_hold_fd(j->serve, id, fd, S_ISDIR(st->st_mode) || n.opens > 0);
    return id;
}

void node_unhold(struct serve *s, uint64_t id)
{
    if (id == 0)
        return;
    table_set_flag(s->table, id, NODE_GONE, false);
    let_go(s, id);
}
